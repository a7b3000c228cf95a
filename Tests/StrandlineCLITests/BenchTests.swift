// `bench log` at its smallest sizes: it prints every row in the form that programs read, and leaves no files. The figures
// depend on the machine and are not tested.

import Foundation
import StrandlineCLI
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct BenchTests {
  private func machine() throws -> Machine {
    let machine = Machine()
    try machine.disk.makeDirectory("/bench")
    return machine
  }

  private static let quick = ["bench", "log", "--quick", "--rounds", "1", "--directory", "/bench"]

  @Test func `prints an object a row, at two sizes, and leaves nothing`() async throws {
    let machine = try machine()
    let screen = await machine.run(Self.quick + ["--json"], input: [])
    #expect(screen.code == .done, "\(screen.err)")
    var works: Set<String> = []
    for line in screen.out.split(separator: "\n") {
      let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
      let work = try #require(object["work"] as? String)
      works.insert(work)
      let needed: Set = ["work", "unit", "ours", "sqlite", "limit", "rss_bytes"]
      #expect(needed.isSubset(of: object.keys), "\(work)")
      #expect(object.keys.allSatisfy { needed.union(["bar", "max", "p50", "p99", "rounds"]).contains($0) }, "\(work)")
      #expect(["1/s", "ms", "MB/s", "B", "count"].contains(object["unit"] as? String))
      // SQLite cannot use a disk in memory.
      #expect(object["sqlite"] is NSNull)
      #expect((object["ours"] as? Double).map { $0 >= 0 } == true)
    }
    for work in [
      "log.durable.100", "log.durable.1k", "log.durable.100.async", "log.group64.100", "log.bulk400.100",
      "log.verify.200", "log.open.clean", "log.open.crash", "log.syncs", "log.syncs.reading",
    ] {
      #expect(works.contains(work) && works.contains(work + ".x2"), "\(work)")
    }
    #expect(try machine.disk.list("/bench") == [])

    // The error for a mistyped row lists those that exist.
    let mistyped = await machine.run(Self.quick + ["--only", "log.durabel"], input: [])
    #expect(mistyped.code == .usage && mistyped.out == "")
    let listed = Set(mistyped.err.matches(of: /log\.[a-z0-9.]*[a-z0-9]/).map { String($0.output) })
    #expect(listed.subtracting(["log.durabel"]) == works.filter { !$0.hasSuffix(".x2") }, "\(mistyped.err)")
    #expect(works == Set(works.filter { !$0.hasSuffix(".x2") }.flatMap { [$0, $0 + ".x2"] }))
  }

  @Test func `an input or a plot that cannot be used is named before the benchmark runs`() async throws {
    let machine = try machine()
    try machine.file("/bad", "\n" + note("a", "1") + "[]\n")
    for (words, code, message) in [
      (["/nofile"], ExitCode.noSuchStore, "there is no file '/nofile'"),
      (["/bench"], .noSuchStore, "'/bench' is a directory, not a file of JSON Lines"),
      (["/bad"], .dataDamaged, "'/bad', line 3, column 1: "),
      (["log", "--plot", "/no/x.svg"], .cannotCreate, "there is no directory '/no' to write '/no/x.svg' in"),
      (["log", "--plot", "/bench"], .cannotCreate, "cannot write '/bench': it is a directory"),
    ] {
      let screen = await machine.run(["bench", "--directory", "/bench"] + words, input: [])
      #expect(screen.code == code && screen.err.contains(message), "\(words): \(screen)")
    }
  }

  @Test func `counts one sync a group and none for reading`() async throws {
    let screen = try await machine().run(Self.quick + ["--json", "--only", "log.syncs"], input: [])
    let lines = screen.out.split(separator: "\n")
    #expect(lines.count == 4)
    for line in lines {
      let ours = line.contains(#""work":"log.syncs.reading"#) ? 0 : 1
      #expect(line.contains("\"ours\":\(ours),") && line.contains(#""bar":"met""#), "\(line)")
    }
  }

  @Test func `measures the wire's JSON beside Foundation's, at two sizes`() async throws {
    let machine = try machine()
    try machine.file("/real", note("a", "1") + note("b", "2"))
    for more in [[], ["--real", "/real"]] {
      let screen = await machine.run(
        ["bench", "wire", "--quick", "--rounds", "1", "--directory", "/bench", "--json"] + more, input: [])
      #expect(screen.code == .done, "\(screen.err)")
      try JSONPage.check(screen.out, of: "bench")
      var works: [String] = []
      for line in screen.out.split(separator: "\n") {
        let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        works.append(try #require(object["work"] as? String))
        #expect(object["unit"] as? String == "MB/s" && object["sqlite"] is NSNull)
        for figure in ["ours", "limit"] { #expect((object[figure] as? Double).map { $0 > 0 } == true, "\(line)") }
      }
      #expect(works.sorted() == ["decode", "encode", "lines"].flatMap { ["wire.\($0)", "wire.\($0).x2"] })
    }
    #expect(await machine.run("bench", "wire", "--quick", "--records", "100").code == .usage)
    #expect(try machine.disk.list("/bench") == [])
  }

  @Test func `measures the engine, and says which rows need a real disk`() async throws {
    let machine = try machine()
    let screen = await machine.run(
      ["bench", "sync", "--quick", "--rounds", "1", "--directory", "/bench", "--json"], input: [])
    #expect(screen.code == .done, "\(screen.err)")
    #expect(screen.err.contains("without sync.edit") && screen.err.contains("sync.upload"))
    try JSONPage.check(screen.out, of: "bench")
    var works: Set<String> = []
    for line in screen.out.split(separator: "\n") {
      let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
      works.insert(try #require(object["work"] as? String))
      if object["work"] as? String == "sync.idle" { #expect(object["bar"] as? String == "met", "\(line)") }
    }
    #expect(
      works == [
        "sync.idle", "sync.backlog", "sync.backlog.x2", "sync.holds", "sync.holds.x2", "sync.plan", "sync.plan.x100",
        "sync.simulate", "sync.fleet",
      ])
    #expect(try machine.disk.list("/bench") == [])
  }

  @Test func `an interrupt cleans up`() async throws {
    let machine = try machine()
    machine.isImpatient.withLock { $0 = true }
    #expect(await machine.run(Self.quick, input: []).code == .tryLater)
    #expect(try machine.disk.list("/bench") == [])
  }

  @Test func `draws writers against appends`() async throws {
    let machine = try machine()
    let words = Self.quick + ["--only", "log.syncs", "--plot", "/plot.svg"]
    #expect(await machine.run(words, input: []).code == .done)
    let svg = String(decoding: try #require(machine.disk.peek("/plot.svg")), as: UTF8.self)
    #expect(svg.hasPrefix("<svg ") && svg.hasSuffix("</svg>\n"))
    #expect(svg.components(separatedBy: "<circle ").count == 4)
    for word in ["concurrent writers", "durable appends per second", "Strandline"] {
      #expect(svg.contains(">\(word)<"))
    }
  }

  @Test func `of a file measures a single record, also when the clock stands still`() async throws {
    let machine = try machine()
    try machine.file("/one.jsonl", note("a", "1"))
    let words = ["bench", "/one.jsonl", "--quick", "--directory", "/bench"]
    let screen = await machine.run(words + ["--json"], input: [])
    #expect(screen.code == .done, "\(screen.err)")
    let lines = screen.out.split(separator: "\n")
    #expect(lines.count >= 6)
    try JSONPage.check(screen.out, of: "bench")
    #expect(await machine.run(words, input: []).out.contains("import.400.half"))
    #expect(try machine.disk.list("/bench") == [])
  }

  @Test func `options of the log's benchmark are refused with the store's`() async throws {
    for option in [["--only", "x"], ["--plot", "x"]] {
      #expect(await Machine().run(["bench", "records.jsonl"] + option, input: []).code == .usage)
    }
  }
}
