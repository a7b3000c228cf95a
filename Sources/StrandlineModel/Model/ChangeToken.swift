// The server's change token. In the lowest folder because events store it and projections hold it; only Sync sends it.

import StrandlineSystem

/// The server's position in a zone's or the database's history: opaque.
public struct ChangeToken: RawRepresentable, Hashable, Sendable {
  /// As the server wrote it.
  public let rawValue: String
  /// Wraps the server's text, unchanged.
  public init(rawValue: String) { self.rawValue = rawValue }

  /// How a token of CloudKit's framework begins, which the web does not know: a store that was synced in one way and is synced in
  /// the other begins its feeds anew. Base64 has no colon.
  package static let nativePrefix = "native:"
  /// Whether it is one of CloudKit's framework.
  package var isNative: Bool { rawValue.utf8.starts(with: Self.nativePrefix.utf8) }

  /// Equal to the byte.
  public static func == (left: ChangeToken, right: ChangeToken) -> Bool { left.rawValue.equalsUTF8(right.rawValue) }
  /// Hashes what `==` compares.
  public func hash(into hasher: inout Hasher) { rawValue.hashUTF8(into: &hasher) }
}
