// A simulated cloud for an app's tests: the local server and the Web Services client in one process, without sockets,
// accounts or waiting.

public import Strandline
internal import StrandlineCloudKit
public import StrandlineServer
public import StrandlineSimulation
internal import StrandlineSystem

/// A cloud in the test's own process, with CloudKit's zones, change tags, change feeds and refusals. It exists in memory
/// only.
public struct SimulatedCloud: Sendable {
  /// The server, with which a test injects faults (`setFaults`: lost answers, throttling, expired tokens, stale pages)
  /// and reads statistics.
  public let server: CloudServer
  private let clock: SimulatedClock

  /// Creates an empty cloud.
  ///
  /// - Parameters:
  ///   - clock: The server's clock, from which records get their server times. Pass a device's clock to share it with
  ///     that device. Each request advances it by a millisecond.
  ///   - seed: The seed of the server's random numbers.
  public init(clock: SimulatedClock = SimulatedClock(), seed: UInt64 = 0) {
    self.clock = clock
    server = CloudServer(
      inMemory: SystemEnvironment(
        fileSystem: SimulatedDisk(), clock: clock, random: SeededRandom(seed: seed ^ 0x5EC1_0D00)))
  }

  /// Makes the transport of one more device.
  fileprivate func transport() -> any Transport {
    PassingTime(base: InProcessTransport(server, waitsForDroppedAnswers: false), clock)
  }
}

/// Advances the clock by a millisecond for each request, so that records which the server creates in two requests never
/// have the same creation time. By this time a client tells a record from one that was deleted and created again.
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
  /// Syncs with the private database of the simulated cloud's one user. To simulate several devices, pass the same cloud
  /// to several stores.
  ///
  /// The store syncs when the test calls `store.sync()`. It syncs by itself only if `isAutomatic` is set, which
  /// requires a clock with `autoAdvance: false`. If the server drops an answer as a fault, the client's connection
  /// breaks, and the same sync sends the request again.
  public static func simulated(_ cloud: SimulatedCloud) -> SyncConfiguration {
    var configuration = SyncConfiguration.cloudKitWeb(
      CloudAddress(container: "iCloud.simulated", environment: .development), apiToken: "",
      baseURL: "http://cloud.invalid",
      making: { cloud.transport() })
    configuration.isAutomatic = false
    return configuration
  }
}
