// `import`: saves records from JSON Lines, N in each transaction, and acknowledges each batch when it is durable.
//
// A batch is N good lines in order. A bad line, whether the decoder or the store rejects it, is never part of one. So
// the lines are read inside the transaction, until it has N records, a line is bad, or the input ends.

import Strandline
import StrandlineHost
import StrandlineSystem

extension Command {
  static let importing = Command(
    "import", "Save records from JSON Lines.", operands: ["STORE", "FILE|-"],
    details: [
      "Each line is a record: {\"recordType\": …, \"recordName\": …, \"fields\": {name: value, …}}, and optionally",
      "\"zoneName\" (overrides --zone) and \"parent\". A line replaces an existing record; an equal one changes nothing.",
      "A line that is not a record, or that the store rejects, ends the import with exit code 65 and the number of the",
      "line. Everything before it is saved.",
    ],
    options: [
      .zone,
      Option("--batch", "N", "Records in each transaction. Default: 400."),
      Option(
        "--acks",
        "Print 'ACK LSN' on standard output for each batch when it is durable, and nothing else."),
      Option("--keep-going", "Report and skip bad lines; if there were any, the exit code is 65."),
      Option("--recreate", "Create new records for names that were deleted."),
    ],
    examples: [
      Example("Import records into a new store", "strandline import ~/notes.strand notes.jsonl"),
      Example(
        "Copy the records of another store, with their zones",
        "strandline export A.strand | strandline import B.strand -"),
    ],
    run: { try ImportCommand($0, $1).run() })
}

/// One run of `import`.
struct ImportCommand {
  private let storePath: String
  private let filePath: String
  private let zone: String
  private let batchSize: Int
  private let acknowledges: Bool
  private let keepsGoing: Bool
  private let recreates: Bool
  private let console: Console

  static let batchSizeDefault = 400
  private static let batchSizeMax = 100_000

  init(_ arguments: Arguments, _ console: Console) throws {
    storePath = arguments.operands[0]
    filePath = arguments.operands[1]
    zone = try (arguments.zone() ?? .main).name
    batchSize = try arguments.number("--batch", in: 1...Self.batchSizeMax) ?? Self.batchSizeDefault
    acknowledges = arguments.has("--acks")
    keepsGoing = arguments.has("--keep-going")
    recreates = arguments.has("--recreate")
    self.console = console
  }

  /// Why a batch has ended.
  private enum End {
    case full
    case input
    case bad(Failure)
    case failed(any Error)
  }

  func run() throws -> ExitCode {
    // The input is opened first, so that a mistyped path of it does not create an empty store.
    var (lines, size) = try LineReader.opening(filePath, console)
    try Command.checkParent(of: storePath, console, purpose: "to make the store in")
    let isNew = Command.isNew(storePath, console)
    let store = try RecordStore.openBlocking(at: storePath, environment: StoreEnvironment(console.environment))
    Command.sayRecovery(of: store, at: storePath, console)
    let outcome = Result { try importAll(&lines, size, into: store) }
    // If records were saved, the number of them has been printed.
    if case .failure = outcome, isNew, (try? store.status().records) == 0 { Command.sayNew(storePath, console) }
    // If both fail, the error of the import is reported.
    let closed = Result { try store.closeBlocking() }
    let code = try outcome.get()
    try closed.get()
    return code
  }

  private func importAll(_ lines: inout LineReader, _ size: UInt64?, into store: RecordStore) throws -> ExitCode {
    var saved = 0
    var skipped = 0
    var progress = Progress(console)
    defer { progress.end() }
    while true {
      var end = End.full
      var count = 0
      let receipt: Receipt
      do {
        receipt = try store.writeBlocking { end = fill(&$0, from: &lines, count: &count, skipped: &skipped) }
      } catch let error as StrandlineError where error.code == .tooLarge {
        throw Failure(
          .dataDamaged, "the batch that ends with line \(lines.number): \(error.message)",
          try:
            "the same command with --batch \(max(1, batchSize / 8)); records that are saved already are not saved again"
        )
      }
      saved += count
      if count > 0, acknowledges {
        try console.print("ACK \((receipt.lsns?.upperBound ?? receipt.durableLSN).rawValue)")
        try console.flush()
      }
      progress.update(words(saved, lines.bytesRead, size))
      switch end {
      case .full: continue
      case .input:
        progress.end()
        console.say(
          "\(Words.plural(saved, "record")) imported"
            + (skipped > 0 ? ", \(Words.plural(skipped, "bad line")) skipped" : "")
            + progress.rate(records: saved, bytes: lines.bytesRead))
        return skipped > 0 ? .dataDamaged : .done
      case .bad(let failure):
        progress.end()
        console.say("\(Words.plural(saved, "record")) imported before the bad line")
        throw failure
      case .failed(let error): throw error
      }
    }
  }

  /// Saves lines into the transaction until it has `batchSize` records. If a line fails, this returns the failure instead
  /// of throwing it, so that the transaction with the lines before it is committed.
  private func fill(
    _ transaction: inout WriteTransaction, from lines: inout LineReader, count: inout Int, skipped: inout Int
  ) -> End {
    while count < batchSize {
      let line: LineReader.Line
      do {
        guard let next = try lines.next() else { return .input }
        line = next
      } catch { return .failed(error) }
      do {
        if try save(line, into: &transaction) { count += 1 }
      } catch {
        let failure = failure(error, line: lines.number)
        guard failure.code == .dataDamaged, keepsGoing, !isDamage(error), !transaction.isTooLarge else {
          return .bad(failure)
        }
        skipped += 1
        console.report(failure)
      }
    }
    return .full
  }

  /// Saves one line. Returns false for an empty line.
  private func save(_ line: LineReader.Line, into transaction: inout WriteTransaction) throws -> Bool {
    guard let bytes = try line.content() else { return false }
    let record = try RecordLine(json: bytes).record(in: zone)
    do {
      try transaction.save(record)
    } catch let error as StrandlineError where error.code == .recordWasDeleted && recreates {
      try transaction.create(record)
    }
    return true
  }

  private func failure(_ error: any Error, line: Int) -> Failure {
    let location = "\(filePath == "-" ? "standard input" : "'\(filePath)'"), line \(line)"
    if let bad = error as? BadLine {
      return Failure(.dataDamaged, "\(location)\(bad.place): \(bad.words)", try: remedy(nil))
    }
    var failure = Failure(error, store: storePath)
    failure.message = "\(location): \(failure.message)"
    if !isDamage(error) { failure.remedy = remedy((error as? StrandlineError)?.code) }
    return failure
  }

  private func isDamage(_ error: any Error) -> Bool {
    guard let code = (error as? StrandlineError)?.code else { return false }
    return code == .damaged || code == .fromTheFuture
  }

  private func remedy(_ code: StrandlineError.Code?) -> String? {
    if code == .recordWasDeleted { return "the same command with --recreate, to create a new record with this name" }
    return keepsGoing
      ? nil : "correct the line, or add --keep-going; records that are saved already are not saved again"
  }

  private func words(_ saved: Int, _ bytes: UInt64, _ size: UInt64?) -> String {
    let share = size.flatMap { $0 > 0 ? ", \(bytes * 100 / $0) %" : nil } ?? ""
    return "importing: \(Words.plural(saved, "record"))\(share)"
  }
}
