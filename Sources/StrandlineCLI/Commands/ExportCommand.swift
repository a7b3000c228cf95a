// `export`: a store as JSON Lines, in one order and one form, so that equal stores give equal bytes. Takes no lock.

import Strandline
import StrandlineHost

extension Command {
  static let export = Command(
    "export", "Print records as JSON Lines.", operands: ["STORE"],
    details: [
      "In the order of zone and name. Without --zone each line names its zone; import takes every line back."
    ],
    options: [Option("--zone", "ZONE", "Only the records of this zone, which the lines then do not name.")],
    examples: [
      Example("A backup to read", "strandline export STORE > notes.jsonl"),
      Example("Whether two devices agree", "diff <(strandline export A) <(strandline export B)"),
    ],
    run: { arguments, console in
      try export(arguments.operands[0], zone: arguments["--zone"], console) { try console.write($0) }
      return .done
    })

  /// Hands out the lines of an export, each with its end.
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
