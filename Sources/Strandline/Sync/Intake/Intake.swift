// Applies the server's word on one record: a version, a deletion, or that it has no such record. Every path on which a deleted
// record could come back leads through here.
//
// For each change the facts are gathered into a situation, a pure function decides (IntakeDecision.swift), and the resulting events
// are appended in the transaction of the page or answer. If the record has pending changes, the same transaction settles or
// merges them.

import StrandlineSystem

/// Applies the changes of one page or answer, inside a transaction.
package struct Intake {
  let source: ServerChange.Source
  let rules: ConflictRules
  /// The app's declared types.
  let schema: Schema
  /// The page that brings the changes; nil for any other answer, whose versions do not wait for a parent.
  let page: PagePlace?
  /// The versions of this page that wait for their parent.
  var waiting: [RecordID: ShelvedVersion] = [:]
  /// The records that the page lists without their fields, and that this store lacks.
  var listing: [Listed.Item] = []
  var taken = TakenChanges()
  /// The resolvers' answers.
  var answers = ConflictAnswers()
  /// The questions to ask resolvers; if there are any, the transaction is undone.
  var questions: [ConflictQuestion] = []

  package init(
    _ source: ServerChange.Source, rules: ConflictRules = ConflictRules(), schema: Schema = Schema(),
    page: PagePlace? = nil
  ) {
    self.source = source
    self.rules = rules
    self.schema = schema
    self.page = page
  }

  /// Applies a change of a record, after a version of it that waited for its parent; or lets the change wait for its parent too. If
  /// this store's events of the record are damaged, the record is held, and the page goes on.
  package mutating func apply(_ change: ServerChange, to core: inout StoreCore) throws {
    if try setsAside(change, &core) { return }
    // If this version has to wait too, it replaces the one that waits.
    if try waits(change, core) { return }
    try show(change.id, &core)
    try applyGuarded(change, to: &core)
  }

  mutating func applyGuarded(_ change: ServerChange, to core: inout StoreCore) throws {
    let before = core.projections.appliedLSN
    do { try decide(change, &core) } catch let error as StrandlineError
      where error.code == .damaged && !error.isOfIndex && core.projections.appliedLSN == before
    {
      let damage = CloudError(CloudError.Code(rawValue: Held.damaged), reason: error.message)
      try hold(change.id, damage, asksAgain: false, &core)
    }
  }

  private mutating func decide(_ change: ServerChange, _ core: inout StoreCore) throws {
    switch change.kind {
    case .version(let server): try apply(version: server, of: change.id, to: &core)
    case .listed(let server): try list(server, change.id, &core)
    case .deletion: try apply(deletionOf: change.id, to: &core)
    case .absence: try apply(absenceOf: change.id, to: &core)
    case .unseen(let unseen): try apply(unseen, change.id, to: &core)
    case .unreadable(let error):
      let isFinal = !error.raw.isEmpty || error.meaning.item.mayBeOfOneRecord
      try hold(change.id, error, asksAgain: source != .lookup || !isFinal, &core)
    }
  }

  /// Applies a version that the server has.
  package mutating func apply(version server: ServerRecord, of id: RecordID, to core: inout StoreCore) throws {
    let entry = try core.projections.entry(id)
    // A known version is stored again if it says what the server calls a content that this store has uploaded; if the transport has changed
    // its kind, which needs the archive of the base, or lacks it, and may know more of the values; or if it answers a lookup and this
    // store's version is damaged.
    if let base = entry?.base, server.system.changeTag.equalsUTF8(base.changeTag),
      base.modifiedMilliseconds == server.system.modified?.milliseconds,
      try source != .lookup || readableBase(of: id, entry, core) != nil,
      try server.system.archive.isEmpty == core.event(at: base.version).archive.isEmpty,
      try !names(server, contentsOf: entry, id, core)
    {
      taken.report.echoes += 1
      taken.touched.insert(id)
      try closeBlock(of: id, words: "the server agrees with this store", &core)
      // The version that could not be read is this store's base. A hold of an edit has another reason and stays.
      if source == .lookup, core.projections.held(id) == nil { try endHold(of: id, &core) }
      return
    }
    let base = try readableBase(of: id, entry, core)
    let lives = try knownBirths(of: id, created: server.system.created, entry, base, core)
    var arrival = Arrival(server, ancestor: base?.version, knownBirths: lives)
    if server.hasAssets {
      if let base { arrival.version.learnHashes(from: base.version) }
      if let edit = try pendingEdit(of: id, entry, core) { arrival.version.learnHashes(from: edit.version) }
    }
    if source == .query, try !supersedesBase(arrival, of: id, entry, base, core) { return }
    replaceWriterIfCloned(arrival.version.stamp, &core)
    let decision = try versionSituation(of: id, arrival, entry, base, core).decide()
    if let question = decision.question {
      questions.append(question)
    } else {
      try perform(decision, on: id, &core)
    }
  }

  /// Applies a deletion. `isConfirmed`: it is the answer to a lookup, made because the feed's deletion was doubtful.
  package mutating func apply(deletionOf id: RecordID, isConfirmed: Bool = false, to core: inout StoreCore) throws {
    let situation = try deletionSituation(of: id, isConfirmed: isConfirmed, core)
    try perform(situation.decide(), on: id, &core)
    // A repeated page says nothing about a record that was created since.
    if !situation.isDoubtful, page?.isRepeated != true { try endHold(of: id, &core) }
  }

  /// The server has no record of the name: ends the hold of a version that could not be read.
  private func endHold(of id: RecordID, _ core: inout StoreCore) throws {
    guard let unread = core.projections.sync.unread[id], !unread.isShelved else { return }
    try core.append(.released(Released(id: id, lsn: .zero)))
    // An edit was held because of that version.
    if let held = core.projections.held(id) { try core.append(.released(Released(id: id, lsn: held.lsn))) }
  }

  /// Applies that a full fetch did not show a synced record.
  private mutating func apply(_ unseen: ServerChange.Unseen, _ id: RecordID, to core: inout StoreCore) throws {
    let situation = try deletionSituation(of: id, isConfirmed: true, core)
    var again: LoadedVersion?
    if unseen == .createdAgain, let entry = situation.entry, entry.pending == nil {
      again = try core.base(of: id, entry)
    }
    try perform(situation.decide(unseen, again: again), on: id, &core)
  }

  /// Applies the answer to a lookup that the server does not have a record. It closes an open question and confirms a doubtful
  /// deletion. If this store has the record, only the feed can say that it was deleted.
  package mutating func apply(absenceOf id: RecordID, to core: inout StoreCore) throws {
    if let block = core.projections.sync.openBlocks[id], block.subject == .deletion {
      if block.lsn == .zero {
        try apply(deletionOf: id, isConfirmed: true, to: &core)
      } else if try core.projections.entry(id)?.base?.version == block.lsn {
        // A full fetch, and no tombstone, had put it in question.
        try apply(.removedUnlessEdited, id, to: &core)
      }
    }
    try closeBlock(of: id, words: "the server does not have it", &core)
    try endHold(of: id, &core)
    taken.touched.insert(id)
    guard let entry = try core.projections.entry(id) else { return }
    if let pending = entry.pending, pending.isDeletion {
      let outcome: Outcome = entry.base == nil ? .cancelled : .deleted
      try core.append(.settled(Settled(id: id, lsn: pending.newest, outcome: outcome)))
    } else if entry.base != nil {
      taken.absent.append(id)
    }
  }

  /// Holds a record that cannot be read. The token moves past it, so it is looked up. If the lookup brings the same bytes, or the
  /// server refuses to show it, it is not asked for again: it is read when another version arrives, a person releases it, or the
  /// program is a newer one. Only if the feed has said that it is deleted, each cycle looks it up: no page will say so again.
  private mutating func hold(
    _ id: RecordID, _ error: CloudError, asksAgain: Bool, _ core: inout StoreCore
  ) throws {
    let mayBeGone = core.projections.sync.openBlocks[id]?.subject == .deletion
    // The same refusal is not logged twice.
    if mayBeGone, let held = core.projections.sync.unread[id], held.code == error.code.rawValue,
      held.words == error.reason
    {
      return
    }
    // Counted once, though a page and then a lookup may both fail to show it.
    if core.projections.sync.unread[id] == nil { taken.report.held += 1 }
    taken.touched.insert(id)
    try core.append(
      .held(
        Held(
          id: id, direction: .download, lsn: .zero, raw: error.raw, code: error.code.rawValue, words: error.reason,
          requestUUID: error.requestUUID ?? "", attempts: (core.projections.sync.unread[id]?.attempts ?? 0) + 1,
          wallMilliseconds: core.environment.clock.wallMilliseconds())))
    guard asksAgain else {
      if !mayBeGone { try closeBlock(of: id, words: "asking again does not make it readable", &core) }
      return
    }
    try core.append(
      .blocked(
        Blocked(
          id: id, subject: .version, births: [], consequence: .lookup, words: "the server could not show it")))
  }

  // MARK: Gathering

  private func versionSituation(
    of id: RecordID, _ arrival: Arrival, _ entry: RecordEntry?, _ base: LoadedVersion?, _ core: borrowing StoreCore
  ) throws -> VersionSituation {
    let stamp = arrival.version.stamp
    let own = OwnMutations(core.projections.sync, upTo: core.projections.appliedLSN)
    var lacksAcknowledged = false
    if source == .lookup, base?.own != nil, let content = entry?.base?.content {
      lacksAcknowledged = try own.newestIncluded(in: stamp, of: [content]) { try core.eventIfKept(at: $0) } == nil
    }
    let included = try own.newestIncluded(in: stamp, of: entry?.pending?.sendable ?? []) {
      try core.eventIfKept(at: $0)
    }
    var (base, edit) = (base, try pendingEdit(of: id, entry, core))
    if arrival.version.fields.values.contains(where: { !$0.assets.isEmpty }) {
      // What the server calls a content is no difference.
      if let known = base { base?.version = known.version.naming(filesAs: arrival.version) }
      if let known = edit { edit?.loaded.version = known.version.naming(filesAs: arrival.version) }
    }
    let acknowledged = try own.acknowledged(in: stamp, id, entry, dirty: edit?.loaded.dirty, included) {
      try core.eventIfKept(at: $0)
    }
    edit?.ancestor = try ancestor(acknowledged, stamp, entry, base, core).map {
      ($0.lsn, $0.version.naming(filesAs: arrival.version))
    }
    let deletion = try core.projections.deletion(id)
    var deadLives = deletion?.births ?? []
    // A stamp with both births has two lives: another device has created a record under the name of one that a tool had created.
    if let created = arrival.system.created?.milliseconds, !arrival.isOfUnstampedLife {
      deadLives = FirstLife(created: created).dead(stamp.births, with: deadLives)
    }
    // Where any life of the name was deleted, a default does not bring it back.
    if !deadLives.isEmpty { deadLives.insert(.ofDefaults) }
    let includedVersion = try includedVersion(included, entry, core)
    let isOlder =
      VersionSituation.wasModified(arrival, before: entry?.base) || base?.version.stamp.dominates(stamp) == true
    return VersionSituation(
      id: id, source: source, arrival: arrival, entry: entry, base: base,
      isDead: !stamp.births.isEmpty && stamp.births.isSubset(of: deadLives), deadLives: deadLives,
      wasDeleted: base == nil && deletion != nil, included: included,
      includedVersion: includedVersion,
      isMovedAway: try core.isMovedAway(id, arrival.version, includedVersion ?? base?.version, entry?.pending),
      acknowledged: acknowledged, edit: edit,
      rules: rules(of: arrival.version.type), editRule: rules[edit?.version.type ?? arrival.version.type].deletion,
      writer: core.writer,
      answers: answers,
      lacksAcknowledged: lacksAcknowledged,
      isWhatFeedShows: core.projections.sync.openBlocks[id].map { arrival.system.changeTag.equalsUTF8($0.changeTag) }
        == true,
      sendsAgain: core.projections.sync.zones[id.zone]?.resetPolicy == ResyncSource.here.rawValue,
      mayHaveArrived: core.projections.attempted(entry?.pending) != nil,
      mayBeOfCopy: try entry?.pending.map { pending in
        try own.mayBeOfCopy(stamp, pending)
          || (acknowledged == .zero
            && own.containsPart(stamp, of: pending, base?.version.stamp) { try core.eventIfKept(at: $0) })
      } ?? false,
      namesCopy: isOlder && own.namesCopy(stamp))
  }

  /// The version that this store's included mutation wrote, if the record was deleted here since.
  private func includedVersion(
    _ included: LSN?, _ entry: RecordEntry?, _ core: borrowing StoreCore
  ) throws -> Version? {
    guard let included, entry?.pending?.isDeletion == true, let event = try core.source.eventIfKept(at: included)
    else { return nil }
    return try LoadedVersion(event, at: included)?.version
  }

  /// The common ancestor of the pending edit and an arriving version.
  private func ancestor(
    _ acknowledged: LSN, _ arrived: Stamp, _ entry: RecordEntry?, _ base: LoadedVersion?, _ core: borrowing StoreCore
  ) throws -> (lsn: LSN, version: Version)? {
    guard let pending = entry?.pending, !pending.isDeletion else { return nil }
    // If the server has a mutation of this store whose answer was lost, that is the ancestor. If a copy of this log sent it,
    // compaction may have removed it here: then the ancestor is not known. An older one would count changes twice.
    if acknowledged != .zero, acknowledged != pending.newest {
      guard let event = try core.source.eventIfKept(at: acknowledged),
        let version = try LoadedVersion(event, at: acknowledged)?.version
      else { return nil }
      return (acknowledged, version)
    }
    guard let known = entry?.base, let base, !base.version.stamp.births.isDisjoint(with: arrived.births) else {
      return nil
    }
    return (known.version, base.version)
  }

  /// The base, to compare a change of the server's with. A damaged base counts as none, so that it does not keep a good version or a
  /// deletion out, unless a pending change was made from it.
  private func readableBase(
    of id: RecordID, _ entry: RecordEntry?, _ core: borrowing StoreCore
  ) throws -> LoadedVersion? {
    guard let entry else { return nil }
    do throws(StrandlineError) { return try core.base(of: id, entry) } catch {
      guard entry.pending == nil, error.code == .damaged, !error.isOfIndex else { throw error }
      return nil
    }
  }

  /// The newest pending mutation, if it is an edit.
  private func pendingEdit(of id: RecordID, _ entry: RecordEntry?, _ core: borrowing StoreCore) throws -> PendingEdit? {
    guard let pending = entry?.pending, !pending.isDeletion else { return nil }
    var loaded = try core.load(pending.newest, of: id)
    // The app may have saved it while this device's clock was ahead.
    let unclampedStamps = loaded.version.stamp.clamp(toModified: core.knownServerMilliseconds)
    return PendingEdit(lsn: pending.newest, loaded: loaded, unclampedStamps: unclampedStamps)
  }

  /// Whether a version names, as the server does, a content that the base names by its hash alone.
  private func names(
    _ server: ServerRecord, contentsOf entry: RecordEntry?, _ id: RecordID, _ core: borrowing StoreCore
  ) throws -> Bool {
    guard server.hasAssets, let base = try readableBase(of: id, entry, core) else { return false }
    return base.version.fields.contains { name, value in
      !value.localContents.isEmpty && server.fields[name]?.assets.isEmpty == false
    }
  }

  private func deletionSituation(
    of id: RecordID, isConfirmed: Bool, _ core: borrowing StoreCore
  ) throws -> DeletionSituation {
    let entry = try core.projections.entry(id)
    let births = try readableBase(of: id, entry, core)?.version.stamp.births ?? []
    var situation = DeletionSituation(
      id: id, source: source, entry: entry, births: births, known: try core.projections.deletion(id),
      isDoubtful: try !isConfirmed && isDoubtfulDeletion(of: id, entry, core))
    if !situation.isDoubtful, let pending = entry?.pending {
      situation.attempted = isConfirmed || isAfterCreations(id.zone, core) ? core.projections.attempted(pending) : nil
      if let edit = try pendingEdit(of: id, entry, core) {
        situation.edit = edit
        situation.rule = rules[edit.version.type].deletion
        situation.birthsThere = try situation.attempted.map { try core.births($0, of: id) } ?? []
        if entry?.base != nil {
          let writers = Set(core.projections.sync.tenures.lazy.map(\.writer))
          situation.birthsThere.formUnion(edit.version.stamp.births.lazy.filter { !writers.contains($0.writer) })
        }
      }
    }
    return situation
  }

  /// Whether a deletion in the feed must be later than a creation that this store may have sent. In a full fetch it may be of an
  /// earlier record of that name, unless this store has created the zone.
  private func isAfterCreations(_ zone: ZoneID, _ core: borrowing StoreCore) -> Bool {
    source == .delta || (source == .fullFetch && core.projections.sync.zones[zone]?.isNew == true)
  }

  /// A tombstone does not say which record of a name it ended, so it may be of an earlier one. It is doubtful if the base is newer
  /// than the request's token, if the page is repeated, if this full fetch has shown the base, if an earlier record is known to be
  /// deleted, or if this store's own deletion would be settled by it. Without a base: if it could end a creation that may have
  /// been sent.
  private func isDoubtfulDeletion(of id: RecordID, _ entry: RecordEntry?, _ core: borrowing StoreCore) throws -> Bool {
    guard let entry else { return false }
    if let base = entry.base {
      let zone = core.projections.sync.zones[id.zone]
      let (token, sweep) = (zone?.tokenLSN ?? .zero, zone?.sweepEpoch ?? 0)
      if token != .zero, base.version > token || entry.pending?.isDeletion == true { return true }
      if page?.isRepeated == true || (sweep > 0 && base.version.rawValue > sweep) { return true }
    } else if !isAfterCreations(id.zone, core) || core.projections.attempted(entry.pending) == nil {
      return false
    }
    guard let known = try core.projections.deletion(id) else { return false }
    // An entry may have no births: those of a record that only a full fetch showed as deleted are not known. If this store's pending
    // deletion is the only one known, no earlier record was deleted.
    guard let provisional = known.provisional else { return true }
    return !known.births.subtracting(provisional).isEmpty
  }

  /// The births that this log knows of a name's record with this creation time.
  private func knownBirths(
    of id: RecordID, created: ServerTimestamp?, _ entry: RecordEntry?, _ base: LoadedVersion?,
    _ core: borrowing StoreCore
  ) throws -> Set<Birth>? {
    guard let created = created?.milliseconds else { return nil }
    if let known = entry?.base, known.createdMilliseconds == created { return base?.version.stamp.births }
    if let deletion = try core.projections.deletion(id), deletion.createdMilliseconds == created {
      return deletion.births
    }
    return nil
  }

  // MARK: Carrying out

  private mutating func perform(_ decision: IntakeDecision, on id: RecordID, _ core: inout StoreCore) throws {
    taken.report.add(decision.counts)
    if !decision.steps.isEmpty { taken.touched.insert(id) }
    // The event of the stored version, and that of the server's current state: the version or a deletion.
    var (version, server) = (LSN.zero, LSN.zero)
    for step in decision.steps {
      switch step {
      case .store(let arrival):
        version = try core.append(
          .fetchedSave(
            FetchedSave(
              id: id, version: arrival.version, system: arrival.system, source: source.ofVersion,
              isStamped: arrival.isStamped)))
        server = version
      case .endLives(let births, let reason):
        server = try core.append(.fetchedDelete(FetchedDelete(id: id, births: births, reason: reason)))
      case .tell(let lsn, let ancestor, let fields, let rule, let words):
        try core.append(
          .conflicted(
            Conflicted(
              id: id, local: lsn, server: server, ancestor: ancestor,
              wallMilliseconds: core.environment.clock.wallMilliseconds(), rule: rule, words: words, fields: fields)))
      case .settle(let lsn, let outcome): try core.append(.settled(Settled(id: id, lsn: lsn, outcome: outcome)))
      case .refuse(let lsn, let code, let words):
        try core.append(.settled(Settled(id: id, lsn: lsn, outcome: .rejected, code: code.rawValue, words: words)))
      case .deleteAgain(let births):
        let cause = try core.cause(of: core.projections.entry(id)?.pending)
        try core.append(
          .deleted(
            Deleted(id: id, births: births, base: version, time: core.tick(), tenure: core.tenure, cause: cause)))
      case .giveUp(let lsn, let words):
        for child in try core.pendingBelow(id, deletedAt: lsn) {
          let words = "it is below '\(id)', which was restored"
          try core.append(.settled(Settled(id: child.id, lsn: child.lsn, outcome: .discarded, words: words)))
          taken.touched.insert(child.id)
        }
        try core.append(.settled(Settled(id: id, lsn: lsn, outcome: .discarded, words: words)))
      case .merge(let joined, let dirty, let edit, let rule, let words):
        try append(joined, dirty: dirty, of: edit, base: version, rule, words, id, &core)
      case .revive(let edit, let words):
        var revived = edit.version
        revived.stamp.births = [Birth(time: core.tick(), writer: core.writer)]
        try append(revived, dirty: Set(revived.names), of: edit, base: version, Merged.reviveRule, words, id, &core)
      case .create(let loaded): try core.create(loaded, id)
      case .restore(let loaded, let dirty):
        try core.save(loaded.version, dirty: dirty, loaded.editCount, base: version, core.tick(), id)
      case .block(let blocked): try core.append(.blocked(blocked))
      case .closeBlock(let words): try closeBlock(of: id, words: words, &core)
      case .loseZone(let words): try core.appendLoss(of: id.zone, .wentBack, words: words)
      }
    }
  }

  private func append(
    _ version: Version, dirty: Set<String>, of edit: PendingEdit, base: LSN, _ rule: String, _ words: String,
    _ id: RecordID, _ core: inout StoreCore
  ) throws {
    var version = version
    // The edit may have been written under an earlier writer ID of this store. `seen` must name it: a copy of the store with the
    // same pending change has no other way to see that it is included.
    if let own = edit.loaded.own, let author = core.projections.sync.author(of: edit.lsn), author != core.writer {
      version.stamp.joinSeen([author: Seen(lsn: edit.lsn, tenure: own.tenure, time: own.time)])
    }
    try core.append(
      .merged(
        Merged(
          id: id, version: version, dirty: Dictionary(uniqueKeysWithValues: dirty.map { ($0, LSN.zero) }), base: base,
          local: edit.lsn, ancestor: edit.ancestor?.lsn ?? .zero, time: core.tick(), editCount: edit.loaded.editCount,
          tenure: core.tenure, rule: rule, words: words)))
  }

  /// Closes the record's open question, if it has one. Only the answer to a lookup can.
  func closeBlock(of id: RecordID, words: String, _ core: inout StoreCore) throws {
    guard source == .lookup, core.projections.sync.openBlocks[id] != nil else { return }
    try core.append(.blocked(Blocked(id: id, subject: .version, births: [], consequence: .none, words: words)))
  }

  /// Draws a new writer ID if the version names a mutation of this writer that this log does not have: the log was restored or
  /// cloned, and another copy still writes under the old ID.
  private func replaceWriterIfCloned(_ stamp: Stamp, _ core: inout StoreCore) {
    let sync = core.projections.sync
    guard let seen = stamp.seen[core.writer] else { return }
    if !sync.owns(seen.lsn, tenure: seen.tenure, upTo: core.projections.appliedLSN) { core.renameWriter() }
  }
}

extension StoreCore {
  /// Appends a version as a new record.
  mutating func create(_ loaded: LoadedVersion, _ id: RecordID) throws {
    let time = tick()
    var version = loaded.version
    version.stamp.births = [Birth(time: time, writer: writer)]
    try save(version, dirty: Set(version.names), loaded.editCount, base: .zero, time, isCreation: true, id)
  }

  fileprivate mutating func save(
    _ version: Version, dirty: Set<String>, _ editCount: UInt64, base: LSN, _ time: HybridTime,
    isCreation: Bool = false, _ id: RecordID
  ) throws {
    let dirty = Dictionary(uniqueKeysWithValues: dirty.map { ($0, LSN.zero) })
    try append(
      .saved(
        Saved(
          id: id, type: version.type, births: version.stamp.births, base: base, time: time, editCount: editCount,
          tenure: tenure, isCreation: isCreation, content: EncodedContent(version, dirty: dirty))))
  }
}

extension StoreCore {
  /// Sets a zone aside as lost, unless the app has erased it meanwhile.
  fileprivate mutating func appendLoss(of zone: ZoneID, _ reason: ZoneLoss, words: String) throws {
    guard projections.sync.zones[zone]?.isErased != true else { return }
    try append(.zoneChanged(.lost(zone, reason, words: words)))
  }
}

extension ServerRecord {
  /// Whether a field of it is a file.
  fileprivate var hasAssets: Bool { fields.values.contains { !$0.assets.isEmpty } }
}
