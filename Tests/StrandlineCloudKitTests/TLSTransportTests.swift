// Goal: what `https:` gives is the server's own answer, whole, or one error that says why, and the process goes on. Method: Python's
// server over OpenSSL with certificates that are wrong in each way, and a relay that ends and damages connections at any byte.

#if !canImport(Darwin)
  import Strandline
  import StrandlineCloudKit
  import StrandlineSimulation
  import StrandlineSystem
  import StrandlineTestSupport
  import Testing

  @Suite(.serialized, .timeLimit(.minutes(30))) struct TLSTransportTests {
    private func transport(
      trusting authority: String?, _ change: (inout SocketLimits) -> Void = { _ in }
    ) -> SocketTransport {
      var limits = SocketLimits()
      change(&limits)
      return SocketTransport(limits, trust: ServerTrust(authorities: authority))
    }

    private func request(_ port: UInt16, _ path: String = "/who", host: String = "127.0.0.1") -> HTTPRequest {
      HTTPRequest(origin: "https://\(host):\(port)", path: path, query: "ckAPIToken=secret", body: Array("{}".utf8))
    }

    private func text(_ transport: SocketTransport, _ request: HTTPRequest) async throws -> String {
      let answer = try await transport.send(request)
      #expect(answer.status == 200)
      return String(decoding: answer.body, as: UTF8.self)
    }

    /// The error of a request that must fail.
    private func failure(
      _ transport: SocketTransport, _ request: HTTPRequest, _ comment: String = "",
      _ location: SourceLocation = #_sourceLocation
    ) async throws -> CloudError? {
      let error = try await refusal {
        let answer = try await transport.send(request)
        Issue.record("answered: \(answer) \(comment)", sourceLocation: location)
      }
      #expect(error?.reason.hasPrefix(request.origin + ": ") == true, "\(comment)", sourceLocation: location)
      #expect(error?.reason.contains("secret") == false, "\(comment)", sourceLocation: location)
      return error
    }

    // MARK: Certificates

    @Test func `a good certificate is for the name, or for the address`() async throws {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("DNS:localhost,IP:127.0.0.1"))
      // The name is told to the server, an address is not.
      #expect(
        try await text(transport(trusting: own.authority), request(peer.port, host: "localhost")) == "1 1 localhost")
      #expect(try await text(transport(trusting: own.authority), request(peer.port)) == "2 1 None")
      // A dot ends a name for a resolver only.
      let connection = try Connection.connect(host: "127.0.0.1", port: peer.port)
      let secure = try SecureConnection(connection, TLSContext(authorities: own.authority), host: "localhost.")
      try secure.shakeHands(timeoutMilliseconds: 60_000)
      secure.close()
    }

    @Test func `a certificate that is not good is one error that says why, and is not asked for again`() async throws {
      let own = try Certificates()
      let other = try Certificates()
      defer { withExtendedLifetime(other) {} }
      let both = "DNS:localhost,IP:127.0.0.1"
      let cases: [(pair: Certificates.Pair, host: String, authority: String?, words: String)] = [
        (try own.make(both, days: -1), "localhost", own.authority, "certificate has expired"),
        (try own.make("DNS:elsewhere.test"), "localhost", own.authority, "ostname mismatch"),
        (try own.make("DNS:localhost"), "127.0.0.1", own.authority, "IP address mismatch"),
        (try own.make("DNS:localhost,IP:127.0.0.2"), "127.0.0.1", own.authority, "IP address mismatch"),
        // A name is no address, though its text is that of one.
        (try own.make("DNS:127.0.0.1"), "127.0.0.1", own.authority, "IP address mismatch"),
        (try own.make("IP:127.0.0.1"), "localhost", own.authority, "ostname mismatch"),
        // A subject is no name of a host.
        (try own.make(nil, subject: "localhost"), "localhost", own.authority, "ostname mismatch"),
        (try own.make("DNS:local*"), "localhost", own.authority, "ostname mismatch"),
        (try own.makeSelfSigned(both), "localhost", own.authority, "self"),
        (try own.make(both), "localhost", other.authority, "unable to get local issuer certificate"),
        // The system has never heard of it.
        (try own.make(both), "localhost", nil, "unable to get local issuer certificate"),
      ]
      for (pair, host, authority, words) in cases {
        let peer = try TLSPeer(pair)
        let relay = try Relay(to: peer.port) { _ in Relay.Fate() }
        defer { relay.stop() }
        let error = try await failure(transport(trusting: authority), request(relay.port, host: host), words)
        #expect(error?.code == .noSecureConnection, "\(words)")
        #expect(error?.reason.contains("the server's certificate is not accepted: ") == true, "\(words)")
        #expect(error?.reason.contains(words) == true, "\(error?.reason ?? "")")
        #expect(relay.accepts == 1, "\(words)")
      }
      // The authority's own certificate is one that is trusted, and for another name.
      #expect(CloudError(.noSecureConnection).meaning.request == .halt)
    }

    @Test func `TLS 1_2 and 1_3 are spoken, and 1_1 is not`() async throws {
      let own = try Certificates()
      let pair = try own.make("IP:127.0.0.1")
      for version in ["1.2", "1.3"] {
        let peer = try TLSPeer(pair, version: version)
        let transport = transport(trusting: own.authority)
        for number in 1...3 {
          #expect(try await text(transport, request(peer.port)) == "1 \(number) None", "\(version)")
        }
      }
      let old = try TLSPeer(pair, version: "1.1")
      let error = try await failure(transport(trusting: own.authority), request(old.port))
      #expect(error?.code == .networkError)
      #expect(error?.reason.contains("the TLS connection failed: ") == true, "\(error?.reason ?? "")")
      #expect(error?.reason.contains("version") == true, "\(error?.reason ?? "")")
    }

    @Test func `a machine without the library, or without the authorities, says what is missing`() async throws {
      func words(_ make: () throws(TLSError) -> TLSContext) -> String {
        do throws(TLSError) { _ = try make() } catch {
          if case .unavailable(let words) = error { return words }
          return "\(error)"
        }
        return ""
      }
      let absent = words { () throws(TLSError) in try TLSContext(libraries: ["libssl.so.absent", "libssl.so.none"]) }
      #expect(absent.hasPrefix("no OpenSSL was found, whose library is libssl.so.absent or libssl.so.none; install it"))
      // A library that is none of OpenSSL's, which every process here has loaded.
      let other = words { () throws(TLSError) in try TLSContext(libraries: ["libm.so.6"]) }
      #expect(other.contains("libm.so.6 has no function OPENSSL_init_crypto"), "\(other)")
      let unreadable = words { () throws(TLSError) in try TLSContext(authorities: "/no/such/file.pem") }
      #expect(unreadable == "the authorities in '/no/such/file.pem' cannot be used: no such file or directory")
      let own = try Certificates()
      let key = try own.make("IP:127.0.0.1").key
      let none = words { () throws(TLSError) in try TLSContext(authorities: key) }
      #expect(none.hasPrefix("the authorities in '\(key)' cannot be used: ") && none.contains("certificate"), "\(none)")
      let peer = try ScriptedServer { _ in [.waitForClose] }
      defer { peer.stop() }
      let origin = peer.url.replacing("http:", with: "https:")
      let error = try await failure(transport(trusting: "/no/such/file.pem"), HTTPRequest(origin: origin, path: "/"))
      #expect(error?.code == .noSecureConnection)
      while peer.ended < 1 { await Task.yield() }
    }

    // MARK: Answers

    @Test func `requests one after another share a connection, until the server ends it`() async throws {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("IP:127.0.0.1"))
      let relay = try Relay(to: peer.port) { _ in Relay.Fate() }
      defer { relay.stop() }
      let transport = transport(trusting: own.authority)
      for number in 1...20 { #expect(try await text(transport, request(relay.port)) == "1 \(number) None") }
      #expect(try await text(transport, request(relay.port, "/last")) == "1 21 None")
      for number in 1...20 {
        while relay.ended < number { await Task.yield() }
        #expect(try await text(transport, request(relay.port, "/last")) == "\(number + 1) 1 None")
      }
      #expect(relay.accepts == 21)
    }

    @Test func `requests at the same time have connections of their own`() async throws {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("IP:127.0.0.1"))
      let transport = transport(trusting: own.authority)
      for _ in 0..<4 {
        try await withThrowingTaskGroup(of: String.self) { group in
          for _ in 0..<8 { group.addTask { try await text(transport, request(peer.port)) } }
          for try await text in group { #expect(text.hasSuffix(" None")) }
        }
      }
    }

    @Test func `an answer without a length is whole only if TLS ends it`() async throws {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("IP:127.0.0.1"))
      let transport = transport(trusting: own.authority)
      #expect(try await text(transport, request(peer.port, "/open")) == "whole")
      let cut = try await failure(transport, request(peer.port, "/rude/open"))
      #expect(cut?.code == .networkError)
      #expect(
        cut?.reason.hasSuffix("the connection ended without the end that TLS knows, so the answer may be cut") == true)
      for path in ["/short", "/rude/short"] {
        let short = try await failure(transport, request(peer.port, path))
        #expect(
          short?.code == .networkError && short?.reason.hasSuffix("the connection ended after 4 of 9 bytes") == true)
      }
    }

    @Test func `an end within the header, with TLS's own end and without, is one error`() async throws {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("IP:127.0.0.1"))
      let transport = transport(trusting: own.authority)
      let whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".utf8.count
      for path in ["/header", "/rude/header"] {
        for place in 0..<whole {
          let error = try await failure(transport, request(peer.port, "\(path)/\(place)"), "\(path) \(place)")
          #expect(error?.code == .networkError, "\(path) \(place)")
        }
        // The whole answer has its own end.
        #expect(try await text(transport, request(peer.port, "\(path)/\(whole)")) == "{}")
      }
    }

    @Test func `a password that is asked for is a refusal, at once`() async throws {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("IP:127.0.0.1"))
      let transport = transport(trusting: own.authority)
      #expect(try await transport.send(request(peer.port, "/basic")).status == 401)
      #expect(try await text(transport, request(peer.port)) == "1 2 None")
      let answer = try await transport.send(request(peer.port, "/basic"))
      let client = WebServicesDatabase.over(ScriptedTransport { _, _ in answer })
      let error = try await refusal { _ = try await client.zones() }
      #expect(error?.code == .unexpectedServerResponse && error?.httpStatus == 401)
    }

    @Test func `large requests and answers come as they are, and an answer has its limit`() async throws {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("IP:127.0.0.1"))
      let transport = transport(trusting: own.authority)
      let large = [UInt8](repeating: 0x20, count: 8 << 20)
      var upload = request(peer.port)
      upload.body = large
      #expect(try await text(transport, upload) == "1 1 None")
      let answer = try await transport.send(request(peer.port, "/large/\(64 << 20)"))
      #expect(answer.body.count == 64 << 20 && answer.body.allSatisfy { $0 == UInt8(ascii: "x") })
      #expect(try await text(transport, request(peer.port)) == "1 3 None")
      await #expect(throws: AnswerTooLarge.self) {
        _ = try await transport.send(request(peer.port, "/large/\(65 << 20)"))
      }
    }

    // MARK: Broken connections

    /// Two requests over a relay, and how many bytes they took each way.
    private func measure(_ peer: TLSPeer, _ transport: SocketTransport) async throws -> (toServer: Int, toClient: Int) {
      let relay = try Relay(to: peer.port) { _ in Relay.Fate() }
      defer { relay.stop() }
      #expect(try await text(transport, request(relay.port)).hasSuffix(" 1 None"))
      return relay.passed(0)
    }

    @Test(arguments: ["1.2", "1.3"])
    func `a connection that ends at any byte of the handshake or the exchange is one error`(version: String)
      async throws
    {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("IP:127.0.0.1"), version: version)
      let all = try await measure(peer, transport(trusting: own.authority))
      #expect(all.toServer > 300 && all.toClient > 1_000)
      for (way, count) in [(Relay.Way.toClient, all.toClient), (.toServer, all.toServer)] {
        // The last record may be a few bytes shorter: the answer has the connection's number.
        for place in Campaign.places(0..<count - 8, version == "1.2" ? 1 : 0) {
          let relay = try Relay(to: peer.port) { _ in Relay.Fate(end: (way, place)) }
          let error = try await failure(
            transport(trusting: own.authority), request(relay.port), "\(way), \(place) of \(count) bytes")
          #expect(error?.code == .networkError, "\(way), \(place) of \(count) bytes: \(error?.reason ?? "")")
          #expect(relay.accepts == 1, "\(way), \(place) of \(count) bytes")
          relay.stop()
        }
      }
    }

    @Test func `bytes that change on the way give no other answer`() async throws {
      let own = try Certificates()
      let pair = try own.make("IP:127.0.0.1")
      let peers = [try TLSPeer(pair, version: "1.2"), try TLSPeer(pair)]
      // A length that grew makes both sides wait for bytes that never come.
      let impatient = { (limits: inout SocketLimits) in
        (limits.connectMilliseconds, limits.answerMilliseconds, limits.idleMilliseconds) = (300, 300, 300)
      }
      var failures = 0
      let seeds = Campaign.seeds(1...600)
      for seed in seeds {
        let random = SeededRandom(seed: seed)
        let flips = (0..<Int(random.next() % 3) + 1).map { _ in
          let way = random.next() % 2 == 0 ? Relay.Way.toClient : .toServer
          let place = Int(random.next() % (way == .toClient ? 2_600 : 700))
          return (way: way, place: place, bits: UInt8(1) << UInt8(random.next() % 8))
        }
        let relay = try Relay(to: peers[Int(seed % 2)].port) { _ in Relay.Fate(flips: flips) }
        defer { relay.stop() }
        do {
          // The places were behind the last byte.
          let answer = try await text(transport(trusting: own.authority, impatient), request(relay.port))
          #expect(answer.hasSuffix(" 1 None"), "seed \(seed): \(flips)")
        } catch let error as CloudError {
          failures += 1
          #expect([.networkError, .noSecureConnection].contains(error.code), "seed \(seed): \(flips): \(error)")
        }
      }
      #expect(failures > seeds.count / 3)
    }

    @Test func `a server that is no server of TLS is one error`() async throws {
      for words in [
        "HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.9\r\n", "\u{15}\u{3}\u{1}\u{0}\u{2}\u{2}\u{28}",
      ] {
        let server = try ScriptedServer { _ in [.read(1), .send(Array(words.utf8)), .waitForClose] }
        defer { server.stop() }
        let origin = server.url.replacing("http:", with: "https:")
        let error = try await failure(transport(trusting: nil), HTTPRequest(origin: origin, path: "/"), words)
        #expect(
          error?.code == .networkError && error?.reason.contains("the TLS connection failed: ") == true, "\(words)")
        #expect(server.accepts == 1)
      }
    }

    // MARK: Time and cancellation

    @Test func `a handshake has its limit, and can be cancelled`() async throws {
      let server = try ScriptedServer { _ in [.waitForClose] }
      defer { server.stop() }
      let request = HTTPRequest(origin: server.url.replacing("http:", with: "https:"), path: "/")
      let error = try await failure(transport(trusting: nil) { $0.connectMilliseconds = 50 }, request)
      #expect(error?.code == .networkError && error?.reason.hasSuffix("timed out: no TLS session within 50 ms") == true)
      let whole = try await failure(transport(trusting: nil) { $0.totalMilliseconds = 50 }, request)
      #expect(whole?.reason.hasSuffix("timed out: no whole answer within 50 ms") == true)
      while server.ended < 2 { await Task.yield() }
      let waiting = transport(trusting: nil)
      for round in 3...22 {
        let task = Task { try await waiting.send(request) }
        while server.accepts < round { await Task.yield() }
        task.cancel()
        await #expect(throws: CancellationError.self) { _ = try await task.value }
        while server.ended < round { await Task.yield() }
      }
    }
  }
#endif
