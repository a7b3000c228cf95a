// A name as a key. Swift's texts are equal if Unicode calls them canonically equivalent: as keys of a dictionary "café" with
// one character é, and with an e and an accent, are one, and so are "K" and the sign of the unit kelvin. The server, the log
// and the sorted tables have bytes, and for them they are two. So no table in memory has a text as the key that is the name
// of a record, a zone or an owner.

import StrandlineSystem

/// The name of a record, a zone or an owner, as a key: two names are equal, and are ordered, by their UTF-8.
///
/// ```swift
/// let found = try await database.lookup(["note-1"], in: .main)
/// let note = found["note-1"]  // a literal is a name
/// let other = found[CloudName(name)]  // a text is made one
/// ```
public struct CloudName: Hashable, Comparable, Sendable {
  /// The name as text.
  public let text: String

  /// The name with this text.
  public init(_ text: String) { self.text = text }

  /// Equal to the byte.
  public static func == (left: CloudName, right: CloudName) -> Bool { left.text.equalsUTF8(right.text) }

  /// Hashes the bytes.
  public func hash(into hasher: inout Hasher) { text.hashUTF8(into: &hasher) }

  /// Order by the bytes.
  public static func < (left: CloudName, right: CloudName) -> Bool { left.text.precedesByUTF8(right.text) }
}

extension CloudName: ExpressibleByStringInterpolation {
  /// The name that is written there.
  public init(stringLiteral value: String) { self.init(value) }
}

extension CloudName: CustomStringConvertible {
  /// The name as text, as it came.
  public var description: String { text }
}

extension RecordID {
  /// Names a record by a key of its zone.
  package init(_ name: CloudName, zone: ZoneID) { self.init(name.text, zone: zone) }
  /// The name as a key within the zone.
  package var key: CloudName { CloudName(name) }
}

// A text may be asked for where names are the keys: it is found by its bytes.

extension Dictionary where Key == CloudName {
  package subscript(name: String) -> Value? {
    get { self[CloudName(name)] }
    _modify { yield &self[CloudName(name)] }
  }
}

extension Set<CloudName> {
  package init(texts: some Sequence<String>) { self.init(texts.lazy.map { CloudName($0) }) }
  package func contains(_ name: String) -> Bool { contains(CloudName(name)) }
}

extension Sequence<CloudName> {
  /// The names as texts, in their own order.
  package var texts: [String] { map(\.text) }
}
