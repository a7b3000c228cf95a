// `export`: prints a store as JSON Lines in a fixed order and form, so that equal stores print equal bytes. Takes no
// lock.
//
// One thread reads the records, another writes them as lines. What waits between them is bounded, so memory holds a few
// pieces of the store, however large it is.

import Strandline
import StrandlineHost
import StrandlineJSON
import StrandlineSystem

extension Command {
  static let export = Command(
    "export", "Print records as JSON Lines.", operands: ["STORE"],
    details: [
      "The records are ordered by zone and name. Without --zone each line names its zone. import accepts every line,",
      "except one with a number that is not finite in a list of DOUBLEs or in a LOCATION: JSON cannot express it.",
      "A line names the content of an asset that only this store has by its hash; --contents copies the contents.",
    ],
    options: [
      Option("--zone", "ZONE", "Only the records of this zone; the lines then do not name it."),
      Option("--contents", "DIR", "Copy the contents of assets to DIR, each as assets/HASH."),
    ],
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
        count += $1
        bytes += UInt64($0.count)
      }
      if let folder = arguments["--contents"] {
        let copied = try readOnly(path, console).copyContents(to: folder)
        console.say("\(Words.bytes(copied)) of contents copied to \(printable(folder))")
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

  /// Calls `body` with the lines of an export, some at a time, each with its line end; and with the number of them.
  static func export(
    _ path: String, zone: String?, _ console: Console, _ body: (_ lines: [UInt8], _ count: Int) throws -> Void
  ) throws {
    let store = try readOnly(path, console)
    var progress = Progress(console)
    defer { progress.end() }
    var count = 0
    let pieces = Handover<Result<[Record], any Error>>(ahead: 2)
    let thread = try BlockingThread.start(name: "read-records") {
      readPieces(of: store, zone, pieces)
      pieces.end()
    }
    defer {
      pieces.stop()
      thread.join()
    }
    var json = JSONWriter(controls: .hexadecimal)
    while let records = try pieces.take()?.get() {
      for record in records {
        record.writeLine(zone: zone == nil, to: &json)
        json.endLine()
      }
      try body(json.bytes, records.count)
      json.removeAll()
      count += records.count
      progress.update("exporting: \(Words.plural(count, "record"))")
    }
  }

  private static let pieceRecordsMax = 128
  private static let pieceBytesMax = 256 << 10

  /// Gives all records, some at a time, or those before the one that cannot be read, and then the error.
  private static func readPieces(
    of store: RecordStore, _ zone: String?, _ pieces: Handover<Result<[Record], any Error>>
  ) {
    var piece: [Record] = []
    var bytes = 0
    let outcome = Result {
      try store.forEachRecord(in: zone.map { ZoneID($0) }) { record in
        piece.append(record)
        bytes += record.undecodedByteCount
        guard piece.count == pieceRecordsMax || bytes >= pieceBytesMax else { return }
        // The taker has stopped, and does not ask for the error.
        guard pieces.give(.success(piece)) else { throw CancellationError() }
        (piece, bytes) = ([], 0)
      }
    }
    guard pieces.give(.success(piece)), case .failure(let error) = outcome else { return }
    _ = pieces.give(.failure(error))
  }
}
