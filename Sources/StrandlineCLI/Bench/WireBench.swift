// `bench wire`: measures how fast JSON becomes records and records become JSON, next to Foundation's decoder and encoder
// with types that do the same work, and how fast whole processes import, export and sync, all in one run.
//
// The records are made from a seed, or those of a file. Each workload runs at two sizes, to check that its time grows no
// faster than its size. WireBench+Foundation.swift has the types for Foundation, WireBench+Store.swift the processes.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLogBench
import StrandlineSystem

/// The benchmark of what travels.
struct WireBench: Benchmark {
  var bench: BenchRun
  let work: WorkDirectory
  let records: [Record]
  let isQuick: Bool
  /// How many bytes a round reads or writes at least.
  private let bytesMin: Int
  var progress: Progress
  /// The seconds of one text, or of a process, at the smaller size, by the row's name.
  private var halves: [String: Double] = [:]

  /// The rows, each of which is measured at two sizes. A test compares them with the output.
  static let works = ["wire.decode", "wire.encode", "wire.lines"] + storeWorks
  /// The records of one text at the smaller size: as many as a request or a page of CloudKit's has at most.
  private static let page = 200

  /// The records of a store at the smaller size, if they are made from a seed.
  private static let recordsMax = 60_000

  /// - Parameter real: Records to use instead of those that are made from a seed; empty for these.
  init(_ bench: BenchRun, _ work: WorkDirectory, real: [Record], isQuick: Bool) {
    self.bench = bench
    self.work = work
    self.isQuick = isQuick
    let count = isQuick ? 2 * Self.page : Self.recordsMax
    records = real.isEmpty ? (0..<count).map { BenchNote.record($0, StoreBench.data) } : real
    bytesMin = isQuick ? 1 : 16 << 20
    progress = Progress(work.console)
  }

  mutating func run() async throws {
    defer { progress.end() }
    for factor in 1...2 {
      // A file may have fewer.
      let some = (0..<Self.page * factor).map { records[$0 % records.count] }
      try await measureDecoding(some, factor)
      try await measureEncoding(some, factor)
      try await measureLines(some, factor)
    }
    do { try await measureProcesses() } catch {
      // An interrupt kills the children: what they then fail with is its consequence.
      try checkInterrupt()
      throw error
    }
  }

  /// Whether a row is wanted, at either size.
  func wants(_ work: String) -> Bool { (work + ".x2").hasPrefix(bench.prefix) }

  private mutating func measureDecoding(_ records: [Record], _ factor: Int) async throws {
    guard wants("wire.decode") else { return }
    let answer = ZoneChangesReply(zones: [
      .init(zoneID: WireZoneID(.main), syncToken: "token", moreComing: false, records: records.map(Self.shown))
    ])
    let bytes = WireJSON.encode(answer)
    var row = try await measure(
      "wire.decode", factor, bytes.count,
      ours: {
        let zones = try WireJSON.decode(ZoneChangesReply.self, bytes).zones
        let found = (zones[0].records ?? []).map { record in
          let shown = record.serverRecord(name: record.recordName ?? "", in: .main)
          return Record(
            type: shown.type, id: RecordID(shown.name), fields: shown.fields, parent: shown.parent,
            system: shown.system)
        }
        try Self.check(found.count, records.count)
      },
      foundation: { try Self.check(try FoundationJSON.records(ofAnswer: bytes).count, records.count) })
    row.atLeast(100)
    row.atLeast(8, of: row.limit, "Foundation")
    add(row)
  }

  private mutating func measureEncoding(_ records: [Record], _ factor: Int) async throws {
    guard wants("wire.encode") else { return }
    let operations = records.map { record in
      CloudOperation(
        .create, name: record.id.name, type: record.type, fields: record.fields.mapValues { .some($0) },
        parent: record.parent)
    }
    let size = WireJSON.encode(operations, in: .main, atomic: false).count
    var row = try await measure(
      "wire.encode", factor, size,
      ours: { try Self.check(WireJSON.encode(operations, in: .main, atomic: false).count, size) },
      foundation: { try Self.check(min(1, try FoundationJSON.request(operations).count), 1) })
    row.atLeast(100)
    add(row)
  }

  private mutating func measureLines(_ records: [Record], _ factor: Int) async throws {
    guard wants("wire.lines") else { return }
    let lines = records.map { $0.line(zone: false) }
    var row = try await measure(
      "wire.lines", factor, lines.reduce(0) { $0 + $1.count + 1 },
      ours: { for line in lines { _ = try RecordLine(json: line).record(in: ZoneID.main.name) } },
      foundation: { for line in lines { _ = try FoundationJSON.record(ofLine: line) } })
    row.atLeast(130)
    add(row)
  }

  /// The record as an answer shows it.
  private static func shown(_ record: Record) -> WireRecord {
    var result = WireRecord(recordName: record.id.name)
    result.recordType = record.type
    result.recordChangeTag = "lo5d1jwm"
    result.parent = record.parent
    result.created = ServerTimestamp(milliseconds: 1_767_225_600_000, user: "_user", device: "2")
    result.modified = result.created
    result.deleted = false
    result.zoneID = WireZoneID(.main)
    result.fields = record.fields
    return result
  }

  private static func check(_ found: Int, _ expected: Int) throws {
    guard found == expected else {
      throw BenchFailure(description: "the result of the wire's benchmark has \(found), not \(expected)")
    }
  }

  /// Measures one text of so many bytes, again and again.
  private mutating func measure(
    _ work: String, _ factor: Int, _ bytes: Int, ours: @escaping @Sendable () throws -> Void,
    foundation: @escaping @Sendable () throws -> Void
  ) async throws -> BenchRow {
    let name = work + (factor == 1 ? "" : ".x2")
    let repeats = max(1, bytesMin / bytes)
    progress.update("measuring \(name)")
    let (stop, clock) = (bench.stop, environment.clock)
    let contenders: [any Contender] = [ours, foundation].map { body in
      BlockingContender(
        clock: clock,
        work: { count in
          for _ in 0..<count {
            try stop.check()
            try body()
          }
        })
    }
    let measured = try await race(contenders, sizes: [repeats], rounds: bench.rounds)[0]
    let amount = Double(bytes * repeats) / 1e6
    let rates = measured.map { Self.median($0.rates(amount)) }
    var row = BenchRow(
      work: name, unit: "MB/s", ours: rates[0], limit: rates[1], residentBytes: measured[0].peakBytes,
      max: measured[0].rates(amount).max(), rounds: measured[0].seconds.count)
    let seconds = Self.median(measured[0].seconds) / Double(repeats)
    grow(&row, work, factor, seconds)
    return row
  }

  /// Keeps the figure of a row at the smaller size; at the larger one the row gets the bar that it is at most `bound` times
  /// that.
  mutating func grow(
    _ row: inout BenchRow, _ work: String, _ factor: Int, _ figure: Double, atMost bound: Double = 2.2
  ) {
    if factor == 1 {
      halves[work] = figure
    } else if let half = halves[work] {
      row.grows(figure / max(half, 1e-9), atMost: bound)
    }
  }
}

extension BenchNote {
  /// A record as apps have them: ten fields of text, numbers, a time and a list.
  static func record(_ number: Int, _ data: BenchData) -> Record {
    let note = BenchNote(number, data)
    var fields: [String: FieldValue] = [
      "title": .string(note.title), "body": .string(note.body), "author": .string(note.author),
      "made": .date(milliseconds: note.made >> 22), "changed": .int64(note.changed), "stars": .int64(Int64(note.stars)),
      "share": .double(note.share), "isDone": .int64(note.isDone ? 1 : 0),
      "tags": .list(.strings, note.tags.map { .string($0) }),
    ]
    if let link = note.link { fields["link"] = .string(link) }
    return Record(type: recordType, id: RecordID(note.id), fields: fields)
  }
}
