// An event as `log-dump` shows it, of a store or of a server's journal, of a known or an unknown kind: its kind, its
// record, and its details as pairs from which both the text and the JSON are made. Field values are not shown.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineServer
import StrandlineSystem

/// The description of one event.
struct EventView {
  var lsn: UInt64
  /// The kind's name; "unknown-99" for kind 99 of a newer version.
  var kind: String
  /// nil if the event does not concern a single record.
  var recordName: String?
  var zoneName: String?
  var details: [(name: String, value: JSONValue)]

  /// The names that `--kind` accepts for a log of this role.
  static func kindNames(of role: LogRole) -> [String] {
    switch role {
    case .store: EventKind.allCases.filter { $0 != .inboxChange }.map(\.name) + ["unknown"]
    case .inbox: [EventKind.inboxChange, .inboxRead].map(\.name) + ["unknown"]
    case .server: JournalEventKind.allCases.map { String(describing: $0) } + ["unknown"]
    }
  }

  /// Describes an event. An event that cannot be decoded is described by the number of its kind and its length.
  init(_ event: LogEvent, role: LogRole) {
    do {
      switch role {
      case .store, .inbox: try self.init(try event.decoded(), at: event)
      case .server: try self.init(journal: event)
      }
    } catch {
      var number: UInt16 = 0
      if event.body.count >= 2 { number = UInt16(event.body[0]) | UInt16(event.body[1]) << 8 }
      self.init(lsn: event.lsn, kind: "unknown-\(number)", details: [("bytes", .integer(Int64(event.body.count)))])
    }
  }

  private init(
    lsn: UInt64, kind: String, recordName: String? = nil, zoneName: String? = nil, details: [(String, JSONValue)]
  ) {
    self.lsn = lsn
    self.kind = kind
    self.recordName = recordName
    self.zoneName = zoneName
    self.details = details.map { (name: $0.0, value: $0.1) }
  }

  private init(_ event: Event, at source: LogEvent) throws {
    self.init(
      lsn: source.lsn, kind: event.kindName, recordName: event.recordID?.name, zoneName: event.recordID?.zone.name,
      details: try Self.details(event, at: LSN(source.lsn), bytes: source.body.count))
  }

  // MARK: A store's events

  private static func details(_ event: Event, at lsn: LSN, bytes: Int) throws -> [(String, JSONValue)] {
    switch event {
    case .opened(let event): [("writer", hex(event.writer)), ("tenure", hex(event.tenure))]
    case .bound(let event):
      [
        ("container", .string(event.container)), ("environment", .string(event.environment)),
        ("scope", .string("\(event.scope)")),
      ]
    case .saved, .merged, .fetchedSave: try version(event, at: lsn)
    case .deleted(let event):
      [("base", number(event.base)), ("time", time(event.time))]
        + (event.cause == .zero ? [] : [("cause", number(event.cause))])
    case .sent(let event):
      [
        ("zone", .string(event.zone.name)), ("batch", hex(event.batch)),
        ("mutations", .integer(Int64(event.lsns.count))),
        ("lsns", .string(ranges(event.lsns))),
      ]
    case .refused(let event): [("mutation", number(event.lsn))]
    case .settled(let event): settled(event)
    case .fetchedDelete(let event): [("reason", .string("\(event.reason)")), ("births", births(event.births))]
    case .confirmed(let event):
      [("zone", .string(event.zone.name)), ("names", .integer(Int64(event.names.count)))]
    case .listed(let event): [("zone", .string(event.zone.name)), ("names", .integer(Int64(event.items.count)))]
    case .listedEnded(let event): [("zone", .string(event.zone.name)), ("lsns", .string(ranges(event.lsns)))]
    case .blocked(let event): blocked(event)
    case .conflicted(let event):
      [
        ("mutation", number(event.local)), ("with", number(event.server)), ("ancestor", number(event.ancestor)),
        ("rule", .string(event.rule)), ("words", .string(event.words)),
        ("fields", .string(event.fields.map { "\($0.name)=\($0.rule):\($0.loser)" }.joined(separator: " "))),
      ]
    case .held(let event):
      [
        ("direction", .string("\(event.direction)")), ("mutation", number(event.lsn)), ("code", .string(event.code)),
        ("words", .string(event.words)), ("attempts", .integer(Int64(clamping: event.attempts))),
      ]
    case .joined(let event): [("set", number(event.set))]
    case .released(let event): [("mutation", number(event.lsn))]
    case .discarded(let event): [("mutation", number(event.lsn))]
    case .tokenAdvanced(let event):
      [("zone", .string(event.zone.name)), ("token", .string(event.token.rawValue))]
    case .databaseTokenAdvanced(let event):
      [("scope", .string("\(event.scope)")), ("token", .string(event.token.rawValue))]
    case .zoneChanged(let event):
      [("zone", .string(event.zone.name)), ("change", .string("\(event.change)"))]
        + (event.reason.map { [("reason", .string("\($0)"))] } ?? [])
        + (event.words.isEmpty ? [] : [("words", .string(event.words))])
    case .sweepBegan(let event): [("zone", .string(event.zone.name))]
    case .sweepEnded(let event):
      [
        ("zone", .string(event.zone.name)), ("seen", .integer(Int64(clamping: event.seen))),
        ("removed", .integer(Int64(clamping: event.removed))),
      ]
    case .assetUploaded(let event): [("mutation", number(event.lsn)), ("field", .string(event.field))]
    case .accountChanged(let event): [("parked", .bool(event.isParked))]
    case .pace(let event):
      [
        ("scope", .string("\(event.scope)")), ("milliseconds", .integer(event.durationMilliseconds)),
        ("server's", .bool(event.isServers)), ("serverOffset", .integer(event.serverOffsetMilliseconds)),
        ("reason", .string(event.reason)),
      ]
    case .deletions(let event): [("names", .integer(Int64(event.items.count)))]
    case .superseded(let event): [("recordType", .string(event.type)), ("time", time(event.time))]
    case .inboxChange, .inboxRead, .inboxRefused, .inboxRefusalEnded: inbox(event)
    case .unknown: [("bytes", .integer(Int64(bytes)))]
    }
  }

  private static func inbox(_ event: Event) -> [(String, JSONValue)] {
    switch event {
    case .inboxChange(let event):
      [
        ("operation", .string("\(event.operation)")), ("type", .string(event.type)), ("time", time(event.time)),
        ("fields", .string(event.fields.map(\.name).joined(separator: " "))), ("births", births(event.births)),
      ]
    case .inboxRead(let event):
      [("inbox", .string(HexText.of(event.inbox))), ("position", number(event.position))]
    case .inboxRefused(let event):
      [
        ("code", .string(event.code)), ("words", .string(event.words)),
        ("changes", .integer(Int64(event.changes.count))),
      ]
    case .inboxRefusalEnded(let event): [("refusal", number(event.lsn))]
    default: []
    }
  }

  /// The details of a version except its values: among them its base, and the fields that this event itself wrote.
  private static func version(_ event: Event, at lsn: LSN) throws -> [(String, JSONValue)] {
    guard let loaded = try LoadedVersion(event, at: lsn) else { return [] }
    var result: [(String, JSONValue)] = [("type", .string(loaded.version.type))]
    let written = loaded.dirty.filter { $0.value == lsn }.keys.sorted { $0.precedesByUTF8($1) }
    switch event {
    case .saved(let saved):
      if saved.isCreation { result.append(("creation", .bool(true))) }
      result.append(("wrote", .string(written.joined(separator: " "))))
      result.append(("base", number(saved.base)))
      result.append(("time", time(saved.time)))
    case .merged(let merged):
      result += [
        ("rule", .string(merged.rule)), ("mutation", number(merged.local)), ("base", number(merged.base)),
        ("ancestor", number(merged.ancestor)), ("words", .string(merged.words)),
        ("to send", .string(loaded.dirty.keys.sorted { $0.precedesByUTF8($1) }.joined(separator: " "))),
      ]
    case .fetchedSave(let fetched):
      result += [
        ("tag", .string(fetched.changeTag)), ("source", .string("\(fetched.source)")),
        ("fields", .integer(Int64(loaded.version.fields.count))),
      ]
    default: break
    }
    result.append(("births", births(loaded.version.stamp.births)))
    return result
  }

  private static func settled(_ event: Settled) -> [(String, JSONValue)] {
    var result: [(String, JSONValue)] = [("mutation", number(event.lsn)), ("outcome", .string("\(event.outcome)"))]
    if let tag = event.changeTag { result.append(("tag", .string(tag))) }
    if !event.code.isEmpty { result += [("code", .string(event.code)), ("words", .string(event.words))] }
    return result
  }

  private static func blocked(_ event: Blocked) -> [(String, JSONValue)] {
    var result: [(String, JSONValue)] = [("subject", .string("\(event.subject)"))]
    if event.lsn != .zero { result.append(("mutation", number(event.lsn))) }
    if !event.changeTag.isEmpty { result.append(("tag", .string(event.changeTag))) }
    return result + [("then", .string("\(event.consequence)")), ("words", .string(event.words))]
  }

  // MARK: A server's events

  private init(journal event: LogEvent) throws {
    guard let decoded = try JournalEvent.decode(event.body) else {
      throw Failure(.dataDamaged, "a kind of a later version")
    }
    let kind = String(describing: decoded.kind)
    switch decoded {
    case .opened(let tenure): self.init(lsn: event.lsn, kind: kind, details: [("tenure", Self.hex(tenure))])
    case .zoneCreated(let life, let key, let name):
      self.init(
        lsn: event.lsn, kind: kind, zoneName: name,
        details: [
          ("life", Self.hex(life)), ("container", .string(key.container)), ("environment", .string(key.environment)),
          ("scope", .string("\(key.scope)")),
        ])
    case .zoneDeleted(let life): self.init(lsn: event.lsn, kind: kind, details: [("life", Self.hex(life))])
    case .recordSaved(let record):
      self.init(
        lsn: event.lsn, kind: kind, recordName: record.name,
        details: [
          ("type", .string(record.type)), ("tag", .string(record.tag)),
          ("fields", .integer(Int64(record.fields.count))),
        ] + Self.cause(record.cause))
    case .recordDeleted(_, let name, let cause):
      self.init(lsn: event.lsn, kind: kind, recordName: name, details: Self.cause(cause))
    }
  }

  private static func cause(_ cause: JournalCause) -> [(String, JSONValue)] {
    [
      ("request", .string(HexText.of(cause.requestUUID))), ("operation", .integer(Int64(cause.operation))),
    ] + (cause.isCascade ? [("cascade", .bool(true))] : [])
  }

  // MARK: Helpers

  private static func hex(_ number: UInt64) -> JSONValue { .string(String(number, radix: 16)) }

  private static func number(_ lsn: LSN) -> JSONValue { .integer(Int64(clamping: lsn.rawValue)) }

  private static func time(_ time: HybridTime) -> JSONValue { .string(Command.time(time.milliseconds)) }

  private static func births(_ births: Set<Birth>) -> JSONValue {
    .string(births.sorted().map(\.description).joined(separator: " "))
  }

  /// Ascending LSNs as text, with runs of consecutive ones as ranges.
  private static func ranges(_ lsns: [LSN]) -> String {
    var runs: [(UInt64, UInt64)] = []
    for lsn in lsns.map(\.rawValue) {
      if let last = runs.last, last.1 &+ 1 == lsn { runs[runs.count - 1].1 = lsn } else { runs.append((lsn, lsn)) }
    }
    return runs.map { $0.0 == $0.1 ? "\($0.0)" : "\($0.0)-\($0.1)" }.joined(separator: " ")
  }
}

extension EventView {
  /// The header above the text columns.
  static let header = columns("LSN", "kind", "record", "detail")

  /// The columns as text.
  var text: String {
    Self.columns(
      String(lsn), kind, printable(recordName ?? zoneName.map { "(\($0))" } ?? "-"),
      details.map { "\($0.name) \(Self.words($0.value))" }.joined(separator: ", "))
  }

  private static func words(_ value: JSONValue) -> String {
    switch value {
    case .string(let text): text.isEmpty ? "-" : printable(text)
    case .bool(let value): value ? "yes" : "no"
    default: String(decoding: value.canonicalBytes, as: UTF8.self)
    }
  }

  private static func columns(_ lsn: String, _ kind: String, _ record: String, _ detail: String) -> String {
    func pad(_ text: String, _ width: Int) -> String {
      text + String(repeating: " ", count: max(0, width - text.count))
    }
    return "\(pad(lsn, 8)) \(pad(kind, 14)) \(pad(record, 24)) \(detail)"
  }

  /// Whether it is of a zone, or of a record in it.
  func isOf(zone: String) -> Bool {
    if let zoneName { return zoneName.equalsUTF8(zone) }
    guard case .string(let name)? = details.first(where: { $0.name == "zone" })?.value else { return false }
    return name.equalsUTF8(zone)
  }

  /// The members of the JSON object.
  var json: [String: JSONValue] {
    var members: [String: JSONValue] = [
      "lsn": .integer(Int64(clamping: lsn)), "kind": .string(kind),
      "detail": .object(Dictionary(details.map { ($0.name, $0.value) }) { first, _ in first }),
    ]
    if let recordName { members["recordName"] = .string(recordName) }
    if let zoneName { members["zoneName"] = .string(zoneName) }
    return members
  }
}

/// Bytes as hex digits.
enum HexText {
  private static let digits = Array("0123456789abcdef".utf8)

  /// Two digits for each byte.
  static func of(_ bytes: some Sequence<UInt8>) -> String {
    var text: [UInt8] = []
    for byte in bytes { text += [digits[Int(byte >> 4)], digits[Int(byte & 15)]] }
    return String(decoding: text, as: UTF8.self)
  }

  /// Lines of 16 bytes, each with its offset.
  static func lines(_ bytes: [UInt8]) -> [String] {
    stride(from: 0, to: bytes.count, by: 16).map { start in
      let row = bytes[start..<min(start + 16, bytes.count)]
      let offset = String(start, radix: 16)
      let text = String(
        decoding: row.map { (0x20..<0x7F).contains($0) ? $0 : UInt8(ascii: ".") }, as: UTF8.self)
      let hex = row.map { of([$0]) }.joined(separator: " ")
      return "    " + String(repeating: "0", count: max(0, 6 - offset.count)) + offset + "  "
        + hex + String(repeating: " ", count: 47 - hex.count) + "  " + text
    }
  }
}
