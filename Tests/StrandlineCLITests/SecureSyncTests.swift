// Goal: TLS costs only those who use it, and they trust whom they name. Method: the real command, as a process of its own, beside
// Python's server over OpenSSL.

#if os(Linux)
  import StrandlineHost
  import StrandlineSystem
  import StrandlineTestSupport
  import Testing

  @Suite(.timeLimit(.minutes(30))) struct `The command and https` {
    private static func command() throws -> String {
      let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
      return (built + ["strandline"]).joined(separator: "/")
    }

    /// Runs a sync over `https:` with these variables.
    private func sync(_ folder: TemporaryFolder, _ port: UInt16, _ variables: String...) throws -> (Int32, String) {
      let words = ["sync", "--url", "https://127.0.0.1:\(port)", "--container", "iCloud.test", folder("A")]
      let child = try ChildProcess(
        "/usr/bin/env", variables + [try Self.command()] + words, output: .null, errorOutput: .pipe)
      let said = String(decoding: try child.errorOutput?.readAll() ?? [], as: UTF8.self)
      guard case .exited(let code) = try child.wait() else { return (-1, said) }
      return (code, said)
    }

    @Test func `a verb without network loads no library for it`() throws {
      let folder = try TemporaryFolder()
      let child = try ChildProcess(
        try Self.command(), ["import", "--acks", "--batch", "1", folder("A"), "-"], input: .pipe, output: .pipe)
      try child.write(Array(#"{"recordName":"n","recordType":"Note","fields":{"text":"x"}}"#.utf8) + [0x0A])
      #expect(try child.output?.readLine()?.hasPrefix("ACK ") == true)
      let cat = try ChildProcess("/bin/cat", ["/proc/\(child.processID)/maps"], output: .pipe)
      let maps = String(decoding: try cat.output?.readAll() ?? [], as: UTF8.self)
      #expect(try cat.wait() == .exited(0))
      child.closeInput()
      #expect(try child.wait() == .exited(0))
      #expect(maps.contains("/strandline") && maps.contains("libc.so"))
      for name in ["libssl", "libcrypto", "libcurl", "FoundationNetworking"] {
        #expect(!maps.contains(name), "\(name)")
      }
    }

    @Test func `a sync trusts the system, or whom the variables name, and asks a refused server once`() throws {
      let own = try Certificates()
      let peer = try TLSPeer(own.make("IP:127.0.0.1"))
      let folder = try TemporaryFolder()
      let refused = try sync(folder, peer.port)
      #expect(refused.0 == 69, "\(refused)")
      #expect(
        refused.1.contains("the server's certificate is not accepted: unable to get local issuer certificate"),
        "\(refused)")
      #expect(refused.1.contains("try: a certificate for this address, of an authority"), "\(refused)")
      // The answers say which connection they came over: nothing was asked twice.
      let byFile = try sync(folder, peer.port, "SSL_CERT_FILE=\(own.authority)")
      #expect(byFile.0 == 69 && byFile.1.contains("that begin with '2 1 None'"), "\(byFile)")
      let byFolder = try sync(folder, peer.port, "SSL_CERT_DIR=\(try own.makeFolder())")
      #expect(byFolder.0 == 69 && byFolder.1.contains("that begin with '3 1 None'"), "\(byFolder)")
    }

    /// The peak of resident memory of a sync that is answered with so many bytes, which the command cannot read.
    private func peak(_ own: Certificates, _ folder: TemporaryFolder, bytes: Int) throws -> Int {
      let peer = try TLSPeer(own.make("IP:127.0.0.1"), largeBytes: bytes)
      let measure = """
        import resource, subprocess, sys
        done = subprocess.run(sys.argv[1:], stderr=subprocess.PIPE)
        print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.stderr)
        """
      let words = ["sync", "--url", "https://127.0.0.1:\(peer.port)", "--container", "iCloud.test", folder("A")]
      let child = try ChildProcess(
        "/usr/bin/env",
        ["SSL_CERT_FILE=\(own.authority)", "python3", "-c", measure, try Self.command()] + words, output: .pipe)
      let said = String(decoding: try child.output?.readAll() ?? [], as: UTF8.self)
      #expect(try child.wait() == .exited(0))
      #expect(said.hasPrefix("69 ") && said.contains("\(bytes) bytes that begin with 'xxxx"), "\(said)")
      return try #require(said.split(separator: " ").dropFirst().first.flatMap { Int($0) }) << 10
    }

    @Test func `a large answer costs its bytes and little more`() throws {
      let own = try Certificates()
      let folder = try TemporaryFolder()
      let small = try peak(own, folder, bytes: 1 << 10)
      let large = try peak(own, folder, bytes: 64 << 20)
      print("memory: \((large - small) >> 20) MiB for an answer of 64 MiB over https")
      #expect(large - small <= (64 + 16) << 20)
    }
  }
#endif
