// `backup`: copies a store to a new directory while an app writes it.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLog
import StrandlineSystem

extension Command {
  static let backup = Command(
    "backup", "Copy a store to a new directory, while an app writes it.", operands: ["STORE", "DIR"],
    details: [
      "The copy is the store as it was after one event, checked and on the disk when this ends. If it is interrupted,",
      "nothing is at DIR. The copy is a store of its own: an app can open it, on this device or another one, and sync it",
      "with the same account. DIR must be empty or not exist. A sign-in is not copied.",
    ],
    options: [.json],
    examples: [
      Example("Copy a store", "strandline backup STORE DIR"),
      Example("Check the copy", "strandline verify DIR"),
    ],
    run: { arguments, console in
      let (path, target) = (arguments.operands[0], arguments.operands[1])
      try checkParent(of: target, console, purpose: "to make the copy in")
      var progress = Progress(console)
      let backup: StoreBackup
      do {
        defer { progress.end() }
        backup = try RecordStore.backupBlocking(
          at: path, to: target, environment: StoreEnvironment(console.environment)
        ) { state in
          progress.update("\(Words.bytes(state.bytesCopied)) of \(Words.bytes(state.bytesTotal))")
        }
      } catch let error as StrandlineError
        where error.code == .notAStore && (error.file != directory(path) || directory(target) == directory(path))
      {
        throw Failure(.cannotCreate, error.message, try: "the same command with another directory for the copy")
      }
      if arguments.has("--json") {
        try console.write(backup.json(target).canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        try console.print(
          "\(printable(target)): \(Words.bytes(backup.bytes)) in \(Words.plural(backup.segments, "segment")), up to LSN "
            + "\(backup.lsn)")
      }
      let nanoseconds = progress.nanoseconds
      if console.isErrorTerminal, nanoseconds > 0 {
        let seconds = Double(nanoseconds) / 1e9
        console.say("\(Words.bytes(UInt64(Double(backup.bytes) / seconds))) a second")
      }
      return .done
    })

  /// The path as errors name it: without slashes at its end.
  private static func directory(_ path: String) -> String {
    var path = path[...]
    while path.utf8.count > 1, path.hasSuffix("/") { path.removeLast() }
    return String(path)
  }
}

extension StoreBackup {
  /// The object that `backup --json` prints.
  fileprivate func json(_ target: String) -> JSONValue {
    .object([
      "into": .string(target), "lastLSN": .integer(Int64(clamping: lsn.rawValue)),
      "bytes": .integer(Int64(clamping: bytes)), "segments": .integer(Int64(segments)),
      "contentBytes": .integer(Int64(clamping: contentBytes)),
    ])
  }
}
