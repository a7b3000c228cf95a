// Whether what stays folds to the state that the plan was made by. Two judges say it.
//
// The rules take each event that stays where it stands, once: one that a plain row names must say what the row says, and
// every plain row must have met all of its events. What plain rows have is not folded. All else is: rows that are not plain,
// and the engine's memory. What they cannot see is a row that the tables do not have and do not count.
//
// The fold takes everything, and compares all rows. It is the proof of the rules: campaigns, debug builds and
// `strandline compact --prove` ask both, and a plan that the rules take and the fold refuses is an error of this code.
//
// Both judge a plan by the same state, which a fold of the log alone has made. So neither depends on the sorted tables.

import StrandlineLog
import StrandlineSystem

/// Who judges a plan.
package enum CompactionProof: Sendable {
  /// The rules: rows are judged by the events that they name.
  case rules
  /// The fold of everything that stays.
  case fold
  /// The rules and the fold. A plan that the rules take and the fold refuses is an error.
  case both

  /// What a store asks that is not told otherwise: the rules, in half of the time. A debug build asks the fold too.
  package static var standard: CompactionProof {
    #if DEBUG
      .both
    #else
      .rules
    #endif
  }
}

/// The rules cannot tell whether a plan is right: rows and events contradict each other, or no rule covers what happened.
package struct RulesCannotTell: Error { package var words: String }

/// What a judge has met of what stays.
struct PlanJudge {
  private let plan: CompactionPlan
  /// Whether plain rows are judged by their events.
  private let usesRules: Bool
  private var facts = FactSum()
  private var kept = FactSum()
  private var latest: HybridTime = .zero
  /// Whether no event that stays says how far the clock was; known after `difference`.
  private(set) var isClockBehind = false
  private var cannotTell: String?

  init(_ plan: CompactionPlan, usesRules: Bool) {
    self.plan = plan
    self.usesRules = usesRules
  }

  /// Takes the next event that stays.
  ///
  /// - Parameter fold: the fold of the events that no rule judges.
  /// - Throws: what decoding and folding throw.
  mutating func take(_ survivor: LogSurvivor, _ fold: inout SpillingFold) throws {
    let lsn = LSN(survivor.lsn)
    switch survivor.kind {
    case .conflicted, .confirmed, .assetUploaded, nil: kept.add(.kept(lsn))
    case .fetchedSave, .settled, .saved, .merged, .superseded:
      guard usesRules, plan.names.isPlain(lsn) else { return try fold.apply(survivor) }
      let event = try survivor.event.decoded()
      guard let fact = plan.names.fact(of: event, at: lsn) else {
        cannotTell = "event \(lsn) is not what its record needs"
        return
      }
      facts.add(fact)
      if let time = event.clockTime { latest = max(latest, time) }
    case .deletions:
      guard usesRules, case .deletions(var packed) = try survivor.event.decoded() else {
        return try fold.apply(survivor)
      }
      latest = max(latest, packed.latest)
      packed.items.removeAll { item in
        guard plan.names.isPlainDeletion(item.lsn) else { return false }
        facts.add(.deleted(item.id, DeletionEntry(item)))
        return true
      }
      try fold.apply(.deletions(packed), at: lsn)
    default: try fold.apply(survivor)
    }
  }

  /// Where what stays differs from the state.
  ///
  /// - Parameter fold: what was folded of what stays.
  /// - Throws: `RulesCannotTell`; what reading rows throws.
  mutating func difference(_ fold: inout SpillingFold, _ state: Projections) throws -> ProjectionsDifference {
    fold.learn(latest)
    isClockBehind = fold.projections.sync.latest < state.sync.latest
    fold.learn(state.sync.latest)
    guard usesRules else {
      var result = try fold.projections.difference(from: state)
      if kept != plan.kept { result.isMemoryOther = true }
      return result
    }
    guard kept == plan.kept else { throw RulesCannotTell(words: "events that no record follows from do not stay") }
    if let words = cannotTell ?? plan.contradiction { throw RulesCannotTell(words: words) }
    guard facts == plan.names.facts else {
      throw RulesCannotTell(words: "the events that stay are not those that the records' rows name")
    }
    var rows = FactSum()
    var scan = try KnownRecordScan(fold.projections)
    while let (id, known) = try scan.next() {
      let attempt = fold.projections.outbox.attempted(known.entry?.pending)
      rows.add(.folded(id, known.entry, known.deletion, attempted: attempt))
    }
    var result = ProjectionsDifference()
    if rows != plan.names.folded {
      try fold.projections.addRecords(state, &result) { !plan.isPlain($0, $1) }
      if result.ids.isEmpty { throw RulesCannotTell(words: "the rows of records are read differently each time") }
    }
    result.add(fold.projections.sync, state.sync)
    return result
  }

  /// Checks that the rules do not take what the fold refuses.
  ///
  /// - Parameter folded: where the fold found that what stays differs.
  mutating func checkTaking(
    no folded: ProjectionsDifference, _ fold: inout SpillingFold, _ state: Projections
  ) throws {
    let taken: ProjectionsDifference
    do { taken = try difference(&fold, state) } catch is RulesCannotTell { return }
    guard folded.ids.isSubset(of: taken.ids), !folded.isMemoryOther || !taken.isEmpty else {
      throw StrandlineError(
        .damaged,
        "the log was not compacted: its rules take a plan that a replay refuses (\(folded.words)); nothing was changed; "
          + "please report this")
    }
  }
}

extension Event {
  /// The time that a record's event brings the clock to.
  fileprivate var clockTime: HybridTime? {
    switch self {
    case .saved(let saved): saved.time
    case .merged(let merged): merged.time
    case .superseded(let saved): saved.time
    case .fetchedSave(let fetched): fetched.latest
    default: nil
    }
  }
}

extension LogSurvivor {
  /// The same as an event that was read.
  var event: LogEvent {
    LogEvent(
      lsn: lsn, schema: schema, body: body, indexInTransaction: 0, isFirst: true, isLast: true, segmentID: 0, offset: 0)
  }

  /// nil for a kind that this version does not know.
  var kind: EventKind? { schema == EventCodec.schema ? EventCodec.kind(body) : nil }
}
