// Connections that wait for their next request, a few for each server.
//
// A server may close a connection while the next request travels, and then the client cannot tell whether the request was
// carried out. So a connection is handed out only if it is quiet and was used lately. A server that closes it in the same
// moment costs the caller one error, at once.

internal import StrandlineSystem

/// Idle connections by server.
final class ConnectionPool: Sendable {
  private struct Idle {
    var connection: Channel
    var sinceNanoseconds: UInt64
  }
  /// By server; the one that was used last stands last.
  private let idle = OrderedMutex<[HTTPOrigin: [Idle]]>(.connections, [:])

  /// The most idle connections to one server. A credential has one request in flight, so one would do for most apps.
  private static let idleMax = 4
  /// A connection that was idle longer is closed. The servers that are known here wait for 60 s and more.
  private static let idleNanosecondsMax: UInt64 = 30 * 1_000_000_000

  /// Removes and returns the connection to a server that was used last and can be used again, or nil. Closes those that
  /// cannot.
  func take(to server: HTTPOrigin, nowNanoseconds: UInt64) -> Channel? {
    idle.withLock { idle in
      Self.closeOld(&idle, nowNanoseconds)
      while let last = idle[server]?.popLast() {
        // Bytes that no request asked for, or the end of the stream.
        if last.connection.isQuiet { return last.connection }
        last.connection.close()
      }
      idle[server] = nil
      return nil
    }
  }

  /// Keeps a connection whose last answer was read to its end.
  func put(_ connection: Channel, to server: HTTPOrigin, nowNanoseconds: UInt64) {
    idle.withLock { idle in
      Self.closeOld(&idle, nowNanoseconds)
      var all = idle[server] ?? []
      all.append(Idle(connection: connection, sinceNanoseconds: nowNanoseconds))
      if all.count > Self.idleMax { all.removeFirst().connection.close() }
      idle[server] = all
    }
  }

  private static func closeOld(_ idle: inout [HTTPOrigin: [Idle]], _ nowNanoseconds: UInt64) {
    for (server, all) in idle {
      let isOld: (Idle) -> Bool = { nowNanoseconds &- $0.sinceNanoseconds > idleNanosecondsMax }
      guard all.contains(where: isOld) else { continue }
      for old in all where isOld(old) { old.connection.close() }
      let young = all.filter { !isOld($0) }
      idle[server] = young.isEmpty ? nil : young
    }
  }
}
