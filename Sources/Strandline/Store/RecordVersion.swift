// The version that a value was read from, in the value itself: what a save of it needs to tell what was changed from what was
// only held, also when the store has gone on since.
//
// It holds the record as it was read, not a place in the log, so nothing that compaction removes is missed. What was saved from
// it since is held beside that: an app may go on with the value that it saved, although the save returned a newer one.

import Synchronization

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
/// nil is none of them.) It is not stored, in no field and in no other encoding, so a value that an app has kept in a file was
/// read from none.
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
  /// Hashes nothing.
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
    enum Content: Sendable {
      /// As it was read.
      case record(Record)
      /// As it was saved.
      case fields([String: FieldValue?])
    }
    let number: UInt64
    var content: Content
  }

  private struct State: Sendable {
    /// As it was read, and then as it was saved, in this order.
    var sides: [Side]
    var lastNumber: UInt64 = 1
    /// The event that made it, if a transaction of this store did.
    var madeAt = LSN.none
    /// The version from which the transaction saved that made this one, until that is durable. It stands in if the transaction
    /// fails.
    var previous: HeldVersion?
  }
  private let state: Mutex<State>

  /// So many states are kept: the one that was read, and the last ones that were saved.
  private static let sidesMax = 8
  /// The number of the state that was read.
  static let readNumber: UInt64 = 1

  init(_ record: Record) { state = Mutex(State(sides: [Side(number: Self.readNumber, content: .record(record))])) }

  /// Makes it the version of a record as a transaction has it.
  ///
  /// - Parameters:
  ///   - previous: the version from which the transaction saved.
  ///   - lsn: the record's event.
  ///   - start: the transaction's first event.
  func become(_ record: Record, after previous: HeldVersion?, at lsn: LSN, ofTransaction start: LSN) {
    // One that this transaction has made itself falls with this one.
    let before = previous?.state.withLock { $0.madeAt >= start ? $0.previous : previous }
    state.withLock { state in
      state.sides = [Side(number: Self.readNumber, content: .record(record))]
      (state.previous, state.madeAt) = (before, lsn)
    }
  }

  /// Adds what was saved from it.
  ///
  /// - Returns: the state's number.
  func saved(_ fields: [String: FieldValue?]) -> UInt64 {
    state.withLock { state in
      if state.sides.count == Self.sidesMax { state.sides.remove(at: 1) }
      state.lastNumber += 1
      state.sides.append(Side(number: state.lastNumber, content: .fields(fields)))
      return state.lastNumber
    }
  }

  /// Takes a state back: the transaction that made it has failed.
  func undo(_ number: UInt64) { state.withLock { $0.sides.removeAll { $0.number == number } } }

  /// The transaction that made it is durable.
  func settle() { state.withLock { $0.previous = nil } }

  /// The lives that the record continued; nil if that is not known.
  var births: Set<Birth>? {
    let (content, previous) = state.withLock { ($0.sides.first?.content, $0.previous) }
    if case .record(let record)? = content { return record.births }
    return previous?.births
  }

  /// What its values were, as a type encodes them; none if the transaction failed that made it.
  func states<Value: SyncRecord>(of type: Value.Type) throws -> [[String: FieldValue?]] {
    let (sides, previous) = state.withLock { ($0.sides, $0.previous) }
    if sides.isEmpty { return try previous?.states(of: type) ?? [] }
    return try sides.map { side in
      switch side.content {
      case .fields(let fields): return fields
      case .record(let record):
        return try RecordEncoder.encode(RecordDecoder.decode(type, from: record, PrototypeFields(type))).byName
      }
    }
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

/// The states of versions that hold what is not known to be durable.
final class VersionsInFlight: Sendable {
  private struct Entry: Sendable {
    let lsn: LSN
    let held: HeldVersion
    let number: UInt64
  }
  private struct State: Sendable {
    var durable = LSN.none
    /// In the order in which they were made.
    var entries: [Entry] = []
  }
  private let state = Mutex(State())

  /// Notes that a state of a version is what the record is as of an event.
  func note(_ held: HeldVersion, _ number: UInt64, at lsn: LSN) {
    state.withLock { if lsn > $0.durable { $0.entries.append(Entry(lsn: lsn, held: held, number: number)) } }
  }

  /// Events up to this one are durable.
  func settle(through durable: LSN) {
    let settled = state.withLock { state in
      state.durable = max(state.durable, durable)
      return Self.remove(&state.entries) { $0.lsn <= durable }
    }
    for entry in settled { entry.held.settle() }
  }

  /// Events after this one are undone.
  func undo(after lsn: LSN) {
    let undone = state.withLock { state in Self.remove(&state.entries) { $0.lsn > lsn } }
    for entry in undone.reversed() { entry.held.undo(entry.number) }
  }

  private static func remove(_ entries: inout [Entry], _ isTaken: (Entry) -> Bool) -> [Entry] {
    if entries.isEmpty { return [] }
    let taken = entries.filter(isTaken)
    entries.removeAll(where: isTaken)
    return taken
  }
}
