// The version that a value was read from, in the value itself: what a save of it needs to tell what was changed from what was
// only held, also when the store has gone on since.
//
// It holds the record as it was read, not a place in the log, so nothing that compaction removes is missed. `save(&value)` gives
// the value a new version. A save of a value that stays as it is adds what was saved to the version: the app may go on with
// that value, and only its fields tell then which state it was made from.

import StrandlineSystem

/// The version of its record that a ``SyncRecord`` was read from.
///
/// A type that declares a property for it, of any name, gets it from each read, and a save of such a value changes the fields
/// that were changed in it since:
///
/// ```swift
/// struct Note: SyncRecord {
///   var id = RecordName.random()
///   var version = RecordVersion()
///   var title: String
/// }
/// ```
///
/// It says nothing of the value: all versions are equal, also that of a new value. (Of a `RecordVersion?`, which works as well,
/// nil is none of them.) It is not stored: it is in no field, and in any other encoding a null, which may be missing. So a
/// value that an app has kept in a file was read from none. It is the version of one record: a value that is given another ID
/// is a new one.
///
/// It keeps the record as it was read, and up to seven states that were saved from it, in memory: a list of a thousand values
/// with versions holds a thousand records besides.
public struct RecordVersion: Sendable {
  /// Nil: the value was not read.
  let held: HeldVersion?

  init(held: HeldVersion) { self.held = held }
  /// The version of a value that was not read: a save writes it whole.
  public init() { held = nil }
}

extension RecordVersion: Hashable {
  /// True: values that differ in their versions alone are equal.
  public static func == (left: Self, right: Self) -> Bool { true }
  /// Adds nothing to the hash, because all versions are equal.
  public func hash(into hasher: inout Hasher) {}
}

extension RecordVersion: Codable {
  /// Writes a null.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encodeNil()
  }

  /// Reads a null: a version comes from a read of the store alone.
  public init(from decoder: any Decoder) throws {
    guard try decoder.singleValueContainer().decodeNil() else {
      throw DecodingError.dataCorrupted(
        .init(codingPath: decoder.codingPath, debugDescription: "a version comes from a read of the store alone"))
    }
    self.init()
  }
}

extension KeyedDecodingContainer {
  /// A version in a value that another decoder reads: none, also where the key is missing.
  ///
  /// - Throws: `DecodingError` if something else is under the key.
  public func decode(_ type: RecordVersion.Type, forKey key: Key) throws -> RecordVersion {
    try decodeIfPresent(type, forKey: key) ?? RecordVersion()
  }
}

extension RecordVersion: CustomStringConvertible {
  /// That it is one.
  public var description: String { "a version" }
}

extension RecordVersion: RecordPart {
  static func write(_ part: RecordVersion?, to record: inout EncodedRecord) { record.version = .some(part?.held) }
  static func read(from fields: RecordFields) -> RecordVersion? { fields.version() }
}

/// What the copies of a value share that was read.
final class HeldVersion: Sendable {
  /// What a value of this version was at one time.
  private struct Side: Sendable {
    let number: UInt64
    /// As it was saved; nil: as it was read.
    var fields: [String: FieldValue?]?
  }

  /// A transaction in which the value was edited.
  struct Step: Sendable {
    /// Its first event.
    let start: LSN
    /// What the value would be without the edits of this transaction and of later ones; nil if the transaction wrote it whole.
    var origin: [String: FieldValue?]?
  }

  private struct State: Sendable {
    /// As it was read, and then as it was saved, in this order.
    var sides = [Side(number: HeldVersion.readNumber)]
    var lastNumber = HeldVersion.readNumber
    /// The transactions that made it and are not known to be durable, the oldest first.
    var steps: [Step] = []
    /// What its edits are told from after such a transaction has failed.
    var failed: [String: FieldValue?]?
  }
  private let state = OrderedMutex(State())

  /// As it was read.
  private let record: Record

  /// The durable states that are kept: the one that was read, and the last ones that were saved.
  private static let sidesMax = 8
  /// The number of the state that was read.
  static let readNumber: UInt64 = 1

  init(_ record: Record) { self.record = record }

  /// Whose version it is.
  var id: RecordID { record.id }

  /// Notes the transactions that made it, of which at least one is not known to be durable.
  func note(_ steps: [Step]) { state.withLock { $0.steps = steps } }

  /// The steps of the version that an edit makes of this one.
  ///
  /// - Parameters:
  ///   - current: what the store has before the edit, as the type encodes it.
  ///   - start: the first event of the edit's transaction.
  func steps<Value: SyncRecord>(
    over current: [String: FieldValue?], at start: LSN, _ type: Value.Type, _ prototype: PrototypeFields
  ) throws -> [Step] {
    var steps = state.withLock { $0.steps }
    if !steps.isEmpty {
      // What others have changed since is no edit of this value.
      let shown = try asRead(type, prototype)
      for (name, now) in current where shown[name] != .some(now) {
        for place in steps.indices { steps[place].origin?.updateValue(now, forKey: name) }
      }
    }
    if steps.last?.start != start { steps.append(Step(start: start, origin: current)) }
    return steps
  }

  /// Adds what was saved from it.
  ///
  /// - Returns: the state's number.
  func saved(_ fields: [String: FieldValue?]) -> UInt64 {
    state.withLock { state in
      state.lastNumber += 1
      state.sides.append(Side(number: state.lastNumber, fields: fields))
      return state.lastNumber
    }
  }

  /// Takes a state back: the transaction that made it has failed.
  ///
  /// - Parameter lsn: the last event that is not undone.
  func undo(_ number: UInt64, after lsn: LSN) {
    state.withLock { state in
      state.sides.removeAll { $0.number == number }
      guard number == Self.readNumber else { return }
      state.failed = state.steps.first { $0.start > lsn }.flatMap { $0.origin }
      state.steps = []
    }
  }

  /// The transaction that made a state is durable.
  func settle(_ number: UInt64) {
    state.withLock { state in
      if number == Self.readNumber { state.steps = [] }
      let durable = state.sides.prefix { $0.number <= number }.count
      if durable > Self.sidesMax { state.sides.removeSubrange(1...(durable - Self.sidesMax)) }
    }
  }

  /// The lives that the record continued; nil if that is not known.
  var births: Set<Birth>? {
    state.withLock { $0.sides.isEmpty && $0.failed == nil } ? nil : record.births
  }

  /// What its values were, as a type encodes them; none if the transaction failed that made it, and it was made from none.
  func states<Value: SyncRecord>(
    of type: Value.Type, _ prototype: PrototypeFields
  ) throws -> [[String: FieldValue?]] {
    let (sides, failed) = state.withLock { ($0.sides, $0.failed) }
    if sides.isEmpty { return failed.map { [$0] } ?? [] }
    return try sides.map { try $0.fields ?? asRead(type, prototype) }
  }

  private func asRead<Value: SyncRecord>(
    _ type: Value.Type, _ prototype: PrototypeFields
  ) throws -> [String: FieldValue?] {
    try RecordEncoder.encode(RecordDecoder.decode(type, from: record, prototype)).byName
  }

  /// Of the states that a value of this version had, the one that it was most likely made from: that from which it differs in
  /// the fewest fields, and of equals the last.
  ///
  /// An app that goes on with the value that it saved has made it from the last state, and a copy that it gave away before that
  /// from an earlier one. A value that equals an earlier state was put back to it.
  static func origin(
    of value: [String: FieldValue?], in states: [[String: FieldValue?]]
  ) -> [String: FieldValue?]? {
    guard var origin = states.last else { return nil }
    func distance(_ state: [String: FieldValue?]) -> Int { value.count { state[$0.key] != .some($0.value) } }
    var least = distance(origin)
    for state in states.dropLast().reversed() {
      let distance = distance(state)
      if distance > 0, distance < least { (origin, least) = (state, distance) }
    }
    return origin
  }
}

/// The states of versions that come from events which may not be durable yet.
final class VersionsInFlight: Sendable {
  private struct Entry: Sendable {
    let lsn: LSN
    let held: HeldVersion
    let number: UInt64
  }
  private struct State: Sendable {
    var durable = LSN.zero
    /// In the order in which they were made.
    var entries: [Entry] = []
  }
  private let state = OrderedMutex(State())

  /// Notes that a state of a version is what the record is as of an event.
  ///
  /// - Returns: whether the event is not known to be durable.
  @discardableResult
  func note(_ held: HeldVersion, _ number: UInt64, at lsn: LSN) -> Bool {
    state.withLock { state in
      guard lsn > state.durable else { return false }
      state.entries.append(Entry(lsn: lsn, held: held, number: number))
      return true
    }
  }

  /// Events up to this one are durable.
  func settle(through durable: LSN) {
    let settled = state.withLock { state in
      state.durable = max(state.durable, durable)
      return Self.remove(&state.entries) { $0.lsn <= durable }
    }
    for entry in settled { entry.held.settle(entry.number) }
  }

  /// Events after this one are undone.
  func undo(after lsn: LSN) {
    let undone = state.withLock { state in Self.remove(&state.entries) { $0.lsn > lsn } }
    for entry in undone.reversed() { entry.held.undo(entry.number, after: lsn) }
  }

  private static func remove(_ entries: inout [Entry], _ isTaken: (Entry) -> Bool) -> [Entry] {
    if entries.isEmpty { return [] }
    let taken = entries.filter(isTaken)
    entries.removeAll(where: isTaken)
    return taken
  }
}
