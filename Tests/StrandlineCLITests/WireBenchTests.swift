// `bench wire` with real processes at its smallest size: it prints every row in the form that programs read, counts the
// requests of an upload, and leaves no files and no processes. The figures depend on the machine.

import Foundation
import StrandlineCLI
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct WireBenchTests {
  private static let processes = [
    "import.real", "export.real", "sync.upload", "sync.upload.requests", "sync.download", "sync.download.first",
    "sync.switches",
  ]

  private static var command: String {
    get throws {
      let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
      return (built + ["strandline"]).joined(separator: "/")
    }
  }

  @Test(arguments: [[], ["--real"]])
  func `the rows of processes, at two sizes`(more: [String]) throws {
    let folder = try TemporaryFolder()
    let disk = POSIXFileSystem()
    try disk.makeDirectory(folder("work"))
    let file = try disk.open(folder("real.jsonl"), .create)
    try file.write((0..<250).flatMap { Array(note("r\($0)", "title \($0)").utf8) }, at: 0)
    file.close()
    let child = try ChildProcess(
      try Self.command,
      ["bench", "wire", "--quick", "--rounds", "1", "--json", "--directory", folder("work")]
        + more.flatMap { [$0, folder("real.jsonl")] },
      output: .pipe, errorOutput: .pipe)
    defer {
      child.kill(.kill)
      _ = try? child.wait()
    }
    let out = String(decoding: try child.output?.readAll() ?? [], as: UTF8.self)
    let words = String(decoding: try child.errorOutput?.readAll() ?? [], as: UTF8.self)
    #expect(try child.wait() == .exited(0), "\(words)")
    #expect(words == "")
    #expect(try disk.list(folder("work")) == [])
    try JSONPage.check(out, of: "bench")
    var rows: [String: [String: Any]] = [:]
    for line in out.split(separator: "\n") {
      let row = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
      rows[try #require(row["work"] as? String)] = row
    }
    let expected = Self.processes + (Measures.resident == nil ? [] : ["sync.rss"])
    let works = expected + ["decode", "encode", "lines"].map { "wire.\($0)" }
    let twice = works + ["server.lookup", "server.modify"]
    #expect(Set(rows.keys) == Set(twice.flatMap { [$0, $0 + ".x2"] } + ["server.rss"]))
    for (work, row) in rows { #expect((row["ours"] as? Double).map { $0 > 0 } == true, "\(work): \(row)") }
    // Besides what carries the records: who is signed in, which zones changed, and the creation of the zone.
    let count = more.isEmpty ? 400 : 250
    for (suffix, factor) in [("", 1), (".x2", 2)] {
      let row = try #require(rows["sync.upload.requests" + suffix])
      let least = Double((count * factor + 199) / 200)
      #expect(row["limit"] as? Double == least && row["ours"] as? Double == least + 3)
      #expect(row["bar"] as? String == "met")
    }
  }

  @Test func `the memory of an upload is told of a store and a server together`() async {
    let machine = Machine()
    for words in [["--resident", "/A"], ["--url", "http://127.0.0.1:1"]] {
      #expect(await machine.run(["bench", "wire"] + words, input: []).code == .usage)
    }
    #expect(await machine.run("bench", "store", "--url", "x").code == .usage)
    let absent = await machine.run("bench", "wire", "--resident", "/A", "--url", "http://127.0.0.1:1")
    #expect(absent.code == .noSuchStore, "\(absent)")
  }

  @Test func `on a simulated disk it says which rows are missing`() async throws {
    let machine = Machine()
    try machine.disk.makeDirectory("/bench")
    let screen = await machine.run("bench", "wire", "--quick", "--only", "sync.", "--directory", "/bench")
    #expect(screen.code == .done)
    #expect(screen.err.contains("could start processes: without sync.upload, sync.upload.requests, sync.download, "))
  }
}
