// A connection whose bytes TLS encrypts: the calls of `Connection`, with the same time limits.
//
// One thread at a time reads and sends; any thread may close. A lock holds the session, and is held while the thread waits on the
// socket, so that `close` must not need it: it shuts the socket down, which ends the wait.

#if !canImport(Darwin)

  /// A connected socket under TLS.
  package final class SecureConnection: Sendable {
    private struct State: ~Copyable {
      var session: TLSSession
      /// Decrypted bytes that came while the connection sent.
      var arrived: [UInt8] = []
      /// The peer has ended the session, or the socket has ended without that.
      var end: End?
      /// How many bytes of the message `outgoing` stands for; those are sent when it has left.
      var inFlight = 0
    }
    private enum End { case polite, cut }

    private let connection: Connection
    private let state: OrderedMutex<State>
    private static let pieceBytes = 64 << 10
    private static let ticketReadsMax = 4

    /// Takes a connection over, before its first byte.
    ///
    /// - Parameters:
    ///   - host: the server's name, or its literal address, which its certificate must be for.
    package init(_ connection: Connection, _ context: TLSContext, host: String) throws(TLSError) {
      self.connection = connection
      state = OrderedMutex(State(session: try TLSSession(context, host: host)))
    }

    /// Makes the session with the server. Nothing can be sent before.
    ///
    /// - Parameter timeoutMilliseconds: for all of it.
    /// - Throws: `TLSError.untrusted` if the certificate is not accepted; `.failed`; `.cut`; `.system`, as `Connection` does.
    package func shakeHands(timeoutMilliseconds: Int64) throws(TLSError) {
      try state.withLock { (state) throws(TLSError) in
        let time = Remaining(timeoutMilliseconds)
        while true {
          let step: TLSSession.Step
          do throws(TLSError) { step = try state.session.shakeHands() } catch {
            // The peer is told why, if it still listens.
            putAtOnce(&state)
            throw error
          }
          try putAll(&state, time)
          switch step {
          case .done: return
          case .ended: throw .cut
          case .waits: try fill(&state, time)
          }
          if state.end != nil { throw .cut }
        }
      }
    }

    /// Waits for bytes and returns those that have arrived, at most `max`. Returns an empty array when the peer has ended the
    /// session.
    ///
    /// - Throws: `TLSError.cut` if the connection ended without that; `.failed`; `.system`, as `Connection.receive` does.
    package func receive(max: Int, timeoutMilliseconds: Int64) throws(TLSError) -> [UInt8] {
      try state.withLock { (state) throws(TLSError) in
        let time = Remaining(timeoutMilliseconds)
        while true {
          if !state.arrived.isEmpty {
            let bytes = state.arrived
            state.arrived = []
            return bytes
          }
          switch state.end {
          case .polite: return []
          case .cut:
            // What came before the end may lie in the session still.
            state.arrived = try decrypt(&state, max: max)
            if state.arrived.isEmpty, case .cut? = state.end { throw .cut }
            continue
          case nil: break
          }
          state.arrived = try decrypt(&state, max: max)
          if state.arrived.isEmpty, state.end == nil {
            putAtOnce(&state)
            try fill(&state, time)
          }
        }
      }
    }

    /// Sends the next bytes, as `Connection.sendPart` does: returns how many have left, or 0 if the peer has sent something or has
    /// ended the connection, which `receive` then returns.
    ///
    /// Bytes leave in records, and a peer can read none of a record that it has not got whole. The time limit is for a record.
    package func sendPart(
      _ bytes: [UInt8], from start: Int, timeoutMilliseconds: Int64
    ) throws(TLSError) -> Int {
      try state.withLock { (state) throws(TLSError) in
        if state.inFlight == 0 { state.inFlight = try state.session.write(bytes, from: start) }
        let time = Remaining(timeoutMilliseconds)
        while !state.session.outgoing.isEmpty {
          if try put(&state, time.left()) > 0 { continue }
          try fill(&state, nil)
          if state.end == nil { state.arrived += try decrypt(&state, max: Self.pieceBytes) }
          if !state.arrived.isEmpty || state.end != nil { return 0 }
        }
        defer { state.inFlight = 0 }
        return state.inFlight
      }
    }

    /// Whether the connection is open and the peer has sent nothing that concerns a caller. A ticket for a later session, which
    /// servers send at any time, does not.
    package var isQuiet: Bool {
      state.withLock { state in
        do throws(TLSError) {
          // A peer that goes on sending what concerns nobody is not waited for.
          for _ in 0..<Self.ticketReadsMax where !connection.isQuiet {
            try fill(&state, nil)
            if state.end == nil { state.arrived = try decrypt(&state, max: Self.pieceBytes) }
            guard state.end == nil, state.arrived.isEmpty else { return false }
          }
          return state.end == nil && state.arrived.isEmpty && connection.isQuiet
        } catch {
          return false
        }
      }
    }

    /// Ends the connection; a blocked call on another thread ends. The peer is told that the session is over if no other thread
    /// uses it and the socket takes these bytes at once.
    package func close() {
      _ = state.withLockIfAvailable { state in
        // Behind half a record they would be garbage.
        guard state.session.outgoing.isEmpty, state.end == nil else { return }
        state.session.end()
        putAtOnce(&state)
      }
      connection.close()
    }

    // MARK: The socket

    /// The rest of a time limit. Checked at each wait, because a peer may keep on sending records that carry nothing.
    private struct Remaining {
      private let end: UInt64
      init(_ milliseconds: Int64) {
        end = RealClock().monotonicNanoseconds() &+ UInt64(max(milliseconds, 0)) * 1_000_000
      }
      func left() throws(TLSError) -> Int64 {
        let now = RealClock().monotonicNanoseconds()
        guard now < end else { throw .system(.timedOut("recv", "a server under TLS")) }
        return Int64((end - now + 999_999) / 1_000_000)
      }
    }

    private func decrypt(_ state: inout State, max: Int) throws(TLSError) -> [UInt8] {
      let (bytes, next) = try state.session.read(max: max)
      if next == .ended { state.end = .polite }
      return bytes
    }

    /// Waits for bytes of the peer and hands them to the session, or notes that the connection has ended.
    ///
    /// - Parameter time: how long; nil if there are bytes.
    private func fill(_ state: inout State, _ time: Remaining?) throws(TLSError) {
      let wait = try time?.left() ?? 0
      let bytes: [UInt8]
      do throws(SystemError) {
        bytes = try connection.receive(max: Self.pieceBytes, timeoutMilliseconds: wait)
      } catch {
        throw .system(error)
      }
      if bytes.isEmpty { state.end = .cut } else { try state.session.feed(bytes) }
    }

    /// Sends what the session has to send, as far as the socket takes it; 0 if the peer has sent something meanwhile.
    private func put(_ state: inout State, _ timeoutMilliseconds: Int64) throws(TLSError) -> Int {
      do throws(SystemError) {
        let sent = try connection.sendPart(state.session.outgoing, from: 0, timeoutMilliseconds: timeoutMilliseconds)
        state.session.sent(sent)
        return sent
      } catch {
        throw .system(error)
      }
    }

    /// Sends all of it, whatever the peer sends meanwhile: the messages of a handshake are short.
    private func putAll(_ state: inout State, _ time: Remaining) throws(TLSError) {
      while !state.session.outgoing.isEmpty {
        if try put(&state, time.left()) == 0 { try fill(&state, nil) }
        if state.end != nil { throw .cut }
      }
    }

    /// Sends what the socket takes at once. A failure is that of the next call.
    private func putAtOnce(_ state: inout State) {
      guard !state.session.outgoing.isEmpty else { return }
      _ = try? put(&state, 0)
    }
  }
#endif
