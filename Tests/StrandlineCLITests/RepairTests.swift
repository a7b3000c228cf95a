// `repair`: the plan changes nothing, `--apply` writes a new store, and both print the same report.

import Strandline
import StrandlineCLI
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct RepairTests {
  private func everything(_ machine: Machine) -> [String: [UInt8]] {
    Dictionary(uniqueKeysWithValues: machine.disk.paths.map { ($0, machine.disk.peek($0) ?? []) })
  }

  @Test func `the plan says what is lost, and writes nothing`() async throws {
    let (machine, lsn) = try await Machine.withDamagedNote()
    let before = everything(machine)
    let screen = await machine.run("repair", "/A")
    #expect(screen.code == .recoverable && screen.err == "")
    let lines = screen.out.split(separator: "\n").map(String.init)
    #expect(lines[0].hasPrefix("/A/0000000000000001.seg:"))
    // The bit that was changed is in the zone's name.
    let words = "the checksum of a frame's body does not match (LSN \(lsn); its bytes name record 'M`in/b')"
    #expect(lines[0].hasSuffix(words), "\(lines)")
    #expect(lines.contains("lost           LSN \(lsn), whose bytes name record 'M`in/b'"))
    #expect(lines.contains("records        2"))
    #expect(lines.contains("unsent         2 records"))
    #expect(lines.contains("damaged bytes  copied to NEW/quarantine"))
    #expect(
      lines.last == "nothing was written; to write the new store: strandline repair /A --apply --into NEW")
    #expect(everything(machine) == before)
    #expect(await machine.run("verify", "/A").code == .dataDamaged)
    #expect(await machine.run("export", "/A").err.contains("'strandline repair'"))
  }

  @Test func `apply writes a new store, and leaves the damaged one`() async throws {
    let (machine, lsn) = try await Machine.withDamagedNote()
    let before = everything(machine)
    let plan = await machine.run("repair", "--json", "/A").out.split(separator: "\n")
    #expect(plan.first?.contains(#""recordName":"b""#) == true, "\(plan)")
    let screen = await machine.run("repair", "/A", "--json", "--apply", "--into", "/N")
    #expect(screen.code == .done && screen.err == "")
    let lines = screen.out.split(separator: "\n")
    #expect(lines.dropLast() == plan.dropLast())
    #expect(
      lines.last.map(String.init)
        == plan.last.map(String.init)?.replacing(#""into":null"#, with: #""into":"/N""#)
        .replacing(#""result":"plan""#, with: #""result":"written""#))
    #expect(lines.last?.contains(#""lost":[[\#(lsn),\#(lsn)]]"#) == true)
    for (path, bytes) in before { #expect(machine.disk.peek(path) == bytes) }
    #expect(machine.disk.paths.filter { before[$0] == nil }.allSatisfy { $0.hasPrefix("/N/") })
    #expect(machine.disk.paths.contains { $0.hasPrefix("/N/quarantine/0000000000000001.seg@") })
    #expect(await machine.run("verify", "/N").code == .done)
    let export = await machine.run("export", "/N")
    #expect(export.code == .done)
    #expect(export.out.split(separator: "\n").count == 2 && !export.out.contains(#""recordName":"b""#))
    // The new store can be written and read.
    #expect(await machine.run("import", "/N", "-", input: note("b", "again")).code == .done)
    #expect(await machine.run("get", "/N", "b").code == .done)
    #expect(await machine.run("log-dump", "/N").code == .done)
    #expect(await machine.run("status", "/N").code == .done)
  }

  @Test
  func `the new store declares the indexes of the damaged one; where their file is damaged too, the plan says so`()
    async throws
  {
    for isLost in [false, true] {
      let machine = Machine()
      _ = await machine.run(
        "import", "--batch", "1", "/A", "-", input: note("a", "1") + note("b", "2") + note("c", "3"))
      for words in [["Note", "title"], ["Note"]] {
        #expect(await machine.run(["index", "/A", "add"] + words, input: []).code == .done)
      }
      if isLost { machine.disk.poke("/A/runs/INDEXES", [1, 2, 3]) }
      let path = try #require(machine.disk.paths.first { $0.hasSuffix(".seg") })
      var bytes = try #require(machine.disk.peek(path))
      bytes[4_200] ^= 1
      machine.disk.poke(path, bytes)
      let plan = await machine.run("repair", "/A")
      #expect(plan.code == .recoverable)
      let words =
        isLost ? "indexes        '/A/runs/INDEXES' is damaged" : "indexes        2, which the new store declares"
      #expect(plan.out.contains("\n\(words)"), "\(plan.out)")
      let json = try #require(await machine.run("repair", "--json", "/A").out.split(separator: "\n").last)
      #expect(json.contains(isLost ? #""indexes":null"# : #""indexes":["Note"#), "\(json)")
      #expect(await machine.run("repair", "/A", "--apply", "--into", "/N").code == .done)
      let declared = await machine.run("index", "/N")
      #expect(declared.code == .done)
      #expect(declared.out == (isLost ? "" : "Note title building\nNote building\n"))
      #expect(await machine.run("verify", "/N").code == .done)
      // Who waits for one waits for all.
      #expect(await machine.run("index", "/N", "add", "Note").code == .done)
      #expect(await machine.run("index", "/N").out == (isLost ? "Note ready\n" : "Note title ready\nNote ready\n"))
    }
  }

  @Test func `a directory that is not empty is refused, and each of the two options needs the other`() async throws {
    let (machine, _) = try await Machine.withDamagedNote()
    try machine.disk.makeDirectory("/full")
    try machine.file("/full/x", "mine")
    let before = everything(machine)
    for target in ["/full", "/A", "/A/inner"] {
      let screen = await machine.run("repair", "/A", "--apply", "--into", target)
      #expect(screen.code == .cannotCreate && screen.out == "", "\(target)")
      #expect(screen.err.hasSuffix("try: the same command with another directory after --into\n"))
    }
    #expect(await machine.run("repair", "/A", "--apply").code == .usage)
    #expect(await machine.run("repair", "/A", "--into", "/N").code == .usage)
    #expect(await machine.run("repair", "/none").code == .noSuchStore)
    #expect(everything(machine) == before)
  }

  @Test func `repair of an undamaged store does nothing`() async throws {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let before = everything(machine)
    for words in [["repair", "/A"], ["repair", "/A", "--apply", "--into", "/N"]] {
      let screen = await machine.run(words, input: [])
      #expect(screen.code == .done)
      #expect(screen.out.hasSuffix("nothing to repair; nothing was written\n"))
    }
    #expect(everything(machine) == before)
  }
}
