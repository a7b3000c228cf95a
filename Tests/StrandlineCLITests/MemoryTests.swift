// Goal: what one transaction of 100,000 records needs of memory is a small multiple of what it writes; and no client makes a
// server need much for few bytes. Method: the real command imports records from a pipe as one batch and waits for more input,
// or serves; meanwhile the system tells its peak. Nothing is timed: the acknowledgement says that the batch is durable, and
// the first byte of an answer that it is made; the peak stays what it was.

import StrandlineHost
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The memory of a process` {
  /// The most bytes of memory for each byte of the log.
  ///
  /// Two of them are the transaction's: its frames, and the bodies that its closure can read again. The rest is what the
  /// store keeps of each record in memory, and how to undo each change until it is durable; without it this would be 3.
  private static let bytesForEachByte = 6

  /// The peak of anonymous memory of an import of so many records in one transaction, and the bytes of its log.
  private func measure(_ count: Int) throws -> (peak: Int, log: Int) {
    let folder = try TemporaryFolder()
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
    let command = (built + ["strandline"]).joined(separator: "/")
    let child = try ChildProcess(
      command, ["import", "--acks", "--batch", "\(count)", folder("A"), "-"], input: .pipe, output: .pipe)
    defer {
      child.kill(.kill)
      _ = try? child.wait()
    }
    let text = String(repeating: "x", count: 100)
    var lines: [UInt8] = []
    for number in 0..<count {
      lines += Array(#"{"recordName":"n\#(number)","recordType":"Note","fields":{"text":{"value":"\#(text)"}}}"#.utf8)
      lines.append(UInt8(ascii: "\n"))
      if lines.count > 60_000 || number == count - 1 {
        try child.write(lines)
        lines = []
      }
    }
    #expect(try child.output?.readLine() == "ACK \(count + 1)")
    let peak = try Self.peak(of: child)
    child.closeInput()
    #expect(try child.wait() == .exited(0))
    let disk = POSIXFileSystem()
    let log = try disk.list(folder("A")).filter { $0.hasSuffix(".seg") }.reduce(0) { sum, name in
      let file = try disk.open(folder("A/\(name)"), .read)
      defer { file.close() }
      return sum + Int(try file.size())
    }
    return (peak, log)
  }

  /// The peak of a process's anonymous memory.
  private static func peak(of child: ChildProcess) throws -> Int {
    let status = try ChildProcess("/bin/cat", ["/proc/\(child.processID)/status"], output: .pipe)
    let words = String(decoding: try status.output?.readAll() ?? [], as: UTF8.self)
    // Each child is waited for: while one that has ended is not, the tests of exit codes see no end of theirs.
    #expect(try status.wait() == .exited(0))
    func bytes(_ key: String) throws -> Int {
      let line = try #require(words.split(separator: "\n").first { $0.hasPrefix("\(key):") })
      return try #require(line.split(whereSeparator: { " \t".contains($0) }).dropFirst().first.flatMap { Int($0) })
        * 1024
    }
    // The peak is of all resident memory; pages of files in it are the command itself.
    return try bytes("VmHWM") - bytes("RssFile") - bytes("RssShmem")
  }

  /// A server in a process of its own.
  private struct Server {
    private let folder: TemporaryFolder
    let child: ChildProcess
    let port: UInt16

    init() throws {
      let folder = try TemporaryFolder()
      self.folder = folder
      let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
      child = try ChildProcess((built + ["strandline"]).joined(separator: "/"), ["serve", folder("S")], output: .pipe)
      let url = try #require(try child.output?.readLine())
      port = try #require(url.split(separator: ":").last.flatMap { UInt16($0) })
    }

    func connect() throws -> Connection {
      try Connection.connect(host: "127.0.0.1", port: port, timeoutMilliseconds: 60_000)
    }

    func send(_ endpoint: String, _ body: String, over connection: Connection) throws {
      let head =
        "POST /database/1/iCloud.test/development/private/\(endpoint) HTTP/1.1\r\nHost: localhost\r\n"
        + "Content-Length: \(body.utf8.count)\r\n\r\n"
      try connection.send(Array((head + body).utf8), timeoutMilliseconds: 60_000)
    }

    /// Makes records of one field, each `bytes` long; returns the beginning of the answer.
    func fill(_ count: Int, _ field: String) throws -> String {
      let operations = (0..<count).map {
        #"{"operationType":"create","record":{"recordName":"r\#($0)","recordType":"T","fields":{"f":\#(field)}}}"#
      }
      let connection = try connect()
      defer { connection.close() }
      let body = #"{"desiredKeys":[],"operations":[\#(operations.joined(separator: ","))]}"#
      try send("records/modify", body, over: connection)
      return String(decoding: try connection.receive(max: 1 << 16, timeoutMilliseconds: 60_000), as: UTF8.self)
    }

    /// Stops it, and looks that it ends well.
    func stop() throws {
      child.kill(.terminate)
      #expect(try child.wait() == .exited(0))
    }

    /// Ends it, whatever has become of the test.
    func end() {
      child.kill(.kill)
      _ = try? child.wait()
    }
  }

  #if os(Linux)
    /// 200 clients that ask for 8 MB each with 300 bytes, and read nothing: without a limit that is 1.6 GB, and was 3.6.
    @Test func `of a server whose answers nobody reads is bounded`() throws {
      let server = try Server()
      defer { server.end() }
      let answer = try server.fill(9, #"{"value":"\#(String(repeating: "x", count: 900_000))"}"#)
      #expect(answer.hasPrefix("HTTP/1.1 200") && !answer.contains("serverErrorCode"), "\(answer)")
      let names = (0..<9).map { #"{"recordName":"r\#($0)"}"# }.joined(separator: ",")
      let deaf = try (0..<200).map { _ in
        let connection = try server.connect()
        try server.send("records/lookup", #"{"records":[\#(names)]}"#, over: connection)
        return connection
      }
      // The first byte says that the answer is made; its end, that it was given up for another one.
      for connection in deaf {
        do { _ = try connection.receive(max: 1, timeoutMilliseconds: 600_000) } catch { #expect(error.isDisconnected) }
      }
      let peak = try Self.peak(of: server.child)
      print("memory: \(peak >> 20) MiB for 200 answers of 8 MB that nobody reads")
      #expect(peak < 600 << 20)
      for connection in deaf { connection.close() }
      try server.stop()
    }

    /// A number takes two bytes of the text, and forty in memory.
    @Test func `of a server that reads a body of 16 MB is bounded`() throws {
      let server = try Server()
      defer { server.end() }
      let numbers = Array(repeating: "1", count: 380_000).joined(separator: ",")
      #expect(try server.fill(1, #"{"value":[1]}"#).hasPrefix("HTTP/1.1 200"))
      let before = try Self.peak(of: server.child)
      let connection = try server.connect()
      let operations = (0..<20).map {
        #"{"operationType":"create","record":{"recordName":"n\#($0)","recordType":"T","fields":{"f":{"value":[\#(numbers)]}}}}"#
      }
      try server.send(
        "records/modify", #"{"desiredKeys":[],"operations":[\#(operations.joined(separator: ","))]}"#, over: connection)
      let answer = String(decoding: try connection.receive(max: 1 << 16, timeoutMilliseconds: 600_000), as: UTF8.self)
      #expect(answer.hasPrefix("HTTP/1.1 200"), "\(answer)")
      let peak = try Self.peak(of: server.child) - before
      print("memory: \(peak >> 20) MiB for a body of 16 MB")
      #expect(peak < 120 << 20)
      connection.close()
      try server.stop()
    }

    @Test func `of 100,000 records is bounded by what it writes`() throws {
      let small = try measure(1_000)
      let large = try measure(100_000)
      let (peak, log) = (large.peak - small.peak, large.log - small.log)
      print("memory: \(peak >> 20) MiB for \(log >> 20) MiB of log, beyond \(small.peak >> 20) MiB for 1,000 records")
      #expect(log > 15 << 20)
      #expect(peak <= Self.bytesForEachByte * log)
    }
  #else
    @Test(.disabled("only Linux tells the peak of another process's anonymous memory"))
    func `of a server whose answers nobody reads is bounded`() {}
    @Test(.disabled("only Linux tells the peak of another process's anonymous memory"))
    func `of a server that reads a body of 16 MB is bounded`() {}
    @Test(.disabled("only Linux tells the peak of another process's anonymous memory"))
    func `of 100,000 records is bounded by what it writes`() {}
  #endif
}
