// The contents of assets in the command: an export with them is an import, `verify` reads every byte, `status` and `backup` count.

import Strandline
import StrandlineCLI
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct ContentVerbsTests {
  /// A machine with a store that has one picture.
  private func machine() async throws -> (machine: Machine, content: String) {
    let machine = Machine()
    let environment = SystemEnvironment(
      fileSystem: machine.disk, clock: SimulatedClock(), random: SeededRandom(seed: 3))
    let store = try RecordStore.openBlocking(at: "/A", environment: StoreEnvironment(environment))
    let staged = try await store.stage(SeededRandom(seed: 4).bytes(4_000))
    try store.writeBlocking {
      try $0.save(Record(type: "Picture", id: RecordID("pier"), fields: ["photo": .asset(staged.asset)]))
    }
    try store.closeBlocking()
    return (machine, try #require(staged.asset.contentHash?.hexadecimal))
  }

  @Test func `an export with its contents is an import`() async throws {
    let (machine, content) = try await machine()
    let lines = await machine.run("export", "--contents", "/C", "/A")
    #expect(lines.code == .done)
    #expect(lines.out.contains("{\"contentHash\":\"\(content)\",\"size\":4000}"), "\(lines.out)")
    #expect(machine.disk.peek("/C/assets/\(content)")?.count == 4_000)
    let refused = await machine.run("import", "/B", "-", input: lines.out)
    #expect(refused.code == .dataDamaged && refused.err.contains("is not in the store"), "\(refused.err)")
    #expect(await machine.run("import", "--contents", "/C", "/B", "-", input: lines.out).code == .done)
    #expect(await machine.run("export", "/B").out == lines.out)
    #expect(machine.disk.peek("/B/assets/\(content)") == machine.disk.peek("/A/assets/\(content)"))
  }

  @Test func `verify reads the contents, and status and backup count them`() async throws {
    let (machine, content) = try await machine()
    let sound = await machine.run("verify", "/A")
    #expect(sound.code == .done && sound.out.contains("; 1 content of assets, "), "\(sound.out)")
    #expect(await machine.run("status", "/A").out.contains("contents"))
    let status = await machine.run("status", "--json", "/A").out
    #expect(status.contains("\"contents\":{\"bytes\":4000,\"count\":1,\"staged\":0}"), "\(status)")
    let backup = await machine.run("backup", "--json", "/A", "/copy")
    #expect(backup.out.contains("\"contentBytes\":4000"), "\(backup.out)\(backup.err)")
    machine.disk.poke("/A/assets/\(content)", [1, 2, 3])
    let damaged = await machine.run("verify", "--json", "/A")
    #expect(damaged.code == .dataDamaged)
    #expect(damaged.out.contains("\"finding\":\"content\""), "\(damaged.out)")
  }
}
