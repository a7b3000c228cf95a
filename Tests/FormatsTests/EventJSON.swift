// Events as JSON under the names of the pages' tables: what this package's code understands of golden bytes, for the
// comparison with a decoder that knows only the pages.

import Strandline
import StrandlineSystem
import StrandlineServer

extension JSON {
  static func zone(_ zone: ZoneID) -> JSON {
    .object(["scope": .uint(UInt64(zone.scope.rawValue)), "owner": .text(zone.owner), "name": .text(zone.name)])
  }

  static func id(_ id: RecordID) -> JSON { .object(["zone": zone(id.zone), "name": .text(id.name)]) }

  static func touch(_ touch: Touch?) -> JSON {
    guard let touch else { return .null }
    return .object([
      "milliseconds": .int(touch.milliseconds), "user": .text(touch.user), "device": .text(touch.device),
    ])
  }

  static func births(_ births: Set<Birth>) -> JSON {
    .list(births.sorted().map { .object(["time": .uint($0.time.rawValue), "writer": .uint($0.writer)]) })
  }

  static func stamp(_ stamp: FieldStamp?) -> JSON {
    guard let stamp else { return .null }
    return .object(["time": .uint(stamp.time.rawValue), "writer": .uint(stamp.writer)])
  }

  static func seen(_ seen: [WriterID: Seen]) -> JSON {
    .list(
      seen.sorted { $0.key < $1.key }.map {
        .object([
          "writer": .uint($0.key), "lsn": .uint($0.value.lsn.rawValue), "tenure": .uint($0.value.tenure),
          "time": .uint($0.value.time.rawValue),
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
          "action": .uint(UInt64(reference.action.rawValue)), "zone": reference.zone.map(zone) ?? .null,
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
          "fileChecksum": .text(asset.fileChecksum), "size": .int(asset.size),
          "referenceChecksum": .optional(asset.referenceChecksum), "wrappingKey": .optional(asset.wrappingKey),
          "receipt": .optional(asset.receipt), "downloadURL": .optional(asset.downloadURL),
        ])
      ])
    case .list(let kind, let items):
      return .object(["list": .uint(UInt64(kind.rawValue)), "items": .list(items.map { JSON.value($0) })])
    case .encrypted(let inner): return .object(["encrypted": JSON.value(inner)])
    }
  }

  static func content(
    _ content: EncodedContent, _ type: String, _ births: Set<Birth>, at lsn: UInt64
  ) throws -> JSON {
    let (version, dirty) = try content.decoded(type: type, births: births, this: LSN(lsn))
    return .object([
      "fields": .list(
        version.names.map {
          .object([
            "name": .text($0), "stamp": stamp(version.stamp.fields[$0]), "value": value(version.fields[$0]),
          ])
        }),
      "seen": seen(version.stamp.seen), "unknownStampParts": .hexed(version.stamp.unknown),
      "dirty": .object(dirty.mapValues { .uint($0.rawValue) }),
    ])
  }

  /// An event of a store.
  static func event(_ event: Event, at lsn: UInt64) throws -> JSON {
    var members = try members(event, at: lsn)
    members["kind"] = .text(event.kindName)
    return .object(members)
  }

  private static func lsn(_ lsn: LSN) -> JSON { .uint(lsn.rawValue) }
  private static func number(_ byte: UInt8) -> JSON { .uint(UInt64(byte)) }

  private static func members(_ event: Event, at place: UInt64) throws -> [String: JSON] {
    switch event {
    case .opened(let event):
      return ["writer": .uint(event.writer), "storeUUID": .hexed(event.storeUUID), "tenure": .uint(event.tenure)]
    case .bound(let event):
      return [
        "container": .text(event.container), "environment": .text(event.environment),
        "scope": number(event.scope.rawValue), "userHash": .uint(event.userHash),
      ]
    case .saved(let event):
      return [
        "record": id(event.id), "recordType": .text(event.type), "births": births(event.births),
        "base": lsn(event.base), "time": .uint(event.time.rawValue), "editCount": .uint(event.editCount),
        "tenure": .uint(event.tenure), "isCreation": .bool(event.isCreation),
        "content": try content(event.content, event.type, event.births, at: place),
      ]
    case .deleted(let event):
      return [
        "record": id(event.id), "births": births(event.births), "base": lsn(event.base),
        "time": .uint(event.time.rawValue), "tenure": .uint(event.tenure),
      ]
    case .sent(let event):
      return ["batch": .uint(event.batch), "zone": zone(event.zone), "lsns": .list(event.lsns.map(lsn))]
    case .settled(let event):
      return [
        "record": id(event.id), "lsn": lsn(event.lsn), "outcome": number(event.outcome.rawValue),
        "changeTag": .optional(event.changeTag), "created": touch(event.created), "modified": touch(event.modified),
        "code": .text(event.code), "words": .text(event.words),
      ]
    case .merged(let event):
      return [
        "record": id(event.id), "recordType": .text(event.type), "births": births(event.births),
        "base": lsn(event.base), "local": lsn(event.local), "time": .uint(event.time.rawValue),
        "editCount": .uint(event.editCount), "tenure": .uint(event.tenure), "rule": .text(event.rule),
        "content": try content(event.content, event.type, event.births, at: place),
      ]
    case .fetchedSave(let event):
      return [
        "record": id(event.id), "recordType": .text(event.type), "births": births(event.births),
        "changeTag": .text(event.changeTag), "created": touch(event.created), "modified": touch(event.modified),
        "source": number(event.source.rawValue), "isStamped": .bool(event.isStamped),
        "latest": .uint(event.latest.rawValue), "unknownKeys": .hexed(event.unknown),
        "content": try content(event.content, event.type, event.births, at: place),
      ]
    case .fetchedDelete(let event):
      return ["record": id(event.id), "births": births(event.births), "reason": number(event.reason.rawValue)]
    case .confirmed(let event): return ["zone": zone(event.zone), "names": .list(event.names.map { .text($0) })]
    case .listed(let event):
      return [
        "zone": zone(event.zone),
        "items": .list(
          event.items.map {
            .object([
              "name": .text($0.name), "changeTag": .text($0.changeTag), "modified": .int($0.modifiedMilliseconds),
            ])
          }),
      ]
    case .blocked(let event):
      return [
        "record": id(event.id), "subject": number(event.subject.rawValue), "lsn": lsn(event.lsn),
        "changeTag": .text(event.changeTag), "births": births(event.births),
        "consequence": number(event.consequence.rawValue), "words": .text(event.words),
      ]
    case .held(let event):
      return [
        "record": id(event.id), "direction": number(event.direction.rawValue), "lsn": lsn(event.lsn),
        "raw": .hexed(event.raw), "code": .text(event.code), "words": .text(event.words),
        "requestUUID": .text(event.requestUUID), "attempts": .uint(event.attempts),
        "duration": .int(event.durationMilliseconds), "wall": .int(event.wallMilliseconds),
      ]
    case .released(let event): return ["record": id(event.id), "lsn": lsn(event.lsn)]
    case .discarded(let event): return ["record": id(event.id), "lsn": lsn(event.lsn)]
    case .tokenAdvanced(let event):
      return [
        "zone": event.zone.map(zone) ?? .null, "asked": .optional(event.asked?.rawValue),
        "token": .text(event.token.rawValue), "sweepEpoch": .uint(event.sweepEpoch),
      ]
    case .zoneChanged(let event):
      return [
        "zone": zone(event.zone), "change": number(event.change.rawValue), "reason": .text(event.reason),
        "policy": .text(event.policy),
      ]
    case .sweepBegan(let event): return ["zone": zone(event.zone), "epoch": .uint(event.epoch)]
    case .sweepEnded(let event):
      return [
        "zone": zone(event.zone), "epoch": .uint(event.epoch), "seen": .uint(event.seen),
        "removed": .uint(event.removed),
      ]
    case .assetUploaded(let event):
      return [
        "record": id(event.id), "lsn": lsn(event.lsn), "field": .text(event.field), "receipt": .text(event.receipt),
        "wall": .int(event.wallMilliseconds),
      ]
    case .accountChanged(let event): return ["userHash": .uint(event.userHash), "isParked": .bool(event.isParked)]
    case .pace(let event):
      return [
        "duration": .int(event.durationMilliseconds), "wall": .int(event.wallMilliseconds),
        "batchSize": .uint(event.batchSize), "isServers": .bool(event.isServers), "reason": .text(event.reason),
      ]
    case .deletions(let event):
      return [
        "latest": .uint(event.latest.rawValue), "key": .hexed(littleEndian(event.key.low, event.key.high)),
        "names": .list(
          event.items.map {
            .object([
              "hash": .hexed(littleEndian($0.hash.low, $0.hash.high)), "lsn": lsn($0.lsn), "isLocal": .bool($0.isLocal),
              "births": births($0.births), "created": $0.createdMilliseconds.map { .int($0) } ?? .null,
              "changeTag": .optional($0.changeTag),
            ])
          }),
      ]
    case .superseded(let event):
      return [
        "latest": .uint(event.latest.rawValue),
        "records": .list(event.records.map { .object(["record": id($0.id), "recordType": .text($0.type)]) }),
        "mutations": .list(
          event.mutations.map {
            .object([
              "lsn": lsn($0.lsn), "recordPlace": .int(Int64($0.record)), "time": .uint($0.time.rawValue),
            ])
          }),
      ]
    case .unknown(let event): return ["bytes": .hexed(event.bytes)]
    }
  }

  private static func littleEndian(_ words: UInt64...) -> [UInt8] {
    words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> UInt64(8 * $0)) } }
  }

  /// An event of the local server; nil is one that may be skipped.
  static func journal(_ event: JournalEvent?) -> JSON {
    guard let event else { return .object(["kind": .text("unknown")]) }
    var members: [String: JSON]
    switch event {
    case .opened(let tenure): members = ["tenure": .uint(tenure)]
    case .zoneCreated(let life, let key, let name):
      members = [
        "life": .uint(life), "container": .text(key.container), "environment": .text(key.environment),
        "scope": number(key.scope.rawValue), "user": .text(key.user), "name": .text(name),
      ]
    case .zoneDeleted(let life): members = ["life": .uint(life)]
    case .recordSaved(let record):
      let fields = record.fields.sorted { $0.key.precedesByUTF8($1.key) }
      members = [
        "life": .uint(record.zone), "name": .text(record.name), "recordType": .text(record.type),
        "parent": .optional(record.parent), "changeTag": .text(record.tag), "created": touch(record.created),
        "modified": touch(record.modified), "cause": cause(record.cause),
        "fields": .list(fields.map { .object(["name": .text($0.key), "value": value($0.value)]) }),
      ]
    case .recordDeleted(let zone, let name, let what):
      members = ["life": .uint(zone), "name": .text(name), "cause": cause(what)]
    }
    members["kind"] = .text("\(event.kind)")
    return .object(members)
  }

  private static func cause(_ cause: JournalCause) -> JSON {
    .object([
      "requestUUID": .hexed(cause.requestUUID), "operation": .uint(UInt64(cause.operation)),
      "isCascade": number(cause.isCascade ? 1 : 0),
    ])
  }
}
