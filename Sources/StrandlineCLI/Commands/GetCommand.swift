// `get`: shows one record, as text or as JSON. Takes no lock.

import Foundation
import Strandline
import StrandlineSystem
import StrandlineCloudKit

extension Command {
  static let get = Command(
    "get", "Show one record.", operands: ["STORE", "NAME"],
    options: [
      .zone, .json,
      Option("--stamps", "Also print when each field was written last, and by which writer."),
    ],
    examples: [
      Example("As text", "strandline get STORE n1"), Example("As JSON", "strandline get --json STORE n1"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      let id = try RecordID(arguments.operands[1], zone: arguments.zone() ?? .main)
      let store = try readOnly(path, console)
      guard let record = try store.record(id) else {
        throw Failure(
          .noSuchStore, "'\(path)' has no record '\(printable(id.description))'",
          try: "strandline why \(ShellWord.quote(path)) \(ShellWord.quote(id.name))\(zone(of: id))")
      }
      if arguments.has("--json") {
        try console.write(record.line(zone: true) + [UInt8(ascii: "\n")])
      } else {
        for line in text(record) { try console.print(line) }
      }
      if arguments.has("--stamps") { try show(stamps(of: id, in: store), arguments, console) }
      return .done
    })

  private static func text(_ record: Record) -> [String] {
    var rows: [(String, String)] = [("record", printable(record.id.description)), ("type", printable(record.type))]
    if let parent = record.parent { rows.append(("parent", printable(parent))) }
    if let system = record.system {
      if let tag = system.changeTag { rows.append(("server tag", printable(tag))) }
      if let modified = system.modified { rows.append(("server time", time(modified.milliseconds))) }
    }
    for name in record.fields.keys.sorted(by: { $0.precedesByUTF8($1) }) {
      guard let value = record.fields[name] else { continue }
      rows.append((printable(name), printable(value.dates ?? String(decoding: value.line, as: UTF8.self))))
    }
    let width = min(24, rows.map(\.0.count).max() ?? 0)
    return rows.map { name, value in
      name + String(repeating: " ", count: max(0, width - name.count) + 2) + value
    }
  }

  private static func zone(of id: RecordID) -> String {
    id.zone == .main ? "" : " --zone \(ShellWord.quote(id.zone.name))"
  }

  /// The stamps of the version that the record shows; none if compaction has left no event of it.
  private static func stamps(of id: RecordID, in store: RecordStore) throws -> [String: FieldStamp] {
    guard let place = try store.projections.look(id).entry?.view, let event = try store.source.eventIfKept(at: place)
    else { return [:] }
    return try LoadedVersion(event, at: place)?.version.stamp.fields ?? [:]
  }

  private static func show(
    _ stamps: [String: FieldStamp], _ arguments: Arguments, _ console: Console
  ) throws {
    let sorted = stamps.sorted { $0.key.precedesByUTF8($1.key) }
    if arguments.has(Option.json.name) {
      let members = sorted.map { name, stamp in
        (
          name,
          JSONValue.object([
            "milliseconds": .integer(stamp.time.milliseconds), "writer": .string(String(stamp.writer, radix: 16)),
          ])
        )
      }
      let line = JSONValue.object(["stamps": .object(Dictionary(members) { first, _ in first })])
      try console.write(line.canonicalBytes + [UInt8(ascii: "\n")])
    } else {
      for (name, stamp) in sorted {
        let name = name == Version.parentField ? "its parent" : printable(name)
        try console.print("\(name)  \(time(stamp.time.milliseconds)) by writer \(String(stamp.writer, radix: 16))")
      }
    }
  }

  /// Formats a time in UTC with whole seconds.
  static func time(_ milliseconds: Int64) -> String {
    Date(timeIntervalSince1970: Double(milliseconds) / 1_000).formatted(.iso8601)
  }
}

extension FieldValue {
  /// A date, or a list of some, as people write them; nil for every other value.
  fileprivate var dates: String? {
    switch self {
    case .date(let milliseconds): ISODate.text(milliseconds)
    case .list(.dates, let items) where !items.isEmpty: "[\(items.compactMap(\.dates).joined(separator: ", "))]"
    default: nil
    }
  }
}
