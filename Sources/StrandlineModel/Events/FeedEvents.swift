// Events of this device's place in the server's history: tokens, zones, sweeps, waits, account.

/// The change token after a page; in the page's own transaction.
package struct TokenAdvanced: EventPayload, Hashable {
  package static let kind = EventKind.tokenAdvanced
  package var zone: ZoneID
  /// The token in the request for the page; nil: from the beginning.
  package var asked: ChangeToken?
  package var token: ChangeToken
  /// The open sweep, 0 for none.
  package var sweepEpoch: UInt64

  package init(zone: ZoneID, asked: ChangeToken?, token: ChangeToken, sweepEpoch: UInt64 = 0) {
    self.zone = zone
    self.asked = asked
    self.token = token
    self.sweepEpoch = sweepEpoch
  }
  package init<Coder: FieldCoder>(_ advanced: Self?, _ field: inout Coder) throws(Coder.Failure) {
    zone = try field("zone", .zone, advanced?.zone)
    asked = try field("asked", .optional(.token), advanced?.asked)
    token = try field("token", .token, advanced?.token)
    sweepEpoch = try field("sweepEpoch", .varint, advanced?.sweepEpoch)
  }
}

/// The token of a database's list of changed zones, after a page of it; in the page's own transaction.
package struct DatabaseTokenAdvanced: EventPayload, Hashable {
  package static let kind = EventKind.databaseTokenAdvanced
  package var scope: DatabaseScope
  /// The token in the request for the page; nil: from the beginning.
  package var asked: ChangeToken?
  package var token: ChangeToken

  package init(scope: DatabaseScope, asked: ChangeToken?, token: ChangeToken) {
    self.scope = scope
    self.asked = asked
    self.token = token
  }
  package init<Coder: FieldCoder>(_ advanced: Self?, _ field: inout Coder) throws(Coder.Failure) {
    scope = try field("scope", .choice(DatabaseScope.self), advanced?.scope)
    asked = try field("asked", .optional(.token), advanced?.asked)
    token = try field("token", .token, advanced?.token)
  }
}

/// The state of a zone at the server changed, or what this device knows of it.
package struct ZoneChanged: EventPayload, Hashable {
  package static let kind = EventKind.zoneChanged
  package enum Change: UInt8, Sendable, CaseIterable {
    /// It is at the server: created from here, or seen there.
    case created = 1
    /// It has changes to fetch.
    case dirty = 2
    /// It was fetched to its end.
    case clean = 3
    /// It is gone at the server.
    case lost = 4
    /// Its token was dropped; a full fetch follows.
    case reset = 5
    /// A list named it, the server does not have it, and nothing of it is here: it is as if it had not been named.
    case forgotten = 6
  }
  package var zone: ZoneID
  package var change: Change
  /// Why it is gone. Of a zone that has changes to fetch, why the list of changed zones says so; nil for any other change.
  package var reason: ZoneLoss?
  package var words: String
  package var policy: String
  /// When a rule of the app decided it, in milliseconds since 1970 by this device's clock; 0: no rule did.
  package var ruledMilliseconds: Int64

  private init(
    _ zone: ZoneID, _ change: Change, _ reason: ZoneLoss?, _ words: String, _ policy: String, _ ruledMilliseconds: Int64
  ) {
    self.zone = zone
    self.change = change
    self.reason = reason
    self.words = words
    self.policy = policy
    self.ruledMilliseconds = ruledMilliseconds
  }

  /// A change; `lost(_:_:words:)` makes the one of a loss.
  package init(zone: ZoneID, change: Change, words: String = "", policy: String = "", ruledMilliseconds: Int64 = 0) {
    precondition(change != .lost, "a loss without a reason")
    self.init(zone, change, nil, words, policy, ruledMilliseconds)
  }

  /// Whether a person or a rule has decided about the zone: a token that was refused decides nothing.
  package var decides: Bool { change == .reset && !policy.isEmpty }

  /// Whether the app has ended the zone, or wants it ended.
  package var endsZone: Bool { change == .lost && (reason == .erasing || reason == .erased) }

  /// The zone is gone; it is frozen here.
  package static func lost(
    _ zone: ZoneID, _ reason: ZoneLoss, words: String, policy: String = "freeze", ruledMilliseconds: Int64 = 0
  ) -> ZoneChanged {
    ZoneChanged(zone, .lost, reason, words, policy, ruledMilliseconds)
  }

  /// The list of changed zones says that it is gone; its feed, or the list of all zones, tells.
  package static func listed(_ zone: ZoneID, _ loss: ZoneLoss) -> ZoneChanged {
    ZoneChanged(zone, .dirty, loss, "", "", 0)
  }

  package init<Coder: FieldCoder>(_ changed: Self?, _ field: inout Coder) throws(Coder.Failure) {
    zone = try field("zone", .zone, changed?.zone)
    change = try field("change", .choice(Change.self), changed?.change)
    reason = try field("reason", .optional(.choice(ZoneLoss.self)), changed?.reason)
    words = try field("words", .text, changed?.words)
    policy = try field("policy", .text, changed?.policy)
    ruledMilliseconds = try field("ruled", .zigzag, changed?.ruledMilliseconds)
    let (change, reason) = (change, reason)
    let isAllowed = change == .dirty || (change == .lost) == (reason != nil)
    try field.require(isAllowed, "a reason of a loss without a loss, or a loss without one")
  }
}

/// A sweep began: what is synced and not seen by its end is gone.
package struct SweepBegan: EventPayload, Hashable {
  package static let kind = EventKind.sweepBegan
  package var zone: ZoneID
  package var epoch: UInt64
  /// The event of the last token before the first sweep since one has ended; 1 if there was none. What came here after it may be of
  /// another zone of that name.
  package var since: UInt64

  package init(zone: ZoneID, epoch: UInt64, since: UInt64) {
    self.zone = zone
    self.epoch = epoch
    self.since = since
  }
  package init<Coder: FieldCoder>(_ began: Self?, _ field: inout Coder) throws(Coder.Failure) {
    zone = try field("zone", .zone, began?.zone)
    epoch = try field("epoch", .varint, began?.epoch)
    since = try field("since", .varint, began?.since)
  }
}

/// A sweep ended.
package struct SweepEnded: EventPayload, Hashable {
  package static let kind = EventKind.sweepEnded
  package var zone: ZoneID
  package var epoch: UInt64
  package var seen: UInt64
  package var removed: UInt64

  package init(zone: ZoneID, epoch: UInt64, seen: UInt64, removed: UInt64) {
    self.zone = zone
    self.epoch = epoch
    self.seen = seen
    self.removed = removed
  }
  package init<Coder: FieldCoder>(_ ended: Self?, _ field: inout Coder) throws(Coder.Failure) {
    zone = try field("zone", .zone, ended?.zone)
    epoch = try field("epoch", .varint, ended?.epoch)
    seen = try field("seen", .varint, ended?.seen)
    removed = try field("removed", .varint, ended?.removed)
  }
}

/// Another user signed in; the mutations of the former one are not sent. Of all databases: a user signs in to a container.
package struct AccountChanged: EventPayload, Hashable {
  package static let kind = EventKind.accountChanged
  package var userHash: UInt64
  package var isParked: Bool

  package init(userHash: UInt64, isParked: Bool) {
    self.userHash = userHash
    self.isParked = isParked
  }
  package init<Coder: FieldCoder>(_ changed: Self?, _ field: inout Coder) throws(Coder.Failure) {
    userHash = try field("userHash", .u64, changed?.userHash)
    isParked = try field("isParked", .flag, changed?.isParked)
  }
}

/// A wait before the next request to a database: its duration, and the wall clock when it began. After a relaunch the engine waits for
/// the rest of it, and never longer than the duration, so a clock that jumped cannot make it longer.
package struct Pace: EventPayload, Hashable {
  package static let kind = EventKind.pace
  package var scope: DatabaseScope
  package var durationMilliseconds: Int64
  package var wallMilliseconds: Int64
  /// Operations a request, 0 for the default.
  package var batchSize: UInt64
  /// Whether the server asked for the wait. A user may end the engine's own backoff early, but not this.
  package var isServers: Bool
  /// How far the server's clock was ahead of this device's at `wallMilliseconds`. A store sets it when it appends this.
  package var serverOffsetMilliseconds: Int64
  package var reason: String

  package init(
    scope: DatabaseScope, durationMilliseconds: Int64, wallMilliseconds: Int64, batchSize: UInt64 = 0,
    isServers: Bool, serverOffsetMilliseconds: Int64 = 0, reason: String
  ) {
    self.scope = scope
    self.durationMilliseconds = durationMilliseconds
    self.wallMilliseconds = wallMilliseconds
    self.batchSize = batchSize
    self.isServers = isServers
    self.serverOffsetMilliseconds = serverOffsetMilliseconds
    self.reason = reason
  }
  package init<Coder: FieldCoder>(_ pace: Self?, _ field: inout Coder) throws(Coder.Failure) {
    scope = try field("scope", .choice(DatabaseScope.self), pace?.scope)
    durationMilliseconds = try field("duration", .zigzag, pace?.durationMilliseconds)
    wallMilliseconds = try field("wall", .zigzag, pace?.wallMilliseconds)
    batchSize = try field("batchSize", .varint, pace?.batchSize)
    isServers = try field("isServers", .flag, pace?.isServers)
    serverOffsetMilliseconds = try field("serverOffset", .zigzag, pace?.serverOffsetMilliseconds)
    reason = try field("reason", .text, pace?.reason)
  }
}
