// The twelve requests that the sync engine makes of a cloud database, and their answers.
//
// The engine contains no HTTP and no JSON. StrandlineCloudKit sends these requests to CloudKit Web Services and to the
// local server; a native adapter would implement the same protocol. A request throws `CloudError` if the server refuses
// it as a whole; the answer has the results for single records and zones.

import StrandlineSystem

/// A CloudKit database as the engine sees it.
///
/// Every call throws `CloudError` for a refusal of the whole request, `CancellationError` if its task is cancelled,
/// `StrandlineError` if this device fails before anything was sent (if a session file cannot be written, for example), and
/// nothing else. The engine acts on the refusal's code. A `StrandlineError` ends the cycle, which throws it.
///
/// Calls with one credential must not overlap, as CloudKit's web session token changes with each answer. The engine keeps one
/// request in flight; an implementation must serialize other uses of the credential.
public protocol CloudDatabase: Sendable {
  /// The container, environment and scope that this speaks to.
  var address: CloudAddress { get }

  /// The least time between two requests, zero by default. The engine keeps it, so that a long sync is no burst.
  var minimumInterval: Duration { get }

  /// The most operations of one `modify`: 200 by default, the limit of CloudKit Web Services. The engine sends no more.
  var operationsMax: Int { get }

  /// A cycle begins. If a person wants it, what this does not ask the server for a while, because the server has refused it, it asks
  /// once more; a transport may also make the requests of such a cycle urgent. Does nothing by default.
  func beginCycle(isUserInitiated: Bool)

  /// The record name of the signed-in user. Throws `.noAccount` if the transport knows that nobody is signed in, so that it is no
  /// question of asking for a password again.
  func user() async throws -> String

  /// The same database for one user alone. While another one is signed in, it sends nothing, and its requests throw
  /// `StrandlineError.accountMismatch`, `user()` too: a new store is never bound to another user than its own.
  ///
  /// By default a database that asks this one's `user()` before each request that changes something at the server, and after each one
  /// that reads, whose answer it drops if another user has signed in meanwhile. A transport that knows better when the user
  /// may have changed asks less often.
  ///
  /// - Parameter user: the user's record name.
  func restricted(to user: String) -> any CloudDatabase

  /// Forgets the user's credential, durably, if the transport keeps one: the user signs out. Does nothing by default, because on Apple's
  /// systems the account is the device's.
  ///
  /// - Throws: `StrandlineError` if a file with the credential cannot be removed.
  func forgetCredential() throws

  /// The zones that exist.
  func zones() async throws -> [ZoneID]

  /// Creates a zone; succeeds if it exists already.
  func createZone(_ zone: ZoneID) async throws

  /// Deletes a zone with all its records; throws `.zoneNotFound` if it does not exist.
  func deleteZone(_ zone: ZoneID) async throws

  /// Applies operations to records of one zone. The answer has one result a record name.
  ///
  /// `atomic` asks for all or nothing. It has no default, because CloudKit's own default is true.
  /// When this throws, any part of the batch may have been applied.
  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult]

  /// The current versions of records of one zone, at most 200 names.
  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult]

  /// One page of changes of each of some zones, in one request: at most 50 zones, each of them once.
  ///
  /// The answer has each zone's page or error. It may leave zones out, or give an empty page with `moreComing`: then the engine asks
  /// for those zones one by one. So an implementation may answer only the first query, if its server takes one zone a request.
  /// Throws if the server refuses the request as a whole.
  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>]

  /// Records of a type, the latest change first. Throws `.unsupported`, the default, if the transport has no queries, and the server's
  /// refusal if the schema has no index for it: the engine then skips the query.
  ///
  /// - Parameters:
  ///   - type: the type.
  ///   - zone: the zone.
  ///   - limit: the most records of a page, at most 200.
  ///   - marker: the marker of the page before; nil for the first page.
  func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage

  /// One page of the zones that changed since a token.
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage

  /// Waits until the server says that something in the database has changed. The first call does what has to be done for that once, a
  /// subscription for example. Throws `.unsupported`, the default, if the transport has no pushes of its own: natively the system
  /// hands them to the app, which tells the engine (`SyncEngine.handle(remoteNotification:)`).
  ///
  /// A push may come late, twice or never: the engine fetches the changes, and polls beneath.
  func awaitPush() async throws

  /// How far the server's clock was ahead of this device's, in whole milliseconds, at the newest answer. Nil, the default, if the transport does
  /// not know: the engine then estimates it from the modified times of records.
  var serverClockOffset: Duration? { get }

  /// Whether this moves the contents of assets, with `upload` and `download`. False by default: then a store that syncs takes no content
  /// of this device.
  var movesContents: Bool { get }

  /// Sends a content to the server, before the record that names it. Throws `.unsupported`, the default, if this moves no contents.
  ///
  /// - Parameters:
  ///   - content: the content.
  ///   - place: the record and the field that will name it.
  /// - Returns: the value that the field gets in the `modify` which follows within ten minutes. A transport that sends a file
  ///   together with its record returns a value that names the file.
  func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset

  /// Fetches a content. Throws `.unsupported`, the default, if this moves no contents; `.notFound` if the record does not name it any more.
  ///
  /// - Parameters:
  ///   - asset: the content, as the record has it here.
  ///   - place: the record and the field that name it.
  ///   - sink: takes the bytes. It has got all of them when this returns, and perhaps some when it throws.
  func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws

  /// Reads a record from bytes that an earlier version of the transport could not read (`CloudError.raw`). Nil, the default, if this
  /// version cannot read them either.
  func record(readingAgain raw: [UInt8], in zone: ZoneID) -> ServerRecord?
}

extension CloudDatabase {
  /// Zero: requests follow each other at once.
  public var minimumInterval: Duration { .zero }

  /// 200.
  public var operationsMax: Int { Names.operationsMax }

  /// Does nothing.
  public func beginCycle(isUserInitiated: Bool) {}

  /// A database that asks who is signed in with each request.
  public func restricted(to user: String) -> any CloudDatabase { OneUsersDatabase(base: self, owner: user) }

  /// Does nothing.
  public func forgetCredential() throws {}

  /// Throws `.unsupported`.
  public func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage {
    throw CloudError(.unsupported, reason: "this transport has no queries")
  }

  /// Throws `.unsupported`.
  public func awaitPush() async throws {
    throw CloudError(.unsupported, reason: "this transport has no pushes of its own")
  }

  /// False: a transport that moves contents says so.
  public var movesContents: Bool { false }

  /// Throws `.unsupported`.
  public func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset {
    throw CloudError(.unsupported, reason: "this transport uploads no contents of assets")
  }

  /// Throws `.unsupported`.
  public func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws {
    throw CloudError(.unsupported, reason: "this transport downloads no contents of assets")
  }

  /// Nil.
  public var serverClockOffset: Duration? { nil }

  /// Nil.
  public func record(readingAgain raw: [UInt8], in zone: ZoneID) -> ServerRecord? { nil }
}

/// The query for one page of a zone's changes.
public struct ZoneQuery: Hashable, Sendable {
  /// The zone whose changes are asked for.
  public var zone: ZoneID
  /// The token of the page before; nil: from the zone's beginning.
  public var token: ChangeToken?
  /// The most changes of the page, at most 200.
  public var limit: Int
  /// The engine does not need the fields (`ZonePage.hasFields`), because it looks the records up later. A page with fields is
  /// accepted too.
  public var listsOnly: Bool
  /// Joins the parts.
  public init(_ zone: ZoneID, since token: ChangeToken?, limit: Int, listsOnly: Bool = false) {
    self.zone = zone
    self.token = token
    self.limit = limit
    self.listsOnly = listsOnly
  }
}

/// One of the two sets of databases that a container has. An app in the App Store has the records of production; one that Xcode runs has
/// those of development, where a record type and a field come to be with the first record that has them.
public enum CloudEnvironment: String, Hashable, Sendable, CaseIterable {
  case development, production
}

/// The address of a database: its container, environment and scope.
public struct CloudAddress: Hashable, Sendable {
  /// The container's identifier, "iCloud." first.
  public var container: String
  /// Which of the container's two.
  public var environment: CloudEnvironment
  /// The database.
  public var scope: DatabaseScope
  /// Names a database.
  public init(container: String, environment: CloudEnvironment, scope: DatabaseScope = .private) {
    self.container = container
    self.environment = environment
    self.scope = scope
  }
}

/// A version of a record at the server.
public struct ServerRecord: Hashable, Sendable {
  /// The name, in the zone of the request.
  public var name: String
  /// The type.
  public var type: String
  /// The fields that have a value, the engine's own stamp among them.
  public var fields: [String: FieldValue]
  /// The name of the parent record.
  public var parent: String?
  /// Change tag, times, unknown system fields, and the transport's `archive`: bytes that it needs back when the record is sent
  /// again.
  public var system: SystemFields
  /// Joins the parts.
  public init(
    name: String, type: String, fields: [String: FieldValue] = [:], parent: String? = nil,
    system: SystemFields = SystemFields()
  ) {
    self.name = name
    self.type = type
    self.fields = fields
    self.parent = parent
    self.system = system
  }

  /// Equal to the byte.
  public static func == (left: ServerRecord, right: ServerRecord) -> Bool {
    left.name.equalsUTF8(right.name) && left.type.equalsUTF8(right.type) && left.parent.equalsUTF8(right.parent)
      && left.fields == right.fields && left.system == right.system
  }

  /// Hashes the name and the tag, which no two versions share.
  public func hash(into hasher: inout Hasher) {
    name.hashUTF8(into: &hasher)
    hasher.combine(system)
  }
}

/// One change to one record.
public struct CloudOperation: Hashable, Sendable {
  /// CloudKit's seven verbs. The engine itself never uses a `force…`.
  public enum Kind: String, Hashable, Sendable, CaseIterable {
    /// Fails if the name exists.
    case create
    /// Changes only the fields given; needs the current tag.
    case update
    /// As `update`, without a tag; creates if missing.
    case forceUpdate
    /// Fields that are not given become null; needs the current tag.
    case replace
    /// As `replace`, without a tag; creates if missing.
    case forceReplace
    /// Needs the current tag.
    case delete
    /// Deletes with any tag.
    case forceDelete
  }
  /// The verb.
  public var kind: Kind
  /// The record's name.
  public var name: String
  /// The record's type; empty for deletions.
  public var type: String
  /// The version that this is based on.
  public var changeTag: String?
  /// The transport's bytes of that version (`SystemFields.archive`); empty if there are none.
  public var archive: [UInt8]
  /// The fields to write; nil is an explicit null.
  public var fields: [String: FieldValue?]
  /// The name of the parent record.
  public var parent: String?
  /// Joins the parts.
  public init(
    _ kind: Kind, name: String, type: String = "", changeTag: String? = nil, archive: [UInt8] = [],
    fields: [String: FieldValue?] = [:], parent: String? = nil
  ) {
    self.kind = kind
    self.name = name
    self.type = type
    self.changeTag = changeTag
    self.archive = archive
    self.fields = fields
    self.parent = parent
  }

  /// Equal to the byte.
  public static func == (left: CloudOperation, right: CloudOperation) -> Bool {
    left.kind == right.kind && left.name.equalsUTF8(right.name) && left.type.equalsUTF8(right.type)
      && left.changeTag.equalsUTF8(right.changeTag) && left.archive == right.archive && left.fields == right.fields
      && left.parent.equalsUTF8(right.parent)
  }

  /// Hashes the verb, the name and the fields.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(kind)
    name.hashUTF8(into: &hasher)
    hasher.combine(fields)
  }
}

/// The result for one record of a request.
public enum CloudResult: Sendable {
  /// It exists, in this version. After a `modify` the fields may be left out; `system` is that of the saved version.
  case record(ServerRecord)
  /// It is deleted.
  case deleted
  /// It was refused; `serverRecord` is the current version if the answer has it.
  case failed(CloudError, serverRecord: ServerRecord?)
}

/// One page of a zone's changes.
public struct ZonePage: Sendable {
  /// The changes, in the server's order.
  public var changes: [ZoneChange]
  /// The token for the next page. It may be used any number of times.
  public var token: ChangeToken
  /// Whether more pages follow. Also an empty page may say so.
  public var moreComing: Bool
  /// Whether its records have their fields. If not, they have a name, a type, a tag and times.
  public var hasFields: Bool
  /// How many entries of the server's answer name no record, and are not among the changes.
  public var unnamed: Int
  /// Joins the parts.
  public init(changes: [ZoneChange], token: ChangeToken, moreComing: Bool, hasFields: Bool = true, unnamed: Int = 0) {
    self.changes = changes
    self.token = token
    self.moreComing = moreComing
    self.hasFields = hasFields
    self.unnamed = unnamed
  }
}

/// One entry of a zone's feed: the present state of a record.
public enum ZoneChange: Sendable {
  /// It exists.
  case saved(ServerRecord)
  /// It was deleted.
  case deleted(name: String)
  /// The server could not show it.
  case failed(name: String, CloudError)
}

/// One page of the answer to a query.
public struct NewestPage: Sendable {
  /// The records that could be read; the feed brings the others.
  public var records: [ServerRecord]
  /// The marker for the next page; nil if there is none.
  public var marker: String?
  /// Joins the parts.
  public init(records: [ServerRecord], marker: String?) {
    self.records = records
    self.marker = marker
  }
}

/// One page of the database's changes.
public struct DatabasePage: Sendable {
  /// A zone that changed.
  public struct Zone: Hashable, Sendable {
    /// The zone.
    public var id: ZoneID
    /// Why it is gone; nil if it exists.
    public var loss: ZoneLoss?
    /// Joins the parts.
    public init(id: ZoneID, loss: ZoneLoss? = nil) {
      self.id = id
      self.loss = loss
    }
  }
  /// The zones that changed.
  public var zones: [Zone]
  /// The token for the next page.
  public var token: ChangeToken
  /// Whether more pages follow.
  public var moreComing: Bool
  /// Joins the parts.
  public init(zones: [Zone], token: ChangeToken, moreComing: Bool) {
    self.zones = zones
    self.token = token
    self.moreComing = moreComing
  }
}
