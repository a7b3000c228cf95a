// The server's change token. In the lowest folder because events store it and projections hold it; only Sync sends it.

/// The server's position in a zone's or the database's history: opaque.
public struct ChangeToken: RawRepresentable, Hashable, Sendable {
  /// As the server wrote it.
  public let rawValue: String
  /// Wraps the server's text, unchanged.
  public init(rawValue: String) { self.rawValue = rawValue }
}
