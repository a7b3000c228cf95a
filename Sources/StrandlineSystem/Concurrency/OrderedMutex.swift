// The locks of the library, and the order in which a thread may take them.
//
// Two threads that take two locks in two orders wait for each other for ever, on a day that no test has seen. So each lock has
// a place in one order, and a debug build checks at each lock that the thread holds none of that place or a later one: an order
// that is broken once, by one thread, ends the test that did it. The same table is in the page on the architecture.

internal import CStrandline
package import Synchronization

/// The places of locks, outermost first: a thread that holds a lock takes only locks of later places.
package enum LockPlace: UInt8, CaseIterable, Sendable {
  /// One suspension, resumption or close of a store at a time.
  case suspension
  /// What an open of a store has read so far.
  case opening
  /// The queued sync cycles and their callers.
  case cycles
  /// The state of a local server.
  case server
  /// The events of a server's journal that are not written yet.
  case journal
  /// One reading of a store's inbox at a time.
  case inbox
  /// The files of contents, while one is added or some are removed.
  case contents
  /// The writer of a store.
  case writer
  /// One build of declared indexes at a time.
  case building
  /// The log is compacted, or read from its beginning for new tables.
  case compacting
  /// One merge or compaction of segments at a time.
  case rewriting
  /// One merge of sorted tables at a time.
  case merging
  /// One flush at a time.
  case flushing
  /// One poll of a log by a reader of its own at a time.
  case polling
  /// The projections.
  case projections
  /// The list of sorted tables.
  case tables
  /// What a full disk kept an open from doing.
  case stalled
  /// The live segment.
  case disk
  /// MANIFEST while it is written.
  case manifest
  /// CONTROL while it is written.
  case control
  /// The list of segments in memory.
  case segments
  /// The queue of the group commit.
  case queue
  /// The idle connections of a transport.
  case connections
  /// What a transport trusts, while it is read.
  case trust
  /// A lock of one value, held for a moment.
  case value
  /// What is used under any lock: descriptors of files and sockets, paths of folders, blocks that were read, random numbers.
  case leaf

  /// What is wrong with taking a lock of this place.
  ///
  /// - Parameter held: the places of the locks that the thread holds: the bit `1 << rawValue` of each.
  /// - Returns: a sentence that names both locks; nil if the order is kept.
  package func conflict(held: UInt64) -> String? {
    let later = held >> UInt64(rawValue)
    guard later != 0, let other = LockPlace(rawValue: rawValue + UInt8(later.trailingZeroBitCount)) else { return nil }
    return
      "a thread that holds the lock '\(other)' takes the lock '\(self)', which comes before it in the order of locks"
  }

  @usableFromInline
  func enter() {
    let held = strandline_locks_held()
    if let conflict = conflict(held: held) { preconditionFailure(conflict) }
    strandline_set_locks_held(held | 1 << UInt64(rawValue))
  }

  /// For simulations: runs `body` in the middle of what this thread does, as another thread would.
  package static func asAnotherThread(_ body: () throws -> Void) rethrows {
    let held = setAside()
    defer { takeBack(held) }
    try body()
  }

  /// What follows, until `takeBack`, is the app's code: it may call any store, and this one refuses what would wait for it.
  ///
  /// - Returns: what the thread holds.
  package static func setAside() -> UInt64 {
    #if DEBUG
      let held = strandline_locks_held()
      strandline_set_locks_held(0)
      return held
    #else
      return 0
    #endif
  }

  package static func takeBack(_ held: UInt64) {
    #if DEBUG
      strandline_set_locks_held(held)
    #endif
  }

  /// Notes the lock of a thread that would not have waited for it.
  ///
  /// - Returns: what the thread held before.
  @usableFromInline
  func enterWithoutWaiting() -> UInt64 {
    let held = strandline_locks_held()
    strandline_set_locks_held(held | 1 << UInt64(rawValue))
    return held
  }

  @usableFromInline
  static func leave(toHold held: UInt64) { strandline_set_locks_held(held) }

  @usableFromInline
  func leave() { strandline_set_locks_held(strandline_locks_held() & ~(1 << UInt64(rawValue))) }
}

/// A mutex with a place in the order. A release build has the bare `Mutex`.
package struct OrderedMutex<Value: ~Copyable>: ~Copyable, Sendable {
  @usableFromInline let mutex: Mutex<Value>
  #if DEBUG
    @usableFromInline let place: LockPlace
  #endif

  /// Guards a value for a moment, in which no lock but a leaf is taken.
  @inlinable
  package init(_ value: consuming sending Value) { self.init(.value, value) }

  /// Guards a value.
  @inlinable
  package init(_ place: LockPlace, _ value: consuming sending Value) {
    mutex = Mutex(value)
    #if DEBUG
      self.place = place
    #endif
  }

  /// Runs `body` while no other thread runs one.
  ///
  /// - Precondition: the thread holds no lock of this place or a later one; checked in a debug build.
  @inlinable @inline(__always)
  package borrowing func withLock<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending Value) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result {
    #if DEBUG
      place.enter()
      defer { place.leave() }
    #endif
    return try mutex.withLock(body)
  }

  /// The same if no other thread holds the lock; nil if one does. It waits for nobody, so it may be called under any lock.
  @inlinable
  package borrowing func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending Value) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result? {
    try mutex.withLockIfAvailable { (value) throws(Failure) -> sending Result in
      #if DEBUG
        let held = place.enterWithoutWaiting()
        defer { LockPlace.leave(toHold: held) }
      #endif
      return try body(&value)
    }
  }
}
