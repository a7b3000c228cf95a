// Which record: a name in a zone, in a database scope. And which event: its log sequence number.
//
// A record's identity is (scope, zone owner, zone name, record name); its type is not part of it.

public import StrandlineSystem

/// The place of an event in the log: dense, first is 1, kept for life.
///
/// A bare LSN is for people and for one store. A position that leaves the process is the pair with its
/// tenure (`LogPosition`), because a store that was restored from a backup counts the same numbers again.
public struct LSN: RawRepresentable, Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The number; 0 stands for "none".
  public let rawValue: UInt64
  /// Names an event by its number.
  public init(rawValue: UInt64) { self.rawValue = rawValue }
  package init(_ value: UInt64) { self.rawValue = value }
  /// No event: the place before the first.
  public static let zero = LSN(rawValue: 0)
  /// The order of the log.
  public static func < (left: LSN, right: LSN) -> Bool { left.rawValue < right.rawValue }
  /// The number in decimal.
  public var description: String { String(rawValue) }
  package func advanced(by count: Int) -> LSN { LSN(rawValue &+ UInt64(count)) }
}

/// A position that may leave the process: an LSN and the tenure under which it was given.
public struct LogPosition: Hashable, Sendable {
  /// One writer's time with a log directory, 64 random bits.
  public let tenure: UInt64
  /// The number under that tenure.
  public let lsn: LSN
  /// Joins the two.
  public init(tenure: UInt64, lsn: LSN) {
    self.tenure = tenure
    self.lsn = lsn
  }
}

/// A database of a CloudKit container.
public enum DatabaseScope: UInt8, Hashable, Comparable, Sendable, Codable, CaseIterable {
  /// The container's public database. It has no change feed and is not synced.
  case `public` = 1
  /// The user's own database.
  case `private` = 2
  /// What others share with the user.
  case shared = 3
  /// Order by number.
  public static func < (left: DatabaseScope, right: DatabaseScope) -> Bool { left.rawValue < right.rawValue }
}

/// Why a zone is not synced: the server no longer has it, or has less of it than before, or the app has erased it.
public enum ZoneLoss: UInt8, Hashable, Sendable, CaseIterable {
  /// It was deleted: by another device, or by one that shared it. If the server still has a zone of that name, it was emptied, or
  /// deleted and created again: it has none of this store's synced records.
  case deleted = 1
  /// The user had the app's data removed from iCloud.
  case purged = 2
  /// The user reset the keys of the encrypted data, which cannot be read any more.
  case encryptedDataReset = 3
  /// The server does not have it and does not say why.
  case notFound = 4
  /// The server has an older version of a record than it once acknowledged: it went back to an older state.
  case wentBack = 5
  /// The server lists far fewer records than it once acknowledged, so that a person is asked before they are removed here.
  case missingRecords = 6
  /// The app has asked to erase it (`SyncEngine.eraseZone`); the next cycle deletes it at the server.
  case erasing = 7
  /// The app has erased it: by `SyncEngine.eraseZone`, or by a resync or a rule that let the server decide, which did not have it.
  case erased = 8

  /// The reason in words for a person.
  package var words: String {
    switch self {
    case .deleted, .purged, .notFound: "the server does not have it"
    case .encryptedDataReset: "its encrypted data was reset at the server"
    case .wentBack: "the server holds older versions than it once confirmed"
    case .missingRecords: "the server lists far fewer records than before"
    case .erasing: "the next sync deletes it at the server"
    case .erased: "it was erased at the server"
    }
  }
}

/// A record zone: a name, its owner, and the database that has it. Equal, and ordered, by the bytes of the names.
public struct ZoneID: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The zone's name, at most 255 ASCII characters.
  public var name: String
  /// The owner's user record name; empty for the user's own zones.
  ///
  /// CloudKit's placeholder for the user, `__defaultOwner__` (`CKCurrentUserDefaultName`), becomes empty here. A store also
  /// knows the user's own record name after its first sync, and takes it for empty from then on.
  public var owner: String {
    didSet { owner = Self.canonical(owner) }
  }
  /// The database.
  public var scope: DatabaseScope

  /// Names a zone; by default one of the user's own in the private database.
  public init(_ name: String, owner: String = "", scope: DatabaseScope = .private) {
    self.name = name
    self.owner = Self.canonical(owner)
    self.scope = scope
  }

  /// One spelling for the user's own zones. Identities are compared and stored in this form alone, so that a zone which an
  /// app and the server spell differently is not kept twice.
  private static func canonical(_ owner: String) -> String { owner.equalsUTF8(currentUser) ? "" : owner }

  /// CloudKit's placeholder for the signed-in user's record name.
  private static let currentUser = "__defaultOwner__"

  /// Equal to the byte: names that Unicode calls equivalent are two, because the server sees two.
  @inlinable public static func == (left: ZoneID, right: ZoneID) -> Bool {
    left.scope == right.scope && left.name.equalsUTF8(right.name) && left.owner.equalsUTF8(right.owner)
  }

  /// Hashes what `==` compares.
  @inlinable public func hash(into hasher: inout Hasher) {
    name.hashUTF8(into: &hasher)
    owner.hashUTF8(into: &hasher)
    hasher.combine(scope)
  }

  /// Where records go when nothing else is said. CloudKit's own default zone has no change feed, so a
  /// synced store cannot use it.
  public static let main = ZoneID("Main")

  /// Order by scope, owner, name; text by its UTF-8.
  public static func < (left: ZoneID, right: ZoneID) -> Bool {
    if left.scope != right.scope { return left.scope < right.scope }
    if !left.owner.equalsUTF8(right.owner) { return left.owner.precedesByUTF8(right.owner) }
    return left.name.precedesByUTF8(right.name)
  }

  /// The name; with the scope before it if that is not private; with scope and owner if there is an owner. Joined by
  /// slashes; a slash in a part is `%2F`. `init(text:)` reads it.
  public var description: String {
    let name = IdentityText.escaped(name)
    if !owner.isEmpty { return "\(scope)/\(IdentityText.escaped(owner))/\(name)" }
    return scope == .private ? name : "\(scope)/\(name)"
  }
}

/// A record's identity. Equal, and ordered, by the bytes of the names.
public struct RecordID: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The name, unique in its zone.
  public var name: String
  /// The zone.
  public var zone: ZoneID

  /// Names a record; by default in the zone `Main`.
  public init(_ name: String, zone: ZoneID = .main) {
    self.name = name
    self.zone = zone
  }

  /// Equal to the byte: names that Unicode calls equivalent are two, because the server sees two.
  @inlinable public static func == (left: RecordID, right: RecordID) -> Bool {
    left.name.equalsUTF8(right.name) && left.zone == right.zone
  }

  /// Hashes the name, and the zone unless it is `Main`, which most records are in.
  @inlinable public func hash(into hasher: inout Hasher) {
    name.hashUTF8(into: &hasher)
    if zone != .main { hasher.combine(zone) }
  }

  /// Order by zone, then by the name's UTF-8.
  public static func < (left: RecordID, right: RecordID) -> Bool {
    if left.zone != right.zone { return left.zone < right.zone }
    return left.name.precedesByUTF8(right.name)
  }

  /// Zone and name, joined by a slash; a slash in one of them is `%2F`. `init(text:)` reads it.
  public var description: String { "\(zone)/\(IdentityText.escaped(name))" }
}
