// What follows from what a full fetch, or a comparison, did not list.
//
// A list that lacks a record is no proof: a server may leave a page out, or say too early that it was the last one. So the
// server is asked for each absent record by name, and only what it does not find then is gone. If nothing is left of all that
// this store has synced, it may be another zone under the same name, which no deletion has emptied: then nothing is removed
// either, unless something says that it is the same one.

/// What is known of a zone when its list has ended, and of the records of this store that it lacks.
package struct AbsenceKnowledge: Hashable, Sendable {
  /// How many synced records live here, the absent ones among them.
  package var living = 0
  /// Absent records for which the server has not been asked by name.
  package var unasked = 0
  /// Those for which it was asked, and whose answer does not say whether it has them.
  package var untold = 0
  /// Those that it does not have.
  package var gone = 0
  /// Names of which nothing is here but that they could not be read, and that are still to be asked for.
  package var unread = 0
  /// Something says that the zone is the one that this store has synced: the server has taken its change token since, or has
  /// shown a record that this store had, of the same creation, or one that it knows to be deleted.
  package var isSameZone = false
  /// The side that a person, or a rule of the app's, lets stand.
  package var decided: ResyncSource?
  /// The app follows a zone that was made again without a question.
  package var followsRemade = false

  /// What is done next.
  package enum Step: Hashable, Sendable {
    /// Absent records are looked up.
    case lookUp
    /// What is gone is removed, and the rest is done later.
    case remove
    /// So much is absent that a person is asked.
    case ask
    /// Nothing of what this store knows is left: the zone is lost.
    case lose
    /// Some answers did not say it: each of these records is asked for in each run until one does.
    case setAside
    /// The same, and nothing more can be done about the zone before: the next run goes on.
    case wait
    /// Nothing is absent.
    case end
  }

  /// At most this number of records is removed without a question, or this part of the zone's if that is more.
  static let removedMax = 100
  static let removedPart = 5

  package init() {}

  private var isMuch: Bool { unasked + untold + gone > max(Self.removedMax, living / Self.removedPart) }

  /// What follows. The first line that applies decides.
  ///
  /// | known | follows |
  /// | --- | --- |
  /// | it is the same zone, nobody has decided, much is absent | a person is asked |
  /// | it is the same zone, or somebody has decided; something is to be asked for | look up |
  /// | the same; something is gone | remove |
  /// | the same; some answers did not say it | set them aside, or wait if this store's side stands |
  /// | nothing says that it is the same zone; much is absent, and the first lookups have found none that was known here | lost |
  /// | the same; something is to be asked for | look up |
  /// | the same; something is gone, and all is told | lost, or removed if the app follows such zones |
  /// | some answers did not say it | wait |
  /// | nothing is absent | end |
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
struct AbsenceProof: Sendable {
  /// How many synced records live here.
  let living: Int
  /// A synced record that was not listed, as this store has it.
  struct Absent {
    let id: RecordID
    /// The event of its version.
    let version: LSN
    /// When the server had it last, by its clock.
    let milliseconds: Int64

    init(_ id: RecordID, _ base: Base) {
      (self.id, version) = (id, base.version)
      milliseconds = base.modifiedMilliseconds ?? base.createdMilliseconds ?? 0
    }
  }

  /// Since when the zone is known to have been there, by the server's clock; 0: it is the one that this store has fetched.
  private var knownSince: Int64?
  /// What came here later may be of another zone of that name.
  private let provedUpTo: LSN
  /// When the server had the oldest of the absent records last.
  private let oldest: Int64
  /// What is to be asked for; the next one last.
  private var order: [RecordID]
  /// What has no answer, with the event of the version that is absent; `.none` if only the name is known.
  private var open: [RecordID: LSN] = [:]
  private var untold: Set<RecordID> = []
  private var unread: Int
  /// What the server does not have, with the event of the version that is absent.
  private(set) var gone: [(id: RecordID, version: LSN)] = []
  /// How many of those were removed.
  private(set) var removed = 0
  /// The last answer that did not say whether the server has a record.
  private(set) var failure: CloudError?
  /// All are asked for, and some answers are missing: this run asks no more.
  var isPaused = false

  /// - Parameters:
  ///   - knownSince: since when the zone is known to have been there; 0: it is the one that this store has fetched.
  ///   - provedUpTo: what came here later may be of another zone of that name.
  ///   - absent: the synced records that were not listed.
  ///   - unread: the records that could not be read and were not listed either.
  init(
    living: Int, knownSince: Int64?, provedUpTo: LSN = LSN(rawValue: .max), absent: [Absent], unread: [RecordID] = []
  ) {
    (self.living, self.knownSince, self.provedUpTo) = (living, knownSince, provedUpTo)
    oldest = absent.map(\.milliseconds).min() ?? 0
    for id in unread { open[id] = LSN.none }
    for one in absent { open[one.id] = one.version }
    self.unread = open.values.count { $0 == .none }
    order = open.keys.sorted(by: >)
  }

  /// What is known by now. The zone was there before the server had the oldest of the absent records last: so that one was in it.
  /// Records of one request have one time.
  var knowledge: AbsenceKnowledge {
    var known = AbsenceKnowledge()
    (known.living, known.isSameZone) = (living, knownSince.map { $0 <= oldest } ?? false)
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
    let isOfName = version == .none
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
      if let created { knownSince = min(knownSince ?? .max, version <= provedUpTo ? 0 : created) }
    case let answer? where answer.isNotFound:
      close()
      // The feed has shown its deletion, in doubt, and the answer has confirmed it: it is removed already.
      if !isOfName, base == version { gone.append((id, version)) }
    case .failed(let error, _)? where !error.raw.isEmpty:
      // The server has it, and it cannot be read: it is held by its name.
      close()
    case .failed(let error, _)?: fail(error)
    case .deleted?, nil:
      fail(CloudError(.unexpectedServerResponse, reason: "the answer to a lookup says nothing of '\(id.name)'"))
    }
    return true
  }

  /// The records whose answers did not say whether the server has them, each with the event of its version. They are left to
  /// others.
  mutating func takeUntold() -> [(id: RecordID, version: LSN)] {
    defer {
      for id in untold { open[id] = nil }
      untold = []
    }
    return untold.sorted().compactMap { id in open[id].map { (id, $0) } }
  }

  /// What is gone has been removed.
  mutating func removedGone() {
    removed += gone.count
    gone = []
  }
}
