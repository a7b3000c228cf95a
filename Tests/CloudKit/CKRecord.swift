// A record of the stand-in for Apple's CloudKit. As Apple's runtime does, it answers with Foundation's classes, whatever was put
// in: a number is an NSNumber that knows whether it was whole, and an empty list does not know of what it is one.

public import CoreLocation
public import Foundation
internal import Strandline
internal import Synchronization

/// What a field may hold.
public protocol CKRecordValueProtocol {}

extension NSString: CKRecordValueProtocol {}
extension NSNumber: CKRecordValueProtocol {}
extension NSDate: CKRecordValueProtocol {}
extension NSData: CKRecordValueProtocol {}
extension NSArray: CKRecordValueProtocol {}
extension CKRecord.Reference: CKRecordValueProtocol {}
extension CKAsset: CKRecordValueProtocol {}
extension CLLocation: CKRecordValueProtocol {}

/// What has fields.
public protocol CKRecordKeyValueSetting: AnyObject {
  /// A field's value; nil if it has none.
  subscript(key: String) -> (any CKRecordValueProtocol)? { get set }
  /// The fields that have a value.
  func allKeys() -> [String]
  /// The fields that were set since the record was made or fetched.
  func changedKeys() -> [String]
}

/// Named values under a type.
public final class CKRecord: NSObject, NSSecureCoding, CKRecordKeyValueSetting, Sendable {
  /// A record's type.
  public typealias RecordType = String
  /// A field's name.
  public typealias FieldKey = String

  /// Values, and which of them were set.
  struct Fields: Sendable {
    var values: [String: FieldValue] = [:]
    var changed: Set<String> = []
  }
  /// What a record has beside its name.
  struct State: Sendable {
    var plain = Fields()
    var encrypted = Fields()
    var parent: String?
    var parentIsChanged = false
    var system = SystemFields()
    /// Whether the values are those of the whole record at the server.
    var isWhole = false
  }
  let state: Mutex<State>

  /// The type.
  public let recordType: RecordType
  /// Name and zone.
  public let recordID: ID

  /// A record that the server does not have.
  public init(recordType: RecordType, recordID: ID = ID()) {
    self.recordType = recordType
    self.recordID = recordID
    state = Mutex(State())
  }

  init(recordType: RecordType, recordID: ID, _ state: State) {
    self.recordType = recordType
    self.recordID = recordID
    self.state = Mutex(state)
  }

  // MARK: The server's fields

  /// The server's version of the record.
  public var recordChangeTag: String? { state.withLock { $0.system.changeTag } }
  /// When it was created.
  public var creationDate: Date? { state.withLock { $0.system.created?.date } }
  /// When it was changed.
  public var modificationDate: Date? { state.withLock { $0.system.modified?.date } }
  /// Who created it.
  public var creatorUserRecordID: ID? { state.withLock { $0.system.created?.user }.map { ID(recordName: $0) } }
  /// Who changed it.
  public var lastModifiedUserRecordID: ID? { state.withLock { $0.system.modified?.user }.map { ID(recordName: $0) } }

  /// The record that it hangs below.
  public var parent: Reference? {
    get {
      state.withLock { $0.parent }.map {
        Reference(recordID: ID(recordName: $0, zoneID: recordID.zoneID), action: .none)
      }
    }
    set {
      let name = newValue?.recordID.recordName
      state.withLock { ($0.parent, $0.parentIsChanged) = (name, true) }
    }
  }

  /// What is archived of a record: the stand-in has one object of it, in JSON.
  private struct Archive: Codable {
    struct Touch: Codable {
      var time: Date
      var user: String
    }
    var name: String
    var zone: String
    var owner: String
    var type: String
    var tag: String?
    var parent: String?
    var created: Touch?
    var modified: Touch?
  }

  private static let archiveKey = "record"

  /// Writes ID, type, tag, times and parent.
  public func encodeSystemFields(with coder: NSCoder) {
    let (system, parent) = state.withLock { ($0.system, $0.parent) }
    func touch(_ touch: ServerTimestamp?) -> Archive.Touch? { touch.map { .init(time: $0.date, user: $0.user) } }
    let archive = Archive(
      name: recordID.recordName, zone: recordID.zoneID.zoneName, owner: recordID.zoneID.ownerName, type: recordType,
      tag: system.changeTag, parent: parent, created: touch(system.created), modified: touch(system.modified))
    let encoder = JSONEncoder()
    encoder.outputFormatting = .sortedKeys
    do { coder.encode(NSData(data: try encoder.encode(archive)), forKey: Self.archiveKey) } catch {
      preconditionFailure("texts and times have a form in JSON: \(error)")
    }
  }

  /// Reads what `encodeSystemFields` has written: a record without values.
  public init?(coder: NSCoder) {
    guard let data = coder.decodeObject(of: NSData.self, forKey: Self.archiveKey),
      let archive = try? JSONDecoder().decode(Archive.self, from: Data(referencing: data))
    else { return nil }
    func touch(_ touch: Archive.Touch?) -> ServerTimestamp? { touch.map { ServerTimestamp($0.time, user: $0.user) } }
    var state = State()
    state.parent = archive.parent
    state.system = SystemFields(
      changeTag: archive.tag, created: touch(archive.created), modified: touch(archive.modified))
    recordID = ID(
      recordName: archive.name, zoneID: CKRecordZone.ID(zoneName: archive.zone, ownerName: archive.owner))
    recordType = archive.type
    self.state = Mutex(state)
  }

  /// Yes.
  public static var supportsSecureCoding: Bool { true }
  /// Writes the system fields; the stand-in archives no values.
  public func encode(with coder: NSCoder) { encodeSystemFields(with: coder) }

  // MARK: Values

  /// A field's value; nil if it has none.
  public subscript(key: FieldKey) -> (any CKRecordValueProtocol)? {
    get { state.withLock { $0.plain.values[key] }.flatMap { $0.foundation(in: recordID.zoneID) } }
    set { set(newValue.map { FieldValue(foundation: $0) }, of: key, isEncrypted: false) }
  }

  func set(_ value: FieldValue?, of key: String, isEncrypted: Bool) {
    state.withLock { state in
      let path = isEncrypted ? \State.encrypted : \State.plain
      state[keyPath: path].values[key] = value
      state[keyPath: path].changed.insert(key)
    }
  }

  /// The fields that have a value.
  public func allKeys() -> [FieldKey] { state.withLock { $0.plain.values.keys.sorted() } }
  /// The fields that were set.
  public func changedKeys() -> [FieldKey] { state.withLock { $0.plain.changed.sorted() } }

  /// The fields that the server keeps encrypted.
  public var encryptedValues: any CKRecordKeyValueSetting & Sendable { EncryptedFields(self) }
}

/// The encrypted fields of a record.
private final class EncryptedFields: CKRecordKeyValueSetting, Sendable {
  private let record: CKRecord

  init(_ record: CKRecord) { self.record = record }

  subscript(key: String) -> (any CKRecordValueProtocol)? {
    get { record.state.withLock { $0.encrypted.values[key] }.flatMap { $0.foundation(in: record.recordID.zoneID) } }
    set { record.set(newValue.map { FieldValue(foundation: $0) }, of: key, isEncrypted: true) }
  }

  func allKeys() -> [String] { record.state.withLock { $0.encrypted.values.keys.sorted() } }
  func changedKeys() -> [String] { record.state.withLock { $0.encrypted.changed.sorted() } }
}
