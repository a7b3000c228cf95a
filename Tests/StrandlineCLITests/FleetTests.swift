// `simulate --fleet`: small fleets, whose figures mean little, but which are real.

import Foundation
import StrandlineCLI
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

#if canImport(FoundationXML)
  import FoundationXML
#endif

@Suite(.timeLimit(.minutes(30)))
struct FleetTests {
  @Test func `a seed has one outcome, and without pace the devices overload the server`() async throws {
    let devices = Campaign.isWhole ? "10" : "2"
    let words = ["simulate", "--fleet", "--devices", devices, "--days", "2", "--seed", "7", "--json"]
    let screen = await Machine().run(words, input: [])
    let keys = try JSONPage.check(screen.out, of: "simulate")
    #expect(keys.count == 14)
    #expect(screen.out.contains("\"needless\":0,") && screen.out.contains("\"tooEarly\":0"))
    #expect(await Machine().run(words, input: []).out == screen.out)
    // Without pace the server has nothing left for what they owe: they ask too often.
    let without = await Machine().run(words + ["--without", "pace"], input: [])
    #expect(
      without.code == .recoverable && without.err.contains("s after the outage, and may wait 1800 s"), "\(without.err)")
    let (with, most) = (try Self.longestWait(screen.out), try Self.longestWait(without.out))
    #expect(most > 2 * with, "\(most) and \(with)")
  }

  private static func longestWait(_ line: String) throws -> Int {
    let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
    return try #require(object?["longestWaitMilliseconds"] as? Int)
  }

  @Test func `the plot is an XML document with a curve for each comparison`() async throws {
    let machine = Machine()
    let devices = Campaign.isWhole ? "4" : "2"
    _ = await machine.run("simulate", "--fleet", "--devices", devices, "--days", "2", "--svg", "/fleet.svg")
    let data = Data(try #require(machine.disk.peek("/fleet.svg")))
    let parser = XMLParser(data: data)
    #expect(parser.parse())
    let text = String(decoding: data, as: UTF8.self)
    // Two panels of three fleets.
    #expect(text.components(separatedBy: "<polyline").count == 7 && text.contains("without pace"))
  }

  @Test(arguments: [
    (["--fleet", "--devices", "3"], "--devices takes an even number with --fleet"),
    (["--fleet", "--runs", "2"], "--runs cannot be used with --fleet"),
    (["--fleet", "--trace", "/t"], "--trace cannot be used with --fleet"),
    (["--fleet", "--without", "rain"], "--without takes 'jitter', 'pace' or both with a comma between them"),
    (["--svg", "/a.svg"], "--svg can be used with --fleet only"),
  ])
  func `options that mean nothing are refused`(_ words: [String], _ message: String) async {
    let screen = await Machine().run(["simulate"] + words, input: [])
    #expect(screen.code == .usage && screen.err.contains(message), "\(screen.err)")
  }
}
