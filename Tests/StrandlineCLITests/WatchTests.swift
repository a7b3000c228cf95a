// `watch`: what is there, what changes, what a compaction takes; and how it ends. The process with its pipe and its signal
// is the real one.

import Strandline
import StrandlineCLI
import StrandlineHost
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

/// What a command has printed so far, and a wait for more.
private final class Output: Sendable {
  private let text = Mutex("")
  private let signal: AsyncStream<Void>.Continuation
  private let printed: AsyncStream<Void>

  init() { (printed, signal) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1)) }

  func append(_ more: String) {
    text.withLock { $0 += more }
    signal.yield()
  }

  var lines: [String] { text.withLock { $0.split(separator: "\n").map(String.init) } }

  /// Returns when so many lines are there.
  func wait(for count: Int) async {
    while lines.count < count {
      for await _ in printed { break }
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The verb watch` {
  private func machine(_ output: Output) async -> Machine {
    let machine = Machine { output.append($0) }
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    return machine
  }

  @Test func `prints what is there, and then what changes`() async throws {
    let output = Output()
    let machine = await machine(output)
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    async let watching = machine.run("watch", "/A")
    await output.wait(for: 3)
    #expect(
      output.lines == [
        #"{"change":"there","lsn":3,"record":{"fields":{"title":"1"},"recordName":"a","recordType":"Note","zoneName":"Main"}}"#,
        #"{"change":"there","lsn":3,"record":{"fields":{"title":"2"},"recordName":"b","recordType":"Note","zoneName":"Main"}}"#,
        #"{"change":"ready","lsn":3}"#,
      ]
    )
    try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("c"), fields: ["title": "3"])) }
    await output.wait(for: 4)
    #expect(output.lines[3].hasPrefix(#"{"change":"saved","lsn":"#) && output.lines[3].contains(#""recordName":"c""#))
    try store.writeBlocking { try $0.delete(RecordID("a")) }
    await output.wait(for: 5)
    #expect(output.lines[4].hasPrefix(#"{"change":"removed","lsn":"#))
    #expect(output.lines[4].hasSuffix(#""recordName":"a","zoneName":"Main"}"#))
    try JSONPage.check(output.lines.joined(separator: "\n"), of: "watch")
    machine.interrupt()
    let screen = await watching
    #expect(screen.code == .done && screen.err == "")
    try store.closeBlocking()
  }

  @Test func `of a type and a condition prints what begins and ceases to meet it, and nothing twice`() async throws {
    let output = Output()
    let machine = await machine(output)
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    func put(_ name: String, _ title: String, _ other: Int64, type: String = "Note") throws {
      try store.writeBlocking { tx in
        try tx.save(Record(type: type, id: RecordID(name), fields: ["title": .string(title), "n": .int64(other)]))
      }
    }
    async let watching = machine.run("watch", "--type", "Note", "--where", "title = open", "/A")
    await output.wait(for: 1)
    #expect(output.lines.count == 1)
    try put("a", "open", 1)
    await output.wait(for: 2)
    try put("x", "open", 1, type: "Task")
    try put("b", "closed", 1)
    try put("a", "closed", 1)
    await output.wait(for: 3)
    #expect(output.lines[2].contains(#""change":"removed""#) && output.lines[2].contains(#""recordName":"a""#))
    try put("b", "open", 1)
    await output.wait(for: 4)
    // A compaction takes the events away that would say what has changed.
    try put("b", "open", 2)
    try put("b", "open", 3)
    try put("c", "open", 1)
    try store.writeBlocking { try $0.delete(RecordID("b")) }
    try store.compactBlocking()
    try put("d", "open", 1)
    while !output.lines.contains(where: { $0.contains(#""recordName":"d""#) }) { await Task.yield() }
    machine.interrupt()
    #expect(await watching.code == .done)
    // Whatever was seen in between, the last word on each record is right.
    var last: [String: Bool] = [:]
    for line in output.lines.dropFirst() {
      for name in ["a", "b", "c", "d", "x"] where line.contains(#""recordName":"\#(name)""#) {
        last[name] = !line.contains(#""change":"removed""#)
      }
    }
    #expect(last == ["a": false, "b": false, "c": true, "d": true])
    try store.closeBlocking()
  }

  @Test func `ends with what it cannot do`() async throws {
    let output = Output()
    let machine = await machine(output)
    #expect(await machine.run("watch", "/none").code == .noSuchStore)
    #expect(await machine.run("watch", "--where", "title", "/A").code == .usage)
    machine.writesLeft.withLock { $0 = 0 }
    let closed = await machine.run("watch", "/A")
    #expect(closed.code == .inputOutput && closed.err.contains("standard output"))
  }

  private static func command() throws -> String {
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
    return (built + ["strandline"]).joined(separator: "/")
  }

  private func store(_ folder: borrowing TemporaryFolder) throws -> String {
    let path = folder("A")
    let store = try RecordStore.openBlocking(at: path)
    try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("a"), fields: ["title": "1"])) }
    try store.closeBlocking()
    return path
  }

  @Test func `as a process ends with 0 at Ctrl-C`() throws {
    let folder = try TemporaryFolder()
    let path = try store(folder)
    let child = try ChildProcess(try Self.command(), ["watch", path], output: .pipe, errorOutput: .pipe)
    #expect(try child.output?.readLine()?.contains(#""recordName":"a""#) == true)
    #expect(try child.output?.readLine()?.contains(#""change":"ready""#) == true)
    let writer = try RecordStore.openBlocking(at: path)
    try writer.writeBlocking { try $0.save(Record(type: "Note", id: RecordID("b"), fields: ["title": "2"])) }
    #expect(try child.output?.readLine()?.contains(#""recordName":"b""#) == true)
    child.kill(.interrupt)
    #expect(try child.wait() == .exited(0))
    #expect(try child.errorOutput?.readAll() == [])
    try writer.closeBlocking()
  }

  @Test func `as a process ends with 74 when its output is closed, although nothing changes`() throws {
    let folder = try TemporaryFolder()
    let path = try store(folder)
    let script = #"{ "$0" watch "$1" 2>/dev/null; echo $? > "$2"; } | head -n 1"#
    let shell = try ChildProcess("/bin/sh", ["-c", script, try Self.command(), path, folder("code")], output: .pipe)
    #expect(try shell.output?.readLine()?.contains(#""recordName":"a""#) == true)
    #expect(try shell.wait() == .exited(0))
    let file = try POSIXFileSystem().open(folder("code"), .read)
    defer { file.close() }
    #expect(String(decoding: try file.read(at: 0, count: 10), as: UTF8.self) == "74\n")
  }
}
