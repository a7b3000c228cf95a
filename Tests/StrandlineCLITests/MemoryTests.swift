// Goal: what one transaction of 100,000 records needs of memory is a small multiple of what it writes. Method: the real
// command imports them from a pipe as one batch and waits for more input; meanwhile the system tells its peak. Nothing is
// timed: the acknowledgement says that the batch is durable, and the peak stays what it was.

import StrandlineHost
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The memory of a transaction` {
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
    let peak = try bytes("VmHWM") - bytes("RssFile") - bytes("RssShmem")
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

  #if os(Linux)
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
    func `of 100,000 records is bounded by what it writes`() {}
  #endif
}
