// `compact`: the log becomes as large as what it says.

import Strandline
import StrandlineCloudKit
import StrandlineHost

extension Command {
  static let compact = Command(
    "compact", "Remove from a store's log what nothing needs any more.", operands: ["STORE"],
    details: [
      "Every record, what is owed to the server and what must stay deleted is the same afterwards; event numbers",
      "stay. If it is interrupted, nothing was removed. While it runs, what stays is on the disk twice.",
    ],
    options: [.json],
    examples: [
      Example("A smaller log", "strandline compact STORE"),
      Example("What it saved, for a program", "strandline compact --json STORE"),
    ],
    run: { arguments, console in
      try withStore(arguments.operands[0], console, create: false) { store in
        let report = try store.compactBlocking()
        if arguments.has("--json") {
          try console.write(report.json.canonicalBytes + [UInt8(ascii: "\n")])
        } else {
          try console.print(report.text)
        }
        return .done
      }
    })
}

extension StoreCompaction {
  fileprivate var text: String {
    "\(Words.bytes(bytesBefore)) to \(Words.bytes(bytesAfter)); "
      + "\(Words.count(Int(clamping: eventsAfter))) of \(Words.plural(Int(clamping: eventsBefore), "event")) kept, "
      + "\(Words.count(Int(clamping: eventsBefore - eventsAfter))) dropped; "
      + "\(Words.plural(segmentsBefore, "segment")) to \(Words.count(segmentsAfter))"
  }

  /// The object that `compact --json` prints.
  fileprivate var json: JSONValue {
    .object([
      "bytesBefore": .integer(Int64(clamping: bytesBefore)), "bytesAfter": .integer(Int64(clamping: bytesAfter)),
      "eventsKept": .integer(Int64(clamping: eventsAfter)),
      "eventsDropped": .integer(Int64(clamping: eventsBefore - eventsAfter)),
      "segmentsBefore": .integer(Int64(segmentsBefore)), "segmentsAfter": .integer(Int64(segmentsAfter)),
    ])
  }
}
