// The same messages for Foundation's JSON, as an app would declare them: what `bench wire` compares with.

import Foundation
import Strandline
import StrandlineCloudKit

/// Decodes and encodes by Foundation.
enum FoundationJSON {
  static func records(ofAnswer bytes: [UInt8]) throws -> [Record] {
    let answer = try JSONDecoder().decode(Answer.self, from: Data(bytes))
    return answer.zones.flatMap(\.records).map { record in
      Record(
        type: record.recordType, id: RecordID(record.recordName), fields: record.fields.compactMapValues(\.value),
        parent: record.parent?.recordName,
        system: SystemFields(
          changeTag: record.recordChangeTag, created: record.created?.touch, modified: record.modified?.touch))
    }
  }

  static func request(_ operations: [CloudOperation]) throws -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    let request = Request(
      atomic: false, desiredKeys: [],
      operations: operations.map { operation in
        Request.Operation(
          operationType: operation.kind.rawValue,
          record: Request.Sent(
            recordName: operation.name, recordType: operation.type,
            parent: operation.parent.map { Parent(recordName: $0) },
            fields: operation.fields.mapValues { Field(value: $0) }))
      }, zoneID: Zone.ID(zoneName: ZoneID.main.name))
    return [UInt8](try encoder.encode(request))
  }

  static func record(ofLine bytes: [UInt8]) throws -> Record {
    let line = try JSONDecoder().decode(Line.self, from: Data(bytes))
    return Record(
      type: line.recordType, id: RecordID(line.recordName), fields: line.fields.compactMapValues(\.value),
      parent: line.parent)
  }

  // MARK: Messages

  private struct Answer: Decodable {
    var zones: [Zone]
  }

  private struct Zone: Decodable {
    struct ID: Codable { var zoneName: String }
    var zoneID: ID
    var syncToken: String
    var moreComing: Bool
    var records: [Shown]
  }

  private struct Parent: Codable { var recordName: String }

  private struct At: Decodable {
    var timestamp: Int64
    var userRecordName: String
    var deviceID: String
    var touch: ServerTimestamp { ServerTimestamp(milliseconds: timestamp, user: userRecordName, device: deviceID) }
  }

  private struct Shown: Decodable {
    var recordName: String
    var recordType: String
    var recordChangeTag: String
    var parent: Parent?
    var created: At?
    var modified: At?
    var deleted: Bool
    var zoneID: Zone.ID
    var fields: [String: Field]
  }

  private struct Request: Encodable {
    struct Sent: Encodable {
      var recordName: String
      var recordType: String
      var parent: Parent?
      var fields: [String: Field]
    }
    struct Operation: Encodable {
      var operationType: String
      var record: Sent
    }
    var atomic: Bool
    var desiredKeys: [String]
    var operations: [Operation]
    var zoneID: Zone.ID
  }

  private struct Line: Decodable {
    var recordType: String
    var recordName: String
    var parent: String?
    var fields: [String: LineField]
  }

  // MARK: Fields

  /// A field with its type. Types that few records have are passed over, which Foundation has for nothing.
  private struct Field: Codable {
    enum Key: String, CodingKey { case value, type, isEncrypted }
    var value: FieldValue?

    init(value: FieldValue?) { self.value = value }

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: Key.self)
      switch try container.decode(String.self, forKey: .type) {
      case "STRING": value = .string(try container.decode(String.self, forKey: .value))
      case "INT64": value = .int64(try container.decode(Int64.self, forKey: .value))
      case "DOUBLE": value = .double(try container.decode(Double.self, forKey: .value))
      case "TIMESTAMP": value = .date(milliseconds: try container.decode(Int64.self, forKey: .value))
      case "BYTES": value = .bytes([UInt8](try container.decode(Data.self, forKey: .value)))
      case "STRING_LIST":
        value = .list(.strings, try container.decode([String].self, forKey: .value).map { .string($0) })
      case "INT64_LIST": value = .list(.int64s, try container.decode([Int64].self, forKey: .value).map { .int64($0) })
      default: value = nil
      }
    }

    func encode(to encoder: any Encoder) throws {
      var container = encoder.container(keyedBy: Key.self)
      guard var value else { return try container.encodeNil(forKey: .value) }
      if case .encrypted(let inner) = value {
        try container.encode(true, forKey: .isEncrypted)
        value = inner
      }
      try container.encode(WireField.typeName(value), forKey: .type)
      switch value {
      case .string(let text): try container.encode(text, forKey: .value)
      case .int64(let number), .date(let number): try container.encode(number, forKey: .value)
      case .double(let number): try container.encode(number, forKey: .value)
      case .bytes(let bytes): try container.encode(Data(bytes), forKey: .value)
      case .list(.strings, let items):
        try container.encode(items.map { if case .string(let text) = $0 { text } else { "" } }, forKey: .value)
      default: try container.encodeNil(forKey: .value)
      }
    }
  }

  /// A field's value in a line: plain, or with its type.
  private struct LineField: Decodable {
    var value: FieldValue?

    init(from decoder: any Decoder) throws {
      let container = try decoder.singleValueContainer()
      do { value = .string(try container.decode(String.self)) } catch DecodingError.typeMismatch {
        do { value = .int64(try container.decode(Int64.self)) } catch DecodingError.typeMismatch {
          do { value = .list(.strings, try container.decode([String].self).map { .string($0) }) } catch DecodingError
            .typeMismatch
          { value = try container.decode(Field.self).value }
        }
      }
    }
  }
}
