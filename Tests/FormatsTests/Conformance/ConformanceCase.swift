// One case of the conformance set: a base, one statement that is changed in it, and what Formats/log.md demands then.

/// What the page demands of a store.
struct Demand: Equatable, Sendable {
  enum Verdict: String, CaseIterable, Sendable {
    case sound, torn, damaged, future, foreign, missing, wrongRole
  }

  var verdict: Verdict
  /// Of a log that is served: its last LSN, and how many events a reader is handed.
  var lastLSN: UInt64 = 0
  var events = 0
  /// Of a log that is refused: the file to which the report points.
  var file = ""
  /// A reader serves it, and a writer refuses it as one from the future.
  var isReadOnly = false
  /// `verify`, which looks at bytes on which nothing depends, calls it damaged.
  var isDamagedForVerify = false
  /// Repair, which looks behind a damaged place too, finds something there that it does not understand.
  var isFutureForRepair = false
  /// Segments on no list, which a writer removes, or moves away.
  var leftovers: [String] = []
  var quarantine: [String] = []

  static func sound(_ lastLSN: UInt64, events: Int) -> Demand {
    Demand(verdict: .sound, lastLSN: lastLSN, events: events)
  }
  static func torn(_ lastLSN: UInt64, events: Int) -> Demand {
    Demand(verdict: .torn, lastLSN: lastLSN, events: events)
  }
  static func damaged(_ file: String) -> Demand { Demand(verdict: .damaged, file: file) }
  static func future(_ file: String) -> Demand { Demand(verdict: .future, file: file) }
  static func foreign(_ file: String) -> Demand { Demand(verdict: .foreign, file: file) }
  static func missing(_ file: String) -> Demand { Demand(verdict: .missing, file: file) }

  var isServed: Bool { verdict == .sound || verdict == .torn }

  func readOnly() -> Demand { with { $0.isReadOnly = true } }
  func damagedForVerify() -> Demand { with { $0.isDamagedForVerify = true } }
  func refusedByRepair() -> Demand { with { $0.isFutureForRepair = true } }
  func leaving(_ names: String...) -> Demand { with { $0.leftovers = names } }
  func quarantining(_ names: String...) -> Demand { with { $0.quarantine = names } }

  private func with(_ change: (inout Demand) -> Void) -> Demand {
    var copy = self
    change(&copy)
    return copy
  }

  /// As it stands in the text of the set.
  var lines: [String] {
    var lines = [isServed ? "verdict \(verdict) \(lastLSN) \(events)" : "verdict \(verdict) \(file)"]
    if isReadOnly { lines.append("writing future") }
    if isDamagedForVerify { lines.append("verify damaged") }
    if isFutureForRepair { lines.append("repair future") }
    lines += leftovers.map { "leftover \($0)" } + quarantine.map { "quarantine \($0)" }
    return lines
  }
}

/// A store of the set.
struct ConformanceCase: Sendable {
  var name: String
  var base: ConformanceBase
  var demand: Demand
  /// What was changed, and why the verdict follows.
  var why: String
  var change: @Sendable (inout StoreImage) throws -> Void

  init(
    _ name: String, _ base: ConformanceBase, _ demand: Demand, _ why: String,
    _ change: @escaping @Sendable (inout StoreImage) throws -> Void
  ) {
    self.name = name
    self.base = base
    self.demand = demand
    self.why = why
    self.change = change
  }

  static let all: [ConformanceCase] =
    headers + lists + entries + bounds + openings + events + trailers + promises + ends + unlisted + files + odd
}

/// The names of the segments that the cases speak of.
let segment1 = segmentName(1)
let segment2 = segmentName(2)
let segment3 = segmentName(3)
