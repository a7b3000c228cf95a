// `backup`: whole screens, places that are taken, and a store that another process writes. At the end two real processes
// take turns at a store that one of them suspends.

import Strandline
import StrandlineCLI
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The verb backup` {
  private func machine(_ isErrorTerminal: Bool = false) async -> Machine {
    let machine = Machine(isErrorTerminal: isErrorTerminal)
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    return machine
  }

  @Test func `makes a copy that is a store of its own`() async throws {
    let machine = await machine()
    let screen = await machine.run("backup", "/A", "/B")
    #expect(screen.code == .done && screen.err == "" && isTame(screen.out))
    #expect(screen.out.hasPrefix("/B: ") && screen.out.hasSuffix(" in 1 segment, up to LSN 3\n"), "\(screen.out)")
    #expect(await machine.run("verify", "/B").code == .done)
    #expect(await machine.run("put", "/B", #"{"recordName":"a","fields":{"title":"3"}}"#).code == .done)
    #expect(await machine.run("get", "/B", "a").out.contains("3"))
    #expect(await !machine.run("get", "/A", "a").out.contains("3"))
    let keys = try JSONPage.check(await machine.run("backup", "--json", "/A", "/C").out, of: "backup")
    #expect(keys == ["bytes", "contentBytes", "into", "lastLSN", "segments"])
  }

  @Test func `takes the declared indexes along`() async {
    let machine = await machine()
    _ = await machine.run("index", "/A", "add", "Note", "title")
    let declared = await machine.run("index", "/A")
    #expect(declared.code == .done && declared.out.contains("title"))
    #expect(await machine.run("backup", "/A", "/B").code == .done)
    #expect(await machine.run("index", "/B").out.contains("title"))
  }

  @Test func `refuses a place that is taken, and a store that is not there`() async {
    let machine = await machine()
    #expect(await machine.run("backup", "/A", "/B").code == .done)
    let taken = await machine.run("backup", "/A", "/B")
    #expect(taken.code == .cannotCreate && taken.out == "" && taken.err.contains("is not empty"), "\(taken)")
    #expect(await machine.run("backup", "/A", "/A").code == .cannotCreate)
    #expect(await machine.run("backup", "/A", "/A/inside").code == .cannotCreate)
    #expect(await machine.run("backup", "/A", "/none/B").code != .done)
    #expect(await machine.run("backup", "/none", "/C").code == .noSuchStore)
    #expect(await machine.run("backup", "/A").code == .usage)
    #expect(!machine.disk.directoryPaths.contains { $0.contains("/C") || $0.contains(".init-") })
  }

  @Test func `on a full disk says so and leaves nothing; with room the same command is right`() async throws {
    let machine = await machine()
    // What killed ones have left, with a lock and without.
    try machine.disk.makeDirectory("/B.init-0123456789abcdef")
    try machine.disk.makeDirectory("/B.init-1123456789abcdef")
    try machine.file("/B.init-1123456789abcdef/LOCK", "")
    machine.disk.capacity = machine.disk.usedBytes + 100
    let screen = await machine.run("backup", "/A", "/B")
    #expect(
      screen.code == .inputOutput && screen.err.contains("free space on the disk, then the same command"), "\(screen)")
    #expect(!machine.disk.directoryPaths.contains { $0.hasPrefix("/B") }, "\(screen)")
    machine.disk.capacity = nil
    #expect(await machine.run("backup", "/A", "/B").code == .done)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `Two processes at one store` {
  private static func command() throws -> String {
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
    return (built + ["strandline"]).joined(separator: "/")
  }

  /// The exit code and the output of the command in another process.
  private func run(_ words: String...) throws -> (exit: StrandlineHost.ExitStatus, output: String) {
    let child = try ChildProcess(try Self.command(), words, output: .pipe, errorOutput: .pipe)
    let output = try child.output?.readAll() ?? []
    let errors = try child.errorOutput?.readAll() ?? []
    return (try child.wait(), String(decoding: output + errors, as: UTF8.self))
  }

  private func save(_ store: RecordStore, _ name: String, _ title: String) throws {
    try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID(name), fields: ["title": .string(title)])) }
  }

  @Test func `take turns when one of them suspends it`() throws {
    let folder = try TemporaryFolder()
    let path = folder("A")
    let store = try RecordStore.openBlocking(at: path)
    try save(store, "a", "1")
    let json = #"{"recordName":"a","fields":{"title":"from the other process"}}"#
    // EX_TEMPFAIL: the lock is held.
    #expect(try run("put", path, json).exit == .exited(75))
    try store.suspendBlocking()
    for round in 0..<3 {
      let put = try run("put", path, json)
      #expect(put.exit == .exited(0), "\(put.output)")
      if round == 1 { #expect(try run("compact", path).exit == .exited(0)) }
      try store.resumeBlocking()
      #expect(try store.record(RecordID("a"))?["title"] == "from the other process")
      #expect(try run("put", path, json).exit == .exited(75))
      try save(store, "a", "\(round)")
      try store.suspendBlocking()
    }
    try store.closeBlocking()
    let verified = try run("verify", path)
    #expect(verified.exit == .exited(0), "\(verified.output)")
  }

  /// The other process holds the store when this one wants to go on, and is killed.
  @Test func `do not wait for one that was killed`() throws {
    let folder = try TemporaryFolder()
    let path = folder("A")
    let store = try RecordStore.openBlocking(at: path)
    try save(store, "a", "1")
    try store.suspendBlocking()
    let child = try ChildProcess(try Self.command(), ["import", path, "-"], input: .pipe, output: .pipe)
    // What it has read by then is written, and it waits for more with the lock in its hands.
    try child.write(Array((0..<3_000).map { note("r\($0)", "2") }.joined().utf8))
    while store.recordCount == 1 { try store.refresh() }
    #expect(throws: StrandlineError.self) { try store.resumeBlocking() }
    #expect(store.isSuspended)
    child.kill(.kill)
    #expect(try child.wait() == .signalled(9))
    try store.resumeBlocking()
    #expect(store.recordCount > 1)
    try save(store, "a", "2")
    try store.closeBlocking()
  }

  @Test func `make a backup while the other one writes`() throws {
    let folder = try TemporaryFolder()
    let path = folder("A")
    var options = StoreOptions()
    options.segmentBytesMax = 32_768
    let store = try RecordStore.openBlocking(at: path, options: options)
    for number in 0..<200 { try save(store, "r\(number)", String(repeating: "x", count: 400)) }
    let child = try ChildProcess(try Self.command(), ["backup", "--json", path, folder("B")], output: .pipe)
    var exit: StrandlineHost.ExitStatus?
    var number = 0
    while exit == nil {
      try save(store, "r\(number % 200)", "\(number)")
      if number % 50 == 49 { try store.compactBlocking() }
      number += 1
      exit = try child.waitNoHang()
    }
    let printed = String(decoding: try child.output?.readAll() ?? [], as: UTF8.self)
    #expect(exit == .exited(0), "\(printed)")
    try store.closeBlocking()
    let copy = try RecordStore.openBlocking(at: folder("B"))
    #expect(copy.recordCount == 200 && printed.contains("\"lastLSN\":\(copy.durableLSN)"), "\(printed)")
    try copy.closeBlocking()
    #expect(try run("verify", folder("B")).exit == .exited(0))
  }
}
