// Several finished segments as one: what merging and compaction share.
//
// The output is complete, synced and named before the list names it instead of its inputs, and they are removed only
// after that; a crash in between leaves either, never both and never none (decision L6). Survivors keep their LSNs;
// the output declares the range that it stands for, and the chain at the range's last LSN as it was, so that what
// follows still continues it. Its own seal says how many events it has and what they are.

import StrandlineSystem

/// An event that stays: as it was, or with other content under its LSN.
package struct LogSurvivor: Hashable, Sendable {
  package var lsn: UInt64
  package var schema: UInt16
  package var body: [UInt8]

  package init(lsn: UInt64, schema: UInt16, body: [UInt8]) {
    self.lsn = lsn
    self.schema = schema
    self.body = body
  }

  package init(_ event: LogEvent) { self.init(lsn: event.lsn, schema: event.schema, body: event.body) }
}

/// One output in the making.
struct SegmentRewrite {
  /// A finished segment, as the list names it.
  struct Input {
    let segmentID: UInt64
    let salt: UInt32
    let firstLSN: UInt64
    let end: SegmentEnd

    /// nil for one that may grow.
    init?(_ entry: ManifestEntry) {
      guard let end = entry.end else { return nil }
      (segmentID, salt, firstLSN) = (entry.segmentID, entry.salt, entry.firstLSN)
      self.end = end
    }
  }

  let keeper: DirectoryKeeper
  private(set) var inputs: [Input] = []
  private var output: RewrittenSegment
  private(set) var eventsRead: UInt64 = 0

  /// The size of the output so far.
  var bytesWritten: UInt64 { UInt64(output.bytes.count) }
  /// The same without the header's page.
  var contentBytes: UInt64 { bytesWritten - UInt64(LogFormat.headerPageBytes) }
  var events: UInt64 { output.events }
  var segmentID: UInt64 { output.header.segmentID }
  var path: String { keeper.directory.segment(segmentID) }

  /// An output that begins where `first` does. Nothing is in it yet.
  init(_ keeper: DirectoryKeeper, from first: Input) throws(LogError) {
    self.keeper = keeper
    let manifest = keeper.manifest
    let header = SegmentHeader.new(
      keeper.environment, storeUUID: manifest.storeUUID, segmentID: keeper.newSegmentID(), role: manifest.role,
      kind: .rewritten)
    let summary = try Self.summary(keeper, first)
    output = RewrittenSegment(header, summary.opening)
    output.header.compactedLSN = summary.header.compactedLSN
  }

  /// Something was left out, or put into other events, by the state as of `lsn`.
  mutating func compacted(asOf lsn: UInt64) { output.header.compactedLSN = max(output.header.compactedLSN, lsn) }

  /// Whether its header says that a compaction has left out events of it, or put them into others.
  static func isCompacted(_ keeper: DirectoryKeeper, _ input: Input) throws(LogError) -> Bool {
    try summary(keeper, input).header.compactedLSN != 0
  }

  private static func summary(_ keeper: DirectoryKeeper, _ input: Input) throws(LogError) -> SegmentSummary {
    let path = keeper.directory.segment(input.segmentID)
    let facts = try SegmentFacts.read(keeper.directory.folder, input.segmentID)
    if let problem = facts.problem { throw problem }
    guard let summary = facts.summary, summary.header.salt == input.salt else {
      throw .damaged(
        path, at: 0..<UInt64(LogFormat.headerPageBytes), lsns: input.firstLSN...max(input.firstLSN, input.end.lastLSN),
        "it is another segment than the one that the list of segments means")
    }
    return summary
  }

  /// Reads an input, the first or the one behind the last, by the same rules as an open, and takes over what survives.
  ///
  /// - Parameter survivors: what stays of a transaction, in the order of its LSNs; nothing, if nothing does.
  /// - Throws: `LogError`, or what `survivors` throws. Nothing is on disk.
  mutating func read(_ input: Input, _ survivors: ([LogEvent]) throws -> [LogSurvivor]) throws {
    if let last = inputs.last {
      // What stands for both would hide that something between them is missing.
      let summary = try Self.summary(keeper, input)
      try summary.check(after: try Self.summary(keeper, last))
      compacted(asOf: summary.header.compactedLSN)
    }
    try Self.walk(keeper, input) { transaction in
      eventsRead += UInt64(transaction.count)
      try add(try survivors(transaction), of: transaction)
    }
    output.opening.rangeLastLSN = input.end.lastLSN
    output.opening.rangeChain = input.end.chain
    inputs.append(input)
  }

  /// Reads one finished segment, by the same rules as an open.
  static func walk(_ keeper: DirectoryKeeper, _ input: Input, _ body: ([LogEvent]) throws -> Void) throws {
    let summary = try summary(keeper, input)
    let file = try SegmentFile.open(keeper.directory.folder, summary.segmentID)
    defer { file.close() }
    var walk = SegmentWalk(
      summary, file: file, limit: min(try SegmentFile.size(of: file), UInt64(input.end.offset)))
    while true {
      switch try walk.next() {
      case .transaction: try body(walk.transaction)
      case .other: continue
      case .stop(let fault): return try walk.checkReached(input.end, fault)
      }
    }
  }

  private mutating func add(_ survivors: [LogSurvivor], of transaction: [LogEvent]) throws(LogError) {
    guard !survivors.isEmpty,
      let range = transaction.first.map({ $0.lsn...transaction[transaction.count - 1].lsn })
    else { return }
    var last: UInt64 = 0
    for survivor in survivors {
      guard range.contains(survivor.lsn), survivor.lsn > last, survivor.body.count <= LogFormat.bodyBytesMax else {
        throw LogError(
          .noSuchLSN,
          "LSN \(survivor.lsn) was to survive of a transaction that has LSNs \(range.lowerBound) to "
            + "\(range.upperBound); nothing was changed", lsns: range)
      }
      last = survivor.lsn
    }
    output.add(survivors)
  }

  /// Writes the output. When this returns, it is on the medium under its own name, and no list names it yet.
  mutating func make() throws(WriteFailure) -> MadeSegment {
    output.finish()
    let creation = SegmentCreation(folder: keeper.directory.folder)
    try creation.make(segmentID, output.bytes, allocated: UInt64(output.bytes.count)).file.close()
    return MadeSegment(replaced: inputs.map(\.segmentID), entry: output.entry, table: table)
  }

  /// Exact places, for a log that had them of the inputs.
  private var table: SegmentTable {
    SegmentTable(
      path: path, identity: output.header.identity, firstLSN: output.opening.firstLSN, rewritten: output.places,
      isDense: output.isDense, end: output.end)
  }
}

/// An output that is complete and named, and waits for the list.
struct MadeSegment {
  let replaced: [UInt64]
  let entry: ManifestEntry
  let table: SegmentTable
}
