// The declared indexes of an open store: declared and dropped at once, built in the background, kept by every flush.
//
// An index is built from one set of runs, while flushes go on: from the moment at which it has a number, each flush writes
// the rows of what has changed since that set. So the run that a build makes is older than all of those, and takes its
// place behind all others. It is complete when the list that names it says so; a build that ends before, by a crash, a
// failure or a suspension of the store, begins anew under another number, and what it left means nothing.

import Dispatch
import StrandlineLog
import StrandlineSystem
import Synchronization

extension StoreIndex {
  // MARK: Declaring

  /// The declared indexes, in the order in which they were declared.
  var declared: [RecordIndexStatus] {
    state.withLock { state in
      state.definitions.indexes.map { stored in
        RecordIndexStatus(index: stored.index, isReady: state.current?.indexes.contains(stored) ?? false)
      }
    }
  }

  /// Those of a store that was opened with a list of indexes; nil in one that takes what is declared.
  var list: [RecordIndex]? {
    state.withLock { $0.hasList ? $0.definitions.indexes.map(\.index) : nil }
  }

  /// Declares an index, unless it is. When this returns, that is durable; it is built in the background.
  func declare(_ index: RecordIndex) throws {
    try redefine { definitions in
      guard !definitions.indexes.contains(where: { $0.index == index }) else { return }
      definitions.indexes.append(StoredIndex(number: 0, index: index))
    }
    state.withLock { state in
      state.hasBuildFailed = false
      state.buildError = nil
    }
    buildInBackground()
  }

  /// Forgets an index. When this returns, that is durable, and no query uses it. Merges remove its rows.
  func drop(_ index: RecordIndex) throws {
    try redefine { definitions in definitions.indexes.removeAll { $0.index == index } }
  }

  /// Makes the declared indexes those of a list.
  func declareOnly(_ indexes: [RecordIndex]) throws {
    try redefine { definitions in
      definitions.indexes.removeAll { !indexes.contains($0.index) }
      definitions.add(indexes)
    }
    buildInBackground()
  }

  func redefine(_ body: (inout IndexDefinitions) -> Void) throws {
    try flushing.withLock { _ in
      try checkNotEnded()
      try redefineHeld(body)
    }
  }

  /// The same; the caller holds `flushing`.
  private func redefineHeld(_ body: (inout IndexDefinitions) -> Void) throws {
    let (old, isKnown) = state.withLock { ($0.definitions, $0.definitionsFile.isKnown) }
    var new = old
    body(&new)
    // After a write that failed the file may say otherwise, and a damaged one says nothing: then it is written again, even
    // with what was known before.
    guard new != old || !isKnown else { return }
    guard new.indexes.count <= RunBinding.indexCountMax else {
      throw StrandlineError(.invalidValue, "a store has at most \(RunBinding.indexCountMax) indexes")
    }
    try log.checkPlace()
    try clearUp()
    // A number must be known as given before a row has it: the list cannot say it of runs that were discarded.
    state.withLock { $0.definitionsFile.beginWriting() }
    try files.write(new)
    state.withLock { $0.definitionsFile = .known }
    let changed = state.withLock { state -> RunSet? in
      state.definitions = new
      guard let current = state.current, !current.indexes.allSatisfy(new.indexes.contains) else { return nil }
      // The list goes on to name an index that is no longer declared, which means nothing.
      let set = RunSet(
        runs: current.runs, list: current.list, end: current.end, indexes: current.indexes.filter(new.indexes.contains))
      state.listing.reopen(as: set)
      return set
    }
    if let changed { projections.withLock { $0.replaceRuns(changed) } }
  }

  // MARK: Building

  /// Builds in the background what is declared and not built.
  func buildInBackground() {
    let begins = state.withLock { state in
      guard !state.isBuildQueued, !state.hasBuildFailed, state.definitions.indexes.contains(where: { $0.number == 0 })
      else { return false }
      state.isBuildQueued = true
      return true
    }
    guard begins else { return }
    inBackground(buildQueue) { index in
      index.state.withLock { $0.isBuildQueued = false }
      // A query works without the index, and reading what cannot be read tells why. The next open tries again.
      index.keepingError(in: \.buildError, "building a declared index") { try index.build() }
    }
  }

  /// Builds what is declared and not built, on this thread.
  ///
  /// - Returns: false if the store is being closed or suspended: the next index builds what is left.
  /// - Throws: `StrandlineError`: what reading the records throws, `.diskFull`, `.io`.
  @discardableResult
  func build() throws -> Bool {
    do {
      return try building.withLock { _ in
        while true {
          if isClosing.load(ordering: .acquiring) { return false }
          guard let build = try beginBuild() else { return !hasEnded }
          do {
            try run(build)
          } catch {
            // Its rows are no longer written; the next attempt has another number.
            state.withLock { state in
              state.definitions.clearNumber(build.index)
              state.hasBuildFailed = true
            }
            throw error
          }
        }
      }
    } catch {
      throw StrandlineError.translating(error, "building an index of the store at '\(files.storePath)'")
    }
  }

  /// An index that is being built.
  private struct Build {
    var index: StoredIndex
    /// What it is built from.
    var runs: RunSet
    var generation: Int
  }

  private func beginBuild() throws -> Build? {
    let (isDue, isListed) = state.withLock { state in
      let isDue = state.definitions.indexes.contains { !(state.current?.indexes.contains($0) ?? false) }
      return (isDue, state.listing.isListed)
    }
    // In an empty store the first flush begins the build.
    guard isDue, isListed || log.durableLSN > 0 else { return nil }
    if !isListed { try flush(always: true, beginsBuild: false) }
    return try flushing.withLock { _ in
      let (current, generation) = state.withLock { ($0.current, $0.generation) }
      guard let current, !hasEnded else { return nil }
      var begun: StoredIndex?
      try redefineHeld { definitions in
        guard let place = definitions.indexes.firstIndex(where: { !current.indexes.contains($0) }) else { return }
        definitions.indexes[place].number = definitions.nextNumber
        definitions.nextNumber += 1
        begun = definitions.indexes[place]
      }
      return begun.map { Build(index: $0, runs: current, generation: generation) }
    }
  }

  private func run(_ build: Build) throws {
    var chunks: [Run] = []
    defer {
      // What cannot be removed, the next open for writing removes.
      if chunks.count > 1 { _ = try? files.remove(chunks) }
    }
    guard try forEachRow(of: build, { chunks.append(try files.write(indexRows: $0, number: try newRunNumber())) })
    else { return }
    var made = chunks.first
    if chunks.count > 1 {
      made = try files.merge(
        chunks, number: try newRunNumber(), dropsTombstones: true, indexes: [build.index.number],
        isCancelled: { self.isClosing.load(ordering: .acquiring) })
      if made == nil { return }
    }
    let isPublished = try flushing.withLock { _ in
      let (current, definitions, generation) = state.withLock { ($0.current, $0.definitions, $0.generation) }
      guard let current, !hasEnded, generation == build.generation, definitions.indexes.contains(build.index)
      else { return false }
      let set = try change(
        to: current.runs + (made.map { [$0] } ?? []), end: current.end, indexes: current.indexes + [build.index])
      projections.withLock { $0.replaceRuns(set) }
      return true
    }
    if !isPublished, let made { try files.remove([made]) }
  }

  /// Hands the keys of all rows to `body`, some at a time, each time in their order.
  ///
  /// - Returns: false if that was cancelled.
  private func forEachRow(of build: Build, _ body: ([[UInt8]]) throws -> Void) throws -> Bool {
    var keys: [[UInt8]] = []
    var bytes = 0
    func write() throws {
      guard !keys.isEmpty else { return }
      keys.sort { $0.precedes($1) }
      try body(keys)
      (keys, bytes) = ([], 0)
    }
    var count = 0
    var cursor = try MergedCursor(build.runs.runs, from: RunTable.records.key)
    while try cursor.advance(), cursor.key.starts(with: RunTable.records.key) {
      count += 1
      if count % 256 == 0, isClosing.load(ordering: .acquiring) { return false }
      guard let value = cursor.value, let id = RowKey.recordID(cursor.key) else { continue }
      let entry = try RunSet.decoding(build.runs.runs.first?.path ?? "") { () throws(ByteReaderError) in
        try PlacedEntry(row: value.bytes, value.range).entry
      }
      guard entry.type == build.index.index.recordType, let lsn = entry.view else { continue }
      guard let record = try version(lsn, of: id) else {
        // Compaction has removed it since: the record has changed, and a flush has written its rows.
        if try state.withLock({ $0.current })?.entry(id)?.entry.view != lsn { continue }
        throw StrandlineError(.damaged, "event \(lsn) should hold a version of '\(id)' and does not", lsns: lsn...lsn)
      }
      for key in build.index.rows(record) {
        keys.append(key)
        bytes += key.count + Self.keyOverheadBytes
      }
      if bytes > Self.chunkBytesMax { try write() }
    }
    try write()
    return true
  }

  /// What an array costs beside its bytes.
  private static let keyOverheadBytes = 32
  /// So much memory a build takes for keys; what is more is sorted in parts, which are merged.
  private static let chunkBytesMax = 8 << 20

  // MARK: Keeping

  /// The record that an event holds; nil if the log does not have it.
  private func version(_ lsn: LSN, of id: RecordID) throws(StrandlineError) -> Record? {
    do {
      return try EventSource.writer(log).versionIfKept(at: lsn, of: id)?.record(id, system: nil)
    } catch {
      if error.isOfLyingIndex { state.withLock { $0.current }?.lied(error.message) }
      throw error
    }
  }

  /// What becomes of the rows of indexes by what lies in memory of projections, in the order of their keys; and the
  /// indexes of which a row could not be made, because a record cannot be read. The caller holds `flushing`.
  func changedRows(_ projections: Projections) -> (rows: [RowChange], unreadable: [StoredIndex]) {
    let (kept, ready) = state.withLock { state in
      (state.definitions.indexes.filter { $0.number != 0 }, state.current?.indexes ?? [])
    }
    guard !kept.isEmpty else { return ([], []) }
    let types = Dictionary(grouping: kept, by: \.index.recordType)
    var rows: [RowChange] = []
    var unreadable: Set<StoredIndex> = []
    // In the order of the log, which is read for it.
    let changes = projections.records.changed.sorted { left, right in
      let (one, other) = (left.value?.view?.rawValue ?? 0, right.value?.view?.rawValue ?? 0)
      return one != other ? one < other : left.key < right.key
    }
    for (id, new) in changes {
      // Without the old version its rows stay: they say nothing wrong, because a query compares the record.
      let old = (try? projections.runs?.entry(id))?.entry
      guard old?.view != new?.view || old?.type != new?.type else { continue }
      let before = old.flatMap { types[$0.type] } ?? []
      let after = new.flatMap { types[$0.type] } ?? []
      var gone: Set<[UInt8]> = []
      if !before.isEmpty, let lsn = old?.view, let record = try? version(lsn, of: id) {
        for index in before { gone.formUnion(index.rows(record)) }
      }
      if !after.isEmpty, let lsn = new?.view {
        if let record = try? version(lsn, of: id) {
          for index in after {
            // A build may not find an old version that compaction has removed; then it relies on the row being here.
            let isReady = ready.contains(index)
            for key in index.rows(record) {
              let isKnown = gone.remove(key) != nil
              if !isKnown || !isReady { rows.append((key, [])) }
            }
          }
        } else {
          unreadable.formUnion(after)
        }
      }
      for key in gone { rows.append((key, nil)) }
    }
    rows.sort { $0.key.precedes($1.key) }
    if !unreadable.isEmpty {
      state.withLock { state in
        for index in unreadable { state.definitions.clearNumber(index) }
      }
    }
    return (rows, Array(unreadable))
  }
}

extension IndexDefinitions {
  /// Adds those that it lacks.
  mutating func add(_ added: [RecordIndex]) {
    for index in added where !indexes.contains(where: { $0.index == index }) {
      indexes.append(StoredIndex(number: 0, index: index))
    }
  }

  /// The index is to be built anew.
  mutating func clearNumber(_ index: StoredIndex) {
    for place in indexes.indices where indexes[place] == index { indexes[place].number = 0 }
  }
}
