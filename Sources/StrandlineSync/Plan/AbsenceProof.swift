// Decides what to do about synced records that a full fetch, or a comparison, did not list.
//
// A list without a record proves nothing: a server may leave out a page, or end the list too early. So the server is asked for each
// absent record by name, and only records that it does not find then are gone. If none of the synced records is left, another
// device may have deleted the zone and made a new one of that name. Then nothing is removed either, unless something proves that
// it is the same zone.

/// The facts about a zone and its absent records at the end of its list.
package struct AbsenceKnowledge: Hashable, Sendable {
  /// Synced records of the zone that this store has, the absent ones among them.
  package var living = 0
  /// Absent records that were not looked up yet.
  package var unasked = 0
  /// Absent records whose lookup did not say whether the server has them.
  package var untold = 0
  /// Absent records that the server did not find.
  package var gone = 0
  /// Records to look up of which only the name is known: no version of them could be read.
  package var unread = 0
  /// The zone is proved to be the one that was synced: the server has accepted its change token since, or has shown a record that
  /// this store had, with the same creation time, or one that this store knows to be deleted.
  package var isSameZone = false
  /// The side that decides, if a person or a rule of the app has chosen one.
  package var decided: ResyncSource?
  /// The app accepts a zone that was deleted and made again, without asking a person.
  package var followsRemade = false

  /// What to do next.
  package enum Step: Hashable, Sendable {
    /// Look up absent records.
    case lookUp
    /// Remove the records that are gone; the others later.
    case remove
    /// Ask a person: too many records are absent.
    case ask
    /// Set the zone aside as lost: none of the synced records is left.
    case lose
    /// Leave the records without an answer to later cycles, which look up each until an answer comes.
    case setAside
    /// Go on in the next cycle: the zone depends on the missing answers.
    case wait
    /// Finish: nothing is absent.
    case end
  }

  /// At most this many records are removed without asking a person, or a fifth of the zone if that is more.
  static let removedMax = 100
  static let removedPart = 5

  package init() {}

  private var isMuch: Bool { unasked + untold + gone > max(Self.removedMax, living / Self.removedPart) }

  /// The next step. The first line that applies decides.
  ///
  /// | zone | records | step |
  /// | --- | --- | --- |
  /// | proved the same, no side was chosen | many are absent | ask |
  /// | proved the same, or a side was chosen | some are not looked up | look up |
  /// | | some are gone | remove |
  /// | | some have no answer | set aside; wait if this store's side decides |
  /// | not proved the same, no side was chosen | many are absent, the first lookups found none of this store's | lose |
  /// | | some are not looked up | look up |
  /// | | some are gone, all have answers | lose; remove if the app follows such zones |
  /// | any | some have no answer | wait |
  /// | any | none is absent | end |
  package func next() -> Step {
    if isSameZone || decided != nil {
      if decided == nil, isMuch { return .ask }
      if unasked + unread > 0 { return .lookUp }
      if gone > 0 { return .remove }
      if untold > 0, decided != .here { return .setAside }
    } else {
      if gone > 0, isMuch, !followsRemade { return .lose }
      if unasked + unread > 0 { return .lookUp }
      if gone > 0, untold == 0 { return followsRemade ? .remove : .lose }
    }
    return untold > 0 ? .wait : .end
  }
}

/// The absent records of one zone while they are looked up.
package struct AbsenceProof: Sendable {
  /// Synced records of the zone that this store has.
  let living: Int
  /// A synced record that was not listed, as this store has it.
  package struct Absent {
    let id: RecordID
    /// The event of its version.
    let version: LSN
    /// When the server had it last, by its clock; nil if it has not said.
    let milliseconds: Int64?

    package init(_ id: RecordID, _ base: Base) {
      (self.id, version) = (id, base.version)
      milliseconds = base.modifiedMilliseconds ?? base.createdMilliseconds
    }
  }

  /// Since when the zone is known to exist.
  private var age: ZoneAge
  /// Versions that were logged later may come from another zone of that name.
  private let provedUpTo: LSN
  /// The first event of an absent version, and the first time at which one of them was changed at the server.
  private let oldest: (lsn: LSN, milliseconds: Int64?)
  /// The records to look up; the next one last.
  private var order: [RecordID]
  /// Records without an answer, with the event of the absent version; `.none` if only the name is known.
  private var open: [RecordID: LSN] = [:]
  private var untold: Set<RecordID> = []
  private var unread: Int
  /// Records that the server did not find, with the event of the absent version.
  private(set) var gone: [(id: RecordID, version: LSN)] = []
  /// How many of those were removed.
  private(set) var removed = 0
  /// The last answer that did not say whether the server has a record.
  private(set) var failure: CloudError?
  /// All were looked up and some answers are missing: this cycle asks no more.
  var isPaused = false

  /// - Parameters:
  ///   - age: since when the zone is known to exist.
  ///   - provedUpTo: versions that were logged later may come from another zone of that name.
  ///   - absent: the synced records that were not listed.
  ///   - unread: the records that could not be read and were not listed either.
  package init(
    living: Int, age: ZoneAge, provedUpTo: LSN = LSN(rawValue: .max), absent: [Absent], unread: [RecordID] = []
  ) {
    (self.living, self.age, self.provedUpTo) = (living, age, provedUpTo)
    let times = absent.compactMap(\.milliseconds)
    oldest = (absent.map(\.version).min() ?? .zero, times.count == absent.count ? times.min() : nil)
    for id in unread { open[id] = LSN.zero }
    for one in absent { open[one.id] = one.version }
    self.unread = open.values.count { $0 == .zero }
    order = open.keys.sorted(by: >)
  }

  /// The facts by now. If the zone existed when the oldest absent record was last at the server, it is the same zone.
  var knowledge: AbsenceKnowledge {
    var known = AbsenceKnowledge()
    (known.living, known.isSameZone) = (living, age.includes(oldest.lsn, oldest.milliseconds))
    (known.unasked, known.untold) = (open.count - unread - untold.count, untold.count)
    (known.gone, known.unread) = (gone.count, unread)
    return known
  }

  /// The names to ask for next.
  mutating func names(_ count: Int) -> [CloudName] {
    while let last = order.last, open[last] == nil || untold.contains(last) { order.removeLast() }
    return order.suffix(count).map(\.key)
  }

  /// Takes what an answer to a lookup says of a record; false if this is not about it.
  ///
  /// - Parameters:
  ///   - created: the moment of its creation at the server, if the answer shows the record that this store has, and not another
  ///     life under its name.
  ///   - base: the event of the version that this store has of it, after the answer was applied.
  mutating func take(_ answer: CloudResult?, of id: RecordID, created: Int64?, base: LSN?) -> Bool {
    guard let version = open[id] else { return false }
    let isOfName = version == .zero
    func close() {
      open[id] = nil
      untold.remove(id)
      if isOfName { unread -= 1 }
    }
    func fail(_ error: CloudError) {
      failure = error
      if isOfName { close() } else { untold.insert(id) }
    }
    switch answer {
    case .record?:
      close()
      if let created { age.add(version <= provedUpTo ? .zero : version, created) }
    case let answer? where answer.isNotFound:
      close()
      // Without the version, the answer has already confirmed a deletion that the feed had shown.
      if !isOfName, base == version { gone.append((id, version)) }
    case .failed(let error, _)? where !error.raw.isEmpty:
      // The server has it, in a form that this device cannot read: the intake keeps its bytes.
      close()
    case .failed(let error, _)?: fail(error)
    case .deleted?, nil:
      fail(CloudError(.unexpectedServerResponse, reason: "the answer to a lookup says nothing of '\(id.name)'"))
    }
    return true
  }

  /// Takes out the records whose answers did not say whether the server has them, each with the event of its version.
  mutating func takeUntold() -> [(id: RecordID, version: LSN)] {
    defer {
      for id in untold { open[id] = nil }
      untold = []
    }
    return untold.sorted().compactMap { id in open[id].map { (id, $0) } }
  }

  /// The records that are gone have been removed here.
  mutating func removedGone() {
    removed += gone.count
    gone = []
  }
}
