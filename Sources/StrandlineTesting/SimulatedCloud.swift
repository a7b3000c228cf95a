// A cloud for an app's tests: the local server's semantics and the Web Services client, in one process, without a
// socket, an account or a wait.

public import Strandline
internal import StrandlineCloudKit
public import StrandlineServer
public import StrandlineSimulation
internal import StrandlineSystem

/// A cloud in the test's own process, with CloudKit's zones, change tags, feeds and refusals. It forgets everything with
/// the test.
public struct SimulatedCloud: Sendable {
  /// Its server: faults (`setFaults`: lost answers, throttling, expired tokens, stale pages) and statistics.
  public let server: CloudServer
  private let clock: SimulatedClock

  /// An empty cloud.
  ///
  /// - Parameters:
  ///   - clock: gives records their times at the server; its own, unless a device shall share it. Each request takes a
  ///     millisecond of it.
  ///   - seed: for what the server draws at random.
  public init(clock: SimulatedClock = SimulatedClock(), seed: UInt64 = 0) {
    self.clock = clock
    server = CloudServer(
      inMemory: SystemEnvironment(
        fileSystem: SimulatedDisk(), clock: clock, random: SeededRandom(seed: seed ^ 0x5EC1_0D00)))
  }

  /// A way to it for one more device.
  fileprivate func transport() -> any Transport {
    PassingTime(base: InProcessTransport(server, waitsForDroppedAnswers: false), clock)
  }
}

/// Requests that take time: what the server makes in one request and in the next never has the same time of creation,
/// by which a record is told from one that was made anew.
private struct PassingTime: Transport {
  private let base: any Transport
  private let clock: SimulatedClock

  init(base: any Transport, _ clock: SimulatedClock) {
    self.base = base
    self.clock = clock
  }

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    clock.advance(milliseconds: 1)
    return try await base.send(request)
  }
}

extension SyncConfiguration {
  /// Syncs with a simulated cloud, in the private database of its one user. Give the same cloud to as many stores as
  /// there are devices.
  ///
  /// The store syncs when `store.sync.now()` is called, and by itself only if `isAutomatic` is set (with a clock that
  /// does not advance by itself). An answer that the server was told to drop is a connection that breaks, and is
  /// asked for again within the same sync.
  public static func simulated(_ cloud: SimulatedCloud) -> SyncConfiguration {
    var configuration = SyncConfiguration.cloudKit(
      CloudAddress(container: "iCloud.simulated"), apiToken: "", baseURL: "http://cloud.invalid",
      making: { cloud.transport() })
    configuration.isAutomatic = false
    return configuration
  }
}
