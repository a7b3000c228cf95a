// Decides what follows from one change of one record at the server. Pure: a situation, which Intake gathers, becomes the events that
// Intake appends, in order.
//
// A record may be deleted and created again under its name. Each creation begins a life, identified by its birth. A version is dead
// if all its lives were deleted.

import StrandlineSystem

/// The events that follow from a change, in order, and the counts for the cycle's report.
package struct IntakeDecision {
  package enum Step {
    /// Append the version that arrived. It becomes the record's base.
    case store(Arrival)
    /// Append that these lives have ended at the server.
    case endLives(Set<Birth>, FetchedDelete.Reason)
    /// Append that a mutation, and every earlier one of the record, is not pending any more.
    case settle(LSN, Outcome)
    /// Append a deletion of the stored version, to be sent with its change tag.
    case deleteAgain(Set<Birth>)
    /// Append that a mutation, and every earlier one of the record, will never be sent, and why.
    case refuse(LSN, code: StrandlineError.Code, words: String)
    /// Append that a rule of the app discards a mutation, and every earlier one of the record.
    case giveUp(LSN, words: String)
    /// Append that a mutation conflicted with the server's version, and which side lost each field.
    case tell(LSN, ancestor: LSN, [Conflicted.Field], rule: String, words: String)
    /// Append the merge of a pending edit and the stored version.
    case merge(Version, dirty: Set<String>, of: PendingEdit, rule: String, words: String)
    /// Append the edit as the first version of a new life, in place of the stored version, if there is one.
    case revive(PendingEdit, words: String)
    /// Append the version as the first one of a new life.
    case create(LoadedVersion)
    /// Append the version as an edit of the stored one.
    case restore(LoadedVersion, dirty: Set<String>)
    /// Append an open question: the change was not applied, and the event says what to ask the server.
    case block(Blocked)
    /// Close the record's open question, if it has one.
    case closeBlock(words: String)
    /// Set the record's zone aside as lost.
    case loseZone(words: String)
  }

  package var steps: [Step] = []
  package var counts = SyncReport()
  /// The question to a resolver, which has to be answered first; then there are no steps.
  package var question: ConflictQuestion?
}

/// The newest pending mutation of a record, if it is an edit.
package struct PendingEdit {
  package let lsn: LSN
  /// Its version; times from the future are clamped.
  package var loaded: LoadedVersion
  /// The original stamps of the fields whose stamps were clamped.
  var unclampedStamps: [String: FieldStamp] = [:]
  /// The server's version that it was made from, or this store's newest mutation that the arrival contains; nil if neither is known.
  package var ancestor: (lsn: LSN, version: Version)?

  package init(
    lsn: LSN, loaded: LoadedVersion, unclampedStamps: [String: FieldStamp] = [:],
    ancestor: (lsn: LSN, version: Version)? = nil
  ) {
    self.lsn = lsn
    self.loaded = loaded
    self.unclampedStamps = unclampedStamps
    self.ancestor = ancestor
  }

  package var version: Version { loaded.version }

  /// The report that everything in it after a mutation that the server has is lost. None of a default: nobody has edited anything.
  func lost(after acknowledged: LSN, by rule: String, words: String = "") -> [IntakeDecision.Step] {
    if isUneditedDefault { return [] }
    let names = loaded.dirty.filter { $0.value > acknowledged }.keys.sorted { $0.precedesByUTF8($1) }
    return [
      .tell(
        lsn, ancestor: ancestor?.lsn ?? .zero, names.map { Conflicted.Field(name: $0, rule: rule, loser: .here) },
        rule: rule, words: words)
    ]
  }

  /// Whether it is a default in which nobody has written anything, and which the server has not taken.
  var isUneditedDefault: Bool { version.stamp.isOfUneditedDefault }

  /// The edit as it meets a record that the server has under the name: of a default no more than what was written in it since. The
  /// record that was there first is what the others have.
  func withoutDefault(where server: Version) -> PendingEdit {
    let names = loaded.dirty.keys.filter { loaded.version.stamp.fields[$0] == .ofDefaults }
    guard !names.isEmpty else { return self }
    var result = self
    for name in names { result.loaded.dirty[name] = nil }
    result.loaded.version = version.taking(names, from: server)
    if !server.stamp.births.contains(.ofDefaults) { result.loaded.version.stamp.births.remove(.ofDefaults) }
    if result.version.stamp.births.isEmpty { result.loaded.version.stamp.births = server.stamp.births }
    return result
  }
}

/// The facts for the decision about a version.
package struct VersionSituation {
  let id: RecordID
  let source: ServerChange.Source
  let arrival: Arrival
  /// This store's record of the name.
  let entry: RecordEntry?
  /// The values of its base, as other devices know it.
  let base: LoadedVersion?
  /// All lives of the version were deleted.
  let isDead: Bool
  /// The lives of the name that were deleted.
  let deadLives: Set<Birth>
  /// There is no base, and a life of the name has ended.
  let wasDeleted: Bool
  /// The newest pending mutation of this store that the version contains.
  let included: LSN?
  /// The version that it wrote, unless compaction has removed it.
  let includedVersion: Version?
  /// This device deleted the record with its parent, and another device has moved it to another one.
  let isMovedAway: Bool
  /// The newest mutation of this store that the version contains and that is part of the pending edit; `.none` if there is none.
  let acknowledged: LSN
  /// The newest pending mutation, if it is an edit.
  let edit: PendingEdit?
  /// The rules of the arrival's type.
  let rules: TypeRules
  /// The rule of the edit's type for an edit of a deleted record.
  let editRule: DeletionRule
  /// The writer of merged values that are neither side's.
  let writer: WriterID
  /// The resolvers' answers so far.
  let answers: ConflictAnswers
  /// Answer to a lookup: the base is a mutation of this store that the server acknowledged, and the version lacks it.
  let lacksAcknowledged: Bool
  /// The feed has shown this very version, and the decision was left to the answer to this lookup.
  let isWhatFeedShows: Bool
  /// The user chose this device's copy: upload it again, whatever the server has.
  let sendsAgain: Bool
  /// A request may have carried the edit, and its answer is not known.
  let mayHaveArrived: Bool
  /// The version names a mutation that a copy of this log wrote under the edit's writer ID, later than the edit or its source. So the
  /// copy may have sent the edit.
  let mayBeOfCopy: Bool
  /// The version seems older than the base, but a copy of this log wrote it, or an ancestor of it, under this log's writer ID. Then LSNs
  /// do not say which mutation is later.
  let namesCopy: Bool

  package init(
    id: RecordID, source: ServerChange.Source, arrival: Arrival, entry: RecordEntry?, base: LoadedVersion?,
    isDead: Bool, deadLives: Set<Birth>, wasDeleted: Bool, included: LSN?, includedVersion: Version?, isMovedAway: Bool,
    acknowledged: LSN, edit: PendingEdit?, rules: TypeRules, editRule: DeletionRule, writer: WriterID,
    answers: ConflictAnswers, lacksAcknowledged: Bool, isWhatFeedShows: Bool, sendsAgain: Bool, mayHaveArrived: Bool,
    mayBeOfCopy: Bool, namesCopy: Bool
  ) {
    self.id = id
    self.source = source
    self.arrival = arrival
    self.entry = entry
    self.base = base
    self.isDead = isDead
    self.deadLives = deadLives
    self.wasDeleted = wasDeleted
    self.included = included
    self.includedVersion = includedVersion
    self.isMovedAway = isMovedAway
    self.acknowledged = acknowledged
    self.edit = edit
    self.rules = rules
    self.editRule = editRule
    self.writer = writer
    self.answers = answers
    self.lacksAcknowledged = lacksAcknowledged
    self.isWhatFeedShows = isWhatFeedShows
    self.sendsAgain = sendsAgain
    self.mayHaveArrived = mayHaveArrived
    self.mayBeOfCopy = mayBeOfCopy
    self.namesCopy = namesCopy
  }

  private var births: Set<Birth> { arrival.version.stamp.births }

  /// The version continues no life of the base.
  private var endsBase: Bool { base.map { $0.version.stamp.births.isDisjoint(with: births) } ?? false }

  /// How the version compares with the base by their `seen` sets.
  private var age: VersionAge {
    guard let base, !endsBase else { return .unknown }
    return VersionAge(
      of: arrival.version.stamp, isStamped: arrival.isStamped, beside: base.version.stamp, namesCopy: namesCopy,
      wasModifiedAfter: wasModifiedAfter)
  }

  /// The version has seen less than the base: an old page, or a server that went back to an older state.
  private var isStale: Bool {
    guard let entry, base != nil, !endsBase else { return false }
    // With another creation time it is another record of the name, and no older version of the base: unless a person has decided about a
    // server that went back to an older state.
    if source == .lookup, !sendsAgain {
      return age == .older && arrival.system.created?.milliseconds == entry.base?.createdMilliseconds
    }
    // The base was created later: the page shows a record that the server has replaced since.
    if let created = arrival.system.created?.milliseconds, let begun = entry.base?.createdMilliseconds, created < begun
    {
      return true
    }
    // If the stamps do not decide, the server's clock makes a page doubtful enough for a lookup.
    return age == .older || (age == .unknown && wasModifiedBefore)
  }

  /// The answer to a lookup was modified before the base, and has not seen it. If neither has seen the other, the feed decides; if it
  /// shows the same version, the server's clock was set back, and the answer counts. But if both show a deleted life in place of
  /// another, the server was restored from a backup.
  private var isOlderAnswer: Bool {
    source == .lookup && wasModifiedBefore && age != .newer && !(isWhatFeedShows && !(isDead && endsBase))
  }

  private var wasModifiedBefore: Bool { Self.wasModified(arrival, before: entry?.base) }

  private var wasModifiedAfter: Bool {
    guard let known = entry?.base?.modifiedMilliseconds, let modified = arrival.system.modified?.milliseconds else {
      return false
    }
    return modified > known
  }

  /// Whether a version is older than the base by the server's clock.
  package static func wasModified(_ arrival: Arrival, before base: Base?) -> Bool {
    guard let known = base?.modifiedMilliseconds, let modified = arrival.system.modified?.milliseconds else {
      return false
    }
    return modified < known
  }

  /// A life that this log does not know, under a name that it knows: the record was deleted and created again elsewhere, or an old
  /// page shows a life that ended before this store existed. Only a lookup can say which.
  private var isUnknownLife: Bool {
    guard source != .lookup else { return false }
    if base != nil { return included == nil && endsBase }
    // Also for a life that this store created: its tombstone may have been dropped as doubtful, so an old page could bring the deleted
    // record back.
    return wasDeleted
  }

  /// Decides about the version. The first line that applies decides.
  ///
  /// | the version | decision |
  /// | --- | --- |
  /// | is dead, the app sees no record, and another device has moved it to another parent | it is restored |
  /// | is dead, and the app sees no record | looked up, then deleted again at the server |
  /// | has seen less than the base, from a page | looked up: it may be an old page |
  /// | has seen less than the base, and a person chose this store's side | becomes the base; this store's record is sent over it |
  /// | has seen less than the base | dropped, or the zone is lost (the server went back) |
  /// | is an older answer of another life, and a person chose this store's side | this store's record is sent in its place |
  /// | is an answer older than the base, and not the version that the feed shows | dropped; the feed decides |
  /// | is of an unknown life, from a page | looked up |
  /// | is dead, and was created after the record that the app sees | the app's record ends, and the version is deleted again |
  /// | meets no pending change | becomes the base |
  /// | meets a deletion of another life | becomes the base, and the deletion is dropped |
  /// | meets an edit | see `decide(against:)` |
  package func decide() -> IntakeDecision {
    if isDead, entry?.view == nil { return decideDead() }
    if isStale { return decideStale() }
    if base == nil, source != .lookup, wasModifiedBefore {
      return blocking("an older version than this store's, which is damaged", .lookup)
    }
    if isOlderAnswer { return sendsAgain && endsBase ? decideToSendAgain() : IntakeDecision() }
    if isUnknownLife {
      return blocking("another life of a name whose last one is not known to be deleted", .lookup)
    }
    if isReturned { return decideReturned() }
    if let edit { return decide(against: edit) }
    guard let pending = entry?.pending else { return decideUnopposed() }
    // The server has a life that was not deleted here: it lives on.
    return IntakeDecision(steps: [.store(arrival), .settle(pending.newest, .superseded)])
  }

  /// The version is dead, and the app sees no record.
  private func decideDead() -> IntakeDecision {
    if let pending = entry?.pending {
      guard source == .lookup || !(isStale || endsBase) else {
        return blocking("an older version of a record whose deletion is not sent yet", .lookup)
      }
      // Another device edited what was deleted here.
      let edited = editedFields
      if isMovedAway || (rules.deletion == .editRevives && !edited.isEmpty) {
        let words =
          isMovedAway
          ? "another device moved the record out of what was deleted here"
          : "another device edited the record, and its type's edits win over deletions"
        return IntakeDecision(steps: [
          .store(arrival),
          .tell(
            pending.newest, ancestor: entry?.base?.version ?? .zero, [], rule: Merged.reviveRule, words: words),
          .giveUp(pending.newest, words: words),
        ])
      }
      // The deletion is sent again, for the server's present version and all lives that it has seen.
      var decision = IntakeDecision(steps: [.store(arrival)])
      if !edited.isEmpty {
        decision.steps.append(
          .tell(
            pending.newest, ancestor: entry?.base?.version ?? .zero,
            edited.map { Conflicted.Field(name: $0, rule: Conflicted.deletionRule, loser: .there) },
            rule: Conflicted.deletionRule, words: ""))
      }
      decision.steps.append(.deleteAgain(births.union(deadLives)))
      return decision
    }
    guard source == .lookup else { return blocking("a version of a deleted record", .lookup) }
    return deletingAgain()
  }

  /// The fields that another device has edited, in the order of their names: those that differ from the newest version that this store
  /// knows to be part of it.
  private var editedFields: [String] {
    let known = (includedVersion ?? base?.version)?.fields ?? [:]
    if arrival.version.stamp.isOfUneditedDefault { return [] }
    return Set(known.keys).union(arrival.version.fields.keys)
      .filter { known[$0] != arrival.version.fields[$0] }.sorted { $0.precedesByUTF8($1) }
  }

  /// The newest mutation of the edit that the version, or the base, contains.
  private var known: LSN { max(acknowledged, entry?.base?.content ?? .zero) }

  /// The server's record has only dead lives: it is deleted there, with its present change tag.
  private func deletingAgain() -> IntakeDecision {
    var decision = blocking("the server still holds a deleted record", .deleteAgain)
    decision.steps += [.store(arrival), .deleteAgain(births)]
    return decision
  }

  /// The version is dead, the base lives, and the server's record was created after the base: a deleted life has replaced the record
  /// that the app sees. (With an earlier creation time, the server was restored from a backup.) A pending edit counts only if it
  /// is of the base's lives.
  private var isReturned: Bool {
    guard isDead, let lives = base?.version.stamp.births, !lives.isSubset(of: deadLives),
      let begun = entry?.base?.createdMilliseconds, let created = arrival.system.created?.milliseconds, created > begun
    else { return false }
    return edit.map { included == nil && $0.version.stamp.births.isSubset(of: lives) } ?? true
  }

  /// The life of the base has ended. An edit of it ends too, or is sent as a new life if the type's edits win over deletions.
  private func decideReturned() -> IntakeDecision {
    guard source == .lookup else {
      return blocking("a version of a deleted life under a name that is in use again here", .lookup)
    }
    var decision = endingBase()
    if let edit, editRule == .editRevives {
      var edited = edit
      edited.loaded.version.stamp.joinSeen(arrival.version.stamp.seen)
      decision.steps += [
        .store(arrival),
        .revive(
          edited, words: "a deleted record has taken the record's place, and its type's edits win over deletions"),
      ]
      decision.counts.merged = 1
      return decision
    }
    if let edit {
      decision.steps += edit.lost(after: known, by: Conflicted.deletionRule)
      decision.steps.append(.settle(edit.lsn, .deletedOnServer))
    }
    let again = deletingAgain()
    decision.steps += again.steps
    decision.counts.add(again.counts)
    return decision
  }

  private func decideStale() -> IntakeDecision {
    guard source == .lookup else {
      return blocking("an older version than this store's", .lookup)
    }
    if sendsAgain { return decideToSendAgain() }
    // If a lookup lacks a mutation that the server acknowledged to this store, the server went back to an older state. If it lacks
    // only changes of other devices, a replica may lag.
    guard lacksAcknowledged else { return IntakeDecision() }
    var decision = blocking(
      "the server answers with an older version than it once acknowledged", .none, lacking: entry?.base?.version)
    decision.steps.append(
      .loseZone(
        words: "the server went back in time: it holds an older version of '\(id)' than it once acknowledged"))
    return decision
  }

  /// The server has an older version, and a person chose this store's side: its record is sent again, as a change of the server's.
  private func decideToSendAgain() -> IntakeDecision {
    var decision = IntakeDecision(steps: [.store(arrival)])
    decision.counts.fetchedSaves = 1
    if let edit {
      var joined = edit.version
      joined.stamp.joinSeen(arrival.version.stamp.seen)
      let dirty = Join.difference(joined, from: arrival.version)
      decision.steps.append(.merge(joined, dirty: dirty, of: edit, rule: Merged.replaceRule, words: ""))
    } else if entry?.pending != nil {
      decision.steps.append(.deleteAgain(births.union(deadLives)))
    } else if let base {
      decision.steps.append(.restore(base, dirty: Join.difference(base.version, from: arrival.version)))
    }
    return decision
  }

  /// The record has no pending change.
  private func decideUnopposed() -> IntakeDecision {
    var decision = endsBase ? endingBase() : IntakeDecision()
    decision.steps.append(.store(arrival))
    decision.counts.fetchedSaves = 1
    return decision
  }

  /// Decides about a version that meets a pending edit. The first line that applies decides.
  ///
  /// | the version | decision |
  /// | --- | --- |
  /// | is of a deleted life, from a page; the edit is of another | looked up |
  /// | is of one of the edit's lives, and not of the base's | the base's life has ended; the edit goes on without it |
  /// | is of a life that replaced the edit's | the edit ends with its life, or goes on in the new one if edits win over deletions |
  /// | contains the edit | the edit is settled |
  /// | is of the life that the edit's replaces | the edit is sent in its place |
  /// | is of another type | the edit is refused |
  /// | is of the same life, or both sides created one under the name | merged by the rules of the type |
  private func decide(against edit: PendingEdit) -> IntakeDecision {
    let ours = edit.version.stamp.births
    let isOtherLife = ours.isDisjoint(with: births)
    let isUnknown = isOtherLife && included == nil
    if isUnknown, isDead, source != .lookup {
      return blocking("a version of a deleted life under a name that is in use again here", .lookup)
    }
    if !isOtherLife, included != edit.lsn, endsBase, let ended = base?.version.stamp.births,
      !ours.isDisjoint(with: ended)
    {
      guard source == .lookup else {
        return blocking("one life of a name while another one is not known to be deleted", .lookup)
      }
      var edited = edit
      edited.loaded.version.stamp.births.subtract(ended)
      return decide(against: edited, endingBase())
    }
    return decide(against: edit, IntakeDecision())
  }

  /// The rest of the table: the version keeps each life of the edit, or replaces all.
  private func decide(against edit: PendingEdit, _ begun: IntakeDecision) -> IntakeDecision {
    let ours = edit.version.stamp.births
    let isOtherLife = ours.isDisjoint(with: births)
    let isUnknown = isOtherLife && included == nil
    var decision = begun
    if isUnknown, !isDead, endsBase, let base {
      decision = endingBase()
      if ours.isSubset(of: base.version.stamp.births), rules.deletion == .editRevives {
        // The edit goes on in the new life, which another revived edit, or the app, has begun.
        var edited = edit.loaded
        edited.version.stamp.births = births
        decision.steps.append(.store(arrival))
        return decideConflict(PendingEdit(lsn: edit.lsn, loaded: edited, ancestor: nil), decision)
      }
      if ours.isSubset(of: base.version.stamp.births) {
        // The edit ends with its life, and is never sent into the other one.
        decision.steps += edit.lost(after: known, by: Conflicted.deletionRule)
        decision.steps += [.settle(edit.lsn, .deletedOnServer), .store(arrival)]
        decision.counts.blocked = 1
        return decision
      }
    }
    // Only a dead version is replaced; one with a living life is merged with the edit's.
    let takesItsPlace = isOtherLife && isDead
    if included != edit.lsn, !takesItsPlace, edit.version.type != arrival.version.type {
      // Two devices used one name for records of two types, which cannot be merged. The server does not change a record's type, so its
      // record stays.
      decision.steps += [
        .refuse(
          edit.lsn, code: .typeMismatch,
          words:
            "the server holds '\(id)' with the type '\(arrival.version.type)', which cannot become '\(edit.version.type)'; "
            + "delete it and create it again, or save under another name"),
        .store(arrival),
      ]
      decision.steps += edit.lost(after: known, by: Conflicted.typeRule)
      decision.counts.blocked = 1
      return decision
    }
    decision.steps.append(.store(arrival))
    if let included {
      decision.steps.append(.settle(included, .saved))
      decision.counts.recognized = 1
      if included == edit.lsn { return decision }
    }
    if takesItsPlace {
      // The server still has the life that ended here, perhaps edited: the new one replaces it. It joins the old one's `seen`, so that
      // an old page's version is recognized as older.
      var version = edit.version
      version.stamp.joinSeen(arrival.version.stamp.seen)
      decision.steps.append(
        .merge(version, dirty: Set(version.names), of: edit, rule: Merged.replaceRule, words: ""))
      return decision
    }
    return decideConflict(edit, decision)
  }

  /// Merges an edit and a version: the steps of `decision`, then those of the merge.
  private func decideConflict(_ edit: PendingEdit, _ decision: IntakeDecision) -> IntakeDecision {
    var decision = decision
    let edit = edit.withoutDefault(where: arrival.version)
    let changed = Set(edit.loaded.dirty.filter { $0.value > known }.keys).filter { !isReplaced($0, of: edit) }
    var merge = ConflictMerge(
      edit: rebased(edit, changed: changed), changed: changed, server: arrival.version,
      ancestor: edit.ancestor?.version, writer: writer)
    merge.own = changed.filter { isOwn($0, of: edit) }
    merge.mayBeOfCopy = mayBeOfCopy
    merge.clampedFields = Set(arrival.unclampedStamps.keys)
    guard merge.isConflict(rules) else {
      // Both sides have the same values, or the server has only a new tag: the edit gets the new base, without a conflict.
      finish(merge, merge.byField([:]), edit, Merged.joinRule, [:], "", &decision)
      return decision
    }
    decision.counts.merged = 1
    switch rules.record {
    case .join: finish(merge, merge.byField(rules.fields), edit, Merged.joinRule, rules.fields, "", &decision)
    case .clientWins: finish(merge, merge.clientWins(), edit, Merged.clientWinsRule, nil, "", &decision)
    case .serverWins:
      let words = "the server's version wins, by the rule serverWins of '\(arrival.version.type)'"
      let decided = merge.decisions(arrival.version, nil, standard: Conflicted.serverWinsRule)
      tell(decided, edit, Conflicted.serverWinsRule, words, &decision)
      decision.steps.append(.giveUp(edit.lsn, words: words))
    case .resolver(let resolver):
      let question = ConflictQuestion(self, edit, resolver)
      switch answers.answer(to: question) {
      case nil: return IntakeDecision(question: question)
      case .success(let record):
        finish(merge, merge.resolved(record), edit, Merged.resolverRule, nil, "", &decision)
      case .failure(let refusal):
        finish(merge, merge.byField(rules.fields), edit, Merged.joinRule, rules.fields, refusal.words, &decision)
      }
    }
    return decision
  }

  private func tell(
    _ decided: [Conflicted.Field], _ edit: PendingEdit, _ rule: String, _ words: String,
    _ decision: inout IntakeDecision
  ) {
    guard !decided.isEmpty else { return }
    decision.steps.append(
      .tell(edit.lsn, ancestor: edit.ancestor?.lsn ?? .zero, decided, rule: rule, words: words))
  }

  /// Whether the server's value of a field is the edit's own write: it has the edit's stamp, as a copy of this store sent it; or
  /// the version has lost its stamp, and a request may have carried the edit.
  private func isOwn(_ name: String, of edit: PendingEdit) -> Bool {
    guard edit.version.fields[name] == arrival.version.fields[name] else { return false }
    guard arrival.isStamped else { return mayHaveArrived }
    let ours = edit.unclampedStamps[name] ?? edit.version.stamp.fields[name]
    return ours != nil && ours == arrival.unclampedStamps[name] ?? arrival.version.stamp.fields[name]
  }

  /// Whether the server has a later write of a field by the same writer: this log is a copy of that writer's, and does not know the
  /// edit's fate in the original. If the writer's clock was ahead, both times were clamped, each at its upload, and only the original
  /// times can be compared. If only one was clamped, the clocks of copy and original differed.
  private func isReplaced(_ name: String, of edit: PendingEdit) -> Bool {
    guard let theirs = arrival.unclampedStamps[name], let ours = edit.unclampedStamps[name] else { return false }
    return ours.writer == theirs.writer && ours.time < theirs.time
  }

  /// The edit, prepared for the merge. Fields that it has not changed get the server's values, whatever the stamps say: clocks may
  /// have been ahead or set back. (A version without a stamp may be older than the base, so there the stamps decide.) Fields that
  /// only the edit has changed get a stamp later than the replaced one, as this device's clock may have been set back.
  private func rebased(_ edit: PendingEdit, changed: Set<String>) -> Version {
    guard let known = included == nil && !arrival.isStamped ? base?.version : arrival.version,
      !known.stamp.births.isDisjoint(with: edit.version.stamp.births)
    else { return edit.version }
    var result = edit.version.taking(Set(known.names).union(edit.version.names).subtracting(changed), from: known)
    guard let ancestor = edit.ancestor?.version else { return result }
    for name in changed where ancestor.fields[name] == arrival.version.fields[name] {
      guard let ours = result.stamp.fields[name], let theirs = arrival.version.stamp.fields[name],
        ancestor.stamp.fields[name]?.writer == theirs.writer,
        arrival.unclampedStamps[name] != nil || !arrival.version.rewrites(name, of: ancestor)
      else { continue }
      result.stamp.fields[name]?.time = max(ours.time, theirs.time.next)
    }
    return result
  }

  /// Ends a merge. If the server has all of the result, nothing stays pending. The fields that lost are reported in either case.
  private func finish(
    _ merge: ConflictMerge, _ joined: Version, _ edit: PendingEdit, _ rule: String, _ fields: [String: FieldRule]?,
    _ words: String, _ decision: inout IntakeDecision
  ) {
    var joined = joined
    // The merge does not bring deleted lives back.
    if !joined.stamp.births.isSubset(of: deadLives) { joined.stamp.births.subtract(deadLives) }
    joined.stamp.births.subtract(livesLeftOut)
    let decided = merge.decisions(joined, fields, standard: rule)
    tell(decided, edit, rule, words, &decision)
    let dirty = Join.difference(joined, from: arrival.version)
    guard dirty.isEmpty, joined.stamp.births == births else {
      decision.steps.append(.merge(joined, dirty: dirty, of: edit, rule: rule, words: words))
      return
    }
    let lost = Set(decided.lazy.filter(\.loser.isHere).map(\.name))
    let isAll = !merge.changed.isEmpty && merge.changed.isSubset(of: lost)
    decision.steps.append(.settle(edit.lsn, isAll ? .lost : .merged))
  }

  /// Lives of the base that a version lacks although it has seen the base: a device knew them to be deleted, and went on with the
  /// other one. An edit that kept one would survive the deletion of the server's record.
  private var livesLeftOut: Set<Birth> {
    guard arrival.isStamped, let base, arrival.version.stamp.dominates(base.version.stamp) else { return [] }
    return base.version.stamp.births.subtracting(births)
  }

  /// The base's life has ended, though its tombstone was not seen.
  private func endingBase() -> IntakeDecision {
    var decision = IntakeDecision(steps: [.endLives(base?.version.stamp.births ?? [], .feed)])
    decision.counts.fetchedDeletes = 1
    return decision
  }

  /// - Parameter lacking: the version that the server once acknowledged and has lost.
  private func blocking(
    _ words: String, _ consequence: Blocked.Consequence, lacking: LSN? = nil
  ) -> IntakeDecision {
    var decision = IntakeDecision(steps: [
      .block(
        Blocked(
          id: id, subject: .version, lsn: lacking ?? .zero, changeTag: arrival.system.changeTag ?? "", births: births,
          consequence: consequence, words: words))
    ])
    decision.counts.blocked = 1
    return decision
  }
}

/// The facts for the decision about a deletion.
package struct DeletionSituation {
  let id: RecordID
  let source: ServerChange.Source
  /// This store's record of the name.
  package let entry: RecordEntry?
  /// The lives of its base.
  let births: Set<Birth>
  /// The known deleted lives of the name.
  let known: DeletionEntry?
  /// The deletion may be older than the life that it would end.
  package let isDoubtful: Bool
  /// The newest pending mutation, if it is an edit.
  package var edit: PendingEdit?
  /// The rule of the record's type.
  package var rule = DeletionRule.deletionWins
  /// The newest pending mutation that a request may have carried before the deletion.
  package var attempted: LSN?
  /// Lives that the server may have had beside the base's: those of this mutation, and those of the edit that other devices began.
  package var birthsThere: Set<Birth> = []

  package init(
    id: RecordID, source: ServerChange.Source, entry: RecordEntry?, births: Set<Birth>, known: DeletionEntry?,
    isDoubtful: Bool, edit: PendingEdit? = nil, rule: DeletionRule = .deletionWins, attempted: LSN? = nil,
    birthsThere: Set<Birth> = []
  ) {
    self.id = id
    self.source = source
    self.entry = entry
    self.births = births
    self.known = known
    self.isDoubtful = isDoubtful
    self.edit = edit
    self.rule = rule
    self.attempted = attempted
    self.birthsThere = birthsThere
  }

  /// Decides about the deletion.
  package func decide() -> IntakeDecision {
    if isDoubtful {
      var decision = IntakeDecision(steps: [
        .block(
          Blocked(
            id: id, subject: .deletion, births: births, consequence: .lookup,
            words: "a deletion that may be older than the record that is here"))
      ])
      decision.counts.blocked = 1
      return decision
    }
    guard let pending = entry?.pending else {
      if entry == nil, let known, !known.isProvisional {
        return IntakeDecision(steps: [.closeBlock(words: "the server agrees with this store")])
      }
      var decision = IntakeDecision(steps: [ending(births)])
      decision.counts.fetchedDeletes = entry == nil ? 0 : 1
      return decision
    }
    if pending.isDeletion {
      // Without a base, only a creation that may have been sent can be the deleted life. Otherwise the upload of this store's deletion
      // looks the record up.
      guard entry?.base != nil || attempted != nil else { return IntakeDecision() }
      return IntakeDecision(steps: [ending(births), .settle(pending.newest, .deleted)])
    }
    return decideAgainstEdit()
  }

  /// Decides about a synced record that a full fetch did not show. If its deletion is pending, the upload finds out.
  ///
  /// - Parameter again: the version to create again.
  package func decide(_ unseen: ServerChange.Unseen, again: LoadedVersion?) -> IntakeDecision {
    guard let entry, entry.base != nil, entry.pending?.isDeletion != true else { return IntakeDecision() }
    guard entry.pending != nil else {
      var decision = IntakeDecision(steps: [swept])
      if let again { decision.steps.append(.create(again)) } else { decision.counts.fetchedDeletes = 1 }
      return decision
    }
    switch unseen {
    case .removedUnlessEdited: return IntakeDecision()
    case .removed: return decideAgainstEdit(isUnseen: true)
    case .createdAgain:
      guard let edit else { return IntakeDecision() }
      var decision = IntakeDecision(steps: [swept])
      if edit.version.stamp.births.isSubset(of: births) {
        decision.steps.append(.revive(edit, words: "this store's records are uploaded again"))
      }
      return decision
    }
  }

  /// Without births: that a fetch did not show a record does not prove a deletion, so a later version of it is accepted.
  private var swept: IntakeDecision.Step { .endLives([], .sweep) }

  /// An edit ends with its life. A creation that may have been sent was deleted by a device that saw it; one that was not sent is
  /// another life and stays pending. Only this device can have begun that: what is deleted has a name, and the lives of others that
  /// the server has lost meanwhile, as a zone that was made again has, ended with it.
  ///
  /// - Parameter isUnseen: a full fetch did not show the record, and the feed has no deletion of it.
  private func decideAgainstEdit(isUnseen: Bool = false) -> IntakeDecision {
    guard let edit else { return IntakeDecision() }
    var dead = births.union(birthsThere)
    // A name that was deleted needs no default. Which life the tombstone is of does not matter for that.
    if edit.isUneditedDefault { dead.insert(.ofDefaults) }
    if edit.version.stamp.births.isSubset(of: dead) {
      var decision = IntakeDecision(steps: [ending(dead)])
      decision.counts.fetchedDeletes = 1
      if rule == .editRevives, !edit.isUneditedDefault {
        let cause = isUnseen ? "the server does not have the record any more" : "another device deleted the record"
        decision.steps.append(.revive(edit, words: "\(cause), and its type's edits win over deletions"))
        decision.counts.merged = 1
      } else {
        decision.steps += edit.lost(after: entry?.base?.content ?? .zero, by: Conflicted.deletionRule)
        let isNotNeeded = edit.isUneditedDefault && attempted == nil
        decision.steps.append(.settle(edit.lsn, isNotNeeded ? .cancelled : .deletedOnServer))
        decision.counts.blocked = 1
      }
      return decision
    }
    // The creation stays pending. The end of a life of the name is logged once.
    guard entry?.base != nil || attempted != nil || known == nil else { return IntakeDecision() }
    var decision = IntakeDecision(steps: [ending(dead)])
    if let attempted { decision.steps.append(.settle(attempted, .deletedOnServer)) }
    return decision
  }

  private func ending(_ births: Set<Birth>) -> IntakeDecision.Step {
    .endLives(births, source == .fullFetch ? .fullFetch : .feed)
  }
}
