// Records between the model and CloudKit's framework, and the archive of a version's system fields that travels with a base
// (`SystemFields.archive`): the framework takes a change only of a record that it made itself, so that the tag is the base's.

#if canImport(CloudKit)
  internal import CloudKit
  internal import Foundation
  internal import Strandline
  internal import StrandlineCloudKit
  internal import StrandlineSystem

  /// A record as it is sent.
  struct NativeDraft {
    let record: CKRecord
    /// The names of the fields that are encrypted at the server, as far as it is known.
    private(set) var encrypted: Set<String>

    /// A record that the server does not have.
    init(type: String, id: CKRecord.ID) {
      record = CKRecord(recordType: WireName.wire(type), recordID: id)
      encrypted = []
    }

    /// A record that was fetched with its fields.
    init(_ record: CKRecord) {
      self.record = record
      encrypted = Set(record.encryptedValues.allKeys())
    }

    /// A version of a record without its fields. Nil if the archive is not one of this version: then the server is asked for it.
    init?(_ archive: [UInt8], id: CKRecord.ID, changeTag: String?) {
      guard !archive.isEmpty else { return nil }
      let coder: NSKeyedUnarchiver
      do { coder = try NSKeyedUnarchiver(forReadingFrom: Data(archive)) } catch { return nil }
      coder.requiresSecureCoding = true
      defer { coder.finishDecoding() }
      guard let record = CKRecord(coder: coder), record.recordID.recordName.equalsUTF8(id.recordName),
        record.recordID.zoneID.zoneName.equalsUTF8(id.zoneID.zoneName), record.recordChangeTag.equalsUTF8(changeTag)
      else { return nil }
      self.record = record
      let data = coder.decodeObject(of: NSData.self, forKey: Self.encryptedKey).map { Data(referencing: $0) }
      let names = String(decoding: data ?? Data(), as: UTF8.self)
      encrypted = Set(names.split(separator: "\n").map(String.init))
    }

    /// Beside the keys of the framework.
    private static let encryptedKey = "strandline.encrypted"

    /// What `init(_:id:changeTag:)` reads, of the version that the server made of this one.
    func archive(of saved: CKRecord) -> [UInt8] {
      let coder = NSKeyedArchiver(requiringSecureCoding: true)
      saved.encodeSystemFields(with: coder)
      coder.encode(NSData(data: Data(encrypted.sorted().joined(separator: "\n").utf8)), forKey: Self.encryptedKey)
      coder.finishEncoding()
      return Array(coder.encodedData)
    }

    // MARK: Fields

    /// Writes the fields of an operation, and for a replacement removes the others.
    mutating func write(_ operation: CloudOperation) throws(UnsendableValue) {
      if operation.kind == .replace { removeOthers(than: operation) }
      for (field, value) in operation.fields {
        do throws(UnsendableValue) {
          // The record was fetched with it.
          if operation.kind == .replace, let value, NativeValues.isKept(value) { continue }
          try set(value, of: WireName.wire(field))
        } catch { throw UnsendableValue(words: "field '\(field)' holds \(error.words)") }
      }
      let parent = record.parent?.recordID.recordName
      if !parent.equalsUTF8(operation.parent), operation.parent != nil || operation.kind == .replace {
        record.parent = operation.parent.map { name in
          CKRecord.Reference(
            recordID: CKRecord.ID(recordName: name, zoneID: record.recordID.zoneID), action: .none)
        }
      }
    }

    private mutating func set(_ value: FieldValue?, of name: String) throws(UnsendableValue) {
      switch value {
      case nil where encrypted.contains(name): record.encryptedValues[name] = nil
      case nil: record[name] = nil
      case .encrypted(let inner)?:
        record.encryptedValues[name] = try NativeValues.native(inner, in: record.recordID.zoneID)
        encrypted.insert(name)
      case let value?: record[name] = try NativeValues.native(value, in: record.recordID.zoneID)
      }
    }

    private func removeOthers(than operation: CloudOperation) {
      let names = Set(operation.fields.keys.map(WireName.wire))
      for name in record.allKeys() where !names.contains(name) && !encrypted.contains(name) { record[name] = nil }
      for name in record.encryptedValues.allKeys() where !names.contains(name) { record.encryptedValues[name] = nil }
    }
  }

  extension ServerRecord {
    /// A record that was fetched.
    ///
    /// - Parameter user: who is signed in: the framework has a placeholder for the name; nil if it is not known yet.
    init(_ record: CKRecord, in zone: ZoneID, user: String?) {
      let draft = NativeDraft(record)
      var fields: [String: FieldValue] = [:]
      // Should the framework list encrypted fields among the others too, they are encrypted.
      for name in record.allKeys() where !draft.encrypted.contains(name) {
        // Apple's module has several subscripts.
        let value: (any CKRecordValueProtocol)? = record[name]
        if let value { fields[WireName.model(name)] = NativeValues.value(value, in: zone) }
      }
      for name in draft.encrypted {
        let value: (any CKRecordValueProtocol)? = record.encryptedValues[name]
        guard let value else { continue }
        fields[WireName.model(name)] = .encrypted(NativeValues.value(value, in: zone))
      }
      self.init(draft, record, fields, user)
    }

    /// The version that the server made of a draft, without its fields.
    init(saved record: CKRecord, of draft: NativeDraft, user: String?) { self.init(draft, record, [:], user) }

    private init(_ draft: NativeDraft, _ record: CKRecord, _ fields: [String: FieldValue], _ user: String?) {
      func touch(_ date: Date?, _ id: CKRecord.ID?) -> ServerTimestamp? {
        guard let date else { return nil }
        let name = id?.recordName ?? ""
        return ServerTimestamp(date, user: name.equalsUTF8(CKCurrentUserDefaultName) ? user ?? name : name)
      }
      self.init(
        name: record.recordID.recordName, type: WireName.model(record.recordType), fields: fields,
        parent: record.parent?.recordID.recordName,
        system: SystemFields(
          changeTag: record.recordChangeTag, created: touch(record.creationDate, record.creatorUserRecordID),
          modified: touch(record.modificationDate, record.lastModifiedUserRecordID),
          archive: draft.archive(of: record)))
    }
  }
#endif
