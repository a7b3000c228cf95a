// `bench store` at its smallest sizes: it prints every row in the form that programs read, and leaves no files and no
// processes. The figures depend on the machine; that they are possible ones is tested, the bars are not.

import Foundation
import StrandlineCLI
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct StoreBenchTests {
  private static let works = [
    "store.open.1m", "store.open.crash", "store.open.process", "store.open.process.start", "store.rss.1m",
    "store.rss.1m.file", "store.get", "store.get.real", "store.save400", "store.save400.real", "store.save1",
    "store.update", "store.edit.same", "store.query.indexed", "store.fetch.typed", "store.fetch.scan", "store.list",
    "store.list.prefix", "store.observe", "store.live",
    "store.codable.save", "store.codable.load", "store.compact", "store.compact.appends",
  ]
  /// The rows that start processes, which a simulated disk cannot serve.
  private static let processes: Set = [
    "store.open.crash", "store.open.process", "store.open.process.start", "store.rss.1m", "store.rss.1m.file",
  ]
  private static let memory: Set = ["store.rss.1m", "store.rss.1m.file"]
  private static let withoutSQLite: Set = [
    "store.rss.1m", "store.rss.1m.file", "store.update", "store.observe", "store.live", "store.fetch.typed",
    "store.fetch.scan",
    "store.codable.save", "store.codable.load",
    "store.compact", "store.compact.appends",
  ]

  /// The objects of the output by their rows.
  private func rows(_ output: String) throws -> [String: [String: Any]] {
    try JSONPage.check(output, of: "bench")
    var rows: [String: [String: Any]] = [:]
    for line in output.split(separator: "\n") {
      let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
      let work = try #require(object["work"] as? String)
      #expect(rows.updateValue(object, forKey: work) == nil, "\(work) twice")
    }
    return rows
  }

  /// The path of the command that was built with these tests.
  private func command() throws -> String {
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
    return (built + ["strandline"]).joined(separator: "/")
  }

  /// Runs the command on the real disk.
  private func run(_ words: [String]) throws -> (status: StrandlineHost.ExitStatus, out: String, err: String) {
    let folder = try TemporaryFolder()
    let child = try ChildProcess(try command(), words, output: .pipe, errorOutput: .file(folder("err")))
    defer {
      child.kill(.kill)
      _ = try? child.wait()
    }
    let out = String(decoding: try child.output?.readAll() ?? [], as: UTF8.self)
    let status = try child.wait()
    let file = try POSIXFileSystem().open(folder("err"), .read)
    defer { file.close() }
    return (status, out, String(decoding: try file.read(at: 0, count: 1 << 20), as: UTF8.self))
  }

  @Test func `prints every row at two sizes, with figures that are possible, and leaves nothing`() throws {
    let folder = try TemporaryFolder()
    let disk = POSIXFileSystem()
    try disk.makeDirectory(folder("work"))
    let file = try disk.open(folder("real.jsonl"), .create)
    try file.write((0..<50).flatMap { Array(note("r\($0)", "title \($0)").utf8) }, at: 0)
    file.close()
    let screen = try run([
      "bench", "store", "--records", "500", "--rounds", "1", "--json", "--real", folder("real.jsonl"), "--directory",
      folder("work"), "--plot", folder("plot.svg"),
    ])
    #expect(screen.status == .exited(0), "\(screen.err)")
    let rows = try rows(screen.out)
    let expected = Self.works.filter { Measures.resident != nil || !Self.memory.contains($0) }
    #expect(Set(rows.keys) == Set(expected.flatMap { [$0, $0 + ".x2"] }))
    for (name, row) in rows {
      let ours = try #require(row["ours"] as? Double)
      let work = name.hasSuffix(".x2") ? String(name.dropLast(3)) : name
      // No operation takes a minute, and none is faster than a billion a second.
      let possible: ClosedRange<Double> =
        switch row["unit"] as? String {
        case "1/s": 0.01...1e9
        case "ms": 0.001...60_000
        case "MB/s": 0.001...1e6
        case "B": 100_000...1e10
        default: 0...0
        }
      #expect(possible.contains(ours), "\(row)")
      #expect(row["rounds"] as? Int == 1 && (row["rss_bytes"] as? Int).map { $0 > 0 } == true, "\(row)")
      if SQLitePeer.version == nil || Self.withoutSQLite.contains(work) {
        #expect(row["sqlite"] is NSNull, "\(row)")
      } else if !work.hasPrefix("store.open.process") {
        #expect((row["sqlite"] as? Double).map { $0 > 0 } == true, "\(row)")
      }
    }
    #expect(try disk.list(folder("work")) == [])
    if SQLitePeer.version != nil {
      let svg = try disk.open(folder("plot.svg"), .read)
      defer { svg.close() }
      let text = String(decoding: try svg.read(at: 0, count: 1 << 20), as: UTF8.self)
      #expect(text.hasPrefix("<svg ") && text.hasSuffix("</svg>\n"))
      #expect(text.contains(">store.get<") && text.contains(">store.save400.x2<") && !text.contains(">store.observe<"))
    }
  }

  @Test func `an interrupt ends it, and nothing is left`() throws {
    let folder = try TemporaryFolder()
    let disk = POSIXFileSystem()
    let child = try ChildProcess(
      try command(),
      ["bench", "store", "--records", "10000000", "--directory", folder.path], output: .null, errorOutput: .pipe)
    defer {
      child.kill(.kill)
      _ = try? child.wait()
    }
    // The first thing that it says, when it has its directory and a handler of the signal, and before the first record.
    #expect(try child.errorOutput?.readLine()?.hasPrefix("note: no --real FILE") == true)
    #expect(try disk.list(folder.path).count == 1)
    child.kill(.interrupt)
    #expect(try child.wait() == .exited(ExitCode.tryLater.rawValue))
    #expect(try disk.list(folder.path) == [])
  }

  @Test func `on a simulated disk all rows but those of processes run, and it says which are missing`() async throws {
    let machine = Machine()
    try machine.disk.makeDirectory("/bench")
    let words = ["bench", "store", "--quick", "--rounds", "1", "--records", "100", "--directory", "/bench"]
    let screen = await machine.run(words + ["--json"], input: [])
    #expect(screen.code == .done, "\(screen.err)")
    let left = Set(Self.works).subtracting(Self.processes).subtracting(["store.get.real", "store.save400.real"])
    #expect(Set(try rows(screen.out).keys) == Set(left.flatMap { [$0, $0 + ".x2"] }))
    #expect(screen.err.contains("note: no --real FILE is given: without store.get.real, store.save400.real\n"))
    #expect(screen.err.contains("it could start processes: without store.open.crash, store.open.process, "))
    #expect(screen.err.contains("note: SQLite is not installed, or "))
    #expect(try machine.disk.list("/bench") == [])

    let one = await machine.run(words + ["--only", "store.save1.x2"], input: [])
    #expect(one.out.split(separator: "\n").map { $0.prefix(14) }.contains("store.save1.x2"))
    #expect(one.err.split(separator: "\n").count == 1)

    // The error for a mistyped row lists those that exist.
    let mistyped = await machine.run(words + ["--only", "store.gte"], input: [])
    #expect(mistyped.code == .usage && mistyped.out == "")
    let listed = mistyped.err.matches(of: /store\.[a-z0-9.]*[a-z0-9]/).map { String($0.output) }
    #expect(Set(listed).subtracting(["store.gte"]) == Set(Self.works), "\(mistyped.err)")
  }

  @Test func `an interrupt before the first row cleans up too`() async throws {
    let machine = Machine()
    try machine.disk.makeDirectory("/bench")
    machine.isImpatient.withLock { $0 = true }
    let screen = await machine.run("bench", "store", "--quick", "--directory", "/bench")
    #expect(screen.code == .tryLater)
    #expect(try machine.disk.list("/bench") == [])
  }

  @Test func `an option of another benchmark is refused`() async {
    for words in [
      ["store", "--singles", "5"], ["log", "--records", "500"], ["log", "--real", "x"],
      ["x.jsonl", "--records", "500"], ["x.jsonl", "--resident", "x"], ["store", "--records", "1"],
    ] {
      #expect(await Machine().run(["bench"] + words, input: []).code == .usage, "\(words)")
    }
  }

  @Test func `reads the memory of a store only with its records`() async throws {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let other = await machine.run("bench", "store", "--resident", "/A", "--records", "100")
    #expect(other.code == .dataDamaged && other.err.contains("'/A' has no record 'Main/"), "\(other)")
    #expect(await machine.run("bench", "store", "--resident", "/B").code == .noSuchStore)
  }
}
