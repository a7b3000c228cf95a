// The state of this device's sync: account, zones, tokens, holds, blocks and waits.

/// What is known of a zone.
package struct ZoneState: Hashable, Sendable {
  /// This log has seen it at the server.
  package var wasSeen = false
  /// It has changes to fetch.
  package var isDirty = false
  /// Why it is gone, as the list of changed zones says; until the server was asked whether it has the zone.
  package var listedLoss: ZoneLoss?
  /// Why it is gone at the server, and in words; it is frozen here. Nil if it is not gone.
  package var lostReason: ZoneLoss?
  package var lostWords = ""
  package var token: ChangeToken?
  /// The event that brought the token.
  package var tokenLSN: LSN = .zero
  /// The zone is being fetched from its beginning and the last page has not come: deletions in it may be older than what is
  /// here.
  package var isFullFetch = false
  /// This store has created it, after the server's list did not have it, and no fetch of it has ended since: even a fetch from its
  /// beginning shows no deletion that is older than what this store has sent to it.
  package var isNew = false
  /// The policy of the event that says so.
  package static let newPolicy = "new"
  /// The token was dropped, and the sweep of the full fetch has not ended: records that the server has no more may be here.
  package var hasGhosts = false
  /// The open sweep, which is the LSN of its `sweepBegan`; 0 for none.
  package var sweepEpoch: UInt64 = 0
  /// The event of the last token before the first sweep since one has ended; 0 if the last sweep has ended. Until then it is not
  /// known whether what came here after that event is of the zone that this store had fetched, or of another one of that name.
  package var unprovedSince: UInt64 = 0
  /// What becomes of records that the full fetch does not show: the `policy` of the `reset` that dropped the token.
  package var resetPolicy = ""
  /// The policy of a reset whose sweep removes nothing: of what the server does not show, this store may have lost the reason.
  package static let keepsAbsent = "keep"
  /// When a rule of the app (`SyncConfiguration.zoneLosses`) decided about its loss last, by this device's clock; 0: none did,
  /// or a person has since.
  package var ruledMilliseconds: Int64 = 0

  package init() {}

  package var isLost: Bool { lostReason != nil }
  /// No fetch of the zone has ended here yet. A zone that is fetched from its beginning again was here to its end before.
  package var isFirstFetch: Bool { (token == nil || isFullFetch) && !hasGhosts }
  /// A person, or a rule, has chosen the side that decides; the full fetch that carries this out has not ended.
  package var isDecided: Bool { !isLost && isDirty && ["here", "server"].contains(resetPolicy) }
  /// It was fetched to its end once, and no sweep of it is open: its next pages have only later changes.
  package var isFetchedByToken: Bool { token != nil && !isFullFetch && sweepEpoch == 0 }
  /// A rule has removed its records: it is synced again when the server has it again, or when something is owed to it.
  package var isFollowed: Bool { lostReason == .erased && ruledMilliseconds != 0 }
  /// The app has ended it, or has asked for its end.
  package var isErased: Bool { lostReason == .erased || lostReason == .erasing }
}

/// One opening of the log for writing.
package struct Tenure: Hashable, Sendable {
  package var tenure: UInt64
  package var writer: WriterID
  /// Its first event; it ends before the next one's first.
  package var first: LSN

  package init(tenure: UInt64, writer: WriterID, first: LSN) {
    self.tenure = tenure
    self.writer = writer
    self.first = first
  }
}

/// Records of a zone that go to the server in one request: what transactions wrote in it, where the app wants that
/// (`StoreOptions.atomicZones`).
package struct RecordSet: Hashable, Sendable {
  package var zone: ZoneID
  /// The LSN of the first event of the transaction that began it. One that wrote in two zones began a set in each.
  package var number: LSN

  package init(zone: ZoneID, number: LSN) {
    self.zone = zone
    self.number = number
  }
}

extension Joined {
  /// The set that it puts its record into.
  package var recordSet: RecordSet { RecordSet(zone: id.zone, number: set) }
}

/// Which records go to the server together.
private struct RecordSets: Sendable {
  private(set) var sets: [RecordID: RecordSet] = [:]
  private(set) var members: [RecordSet: Set<RecordID>] = [:]

  /// Puts a record into a set, or into none; returns the set that it was in.
  mutating func assign(_ new: RecordSet?, _ id: RecordID) -> RecordSet? {
    let old = sets.assign(new, id)
    if let old {
      members[old]?.remove(id)
      if members[old]?.isEmpty == true { members[old] = nil }
    }
    if let new { members[new, default: []].insert(id) }
    return old
  }
}

/// What the store has read of its inboxes.
package struct InboxState: Hashable, Sendable {
  /// How far each was read, by the UUID of its log.
  package fileprivate(set) var positions: [[UInt8]: LSN] = [:]
  /// The `inboxRefused` events about which the app has not decided.
  package fileprivate(set) var refusals: Set<LSN> = []
}

/// What the sync engine has learned, from the log.
package struct SyncState: Sendable {
  /// The account, by the database that was synced with it. All are of one container, environment and user.
  package private(set) var bounds: [DatabaseScope: Bound] = [:]
  package private(set) var zones: [ZoneID: ZoneState] = [:]
  package private(set) var databaseTokens: [DatabaseScope: ChangeToken] = [:]
  package private(set) var tenures: [Tenure] = []
  /// Mutations that are not sent for now.
  package private(set) var held: [RecordID: Held] = [:]
  private var together = RecordSets()
  /// Versions that the server could not show.
  package private(set) var unread: [RecordID: Held] = [:]
  /// Open blocks: what has to be asked of the server.
  package private(set) var openBlocks: [RecordID: Blocked] = [:]
  package private(set) var paces: [DatabaseScope: Pace] = [:]
  /// The names that zones have listed without their records, and that are still to be fetched.
  package private(set) var listed: [ZoneID: ListedNames] = [:]
  package private(set) var inbox = InboxState()
  /// The greatest hybrid time in the log.
  package private(set) var latest: HybridTime = .zero
  package private(set) var isParked = false

  package init() {}

  /// The set of each record that goes to the server together with others, and the records of each set.
  package var sets: [RecordID: RecordSet] { together.sets }
  package var members: [RecordSet: Set<RecordID>] { together.members }

  /// A new value of one part. An event copies no other part, however many holds there are.
  package enum Change: Sendable {
    case bound(DatabaseScope, Bound?)
    case zone(ZoneID, ZoneState?)
    case databaseToken(DatabaseScope, ChangeToken?)
    case held(RecordID, Held?)
    case set(RecordID, RecordSet?)
    case unread(RecordID, Held?)
    case block(RecordID, Blocked?)
    case pace(DatabaseScope, Pace?)
    case parked(Bool)
    /// How many names a `listed` event of a zone has; nil: it has ended.
    case listed(ZoneID, LSN, Int?)
    case inbox([UInt8], LSN?)
    /// Whether a transaction of an inbox waits for the app's decision.
    case inboxRefusal(LSN, Bool)
    /// One more tenure; nil: one less.
    case tenure(Tenure?)
  }

  /// Changes one part; returns the change that undoes it.
  package mutating func assign(_ change: Change) -> Change {
    switch change {
    case .bound(let scope, let new): return .bound(scope, bounds.assign(new, scope))
    case .zone(let id, let new): return .zone(id, zones.assign(new, id))
    case .databaseToken(let scope, let new): return .databaseToken(scope, databaseTokens.assign(new, scope))
    case .held(let id, let new): return .held(id, held.assign(new, id))
    case .set(let id, let new): return .set(id, together.assign(new, id))
    case .unread(let id, let new): return .unread(id, unread.assign(new, id))
    case .block(let id, let new): return .block(id, openBlocks.assign(new, id))
    case .pace(let scope, let new): return .pace(scope, paces.assign(new, scope))
    case .parked(let new):
      defer { isParked = new }
      return .parked(isParked)
    case .listed(let zone, let lsn, let names):
      let old = listed[zone, default: ListedNames()].assign(names, lsn)
      if listed[zone]?.events.isEmpty == true { listed[zone] = nil }
      return .listed(zone, lsn, old)
    case .inbox(let inbox, let new): return .inbox(inbox, self.inbox.positions.assign(new, inbox))
    case .inboxRefusal(let lsn, true): return .inboxRefusal(lsn, !inbox.refusals.insert(lsn).inserted)
    case .inboxRefusal(let lsn, false): return .inboxRefusal(lsn, inbox.refusals.remove(lsn) != nil)
    case .tenure(let new?):
      tenures.append(new)
      return .tenure(nil)
    case .tenure(nil): return .tenure(tenures.popLast())
    }
  }

  /// Needs no undo: the greatest time only grows, and one that is greater than necessary does no harm.
  package mutating func learn(_ time: HybridTime) { latest = max(latest, time) }

  /// The writer that the newest tenure writes as.
  package var writer: WriterID? { tenures.last?.writer }

  /// The writer of an event of this log. The writer number may change within a tenure.
  package func author(of lsn: LSN) -> WriterID? { tenures.last { $0.first <= lsn }?.writer }

  /// The tenure under which an event of this log was written; nil before the first.
  package func tenure(of lsn: LSN) -> UInt64? { tenures.last { $0.first <= lsn }?.tenure }

  /// Whether the log's own writer wrote `lsn` under `tenure`: the position lies in that tenure's range.
  package func owns(_ lsn: LSN, tenure: UInt64, upTo end: LSN) -> Bool {
    guard lsn != .zero, lsn <= end else { return false }
    return self.tenure(of: lsn) == tenure
  }
}

extension Dictionary {
  /// Sets or removes; returns what was there.
  mutating func assign(_ value: Value?, _ key: Key) -> Value? {
    if let value { return updateValue(value, forKey: key) }
    return removeValue(forKey: key)
  }
}

extension LoadedVersion {
  /// An acknowledged mutation as a version of the server: its `seen` names itself, and times from the future are clamped
  /// as by every device that fetches it. What the server brought is that already.
  package func asAcknowledged(_ base: Base, _ sync: SyncState) -> LoadedVersion {
    guard let own else { return self }
    var result = self
    if let writer = sync.author(of: base.content) {
      result.version.stamp.joinSeen([writer: Seen(lsn: base.content, tenure: own.tenure, time: own.time)])
    }
    result.version.stamp.clamp(toModified: base.modifiedMilliseconds)
    result.dirty = [:]
    return result
  }
}
