// `export`: prints a store as JSON Lines in a fixed order and form, so that equal stores print equal bytes. Takes no
// lock.

import Strandline
import StrandlineHost

extension Command {
  static let export = Command(
    "export", "Print records as JSON Lines.", operands: ["STORE"],
    details: [
      "The records are ordered by zone and name. Without --zone each line names its zone. import accepts every line,",
      "except one with a number that is not finite in a list of DOUBLEs or in a LOCATION: JSON cannot express it.",
    ],
    options: [Option("--zone", "ZONE", "Only the records of this zone; the lines then do not name it.")],
    examples: [
      Example("All records as text", "strandline export STORE > notes.jsonl"),
      Example("Compare two devices", "diff <(strandline export A) <(strandline export B)"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      let zone = try arguments.zone()
      var count = 0
      var bytes: UInt64 = 0
      let progress = Progress(console)
      try export(path, zone: zone?.name, console) {
        try console.write($0)
        count += 1
        bytes += UInt64($0.count)
      }
      // What is still buffered precedes the line on a terminal that shows both.
      try console.flush()
      let rate = progress.rate(records: count, bytes: bytes)
      if !rate.isEmpty { console.say("\(Words.plural(count, "record")) exported" + rate) }
      if let zone, count == 0 { try warnAboutUnknownZone(zone, path, console) }
      return .done
    })

  /// Prints a note if the store has no such zone. It is not an error, because any name may become a zone.
  private static func warnAboutUnknownZone(_ zone: ZoneID, _ path: String, _ console: Console) throws {
    let zones = try readOnly(path, console).status().zones.map(\.id)
    guard !zones.contains(zone) else { return }
    let names = zones.map { printable($0.name) }
    console.say(
      "note: '\(printable(path))' has no zone '\(printable(zone.name))'"
        + (names.isEmpty ? "" : "; its zones are \(names.joined(separator: ", "))"))
  }

  /// Calls `body` with each line of an export, including its line end.
  static func export(
    _ path: String, zone: String?, _ console: Console, _ body: ([UInt8]) throws -> Void
  ) throws {
    let store = try readOnly(path, console)
    var progress = Progress(console)
    defer { progress.end() }
    var count = 0
    try store.forEachRecord(in: zone.map { ZoneID($0) }) { record in
      try body(record.line(zone: zone == nil) + [UInt8(ascii: "\n")])
      count += 1
      progress.update("exporting: \(Words.plural(count, "record"))")
    }
  }
}
