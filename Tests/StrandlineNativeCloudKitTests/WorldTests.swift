// Goal: the whole engine keeps its promises through CloudKit's framework, and when devices change between the framework and the web.
// Method: the simulated worlds, each device with the adapter over the stand-in, on disks that lose power and lines that lose, repeat
// and delay requests; and worlds in which each start of a device changes the way.

import CloudKit
import Strandline
import StrandlineCloudKit
@testable import StrandlineNativeCloudKit
import StrandlineServer
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

private let address = CloudAddress(container: "iCloud.world", environment: .development)

private func native(_ line: any Transport) -> any CloudDatabase {
  let cloud = StandInCloud(address, over: line, ownUser: CloudServer.defaultUser)
  return NativeCloudDatabase(CKContainer(address.container, cloud), environment: address.environment)
}

private func text(_ token: ChangeToken) -> String { token.native?.text ?? token.rawValue }

private func expectKept(_ seeds: [UInt64], _ words: String, _ client: (UInt64) -> WorldClient) async {
  var tally = WorldTally()
  for seed in seeds {
    var world = SimulatedWorld(seed: seed, devices: 2 + Int(seed % 4))
    world.connect(by: client(seed))
    let outcome = await world.run(shrinks: false, keepsHistory: false)
    if let failure = outcome.failure {
      Issue.record(failure)
      return
    }
    tally.add(outcome.tally)
  }
  print("worlds \(words): \(seeds.count), \(tally)")
}

@Suite(.timeLimit(.minutes(30)))
struct `Worlds through CloudKit's framework` {
  private var first: UInt64 { ProcessEnvironment.value(of: "STRANDLINE_SEED").flatMap { UInt64($0) } ?? 1 }
  private var count: UInt64 {
    ProcessEnvironment.value(of: "STRANDLINE_WORLDS").flatMap { UInt64($0) } ?? (Campaign.isWhole ? 200 : 20)
  }

  @Test func `keep every promise`() async {
    await expectKept(Array(first..<first + count), "by the framework") { _ in
      WorldClient(make: { _, line, _ in native(line) }, text: text)
    }
  }

  @Test func `keep every promise while devices change between the framework and the web`() async {
    await expectKept(Array(first..<first + count), "by both ways") { seed in
      let starts = Mutex<[Int: UInt64]>([:])
      return WorldClient(
        make: { device, line, environment in
          let start = starts.withLock { starts in
            starts[device, default: seed] += 1
            return starts[device] ?? 0
          }
          return start.isMultiple(of: 2)
            ? native(line)
            : WebServicesDatabase(
              address: address, apiToken: "", session: nil, baseURL: "http://cloud.invalid", transport: line,
              environment: environment.system)
        }, text: text)
    }
  }
}
