// Who wrote what, when, in an order that all devices agree on: hybrid times, births, and the stamp that travels
// with a record; and the clock that gives these times.
//
// A merge is a join of stamps, field by field: associative, commutative, idempotent, so every order of delivery
// ends alike. Bytes of the travelling stamp: Formats/stamp.md.

package import StrandlineSystem

/// A hybrid logical clock's reading: 48 bits of milliseconds since 1970, 16 bits of count within one.
/// (Kulkarni and others, "Logical Physical Clocks", 2014.)
package struct HybridTime: Hashable, Comparable, Sendable, CustomStringConvertible {
  package let rawValue: UInt64
  package init(rawValue: UInt64) { self.rawValue = rawValue }
  package init(milliseconds: Int64, count: UInt16 = 0) {
    // Times before 1970 and beyond the year 10889 have no place in 48 bits; the ends stand for them.
    let clamped = UInt64(min(max(milliseconds, 0), (1 << 48) - 1))
    self.rawValue = clamped << 16 | UInt64(count)
  }
  package static let zero = HybridTime(rawValue: 0)
  package var milliseconds: Int64 { Int64(rawValue >> 16) }
  package var count: UInt16 { UInt16(truncatingIfNeeded: rawValue) }
  package var next: HybridTime { HybridTime(rawValue: rawValue == .max ? .max : rawValue + 1) }
  /// Whether a clock can have shown this when the server's showed `milliseconds`; of no server's time, any.
  package func isBelievable(at milliseconds: Int64?) -> Bool {
    guard let milliseconds else { return true }
    return self <= HybridTime(milliseconds: milliseconds &+ Stamp.clampMilliseconds, count: .max)
  }
  package static func < (left: HybridTime, right: HybridTime) -> Bool { left.rawValue < right.rawValue }
  package var description: String { "\(milliseconds).\(count)" }
}

/// A writer: 64 random bits that a store draws for itself. 0 stands for a writer that is not a Strandline store, such as
/// CloudKit's dashboard.
package typealias WriterID = UInt64

/// One life of a record ID, named by its explicit creation. Compared for equality only; the order below serves
/// to write sets of them down in one way.
package struct Birth: Hashable, Comparable, Sendable, CustomStringConvertible {
  package var time: HybridTime
  package var writer: WriterID
  package init(time: HybridTime, writer: WriterID) {
    self.time = time
    self.writer = writer
  }
  /// The life that a default begins, whichever device saves it: the devices' defaults of a name are one record. No clock shows
  /// this time, and no store has this number.
  package static let ofDefaults = Birth(time: .zero, writer: .max)
  package static func < (left: Birth, right: Birth) -> Bool {
    (left.time, left.writer) < (right.time, right.writer)
  }
  package var description: String { "\(time)@\(String(writer, radix: 16))" }
}

/// When a field was last written, and by which writer. A merge keeps the value with the greater stamp.
package struct FieldStamp: Hashable, Comparable, Sendable, CustomStringConvertible {
  package var time: HybridTime
  package var writer: WriterID
  package init(time: HybridTime, writer: WriterID) {
    self.time = time
    self.writer = writer
  }
  /// A field that has the value of a default: nobody has written it, and whatever anybody writes is later.
  package static let ofDefaults = FieldStamp(time: .zero, writer: 0)
  package static func < (left: FieldStamp, right: FieldStamp) -> Bool {
    (left.time, left.writer) < (right.time, right.writer)
  }
  package var description: String { "\(time)@\(String(writer, radix: 16))" }
}

/// The last mutation of one writer that a version includes.
///
/// Of two mutations of one writer that with the greater LSN is the later, whatever their times: the device's clock may
/// have been put right between them.
package struct Seen: Hashable, Comparable, Sendable {
  package var lsn: LSN
  package var tenure: UInt64
  package var time: HybridTime
  package init(lsn: LSN, tenure: UInt64, time: HybridTime) {
    self.lsn = lsn
    self.tenure = tenure
    self.time = time
  }
  package static func < (left: Seen, right: Seen) -> Bool { (left.lsn, left.time) < (right.lsn, right.time) }
}

/// What travels with a version of a record.
package struct Stamp: Hashable, Sendable {
  /// The lives that this version continues; normally one.
  package var births: Set<Birth>
  /// Field by field, those with an explicit nil too.
  package var fields: [String: FieldStamp]
  /// Writer by writer.
  package var seen: [WriterID: Seen]
  /// Parts that a newer version wrote, re-emitted byte for byte.
  package var unknown: [UInt8]

  package init(
    births: Set<Birth> = [], fields: [String: FieldStamp] = [:], seen: [WriterID: Seen] = [:], unknown: [UInt8] = []
  ) {
    self.births = births
    self.fields = fields
    self.seen = seen
    self.unknown = unknown
  }

  /// Whether it is of a default in which nobody has written anything.
  package var isOfUneditedDefault: Bool {
    births == [.ofDefaults] && fields.values.allSatisfy { $0 == .ofDefaults }
  }

  /// How many writers `seen` keeps.
  package static let writersMax = 64

  /// Joins what another version has seen: the later mutation of each writer, and of more than 64 writers
  /// those with the greatest (time, writer).
  package mutating func joinSeen(_ other: [WriterID: Seen]) {
    for (writer, theirs) in other {
      if let ours = seen[writer], ours >= theirs { continue }
      seen[writer] = theirs
    }
    guard seen.count > Stamp.writersMax else { return }
    let oldest = seen.sorted { ($0.value.time, $0.key) < ($1.value.time, $1.key) }
    for (writer, _) in oldest.prefix(seen.count - Stamp.writersMax) { seen[writer] = nil }
  }

  /// The stamp of what a migration makes of some fields: right after the newest of those fields; or, where it only adds fields, after
  /// the newest of all. So devices that migrate one state make one change of it, and an edit that another device has made of that
  /// state is later, however late the migration comes.
  ///
  /// - Parameter names: the fields that it adds, changes or removes.
  package func ofMigration(changing names: Set<String>) -> FieldStamp? {
    let known = fields.filter { names.contains($0.key) }
    guard let newest = (known.isEmpty ? fields : known).values.max() else { return nil }
    // Nobody has written it.
    return newest == .ofDefaults ? newest : FieldStamp(time: newest.time.next, writer: 0)
  }

  /// Whether this version includes everything that the other includes, as far as both say.
  package func dominates(_ other: Stamp) -> Bool {
    other.seen.allSatisfy { writer, theirs in
      seen[writer].map { $0 >= theirs } ?? false
    }
  }

  /// Whether another version names, of a writer, a mutation that stands before the one that this names and was made later, in
  /// another tenure: then a copy of the writer's log has written on under its number, and the places of two logs say nothing
  /// of each other; unless the writer's clock was set back.
  package func mayNameOtherLog(than other: Stamp) -> Bool {
    other.seen.contains { writer, theirs in
      guard let ours = seen[writer] else { return false }
      return theirs.tenure != ours.tenure && theirs.lsn < ours.lsn && theirs.time > ours.time
    }
  }

  /// The greatest time of its fields: what a clock learns. Births and `seen` name mutations and are never
  /// clamped, so a clock that is years ahead would spread through them.
  package var latest: HybridTime { fields.values.reduce(.zero) { max($0, $1.time) } }

  /// How far a field's time may be after the server's, in milliseconds, before it is disbelieved.
  package static let clampMilliseconds: Int64 = 60_000

  /// Disbelieves times from the future: a field stamped later than its version's server modified time (and a
  /// minute) was stamped at that modified time. Every device that reads this version computes the same.
  ///
  /// - Parameter milliseconds: of an edit that is not sent, the server's time now; nil leaves all times as they are.
  /// - Returns: the stamps that became less, as they were. Between two times of one writer they still say which is the later.
  @discardableResult
  package mutating func clamp(toModified milliseconds: Int64?) -> [String: FieldStamp] {
    guard let milliseconds else { return [:] }
    var disbelieved: [String: FieldStamp] = [:]
    for (name, stamp) in fields where !stamp.time.isBelievable(at: milliseconds) {
      disbelieved[name] = stamp
      fields[name] = FieldStamp(time: HybridTime(milliseconds: milliseconds), writer: stamp.writer)
    }
    return disbelieved
  }
}

/// What is known of the server's clock, and when it became known. The monotonic clock counts from there, so it does not matter
/// what is done to this device's clock on the wall.
package struct ServerTimeSample: Hashable, Sendable {
  /// The server's time in milliseconds since 1970.
  package var milliseconds: Int64
  /// This device's monotonic time then.
  package var nanoseconds: UInt64
  /// Whether it was the server's time at that moment. Otherwise the server's clock was there or beyond.
  package var isNow: Bool
  /// Whether an answer to this process said it. Otherwise it follows from what the log says.
  package var isHeard: Bool

  /// What an answer says.
  package init(milliseconds: Int64, nanoseconds: UInt64, isNow: Bool) {
    self.milliseconds = milliseconds
    self.nanoseconds = nanoseconds
    self.isNow = isNow
    isHeard = true
  }

  /// From an offset of a day on, this device's clock was wrong and not slow.
  private static let wrongMilliseconds: Int64 = 86_400_000

  /// What follows from what an earlier process heard: that the server's clock showed `milliseconds` when this device's clock
  /// on the wall showed `then`.
  ///
  /// | the wall clock shows | the server's time is |
  /// | --- | --- |
  /// | less than then: it was set back | what it shows, at least `milliseconds`; it may be later by any time |
  /// | more, was a day or more behind the server's, and is within a minute now: it was put right | what it shows |
  /// | more otherwise | `milliseconds`, and as much more |
  package init(logged milliseconds: Int64, at then: Int64, wall: Int64, nanoseconds: UInt64) {
    self.init(milliseconds: milliseconds &+ (wall &- then), nanoseconds: nanoseconds, isNow: true)
    isHeard = false
    if wall < then {
      (self.milliseconds, isNow) = (max(wall, milliseconds), false)
    } else if milliseconds &- then > Self.wrongMilliseconds, wall &+ Stamp.clampMilliseconds >= milliseconds {
      self.milliseconds = wall
    }
  }

  /// The server's time now, given what the monotonic clock of this device shows.
  package func now(nanoseconds now: UInt64) -> Int64 {
    milliseconds &+ Int64((max(now, nanoseconds) - nanoseconds) / 1_000_000)
  }
}

/// A hybrid logical clock: each reading exceeds every earlier reading and every time that it learned, unless these came
/// from a clock that was wrong.
package struct HybridClock: Hashable, Sendable {
  /// The greatest time given or learned.
  package private(set) var latest: HybridTime = .zero
  /// What is known of the server's clock; nil before the first answer.
  package private(set) var sample: ServerTimeSample?

  package init() {}

  /// The server's time, as far as it is known, in milliseconds since 1970.
  package func now(_ clock: any SystemClock) -> Int64 {
    guard let sample else { return clock.wallMilliseconds() }
    let now = sample.now(nanoseconds: clock.monotonicNanoseconds())
    return sample.isNow ? now : max(now, clock.wallMilliseconds())
  }

  /// The server's time, in milliseconds since 1970; nil if only times before which it cannot be are known.
  package func known(_ clock: any SystemClock) -> Int64? {
    sample?.isNow == true ? now(clock) : nil
  }

  /// The next time.
  package mutating func tick(_ clock: any SystemClock) -> HybridTime {
    let now = now(clock)
    // What is further ahead than the slowest server could explain was given while this device's clock was wrong.
    if !latest.isBelievable(at: now) { latest = .zero }
    latest = max(HybridTime(milliseconds: now), latest.next)
    return latest
  }

  /// Learns a time that came from elsewhere.
  package mutating func learn(_ time: HybridTime) { latest = max(latest, time) }

  /// Learns from the log what an earlier process heard: the server's time when this device's clock showed `then`.
  package mutating func learn(logged milliseconds: Int64, at then: Int64, _ clock: any SystemClock) {
    sample = ServerTimeSample(
      logged: milliseconds, at: then, wall: clock.wallMilliseconds(), nanoseconds: clock.monotonicNanoseconds())
  }

  /// Learns what the server said of its clock.
  ///
  /// - Parameter isNow: whether it is the server's time now. Otherwise it is one that has passed there, such as that of a
  ///   change: it counts if the server's clock was believed to be behind it, and nothing better was heard in this process.
  package mutating func learn(serverMilliseconds: Int64, isNow: Bool, _ clock: any SystemClock) {
    // Not a time of any clock: 48 bits of milliseconds end in the year 10889.
    guard serverMilliseconds > 0, serverMilliseconds < 1 << 48 else { return }
    if !isNow {
      if let sample, sample.isNow, sample.isHeard { return }
      if serverMilliseconds <= now(clock) { return }
    }
    sample = ServerTimeSample(
      milliseconds: serverMilliseconds, nanoseconds: clock.monotonicNanoseconds(), isNow: isNow)
  }
}
