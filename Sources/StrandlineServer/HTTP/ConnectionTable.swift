// The server's open connections, and which of them is cut when there are too many.
//
// A connection is silent from its accept, or from the end of its last answer, until the server has its next request as a
// whole. Bytes of a request that is not whole count for nothing, because a peer may send one a second for ever. When all
// places are taken, the connection that has been silent for longest is cut for a new one; one that is being answered never
// is. So silent peers, however many, lock no client out. In the same way the memory is limited that large bodies and answers
// take: hundreds of connections could each send some megabytes and not end, or ask for some and not read them.

internal import StrandlineSystem

/// The connections of a server, and whether it has stopped.
final class ConnectionTable: Sendable {
  /// What becomes of a new connection.
  enum Admission {
    /// It is served. Another one may have been cut for it.
    case admitted(id: UInt64)
    /// All places are taken by connections that are being answered.
    case full
    /// The server has stopped.
    case stopped
  }

  private struct Entry {
    let connection: Connection
    /// When its silence began, as a number that rises; nil while it is answered.
    var silentSince: UInt64?
    /// When the sending of its answer began; nil if none is being sent.
    var sendingSince: UInt64?
    /// The bytes of a large body that is being read or answered, or of a large answer that is being sent.
    var bodyBytes = 0
  }

  private struct State {
    var isStopped = false
    var failure: String?
    var nextID: UInt64 = 0
    /// Counts the beginnings of silences: the order is all that counts, so no clock is read.
    var turn: UInt64 = 0
    var open: [UInt64: Entry] = [:]
    /// The sum of `bodyBytes`.
    var bodyBytes = 0
    /// The threads that have not ended, also those of connections that were cut.
    var threads: [UInt64: BlockingThread] = [:]
    /// The threads that ended before `keep` was called with them.
    var ended: Set<UInt64> = []

    mutating func nextTurn() -> UInt64 {
      turn += 1
      return turn
    }

    /// Removes the connection that has been silent for longest.
    mutating func removeSilent() -> Connection? {
      let silent = open.compactMap { id, entry in entry.silentSince.map { (id: id, since: $0) } }
      guard let longest = silent.min(by: { $0.since < $1.since }) else { return nil }
      return remove(longest.id)
    }

    /// Removes the connection that holds bytes and has for longest neither sent a whole request nor read its answer; not
    /// one whose answer is being made.
    mutating func removeHolder(butNot kept: UInt64?) -> Connection? {
      let holders = open.compactMap { id, entry in
        entry.bodyBytes == 0 || id == kept ? nil : (entry.silentSince ?? entry.sendingSince).map { (id: id, since: $0) }
      }
      guard let longest = holders.min(by: { $0.since < $1.since }) else { return nil }
      return remove(longest.id)
    }

    mutating func remove(_ id: UInt64) -> Connection? {
      guard let entry = open.removeValue(forKey: id) else { return nil }
      bodyBytes -= entry.bodyBytes
      return entry.connection
    }

    mutating func setBodyBytes(_ bytes: Int, for id: UInt64) {
      guard let before = open[id]?.bodyBytes else { return }
      open[id]?.bodyBytes = bytes
      bodyBytes += bytes - before
    }
  }
  private let state = OrderedMutex(State())
  private let connectionsMax: Int
  private let bodiesBytesMax: Int

  /// - Parameter bodiesBytesMax: the most bytes of all large bodies that are being read or answered, and of all large
  ///   answers that are being sent.
  init(connectionsMax: Int, bodiesBytesMax: Int) {
    self.connectionsMax = connectionsMax
    self.bodiesBytesMax = bodiesBytesMax
  }

  var isStopped: Bool { state.withLock { $0.isStopped } }
  /// Why the server has stopped by itself.
  var failure: String? { state.withLock { $0.failure } }

  /// Gives a new connection a place, for which it may cut another one.
  func admit(_ connection: Connection) -> Admission {
    let (admission, cut): (Admission, Connection?) = state.withLock { state in
      guard !state.isStopped else { return (.stopped, nil) }
      var cut: Connection?
      if state.open.count >= connectionsMax {
        cut = state.removeSilent()
        guard cut != nil else { return (.full, nil) }
      }
      state.nextID += 1
      state.open[state.nextID] = Entry(connection: connection, silentSince: state.nextTurn())
      return (.admitted(id: state.nextID), cut)
    }
    cut?.close()
    return admission
  }

  /// Cuts the connection that has been silent for longest, because something else than a place has run out. Returns
  /// whether there was one.
  func cutSilent() -> Bool {
    guard let cut = state.withLock({ $0.removeSilent() }) else { return false }
    cut.close()
    return true
  }

  /// The connection holds so many bytes of a large body. If all hold too many, cuts those that wait for longest for the
  /// rest of a request, or for their peer to read an answer; this one may be among them.
  func hold(_ bytes: Int, for id: UInt64) {
    let cut: [Connection] = state.withLock { state in
      state.setBodyBytes(bytes, for: id)
      return makeRoom(&state)
    }
    for connection in cut { connection.close() }
  }

  /// The connection is about to send an answer of so many bytes; what it held of the request is gone. If all hold too many,
  /// cuts others, as `hold` does.
  func beginSending(_ bytes: Int, for id: UInt64) {
    let cut: [Connection] = state.withLock { state in
      let turn = state.nextTurn()
      state.open[id]?.sendingSince = turn
      state.setBodyBytes(bytes, for: id)
      return makeRoom(&state, butNot: id)
    }
    for connection in cut { connection.close() }
  }

  private func makeRoom(_ state: inout State, butNot kept: UInt64? = nil) -> [Connection] {
    var cut: [Connection] = []
    while state.bodyBytes > bodiesBytesMax, let connection = state.removeHolder(butNot: kept) { cut.append(connection) }
    return cut
  }

  /// The server has a whole request of the connection. Returns false if the connection was cut: then the request must have
  /// no effect.
  func beginAnswer(_ id: UInt64) -> Bool {
    state.withLock { state in
      guard !state.isStopped, state.open[id] != nil else { return false }
      state.open[id]?.silentSince = nil
      return true
    }
  }

  /// The answer has been sent.
  func endAnswer(_ id: UInt64) {
    state.withLock { state in
      let turn = state.nextTurn()
      state.open[id]?.silentSince = turn
      state.open[id]?.sendingSince = nil
      state.setBodyBytes(0, for: id)
    }
  }

  // MARK: Threads

  /// Keeps the thread of a connection until it ends. It may have ended already.
  func keep(_ thread: BlockingThread, of id: UInt64) {
    state.withLock { state in
      if state.ended.remove(id) == nil { state.threads[id] = thread }
    }
  }

  /// The connection has no thread: none could be started.
  func remove(_ id: UInt64) { state.withLock { _ = $0.remove(id) } }

  /// The connection's thread is about to end.
  func end(_ id: UInt64) {
    state.withLock { state in
      _ = state.remove(id)
      if state.threads.removeValue(forKey: id) == nil { state.ended.insert(id) }
    }
  }

  /// Stops the server: no connection is admitted any more, and all are closed.
  func stop(_ failure: String?) {
    let open: [Connection] = state.withLock { state in
      if state.failure == nil, !state.isStopped { state.failure = failure }
      state.isStopped = true
      return state.open.values.map(\.connection)
    }
    for connection in open { connection.close() }
  }

  /// The threads that have not ended.
  var threads: [BlockingThread] { state.withLock { Array($0.threads.values) } }
}
