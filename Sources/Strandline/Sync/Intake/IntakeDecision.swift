// What follows from one change that the server says of one record. Pure: from a situation, gathered by Intake, to the
// events that Intake appends, in their order.
//
// A life is what one explicit creation of a name began (its birth). A version is dead if all its lives were deleted.

import StrandlineSystem

/// The events that follow from a change, in order, and what the cycle's report counts.
struct IntakeDecision {
  enum Step {
    /// Append the version that arrived. It becomes the record's base.
    case store(Arrival)
    /// Append that these lives have ended at the server.
    case endLives(Set<Birth>, FetchedDelete.Reason)
    /// Append that a mutation, and every earlier one of the record, is not owed any more.
    case settle(LSN, Outcome)
    /// Append a deletion of the version that was stored, to be sent with its tag.
    case deleteAgain(Set<Birth>)
    /// Append that a mutation, and every earlier one of the record, will never be sent, and why.
    case refuse(LSN, code: StrandlineError.Code, words: String)
    /// Append that a rule of the app's gives up a mutation, and every earlier one of the record.
    case giveUp(LSN, words: String)
    /// Append that a mutation met what the server has, and which of the two lost, field by field.
    case tell(LSN, ancestor: LSN, [Conflicted.Field], rule: String, words: String)
    /// Append what an unsettled edit and the version that was stored merge to.
    case merge(Version, dirty: Set<String>, of: PendingEdit, rule: String, words: String)
    /// Append the edit as the first version of a life that begins with it, in the place of the version that was stored, if one was.
    case revive(PendingEdit, words: String)
    /// Append the version as the first one of a life that begins with it.
    case create(LoadedVersion)
    /// Append the version as an edit of the one that was stored.
    case restore(LoadedVersion, dirty: Set<String>)
    /// Append that the change was not applied, and what has to be asked because of it.
    case block(Blocked)
    /// Close the record's block, if it has one.
    case closeBlock(words: String)
    /// Freeze the record's zone.
    case loseZone(words: String)
  }

  var steps: [Step] = []
  var counts = SyncReport()
  /// A resolver has to be asked before it can be decided what follows; then there are no steps.
  var question: ConflictQuestion?
}

/// The newest unsettled mutation of a record, if it is an edit.
struct PendingEdit {
  let lsn: LSN
  /// Its version; times from the future are clamped.
  var loaded: LoadedVersion
  /// The stamps that were clamped, as they were.
  var disbelieved: [String: FieldStamp] = [:]
  /// The version of the server that it was made from, or the newest of this store's mutations that was found in the arrival;
  /// nil if neither is known.
  var ancestor: (lsn: LSN, version: Version)?

  var version: Version { loaded.version }

  /// That all of it is lost which came after a mutation that the server has.
  func lost(after acknowledged: LSN, by rule: String, words: String = "") -> IntakeDecision.Step {
    let names = loaded.dirty.filter { $0.value > acknowledged }.keys.sorted { $0.precedesByUTF8($1) }
    return .tell(
      lsn, ancestor: ancestor?.lsn ?? .none, names.map { Conflicted.Field(name: $0, rule: rule, loser: .here) },
      rule: rule, words: words)
  }
}

/// All that the decision about a version depends on.
struct VersionSituation {
  let id: RecordID
  let source: Intake.Source
  let arrival: Arrival
  /// What this store holds under the name.
  let entry: RecordEntry?
  /// The values of its base, as other devices know it.
  let base: LoadedVersion?
  /// All lives of the version were deleted.
  let isDead: Bool
  /// The lives of the name that were deleted.
  let deadLives: Set<Birth>
  /// There is no base, and a life of the name has ended.
  let wasDeleted: Bool
  /// The newest unsettled mutation of this store that the version contains.
  let included: LSN?
  /// What that mutation wrote, if compaction has left it.
  let includedVersion: Version?
  /// A deletion above it took the record along here, and another device has put it elsewhere.
  let isMovedAway: Bool
  /// The newest mutation of this store that was found in the version and that is part of the unsettled edit; `.none` if there is none.
  let acknowledged: LSN
  /// The newest unsettled mutation, if it is an edit.
  let edit: PendingEdit?
  /// The rules of the arrival's type.
  let rules: TypeRules
  /// What becomes of the edit when its record was deleted, by the rules of its own type.
  let editRule: DeletionRule
  /// Who writes a value that is neither side's.
  let writer: WriterID
  /// What resolvers have answered.
  let answers: ConflictAnswers
  /// Answer to a lookup: the base is a mutation of this store that the server acknowledged, and the version lacks it.
  let lacksAcknowledged: Bool
  /// The feed has shown this very version, and what it means was left to the answer to a lookup.
  let isWhatFeedShows: Bool
  /// A person has decided that what is here goes up again, whatever the server has of it.
  let sendsAgain: Bool
  /// A request may have carried the edit, and its answer is not known.
  let mayHaveArrived: Bool
  /// It names a mutation that a copy of this log wrote under the writer number of the edit, and that came after the edit or
  /// what it was merged from: the copy may have sent those.
  let mayBeOfCopy: Bool
  /// It is older than the base by the server's clock or by what it includes, and a copy of this log wrote it, or what it was made
  /// from, under this log's writer number: which of two mutations is the later does not follow from their LSNs.
  let namesCopy: Bool

  private var births: Set<Birth> { arrival.version.stamp.births }

  /// The version continues no life of the base.
  private var endsBase: Bool { base.map { $0.version.stamp.births.isDisjoint(with: births) } ?? false }

  /// How the version compares with the base by what both have seen.
  private var age: VersionAge {
    guard let base, !endsBase else { return .unknown }
    return VersionAge(
      of: arrival.version.stamp, isStamped: arrival.isStamped, beside: base.version.stamp, namesCopy: namesCopy,
      wasModifiedAfter: wasModifiedAfter)
  }

  /// The version has seen less than the base: an old page, or a server that went back in time.
  private var isStale: Bool {
    guard let entry, base != nil, !endsBase else { return false }
    // Created anew at the server since: then a lookup shows no older version of the base.
    if source == .lookup {
      return age == .older && arrival.system.created?.milliseconds == entry.base?.createdMilliseconds
    }
    // An old page shows a record that the server has lost and got again since.
    if let created = arrival.system.created?.milliseconds, let begun = entry.base?.createdMilliseconds, created < begun
    {
      return true
    }
    // Where what they have seen does not tell, the server's clock has a page looked up.
    return age == .older || (age == .unknown && wasModifiedBefore)
  }

  /// The answer to a lookup was modified before the base, and has not seen it. If neither has seen the other, the feed says
  /// which stands; if it shows the same, the server's clock was set back. A deleted life that both show in the place of
  /// another one is that of a server that was put back.
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
  static func wasModified(_ arrival: Arrival, before base: Base?) -> Bool {
    guard let known = base?.modifiedMilliseconds, let modified = arrival.system.modified?.milliseconds else {
      return false
    }
    return modified < known
  }

  /// A life that this log has not met, under a name that it has: the record was deleted and created anew elsewhere, or an
  /// old page shows a life that ended before this store existed. A page cannot tell which; a lookup can.
  private var isUnknownLife: Bool {
    guard source != .lookup else { return false }
    if base != nil { return included == nil && endsBase }
    // Even for a creation of this store: a tombstone that may have been older than it was not applied, so an old page
    // could show the record again when it is gone.
    return wasDeleted
  }

  /// What follows from the version. The first line that applies decides.
  ///
  /// | the version | what follows |
  /// | --- | --- |
  /// | is of deleted lives alone, the app sees no record, and it was moved out of what was deleted above it | it lives |
  /// | is of deleted lives alone, and the app sees no record | the deletion stands: looked up, then deleted again |
  /// | has seen less than the base, and a person lets this store's side stand | becomes the base, and what is here is sent over it |
  /// | has seen less than the base | from a page: looked up; from a lookup: dropped, or the zone went back in time |
  /// | is an older answer of another life, and a person lets this store's side stand | what is here is sent in its place |
  /// | is an answer that is older than the base, and not what the feed shows | dropped; the feed says which stands |
  /// | is of a life that was not met before, from a page | looked up |
  /// | is of deleted lives alone, and was created after what the app sees | that has ended, and the deletion stands |
  /// | meets nothing unsettled | becomes the base |
  /// | meets a deletion of another life | becomes the base, and the deletion is over |
  /// | meets an edit | as `decide(against:)` says |
  func decide() -> IntakeDecision {
    if isDead, entry?.view == nil { return decideDead() }
    if isStale { return decideStale() }
    if base == nil, source != .lookup, wasModifiedBefore {
      return blocking("an older version than the one that is damaged here", .lookup)
    }
    if isOlderAnswer { return sendsAgain && endsBase ? decideToSendAgain() : IntakeDecision() }
    if isUnknownLife {
      return blocking("another life of a name whose last one has not been seen to end", .lookup)
    }
    if isReturned { return decideReturned() }
    if let edit { return decide(against: edit) }
    guard let pending = entry?.pending else { return decideUnopposed() }
    // The server holds another life than the one that was deleted here, or one more: that one lives.
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
            pending.newest, ancestor: entry?.base?.version ?? .none, [], rule: Merged.reviveRule, words: words),
          .giveUp(pending.newest, words: words),
        ])
      }
      // The deletion stands, on the version that the server holds now, and of all the lives that it saw.
      var decision = IntakeDecision(steps: [.store(arrival)])
      if !edited.isEmpty {
        decision.steps.append(
          .tell(
            pending.newest, ancestor: entry?.base?.version ?? .none,
            edited.map { Conflicted.Field(name: $0, rule: Conflicted.deletionRule, loser: .there) },
            rule: Conflicted.deletionRule, words: ""))
      }
      decision.steps.append(.deleteAgain(births.union(deadLives)))
      return decision
    }
    guard source == .lookup else { return blocking("a version of a deleted record", .lookup) }
    return deletingAgain()
  }

  /// The fields that another device has edited: those in which the version differs from the newest that this store knows to be
  /// part of it, in the order of their names.
  private var editedFields: [String] {
    let known = (includedVersion ?? base?.version)?.fields ?? [:]
    return Set(known.keys).union(arrival.version.fields.keys)
      .filter { known[$0] != arrival.version.fields[$0] }.sorted { $0.precedesByUTF8($1) }
  }

  /// The newest mutation of this store that the version, or what came before it, has of the edit.
  private var known: LSN { max(acknowledged, entry?.base?.content ?? .none) }

  /// The record does live at the server, with dead lives alone: it is deleted there, with the tag that it has now.
  private func deletingAgain() -> IntakeDecision {
    var decision = blocking("the server still holds a deleted record", .deleteAgain)
    decision.steps += [.store(arrival), .deleteAgain(births)]
    return decision
  }

  /// The version is dead, the base lives, and the server's record was created after that of the base: what the app sees has lost
  /// its place to a life that was deleted before. (An older one is that of a server that was put back.) An edit of another life
  /// than the base's is not what the app sees of that.
  private var isReturned: Bool {
    guard isDead, let lives = base?.version.stamp.births, !lives.isSubset(of: deadLives),
      let begun = entry?.base?.createdMilliseconds, let created = arrival.system.created?.milliseconds, created > begun
    else { return false }
    return edit.map { included == nil && $0.version.stamp.births.isSubset(of: lives) } ?? true
  }

  /// The life of the base has ended, and an edit of it ends with it, or goes up as another life where edits revive.
  private func decideReturned() -> IntakeDecision {
    guard source == .lookup else {
      return blocking("a version of a deleted life under a name that lives again here", .lookup)
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
      decision.steps += [edit.lost(after: known, by: Conflicted.deletionRule), .settle(edit.lsn, .deletedOnServer)]
    }
    let again = deletingAgain()
    decision.steps += again.steps
    decision.counts.add(again.counts)
    return decision
  }

  private func decideStale() -> IntakeDecision {
    if sendsAgain { return decideToSendAgain() }
    guard source == .lookup else {
      return blocking("an older version than the one that is known here", .lookup)
    }
    // A lookup shows no old page. An answer that lacks what the server acknowledged to this store means that the server
    // went back in time; one that lacks what other devices wrote may come from a replica that lags.
    guard lacksAcknowledged else { return IntakeDecision() }
    var decision = blocking(
      "the server answers with an older version than it once acknowledged", .none, lacking: entry?.base?.version)
    decision.steps.append(
      .loseZone(
        words: "the server went back in time: it holds an older version of '\(id)' than it once acknowledged"))
    return decision
  }

  /// The server has an older version than this store, and a person has decided for this store's: it is sent again, as a change of
  /// what the server has.
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

  /// The record has no unsettled mutation.
  private func decideUnopposed() -> IntakeDecision {
    var decision = endsBase ? endingBase() : IntakeDecision()
    decision.steps.append(.store(arrival))
    decision.counts.fetchedSaves = 1
    return decision
  }

  /// What follows from a version that meets an unsettled edit. The first line that applies decides.
  ///
  /// | the version | what follows |
  /// | --- | --- |
  /// | is of a deleted life, from a page; the edit is of another | looked up |
  /// | is of one of the edit's lives, and not of the base's | the base's life has ended, and the edit goes on without it |
  /// | is of a life that took the place of the edit's | the edit ends with its life, or goes on in the new one where edits revive |
  /// | contains the edit | the edit is settled |
  /// | is of the life whose place the edit's took | the edit is sent in its place |
  /// | is of another type | the edit is refused |
  /// | is of the same life, or both began one under the name | they are merged by the rules of the type |
  private func decide(against edit: PendingEdit) -> IntakeDecision {
    let ours = edit.version.stamp.births
    let isOtherLife = ours.isDisjoint(with: births)
    let isUnknown = isOtherLife && included == nil
    if isUnknown, isDead, source != .lookup {
      return blocking("a version of a deleted life under a name that lives again here", .lookup)
    }
    if !isOtherLife, included != edit.lsn, endsBase, let ended = base?.version.stamp.births,
      !ours.isDisjoint(with: ended)
    {
      guard source == .lookup else {
        return blocking("one life of a name of which another one has not been seen to end", .lookup)
      }
      var edited = edit
      edited.loaded.version.stamp.births.subtract(ended)
      return decide(against: edited, endingBase())
    }
    return decide(against: edit, IntakeDecision())
  }

  /// The same, of a version that leaves each life of the edit as it is, or takes the place of all.
  private func decide(against edit: PendingEdit, _ begun: IntakeDecision) -> IntakeDecision {
    let ours = edit.version.stamp.births
    let isOtherLife = ours.isDisjoint(with: births)
    let isUnknown = isOtherLife && included == nil
    var decision = begun
    if isUnknown, !isDead, endsBase, let base {
      decision = endingBase()
      if ours.isSubset(of: base.version.stamp.births), rules.deletion == .editRevives {
        // Another edit, or the app, has begun the new life: this one goes on in it.
        var edited = edit.loaded
        edited.version.stamp.births = births
        decision.steps.append(.store(arrival))
        return decideConflict(PendingEdit(lsn: edit.lsn, loaded: edited, ancestor: nil), decision)
      }
      if ours.isSubset(of: base.version.stamp.births) {
        // The edit is of the life that has ended: it ends with it, and is never sent into the other.
        decision.steps += [
          edit.lost(after: known, by: Conflicted.deletionRule), .settle(edit.lsn, .deletedOnServer), .store(arrival),
        ]
        decision.counts.blocked = 1
        return decision
      }
    }
    // A version that still has a life that was not deleted lives on beside the edit's.
    let takesItsPlace = isOtherLife && isDead
    if included != edit.lsn, !takesItsPlace, edit.version.type != arrival.version.type {
      // Two devices gave one name to records of two types. The fields of both in one record would be neither, and the
      // server keeps the type of a record that lives: the one that it has stays.
      decision.steps += [
        .refuse(
          edit.lsn, code: .typeMismatch,
          words:
            "the server holds '\(id)' as a '\(arrival.version.type)', which cannot become a '\(edit.version.type)'; "
            + "delete it and create it anew, or save under another name"),
        .store(arrival), edit.lost(after: known, by: Conflicted.typeRule),
      ]
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
      // The life that ended here is still at the server, perhaps edited: the one that began here takes its place. It has
      // seen what it replaces: an older version of itself that an old page shows is recognized by that.
      var version = edit.version
      version.stamp.joinSeen(arrival.version.stamp.seen)
      decision.steps.append(
        .merge(version, dirty: Set(version.names), of: edit, rule: Merged.replaceRule, words: ""))
      return decision
    }
    return decideConflict(edit, decision)
  }

  /// What follows from an edit and a version that have to become one: the steps of `decision`, and the merge.
  private func decideConflict(_ edit: PendingEdit, _ decision: IntakeDecision) -> IntakeDecision {
    var decision = decision
    let changed = Set(edit.loaded.dirty.filter { $0.value > known }.keys).filter { !isReplaced($0, of: edit) }
    var merge = ConflictMerge(
      edit: rebased(edit, changed: changed), changed: changed, server: arrival.version,
      ancestor: edit.ancestor?.version, writer: writer)
    merge.own = changed.filter { isOwn($0, of: edit) }
    merge.mayBeOfCopy = mayBeOfCopy
    merge.disbelieved = Set(arrival.disbelieved.keys)
    guard merge.isConflict(rules) else {
      // The same values on both sides, or a new tag for the values that the edit was made from: its base is another one,
      // and no one is asked.
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
      .tell(edit.lsn, ancestor: edit.ancestor?.lsn ?? .none, decided, rule: rule, words: words))
  }

  /// Whether the server's value of a field is the edit's own write: it has the edit's stamp, because a copy of this store has
  /// sent it; or the version has lost its stamp, and a request may have carried the edit.
  private func isOwn(_ name: String, of edit: PendingEdit) -> Bool {
    guard edit.version.fields[name] == arrival.version.fields[name] else { return false }
    guard arrival.isStamped else { return mayHaveArrived }
    let ours = edit.disbelieved[name] ?? edit.version.stamp.fields[name]
    return ours != nil && ours == arrival.disbelieved[name] ?? arrival.version.stamp.fields[name]
  }

  /// Whether the server has a later write of a field by the same writer: the edit stands in a copy of that writer's log, which
  /// does not know what became of it in the original. Where its clock was ahead, both times have become less, each by when it
  /// came to the server, and say nothing any more; those that the writer gave do. If only one has become less, the clocks of the
  /// copy and of the original were not the same.
  private func isReplaced(_ name: String, of edit: PendingEdit) -> Bool {
    guard let theirs = arrival.disbelieved[name], let ours = edit.disbelieved[name] else { return false }
    return ours.writer == theirs.writer && ours.time < theirs.time
  }

  /// The edit, as it is compared with the version. What it has not changed is as the server has it now, whatever the stamps
  /// say: the edit may hold one from the future, and the server's change one of a clock that was set back. (Of a version without
  /// a stamp it is not known whether it comes after the base, so there the stamps decide.) What it has changed and nothing else has
  /// is later than what it replaces, though this device's clock may have been set back between the two.
  private func rebased(_ edit: PendingEdit, changed: Set<String>) -> Version {
    guard let known = included == nil && !arrival.isStamped ? base?.version : arrival.version,
      !known.stamp.births.isDisjoint(with: edit.version.stamp.births)
    else { return edit.version }
    var result = edit.version.taking(Set(known.names).union(edit.version.names).subtracting(changed), from: known)
    guard let ancestor = edit.ancestor?.version else { return result }
    for name in changed where ancestor.fields[name] == arrival.version.fields[name] {
      guard let ours = result.stamp.fields[name], let theirs = arrival.version.stamp.fields[name],
        ancestor.stamp.fields[name]?.writer == theirs.writer,
        arrival.disbelieved[name] != nil || !arrival.version.rewrites(name, of: ancestor)
      else { continue }
      result.stamp.fields[name]?.time = max(ours.time, theirs.time.next)
    }
    return result
  }

  /// Ends a merge: nothing is owed if the server has all of the result. What lost is told in either case.
  private func finish(
    _ merge: ConflictMerge, _ joined: Version, _ edit: PendingEdit, _ rule: String, _ fields: [String: FieldRule]?,
    _ words: String, _ decision: inout IntakeDecision
  ) {
    var joined = joined
    // A deleted life does not come back with the life beside it.
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

  /// The lives that the base has and the version, which has seen it, has not: a device that knows them to be deleted has gone on
  /// with the life beside them. An edit that kept one of them would outlive the deletion of all that the server has.
  private var livesLeftOut: Set<Birth> {
    guard arrival.isStamped, let base, arrival.version.stamp.dominates(base.version.stamp) else { return [] }
    return base.version.stamp.births.subtracting(births)
  }

  /// The life that is known here has ended, though no tombstone of it was seen.
  private func endingBase() -> IntakeDecision {
    var decision = IntakeDecision(steps: [.endLives(base?.version.stamp.births ?? [], .feed)])
    decision.counts.fetchedDeletes = 1
    return decision
  }

  /// - Parameter lacking: what the server once acknowledged and does not have any more.
  private func blocking(
    _ words: String, _ consequence: Blocked.Consequence, lacking: LSN? = nil
  ) -> IntakeDecision {
    var decision = IntakeDecision(steps: [
      .block(
        Blocked(
          id: id, subject: .version, lsn: lacking ?? .none, changeTag: arrival.system.changeTag ?? "", births: births,
          consequence: consequence, words: words))
    ])
    decision.counts.blocked = 1
    return decision
  }
}

/// All that the decision about a deletion depends on.
struct DeletionSituation {
  let id: RecordID
  let source: Intake.Source
  /// What this store holds under the name.
  let entry: RecordEntry?
  /// The lives of its base.
  let births: Set<Birth>
  /// What is known of lives of the name that have ended.
  let known: DeletionEntry?
  /// The deletion may be older than the life that it would end.
  let isDoubtful: Bool
  /// The newest unsettled mutation, if it is an edit.
  var edit: PendingEdit?
  /// The rule of the record's type.
  var rule = DeletionRule.sticky
  /// The newest unsettled mutation that a request may have carried before the deletion.
  var attempted: LSN?
  /// Its lives, if it is an edit.
  var attemptedBirths: Set<Birth> = []

  /// What follows from the deletion.
  func decide() -> IntakeDecision {
    if isDoubtful {
      var decision = IntakeDecision(steps: [
        .block(
          Blocked(
            id: id, subject: .deletion, births: births, consequence: .lookup,
            words: "a deletion that may be older than the life it would end"))
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
      // Without a base, only a creation that a request may have carried can be the life that ended. Otherwise the upload
      // of the deletion looks the record up.
      guard entry?.base != nil || attempted != nil else { return IntakeDecision() }
      return IntakeDecision(steps: [ending(births), .settle(pending.newest, .deleted)])
    }
    return decideAgainstEdit()
  }

  /// What follows if a full fetch did not show the record, which was synced. A deletion that is not sent yet finds out by
  /// itself.
  ///
  /// - Parameter again: the version to create again.
  func decide(_ unseen: ServerChange.Unseen, again: LoadedVersion?) -> IntakeDecision {
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

  /// Without births: that a fetch does not show a record is no proof that its lives were deleted, and a version of them that
  /// comes later is the server's.
  private var swept: IntakeDecision.Step { .endLives([], .sweep) }

  /// An edit ends with its life. A creation that a request may have carried was deleted by a device that saw it; one that
  /// no request carried is another life and stays owed.
  ///
  /// - Parameter isUnseen: no deletion says it, and the server does not have the record.
  private func decideAgainstEdit(isUnseen: Bool = false) -> IntakeDecision {
    guard let edit else { return IntakeDecision() }
    let dead = births.union(attemptedBirths)
    if edit.version.stamp.births.isSubset(of: dead) {
      var decision = IntakeDecision(steps: [ending(dead)])
      decision.counts.fetchedDeletes = 1
      if rule == .editRevives {
        let cause = isUnseen ? "the server does not have the record any more" : "another device deleted the record"
        decision.steps.append(.revive(edit, words: "\(cause), and its type's edits win over deletions"))
        decision.counts.merged = 1
      } else {
        decision.steps += [
          edit.lost(after: entry?.base?.content ?? .none, by: Conflicted.deletionRule),
          .settle(edit.lsn, .deletedOnServer),
        ]
        decision.counts.blocked = 1
      }
      return decision
    }
    // The creation stays owed. That a life of the name has ended is recorded once.
    guard entry?.base != nil || attempted != nil || known == nil else { return IntakeDecision() }
    var decision = IntakeDecision(steps: [ending(dead)])
    if let attempted { decision.steps.append(.settle(attempted, .deletedOnServer)) }
    return decision
  }

  private func ending(_ births: Set<Birth>) -> IntakeDecision.Step {
    .endLives(births, source == .fullFetch ? .fullFetch : .feed)
  }
}
