// How the projections of a store come into being: from its runs, and from what the log has behind them; from all of the
// log where there are no runs, where they are not bound to this log, or where one of them fails. What is wrong with runs is
// never an error of the store: they are made again.

package import StrandlineLog
package import StrandlineSystem

/// One making of projections.
package struct IndexOpening {
  /// What was made.
  package struct Opened {
    package var projections: Projections
    var nextRunNumber: UInt64
    /// Whether the list on the medium names the runs of the projections.
    var isListed: Bool
    var definitions: IndexDefinitions
    /// Why the file of the declared indexes says nothing.
    var definitionsDamage: StrandlineError?
  }

  private let environment: SystemEnvironment
  private let cache: BlockCache
  /// nil until the log has said where it is.
  private var files: IndexFiles?
  package private(set) var projections = Projections()
  /// Runs are not read: they have failed, or are not bound to this log.
  private var ignoresRuns: Bool
  private var nextRunNumber: UInt64 = 1
  private var isListed = false
  private(set) var definitions = IndexDefinitions()
  /// Why the declared indexes could not be read. A writer must not go on without them.
  private(set) var definitionsFailure: StrandlineError?
  private var definitionsDamage: StrandlineError?
  /// Writes runs while a long log is read; nil: everything stays in memory.
  private var spilled: SpilledRuns?
  private var hasSpilled = false

  package init(
    _ environment: SystemEnvironment, _ cache: BlockCache, ignoringRuns: Bool, spillingAt count: Int?,
    nextRunNumber: UInt64 = 1
  ) {
    self.environment = environment
    self.cache = cache
    ignoresRuns = ignoringRuns
    spilled = count.map { SpilledRuns(every: $0) }
    self.nextRunNumber = nextRunNumber
  }

  /// Whether a run could not be read: everything that was made of it is of no use.
  var hasFailed: Bool { projections.runs?.hasFailed ?? false }

  /// Reads the runs.
  ///
  /// - Returns: the event behind which the log is to be read; nil for all of it.
  package mutating func begin(_ folder: any Folder, _ storeUUID: [UInt8], isRefused: Bool) -> LogEnd? {
    let files = IndexFiles(folder, environment, storeUUID: storeUUID, cache: cache)
    self.files = files
    projections = Projections()
    isListed = false
    do throws(StrandlineError) {
      let declared = try files.loadDefinitions()
      (definitions, definitionsDamage, definitionsFailure) = (declared.definitions, declared.damage, nil)
    } catch {
      (definitions, definitionsDamage, definitionsFailure) = (IndexDefinitions(), nil, error)
    }
    guard !ignoresRuns, !isRefused else { return nil }
    // Of whatever kind the failure is: all that the runs say stands in the log too.
    do {
      guard let runs = try files.load(&definitions) else { return nil }
      projections = Projections(try runs.state(), runs)
      nextRunNumber = runs.list.nextRunNumber
      isListed = true
      return runs.end
    } catch {
      projections = Projections()
      return nil
    }
  }

  /// Applies the next event of the log.
  package mutating func apply(_ found: LogEvent) throws {
    try projections.apply(found.decoded(), at: LSN(found.lsn), isDurable: true)
    if let spilled, found.isLast, projections.unstoredCount >= spilled.count { spill() }
  }

  /// Writes a run that no list names. What fails here is tried again by the first flush.
  private mutating func spill() {
    guard let files else { preconditionFailure("an event comes from a log that has said where it is") }
    guard var spilled else { return }
    do {
      if !hasSpilled { try files.clearUp(keeping: projections.runs, isListed: isListed) }
      hasSpilled = true
      let before = projections.runs
      // The list on the medium does not name them.
      defer { if projections.runs !== before { isListed = false } }
      var number = nextRunNumber
      defer { nextRunNumber = number }
      try spilled.spill(&projections, into: files, nextIndexNumber: definitions.nextNumber) {
        defer { number += 1 }
        return number
      }
      self.spilled = spilled
    } catch {
      self.spilled = nil
    }
  }

  /// The log ends at `lsn`.
  mutating func finish(at lsn: UInt64) -> Opened {
    projections.advance(to: LSN(lsn))
    return Opened(
      projections: projections, nextRunNumber: nextRunNumber, isListed: isListed, definitions: definitions,
      definitionsDamage: definitionsDamage)
  }

  /// Makes projections of all that a log holds and has promised, up to an event, without the runs that there are.
  ///
  /// - Precondition: no compaction is under way.
  package static func folding(
    _ files: IndexFiles, spillingAt count: Int?, nextRunNumber: UInt64 = 1, upTo limit: LSN = LSN(.max)
  ) throws -> (opened: Opened, reader: LogReader) {
    let (folder, environment) = (files.storeFolder, files.environment)
    var opening = IndexOpening(
      environment, files.cache, ignoringRuns: true, spillingAt: count, nextRunNumber: nextRunNumber)
    let reader = try LogReader.open(in: folder, role: .store, environment: environment) { uuid in
      opening.begin(folder, uuid, isRefused: false)
    }
    try reader.poll { if $0.lsn <= limit.rawValue { try opening.apply($0) } }
    return (opening.finish(at: min(limit.rawValue, reader.lastLSN)), reader)
  }

  /// Makes projections of a log that another process may be writing, and of its runs as they are now.
  static func reading(_ files: IndexFiles) throws -> (opened: Opened, reader: LogReader) {
    let (folder, environment) = (files.storeFolder, files.environment)
    // The writing process may replace runs while they are opened.
    for _ in 0..<3 {
      var opening = IndexOpening(environment, files.cache, ignoringRuns: false, spillingAt: nil)
      do {
        let reader = try LogReader.open(in: folder, role: .store, environment: environment) { uuid in
          opening.begin(folder, uuid, isRefused: false)
        }
        try reader.poll { try opening.apply($0) }
        return (opening.finish(at: reader.lastLSN), reader)
      } catch is AnotherHistory {
        break
      } catch {
        guard opening.hasFailed else { throw error }
      }
    }
    return try folding(files, spillingAt: nil)
  }
}
