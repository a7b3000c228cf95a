// Sockets over loopback: sending and receiving, time limits, and closing from another thread.

import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct NetworkTests {
  private func pair() throws -> (Listener, client: Connection, server: Connection) {
    let listener = try Listener.bind(host: "127.0.0.1", port: 0)
    let client = try Connection.connect(host: "127.0.0.1", port: listener.port, timeoutMilliseconds: 5_000)
    let server = try #require(try listener.accept(timeoutMilliseconds: 5_000))
    return (listener, client, server)
  }

  @Test func `bytes are sent and received in both directions`() throws {
    let (listener, client, server) = try pair()
    #expect(listener.port != 0)
    try client.send(Array("hello".utf8))
    #expect(try server.receive(max: 100, timeoutMilliseconds: 5_000) == Array("hello".utf8))
    // More bytes than the buffers of both sides hold, so that the sender must wait for the reader.
    let bytes = SeededRandom(seed: 1).bytes(8 << 20)
    let sender = try BlockingThread.start(name: "sender") {
      try? server.send(bytes, timeoutMilliseconds: 30_000)
      server.shutdown()
    }
    var got: [UInt8] = []
    while true {
      let part = try client.receive(max: 64 << 10, timeoutMilliseconds: 30_000)
      if part.isEmpty { break }
      got += part
    }
    sender.join()
    #expect(got == bytes)
    client.close()
    #expect(server.waitUntilPeerCloses(timeoutMilliseconds: 5_000))
  }

  @Test func `a wait ends at its time limit`() throws {
    let (listener, client, server) = try pair()
    #expect(try listener.accept(timeoutMilliseconds: 1) == nil)
    let error = #expect(throws: SystemError.self) { try client.receive(max: 1, timeoutMilliseconds: 1) }
    #expect(error?.isTimeout == true)
    #expect(!server.waitUntilPeerCloses(timeoutMilliseconds: 1))
    client.close()
    #expect(server.waitUntilPeerCloses(timeoutMilliseconds: 5_000))
  }

  @Test func `closing a socket ends the calls that wait on it`() throws {
    let (listener, client, server) = try pair()
    let accepting = try BlockingThread.start(name: "accept") {
      #expect(throws: SystemError.self) { try listener.accept() }
    }
    let receiving = try BlockingThread.start(name: "receive") {
      // The end of the stream, or the error of a closed socket: depends on when the close happens.
      _ = try? client.receive(max: 1)
    }
    listener.close()
    client.close()
    accepting.join()
    receiving.join()
    #expect(throws: SystemError.self) { try client.send([1]) }
    server.close()
  }

  @Test func `sending to a closed connection throws and raises no signal`() throws {
    let (_, client, server) = try pair()
    server.close()
    #expect(throws: SystemError.self) {
      for _ in 0..<1_000 { try client.send([UInt8](repeating: 1, count: 64 << 10), timeoutMilliseconds: 5_000) }
    }
  }

  @Test func `a connection is quiet until the peer sends or closes`() throws {
    let (_, client, server) = try pair()
    #expect(client.isQuiet && server.isQuiet)
    try server.send([1])
    #expect(!client.isQuiet)
    #expect(try client.receive(max: 10) == [1])
    #expect(client.isQuiet)
    server.close()
    #expect(!client.isQuiet)
    #expect(try client.receive(max: 10).isEmpty)
    #expect(!client.isQuiet)
    client.close()
    #expect(!client.isQuiet)
  }

  @Test func `a sender whose peer does not read hears what the peer sends`() throws {
    let (_, client, server) = try pair()
    let bytes = [UInt8](repeating: 1, count: 64 << 20)
    var sent = 0
    let error = #expect(throws: SystemError.self) {
      while sent < bytes.count { sent += try client.sendPart(bytes, from: sent, timeoutMilliseconds: 1) }
    }
    #expect(error?.isTimeout == true && sent > 0 && sent < bytes.count)
    try server.send([2])
    // The system may have made room meanwhile; when that is full, the peer's byte ends the wait.
    while true {
      let part = try client.sendPart(bytes, from: sent, timeoutMilliseconds: 5_000)
      sent += part
      if part == 0 { break }
    }
    #expect(try client.receive(max: 10) == [2])
  }

  @Test func `a host's name has addresses, and a literal is its own`() throws {
    #expect(try HostName.addresses(of: "127.0.0.1") == ["127.0.0.1"])
    #expect(try HostName.addresses(of: "::1") == ["::1"])
    let local = try HostName.addresses(of: "localhost")
    #expect(!local.isEmpty && Set(local).isSubset(of: ["127.0.0.1", "::1"]))
    #expect(try HostName.addresses(of: "..").isEmpty)
  }

  @Test func `an address in use and an invalid address throw`() throws {
    let listener = try Listener.bind(host: "127.0.0.1", port: 0)
    let error = #expect(throws: SystemError.self) { try Listener.bind(host: "127.0.0.1", port: listener.port) }
    #expect(error?.description.contains("in use") == true)
    #expect(throws: SystemError.self) { try Listener.bind(host: "example.org", port: 0) }
    listener.close()
    #expect(throws: SystemError.self) {
      try Connection.connect(host: "127.0.0.1", port: listener.port, timeoutMilliseconds: 5_000)
    }
  }
}
