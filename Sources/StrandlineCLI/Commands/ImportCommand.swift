// `import`: saves records from JSON Lines, N in each transaction, and acknowledges each batch when it is durable.
//
// A batch is N good lines in order. A bad line, whether the decoder or the store rejects it, is never part of one. So
// the lines are taken inside the transaction, until it has N records, a line is bad, or the input ends. They are read and
// decoded on another thread (RecordLines.swift). A third one waits for each batch to become durable and acknowledges it,
// while the next batch is made.

import Strandline
import StrandlineHost
import StrandlineSystem
import Synchronization

extension Command {
  static let importing = Command(
    "import", "Save records from JSON Lines.", operands: ["STORE", "FILE|-"],
    details: [
      "Each line is a record: {\"recordType\": …, \"recordName\": …, \"fields\": {name: value, …}}, and optionally",
      "\"zoneName\" (overrides --zone) and \"parent\". A line replaces an existing record; an equal one changes nothing.",
      "\"verbatim\": true, as export writes it, takes names and values that only a server can have given.",
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
      Option("--contents", "DIR", "Where export has copied the contents of assets."),
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
  private let contents: String?
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
    contents = arguments["--contents"]
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
    let (reader, size) = try LineReader.opening(filePath, console)
    try Command.checkParent(of: storePath, console, purpose: "to make the store in")
    let isNew = Command.isNew(storePath, console)
    let store = try RecordStore.openBlocking(at: storePath, environment: StoreEnvironment(console.environment))
    Command.sayRecovery(of: store, at: storePath, console)
    let outcome = Result {
      // Held until the records that name them are saved.
      let staged = try contents.map { try store.stageContents(of: $0) }
      defer { withExtendedLifetime(staged) {} }
      let progress = Progress(console)
      let lines = try RecordLines(reader, zone: zone)
      defer { lines.stop() }
      return try importAll(lines, size, progress, into: store)
    }
    // If records were saved, the number of them has been printed.
    if case .failure = outcome, isNew, (try? store.status().records) == 0 { Command.sayNew(storePath, console) }
    // If both fail, the error of the import is reported.
    let closed = Result { try store.closeBlocking() }
    let code = try outcome.get()
    try closed.get()
    return code
  }

  private func importAll(
    _ lines: RecordLines, _ size: UInt64?, _ progress: Progress, into store: RecordStore
  ) throws -> ExitCode {
    var skipped = 0
    let batches = try ImportedBatches(
      console, progress, acknowledges: acknowledges, size: size, onFailure: lines.stopper)
    let end: End
    do {
      end = try queueAll(lines, into: store, batches, &skipped)
    } catch {
      // A batch that could not be made durable is the cause of what follows it.
      _ = try batches.end()
      throw error
    }
    let (saved, rate) = try batches.end()
    switch end {
    case .full, .input:
      console.say(
        "\(Words.plural(saved, "record")) imported"
          + (skipped > 0 ? ", \(Words.plural(skipped, "bad line")) skipped" : "") + rate(lines.bytesRead))
      return skipped > 0 ? .dataDamaged : .done
    case .bad(let failure):
      console.say("\(Words.plural(saved, "record")) imported before the bad line")
      throw failure
    case .failed(let error): throw error
    }
  }

  /// Queues batches until the input ends, a line is bad, or a batch cannot be made durable. Returns why the last has ended.
  private func queueAll(
    _ lines: RecordLines, into store: RecordStore, _ batches: ImportedBatches, _ skipped: inout Int
  ) throws -> End {
    var end = End.full
    while case .full = end {
      // Waits for the input before the transaction begins: while it is open, the store frees nothing.
      do { guard try lines.hasNext() else { return .input } } catch { return .failed(error) }
      var count = 0
      do {
        let queued = try store.queueBlocking { end = fill(&$0, from: lines, count: &count, skipped: &skipped) }
        guard batches.give(queued, count: count, bytesRead: lines.bytesRead) else { return end }
      } catch let error as StrandlineError where error.code == .tooLarge {
        throw Failure(
          .dataDamaged, "the batch that ends with line \(lines.number): \(error.message)",
          try:
            "the same command with --batch \(max(1, batchSize / 8)); records that are saved already are not saved again"
        )
      }
    }
    return end
  }

  /// Saves lines into the transaction until it has `batchSize` records. If a line fails, this returns the failure instead
  /// of throwing it, so that the transaction with the lines before it is committed.
  private func fill(
    _ transaction: inout WriteTransaction, from lines: RecordLines, count: inout Int, skipped: inout Int
  ) -> End {
    while count < batchSize {
      let line: RecordLines.Line
      do {
        guard let next = try lines.next() else { return .input }
        line = next
      } catch { return .failed(error) }
      do {
        try save(line.record.get(), isVerbatim: line.isVerbatim, into: &transaction)
        count += 1
      } catch {
        let failure = failure(error, line: line.number)
        guard failure.code == .dataDamaged, keepsGoing, !isDamage(error), !transaction.isTooLarge else {
          return .bad(failure)
        }
        skipped += 1
        console.report(failure)
      }
    }
    return .full
  }

  private func save(_ record: Record, isVerbatim: Bool, into transaction: inout WriteTransaction) throws {
    do {
      try transaction.save(record, isVerbatim: isVerbatim, creating: false)
    } catch let error as StrandlineError where error.code == .recordWasDeleted && recreates {
      try transaction.save(record, isVerbatim: isVerbatim, creating: true)
    }
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
    if code == .noSuchContent, contents == nil {
      return "the same command with --contents DIR, where 'export --contents DIR' has copied the contents"
    }
    return keepsGoing
      ? nil : "correct the line, or add --keep-going; records that are saved already are not saved again"
  }
}

/// The batches that are queued: a thread waits for one after the other, acknowledges it and shows the progress.
private final class ImportedBatches: Sendable {
  private struct Batch: Sendable {
    var queued: RecordStore.QueuedWrite
    /// The records in it.
    var count: Int
    /// The bytes of the input that were read when it ended.
    var bytesRead: UInt64
  }
  private struct State: Sendable {
    var saved = 0
    var progress: Progress
    var failure: (any Error)?
  }
  private let batches = Handover<Batch>(ahead: 1)
  private let state: Mutex<State>
  private let thread = Mutex<BlockingThread?>(nil)
  private let console: Console
  private let acknowledges: Bool
  private let size: UInt64?

  /// - Parameters:
  ///   - size: The bytes of the input, if that is known.
  ///   - onFailure: Called once a batch cannot be made durable or acknowledged: the others are not waited for.
  init(
    _ console: Console, _ progress: Progress, acknowledges: Bool, size: UInt64?,
    onFailure: @escaping @Sendable () -> Void
  ) throws {
    self.console = console
    self.acknowledges = acknowledges
    self.size = size
    state = Mutex(State(progress: progress))
    let started = try BlockingThread.start(name: "import-sync") { [self] in
      while let batch = batches.take() {
        do { try finish(batch) } catch {
          state.withLock { $0.failure = error }
          batches.stop()
          onFailure()
        }
      }
    }
    thread.withLock { $0 = started }
  }

  /// Gives a batch to wait for. Returns false after a failure, which `end` throws.
  func give(_ queued: RecordStore.QueuedWrite, count: Int, bytesRead: UInt64) -> Bool {
    batches.give(Batch(queued: queued, count: count, bytesRead: bytesRead))
  }

  /// Waits for all batches.
  ///
  /// - Returns: How many records they have, and what gives the words for the time that passed, for so many bytes of input.
  func end() throws -> (saved: Int, rate: (UInt64) -> String) {
    batches.end()
    thread.withLock { $0 }?.join()
    let state = state.withLock { state in
      state.progress.end()
      return state
    }
    if let failure = state.failure { throw failure }
    return (state.saved, { state.progress.rate(records: state.saved, bytes: $0) })
  }

  private func finish(_ batch: Batch) throws {
    let receipt = try batch.queued.waitBlocking()
    if batch.count > 0, acknowledges {
      try console.print("ACK \((receipt.lsns?.upperBound ?? receipt.durableLSN).rawValue)")
      try console.flush()
    }
    state.withLock { state in
      state.saved += batch.count
      let saved = state.saved
      state.progress.update(words(saved, batch.bytesRead))
    }
  }

  private func words(_ saved: Int, _ bytes: UInt64) -> String {
    let share = size.flatMap { $0 > 0 ? ", \(bytes * 100 / $0) %" : nil } ?? ""
    return "importing: \(Words.plural(saved, "record"))\(share)"
  }
}
