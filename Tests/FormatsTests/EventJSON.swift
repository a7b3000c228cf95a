// Events as JSON under the names of their descriptions: what this package's code understands of golden bytes, for the
// comparison with a decoder that knows only the pages.

import Strandline
import StrandlineServer
import StrandlineSystem

extension JSON {
  /// An event of a store.
  static func event(_ event: Event, at lsn: UInt64) throws -> JSON {
    var members: [String: JSON]
    if case .unknown(let unknown) = event {
      members = ["bytes": .hexed(unknown.bytes)]
    } else {
      members = try fields(event.payload?.listedFields ?? []) { encoded in
        let (version, dirty) = try encoded.decoded(type: "", births: [], this: LSN(lsn))
        return .object([
          "fields": fields(version), "seen": seen(version.stamp.seen),
          "unknownStampParts": .hexed(version.stamp.unknown), "dirty": .object(dirty.mapValues { .uint($0.rawValue) }),
        ])
      }
    }
    members["kind"] = .text(event.kindName)
    return .object(members)
  }

  /// An event of the local server.
  static func journal(_ event: JournalEvent) -> JSON {
    var members = fields(event.listedFields) { _ in .null }
    members["kind"] = .text("\(event.kind)")
    return .object(members)
  }

  /// The members of an object for some fields; `version` decodes the content of a version.
  private static func fields(
    _ fields: [ListedField], version: (EncodedContent) throws -> JSON
  ) rethrows -> [String: JSON] {
    try Dictionary(uniqueKeysWithValues: fields.map { ($0.name, try content($0.content, version: version)) })
  }

  private static func content(
    _ content: FieldContent, version: (EncodedContent) throws -> JSON
  ) rethrows -> JSON {
    switch content {
    case .null: .null
    case .flag(let isSet): .bool(isSet)
    case .signed(let number): .int(number)
    case .unsigned(let number): .uint(number)
    case .text(let text): .text(text)
    case .bytes(let bytes): .hexed(bytes)
    case .list(let items): .list(try items.map { try self.content($0, version: version) })
    case .group(_, _, let members): .object(try fields(members, version: version))
    case .value(let value): self.value(value)
    case .version(let encoded): try version(encoded)
    }
  }

  /// Fields none of which is a version.
  static func row(_ row: some FieldDescribed) -> JSON { .object(fields(row.listedFields) { _ in .null }) }

  /// A group of fields, none of which is a version.
  static func group(_ group: some FieldGroup) -> JSON { .object(fields(group.listedFields) { _ in .null }) }

  static func births(_ births: Set<Birth>) -> JSON { .list(births.sorted().map { group($0) }) }

  static func seen(_ seen: [WriterID: Seen]) -> JSON {
    .list(seen.sorted { $0.key < $1.key }.map { group(SeenEntry(writer: $0.key, seen: $0.value)) })
  }

  /// The fields of a version, with the stamp of each.
  static func fields(_ version: Version) -> JSON {
    .list(
      version.names.map {
        .object([
          "name": .text($0), "stamp": version.stamp.fields[$0].map { group($0) } ?? .null,
          "value": value(version.fields[$0]),
        ])
      })
  }

  static func value(_ value: FieldValue?) -> JSON {
    guard let value else { return .null }
    switch value {
    case .string(let text): return .object(["string": .text(text)])
    case .int64(let number): return .object(["int64": .int(number)])
    case .double(let number): return .object(["double": .bits(number)])
    case .date(let milliseconds): return .object(["date": .int(milliseconds)])
    case .bytes(let bytes): return .object(["bytes": .hexed(bytes)])
    case .reference(let reference):
      return .object([
        "reference": .object([
          "action": .uint(UInt64(reference.action.rawValue)), "zone": reference.zone.map { group($0) } ?? .null,
          "name": .text(reference.name),
        ])
      ])
    case .location(let place):
      func part(_ number: Double?) -> JSON { number.map(JSON.bits) ?? .null }
      return .object([
        "location": .object([
          "latitude": .bits(place.latitude), "longitude": .bits(place.longitude),
          "horizontalAccuracy": part(place.horizontalAccuracy), "verticalAccuracy": part(place.verticalAccuracy),
          "altitude": part(place.altitude), "speed": part(place.speed), "course": part(place.course),
          "timestamp": place.timestamp.map { .int($0) } ?? .null,
        ])
      ])
    case .asset(let asset):
      return .object([
        "asset": .object([
          "size": .int(asset.size), "contentHash": asset.contentHash.map { .hexed($0.bytes) } ?? .null,
          "isAtServer": .bool(asset.server != nil), "fileChecksum": .optional(asset.server?.fileChecksum),
          "referenceChecksum": .optional(asset.server?.referenceChecksum),
          "wrappingKey": .optional(asset.server?.wrappingKey), "receipt": .optional(asset.server?.receipt),
          "downloadURL": .optional(asset.server?.downloadURL),
        ])
      ])
    case .list(let kind, let items):
      return .object(["list": .uint(UInt64(kind.rawValue)), "items": .list(items.map { JSON.value($0) })])
    case .encrypted(let inner): return .object(["encrypted": JSON.value(inner)])
    case .opaque(let value):
      return .object(["opaque": .object(["type": .text(value.type), "json": .hexed(value.json)])])
    }
  }
}
