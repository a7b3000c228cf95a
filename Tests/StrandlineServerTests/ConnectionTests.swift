// Goal: peers that are silent, slow or deaf, however many, lock nobody out, and no connection is cut while its request is
// answered. Method: as many real sockets on loopback as the server has places. Nothing waits for a time that has to pass,
// but for the peer that reads nothing.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct ConnectionTests {
  typealias Raw = HTTPTests.Raw

  private static let list =
    "POST \(HTTPTests.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"

  /// Sends a request and reads its answer, which fits into one piece.
  private func ask(_ connection: Connection) throws -> Bool {
    try connection.send(Array(Self.list.utf8), timeoutMilliseconds: Raw.patience)
    let answer = try connection.receive(max: 65536, timeoutMilliseconds: Raw.patience)
    return answer.starts(with: Array("HTTP/1.1 200".utf8))
  }

  /// Whether the server has cut a connection. Waits for it.
  private func isCut(_ connection: Connection) -> Bool {
    do {
      return try connection.receive(max: 1, timeoutMilliseconds: Raw.patience).isEmpty
    } catch {
      return error.isDisconnected
    }
  }

  @Test func `silent and slow connections in all places make room for a client, the longest silent first`() throws {
    DescriptorLimit.raise(to: 4_096)
    // None ends by itself while a busy machine runs this test.
    var timeouts = HTTPTimeouts()
    timeouts.idle = 600_000
    timeouts.header = 600_000
    timeouts.body = 600_000
    let raw = try Raw(ServerLimits(), timeouts)
    let places = ServerLimits().connectionsMax
    #expect(places == 500)
    let active = try raw.connect()
    #expect(try ask(active))
    // Silent; within a header; within a body.
    let beginnings = ["", "GET / HTT", String(Self.list.dropLast())]
    var held: [Connection] = []
    for number in 0..<places - 1 {
      let connection = try raw.connect()
      try connection.send(Array(beginnings[number % 3].utf8), timeoutMilliseconds: Raw.patience)
      held.append(connection)
    }
    // From now on each of the others has been silent for longer.
    #expect(try ask(active))
    for round in 0..<10 {
      // A byte a second is no request.
      for (number, connection) in held.enumerated() where number > round && number < places - 1 && number % 3 == 1 {
        try connection.send([0x50], timeoutMilliseconds: Raw.patience)
      }
      let client = try raw.connect()
      #expect(try ask(client), "\(round)")
      #expect(isCut(held[round]), "\(round)")
      held.append(client)
    }
    #expect(held[100].isQuiet)
    #expect(try ask(active))
    for connection in held { connection.close() }
  }

  @Test func `a connection whose request is being answered is not cut, and a new one is told to come back`()
    async throws
  {
    var limits = ServerLimits()
    limits.connectionsMax = 2
    let raw = try Raw(limits)
    let busy = try [raw.connect(), raw.connect()]
    var faults = ServerFaults()
    faults.dropAnswer = 1
    for (number, connection) in busy.enumerated() {
      raw.server.cloud.setFaults(faults)
      let body = "{\"zoneID\":{\"zoneName\":\"_defaultZone\"},\"operations\":[]}"
      let head = "POST \(HTTPTests.base)/records/modify HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
      try connection.send(
        Array("\(head)\(body.utf8.count)\r\n\r\n\(body)".utf8), timeoutMilliseconds: Raw.patience)
      while raw.server.cloud.statistics.droppedAnswers <= number { await Task.yield() }
    }
    let refused = try raw.talk("", hangUp: false)
    #expect(refused.hasPrefix("HTTP/1.1 503 ") && refused.contains("\r\nRetry-After: 1\r\n"))
    for connection in busy { #expect(connection.isQuiet) }
    // The optimizer may release an array after its last use, and its sockets with it: that has to be after the count.
    withExtendedLifetime(busy) {}
  }

  @Test func `a peer that reads nothing ends by itself, and others are served meanwhile`() throws {
    var timeouts = HTTPTimeouts()
    timeouts.stall = 200
    let raw = try Raw(ServerLimits(), timeouts)
    let deaf = try raw.connect()
    // Each answer is 4 times as long as its request, so that the server is the first that cannot send.
    let names = (0..<200).map { "{\"recordName\":\"r\($0)\"}" }.joined(separator: ",")
    let body = "{\"zoneID\":{\"zoneName\":\"_defaultZone\"},\"records\":[\(names)]}"
    let request = Array(
      ("POST \(HTTPTests.base)/records/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
        + body).utf8)
    var sent = 0
    do {
      while true {
        try deaf.send(request, timeoutMilliseconds: 2_000)
        sent += 1
        if sent.isMultiple(of: 100) {
          let isServed = try ask(raw.connect())
          #expect(isServed)
        }
      }
    } catch let error as SystemError {
      // The server has cut the connection, or reads no more of it.
      #expect(error.isDisconnected || error.isTimeout)
    }
    #expect(sent > 100)
    // What the server has sent is there, and then the end, before all was answered.
    var bytes: [UInt8] = []
    do {
      while true {
        let part = try deaf.receive(max: 1 << 20, timeoutMilliseconds: Raw.patience)
        if part.isEmpty { break }
        bytes += part
      }
    } catch { #expect(error.isDisconnected) }
    #expect(String(decoding: bytes, as: UTF8.self).ranges(of: "HTTP/1.1 200").count < sent)
    #expect(try ask(raw.connect()))
  }

  @Test func `large bodies that do not end make room for one that does`() throws {
    var limits = ServerLimits()
    limits.bodiesBytesMax = 4 << 20
    let raw = try Raw(limits)
    let large = 3 << 20
    let head = "POST \(HTTPTests.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(large)\r\n\r\n"
    let body = [UInt8](repeating: 0x20, count: large - 2) + Array("{}".utf8)
    let small = try raw.connect()
    #expect(try ask(small))
    var before: Connection?
    for _ in 0..<5 {
      let unfinished = try raw.connect()
      try unfinished.send(Array(head.utf8) + body.dropLast(), timeoutMilliseconds: Raw.patience)
      let client = try raw.connect()
      try client.send(Array(head.utf8) + body, timeoutMilliseconds: Raw.patience)
      let answer = try client.receive(max: 65536, timeoutMilliseconds: Raw.patience)
      #expect(answer.starts(with: Array("HTTP/1.1 200".utf8)))
      if let before { #expect(isCut(before)) }
      before = unfinished
      client.close()
    }
    // A connection that holds no large body is not cut.
    #expect(try ask(small))
  }

  @Test func `answers that nobody reads make room for those of others, the longest unread first`() async throws {
    var limits = ServerLimits()
    limits.bodiesBytesMax = 50 << 20
    limits.answerBytesMax = 16 << 20
    var timeouts = HTTPTimeouts()
    timeouts.stall = 600_000
    timeouts.send = 600_000
    let raw = try Raw(limits, timeouts)
    let text = FieldValue.string(String(repeating: "x", count: 900_000))
    let client = raw.server.cloud.client()
    for number in 0..<15 {
      let save = CloudOperation(.create, name: "r\(number)", type: "Note", fields: ["t": text])
      #expect(try await client.one(save, in: ZoneID(Names.defaultZone))?.record != nil)
    }
    let names = (0..<15).map { "{\"recordName\":\"r\($0)\"}" }.joined(separator: ",")
    let body = "{\"records\":[\(names)]}"
    let request = Array(
      ("POST \(HTTPTests.base)/records/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
        + body).utf8)
    // Each answer has 13.5 MB, more than sockets keep, and takes somewhat more of memory, so that three fit. Its first byte says that it is being sent.
    var deaf: [Connection] = []
    for _ in 0..<5 {
      let connection = try raw.connect()
      try connection.send(request, timeoutMilliseconds: Raw.patience)
      #expect(try connection.receive(max: 1, timeoutMilliseconds: Raw.patience) == Array("H".utf8))
      deaf.append(connection)
    }
    func bytes(_ connection: Connection) -> Int {
      var count = 0
      do {
        while count < 15 * 900_000 {
          let part = try connection.receive(max: 1 << 20, timeoutMilliseconds: Raw.patience)
          if part.isEmpty { break }
          count += part.count
        }
      } catch { #expect(error.isDisconnected) }
      return count
    }
    let counts = deaf.map(bytes)
    #expect(counts.map { $0 >= 15 * 900_000 } == [false, false, true, true, true], "\(counts)")
    #expect(try ask(raw.connect()))
  }
}
