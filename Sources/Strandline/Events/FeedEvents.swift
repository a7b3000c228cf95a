// Where this device stands in the server's history: tokens, zones, sweeps, pace, account. And the small parts of
// bytes that several events share.

package import StrandlineSystem

/// The change token after a page; in the page's own transaction.
package struct TokenAdvanced: EventPayload, Hashable {
  package static let kind = EventKind.tokenAdvanced
  /// nil: the database's feed.
  package var zone: ZoneID?
  /// The token that the page was asked with.
  package var asked: ChangeToken?
  package var token: ChangeToken
  /// The open sweep, 0 for none.
  package var sweepEpoch: UInt64

  package init(zone: ZoneID?, asked: ChangeToken?, token: ChangeToken, sweepEpoch: UInt64 = 0) {
    self.zone = zone
    self.asked = asked
    self.token = token
    self.sweepEpoch = sweepEpoch
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    zone = try reader.flag() ? try FieldCodec.decodeZone(from: &reader) : nil
    asked = try reader.optionalString().map { ChangeToken(rawValue: $0) }
    token = ChangeToken(rawValue: try reader.string())
    sweepEpoch = try reader.varint()
  }
  package func encode(into bytes: inout ByteWriter) {
    bytes.u8(zone == nil ? 0 : 1)
    if let zone { FieldCodec.encode(zone, into: &bytes) }
    bytes.optional(asked?.rawValue)
    bytes.string(token.rawValue)
    bytes.varint(sweepEpoch)
  }
}

/// What is known of a zone changed.
package struct ZoneChanged: EventPayload, Hashable {
  package static let kind = EventKind.zoneChanged
  package enum Change: UInt8, Sendable, CaseIterable {
    /// It is at the server: made by us, or seen there.
    case created = 1
    /// It has changes to fetch.
    case dirty = 2
    /// It was fetched to its end.
    case clean = 3
    /// It is gone at the server.
    case lost = 4
    /// Its token was dropped; a full fetch follows.
    case reset = 5
  }
  package var zone: ZoneID
  package var change: Change
  package var reason: String
  package var policy: String

  package init(zone: ZoneID, change: Change, reason: String = "", policy: String = "") {
    self.zone = zone
    self.change = change
    self.reason = reason
    self.policy = policy
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    zone = try FieldCodec.decodeZone(from: &reader)
    change = try reader.choice("a change of a zone")
    reason = try reader.string()
    policy = try reader.string()
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(zone, into: &bytes)
    bytes.u8(change.rawValue)
    bytes.string(reason)
    bytes.string(policy)
  }
}

/// A sweep began: what is synced and not seen by its end is gone.
package struct SweepBegan: EventPayload, Hashable {
  package static let kind = EventKind.sweepBegan
  package var zone: ZoneID
  package var epoch: UInt64

  package init(zone: ZoneID, epoch: UInt64) {
    self.zone = zone
    self.epoch = epoch
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    zone = try FieldCodec.decodeZone(from: &reader)
    epoch = try reader.varint()
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(zone, into: &bytes)
    bytes.varint(epoch)
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
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    zone = try FieldCodec.decodeZone(from: &reader)
    epoch = try reader.varint()
    seen = try reader.varint()
    removed = try reader.varint()
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(zone, into: &bytes)
    bytes.varint(epoch)
    bytes.varint(seen)
    bytes.varint(removed)
  }
}

/// The signed-in user changed; unsent work of the other one is parked.
package struct AccountChanged: EventPayload, Hashable {
  package static let kind = EventKind.accountChanged
  package var userHash: UInt64
  package var isParked: Bool

  package init(userHash: UInt64, isParked: Bool) {
    self.userHash = userHash
    self.isParked = isParked
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    userHash = try reader.u64()
    isParked = try reader.flag()
  }
  package func encode(into bytes: inout ByteWriter) {
    bytes.u64(userHash)
    bytes.u8(isParked ? 1 : 0)
  }
}

/// A wait: how long, said when by which wall clock, by whom. After a relaunch the wait is the lesser of the rest
/// and the duration, so a clock that jumped cannot make it longer.
package struct Pace: EventPayload, Hashable {
  package static let kind = EventKind.pace
  package var durationMilliseconds: Int64
  package var wallMilliseconds: Int64
  /// Operations a request, 0 for the default.
  package var batchSize: UInt64
  /// Whether the server named the wait; our own backoff may be cut short by a person, this may not.
  package var isServers: Bool
  package var reason: String

  package init(
    durationMilliseconds: Int64, wallMilliseconds: Int64, batchSize: UInt64 = 0, isServers: Bool, reason: String
  ) {
    self.durationMilliseconds = durationMilliseconds
    self.wallMilliseconds = wallMilliseconds
    self.batchSize = batchSize
    self.isServers = isServers
    self.reason = reason
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    durationMilliseconds = try reader.zigzag()
    wallMilliseconds = try reader.zigzag()
    batchSize = try reader.varint()
    isServers = try reader.flag()
    reason = try reader.string()
  }
  package func encode(into bytes: inout ByteWriter) {
    bytes.zigzag(durationMilliseconds)
    bytes.zigzag(wallMilliseconds)
    bytes.varint(batchSize)
    bytes.u8(isServers ? 1 : 0)
    bytes.string(reason)
  }
}

extension ByteWriter {
  /// A byte that says whether text follows, then the text.
  mutating func optional(_ text: String?) {
    u8(text == nil ? 0 : 1)
    if let text { string(text) }
  }

  /// A byte that says whether a touch follows, then the touch.
  mutating func touch(_ touch: Touch?) {
    u8(touch == nil ? 0 : 1)
    guard let touch else { return }
    zigzag(touch.milliseconds)
    string(touch.user)
    string(touch.device)
  }
}

extension ByteReader {
  /// 0 or 1; anything else is refused.
  mutating func flag() throws(ByteReaderError) -> Bool {
    let start = offset
    switch try u8() {
    case 0: return false
    case 1: return true
    default: throw ByteReaderError(offset: start, what: "a flag that is neither 0 nor 1")
    }
  }

  mutating func optionalString() throws(ByteReaderError) -> String? { try flag() ? try string() : nil }

  mutating func touch() throws(ByteReaderError) -> Touch? {
    guard try flag() else { return nil }
    return Touch(milliseconds: try zigzag(), user: try string(), device: try string())
  }

  /// One byte that stands for one of an enumeration's cases.
  mutating func choice<Choice: RawRepresentable>(
    _ what: String
  ) throws(ByteReaderError) -> Choice where Choice.RawValue == UInt8 {
    let start = offset
    guard let value = Choice(rawValue: try u8()) else {
      throw ByteReaderError(offset: start, what: "\(what) not known")
    }
    return value
  }
}
