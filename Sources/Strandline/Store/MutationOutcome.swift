// What became of mutations, as the log says it: an outcome follows the content. A merge carries what it took the place of, so
// its outcome is theirs.

import StrandlineLog
import StrandlineSystem

/// What became of one mutation.
public enum MutationOutcome: Hashable, Sendable {
  /// The server has it.
  case saved
  /// The server has it, in a version that holds another device's edit too.
  case merged
  /// The server has it but for these fields, which it wrote and in which another edit won; in the order of their names.
  /// `conflicts(of:)` tells both sides.
  case partlyLost(fields: [String])
  /// It lost a conflict: in each field that it wrote, another edit won, mostly another device's. `conflicts(of:)` tells both
  /// sides.
  case lost
  /// The server has a later mutation, which has taken its place.
  case superseded(by: LSN)
  /// It never needed to leave: the record was created and deleted before anything was sent, or it is a default of a name that
  /// was deleted.
  case cancelled
  /// The record was deleted at the server; the edit is kept in history.
  case deletedOnServer
  /// It can never be at the server, and why: another device has a record of another type there under the name.
  case rejected(code: CloudError.Code, reason: String)
  /// It was given up: by `RecordStore.discardChanges`, or by a rule of the app's for conflicts.
  case discarded

  /// Why the server does not have it; nil if it does, or has what replaced it.
  fileprivate var refusal: String? {
    switch self {
    case .saved, .merged, .partlyLost, .superseded, .cancelled: nil
    case .lost: "another edit has taken its place; the record's conflicts tell both"
    case .deletedOnServer: "the record was deleted at the server; the edit is kept in its history"
    case .rejected(let code, let reason): "it cannot be sent (\(code): \(reason))"
    case .discarded: "it was given up"
    }
  }
}

extension RecordStore {
  /// What became of each record's mutation in a range of events, as far as it is settled and compaction has left the
  /// events that say so.
  ///
  /// - Throws: `StrandlineError`: `.damaged`, `.io`, `.closed`.
  /// - Complexity: O(events from the range to the last one that settles a mutation of it).
  package func outcomes(
    of lsns: ClosedRange<LSN>
  ) throws -> [RecordID: MutationOutcome] {
    try CallSite.unnamed.run("reading the outcome of events \(lsns)") {
      try requireOpen()
      return try findOutcomes(of: lsns).compactMapValues(\.outcome)
    }
  }

  private func findOutcomes(of lsns: ClosedRange<LSN>) throws -> [RecordID: OutcomeSearch.Found] {
    var open: [RecordID: OutcomeSearch] = [:]
    var result: [RecordID: OutcomeSearch.Found] = [:]
    var lsn = lsns.lowerBound
    let end = source.durableLSN
    while lsn <= end, lsn <= lsns.upperBound || !open.isEmpty {
      defer { lsn = lsn.advanced(by: 1) }
      guard let event = try source.eventIfKept(at: lsn) else { continue }
      if let id = event.recordID, let found = try open[id]?.take(event, at: lsn) {
        result[id] = found
        open[id] = nil
      }
      guard lsns.contains(lsn) else { continue }
      switch event {
      case .saved(let saved):
        open[saved.id] = OutcomeSearch(lsn, wrote: try event.fieldsWritten(at: lsn), after: open[saved.id])
      case .superseded(let saved): open[saved.id] = OutcomeSearch(lsn, wrote: nil)
      case .deleted(let deleted): open[deleted.id] = OutcomeSearch(lsn, wrote: [])
      default: break
      }
    }
    return result
  }

  /// Checks that of a transaction of which nothing is owed the server has everything, or what replaced it.
  ///
  /// - Throws: `.notUploaded`.
  func checkUploaded(_ lsns: ClosedRange<LSN>) throws {
    // The answer to its own upload ended it, as almost always.
    if try openMutations(of: lsns).mutations.allSatisfy({ try wasAnswered($0.id, $0.lsn) }) { return }
    let refused = try findOutcomes(of: lsns).filter { $0.value.outcome?.refusal != nil }
    guard let (id, found) = refused.min(by: { $0.key < $1.key }), let refusal = found.outcome?.refusal else { return }
    let others = refused.count > 1 ? ", and so are \(refused.count - 1) others of the transaction" : ""
    throw StrandlineError(
      .notUploaded,
      "the change of '\(id)' is not at the server\(others): \(refusal)\(found.words.isEmpty ? "" : ", because \(found.words)")"
    )
  }
}

extension RecordStore {
  /// Whether what is known of a record comes from the answer to the upload of this mutation.
  fileprivate func wasAnswered(_ id: RecordID, _ lsn: LSN) throws(StrandlineError) -> Bool {
    let known = try projections.look(id)
    if let entry = known.entry { return entry.base?.content == lsn }
    return known.deletion?.lsn == lsn && known.deletion?.isProvisional == false
  }
}

/// The search for what became of a mutation.
private struct OutcomeSearch {
  struct Found {
    /// Nil if it depends on what the mutation wrote, and compaction has taken that.
    var outcome: MutationOutcome?
    /// Why, where an event says it in words that the outcome does not have.
    var words = ""
  }

  /// The mutation, or the merge that carries its content.
  private var mutation: LSN
  private var isMerged = false
  /// The fields that it wrote and that no later mutation of this store has; nil where compaction has taken its content.
  private var wrote: Set<String>?
  /// The fields in which it lost a conflict.
  private var lost: Set<String> = []
  /// The event that told of that conflict.
  private var told = LSN.zero

  /// - Parameter earlier: the search for the mutation before, which is the same save if a rule has refused part of it: its
  ///   conflict lies between the two.
  init(_ mutation: LSN, wrote: Set<String>?, after earlier: OutcomeSearch? = nil) {
    (self.mutation, self.wrote) = (mutation, wrote)
    guard let earlier, earlier.told.advanced(by: 1) == mutation else { return }
    lost = earlier.lost
    self.wrote?.formUnion(lost)
  }

  /// Takes in the record's next event; what became of the mutation if that says so.
  mutating func take(_ event: Event, at lsn: LSN) throws -> Found? {
    switch event {
    case .saved:
      let later = try event.fieldsWritten(at: lsn)
      wrote?.subtract(later)
      lost.subtract(later)
      return nil
    case .conflicted(let conflicted) where conflicted.local >= mutation:
      for field in conflicted.fields where field.loser.isHere && wrote?.contains(field.name) != false {
        lost.insert(field.name)
      }
      told = lsn
      return nil
    case .merged(let merged) where merged.local >= mutation:
      (mutation, isMerged) = (lsn, true)
      return nil
    case .discarded(let discarded) where discarded.lsn >= mutation: return Found(outcome: .discarded)
    case .settled(let settled) where settled.lsn >= mutation: return found(settled)
    default: return nil
    }
  }

  private func found(_ settled: Settled) -> Found {
    switch settled.outcome {
    case .discarded: Found(outcome: .discarded, words: settled.words)
    case .saved where settled.lsn > mutation: lostOutcome(else: .superseded(by: settled.lsn))
    case .saved where isMerged, .merged: lostOutcome(else: .merged)
    case .saved: lostOutcome(else: .saved)
    case .deleted where settled.lsn > mutation: Found(outcome: .superseded(by: settled.lsn))
    // All earlier ones end with it.
    default: Found(outcome: settled.mutationOutcome)
    }
  }

  /// What a mutation came to of which the server has what conflicts have left.
  private func lostOutcome(else outcome: MutationOutcome) -> Found {
    if lost.isEmpty { return Found(outcome: outcome) }
    guard let wrote else { return Found(outcome: nil) }
    if wrote.isSubset(of: lost) { return Found(outcome: .lost) }
    if case .superseded = outcome { return Found(outcome: outcome) }
    return Found(outcome: .partlyLost(fields: lost.sorted { $0.precedesByUTF8($1) }))
  }
}

extension Event {
  /// The fields that a mutation wrote; none of an event that holds no version.
  fileprivate func fieldsWritten(at lsn: LSN) throws -> Set<String> {
    let dirty = try LoadedVersion(self, at: lsn)?.dirty ?? [:]
    return Set(dirty.filter { $0.value == lsn }.keys)
  }
}

extension StrandlineError {
  /// What a caller gets that waits for a record which is held until a person does something; nil if it is tried again by
  /// itself.
  static func held(_ held: Held) -> StrandlineError? {
    guard held.durationMilliseconds == 0 else { return nil }
    return StrandlineError(
      .notUploaded,
      "'\(held.id)' is held (\(held.code): \(held.words)); edit it, or call 'releaseHolds' to have "
        + "it sent again as it is, or 'discardChanges' to give it up",
      underlying: CloudError(CloudError.Code(rawValue: held.code), reason: held.words))
  }
}
