// The adapter over the stand-in, over a server in the test's own process.

import CloudKit
import Strandline
import StrandlineCloudKit
@testable import StrandlineNativeCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Testing

let testAddress = CloudAddress(container: "iCloud.test", environment: .development)

/// A database on a server of its own.
struct NativeScene {
  let server: CloudServer
  let clock = SimulatedClock(wallMilliseconds: 1_767_225_600_000, autoAdvance: true)
  let cloud: StandInCloud
  let database: NativeCloudDatabase
  let zone = ZoneID.main

  init(options: NativeRequestOptions = NativeRequestOptions()) async throws {
    var limits = ServerLimits()
    // Apple's server takes 400 operations of the framework, and 200 of the web.
    limits.operationsMax = 400
    server = CloudServer(
      inMemory: SystemEnvironment(fileSystem: SimulatedDisk(), clock: clock, random: SeededRandom(seed: 7)),
      limits: limits)
    cloud = StandInCloud(
      testAddress, over: InProcessTransport(server, waitsForDroppedAnswers: false), ownUser: CloudServer.defaultUser)
    database = NativeCloudDatabase(
      CKContainer(testAddress.container, cloud), environment: testAddress.environment, options: options)
    try await database.createZone(zone)
    _ = cloud.takeRequests()
    _ = cloud.takeManners()
  }

  /// The web's client of the same server.
  var web: WebServicesDatabase {
    WebServicesDatabase(
      address: testAddress, apiToken: "", session: nil, baseURL: "http://cloud.invalid",
      transport: InProcessTransport(server), environment: .real)
  }

  func modify(_ operations: CloudOperation..., atomic: Bool = false) async throws -> [CloudName: CloudResult] {
    try await database.modify(operations, in: zone, atomic: atomic)
  }

  /// Creates a record and returns its system fields.
  func create(
    _ name: String, _ fields: [String: FieldValue?], parent: String? = nil
  ) async throws -> SystemFields {
    let results = try await modify(
      CloudOperation(.create, name: name, type: "Note", fields: fields, parent: parent))
    return try results.saved(name).system
  }

  /// What the server has of a record, as the web shows it.
  func atServer(_ name: String) async throws -> ServerRecord {
    try await web.lookup([name], in: zone).saved(name)
  }
}

extension [CloudName: CloudResult] {
  /// The record that a result must hold.
  func saved(_ name: String) throws -> ServerRecord {
    switch self[CloudName(name)] {
    case .record(let record)?: return record
    case let other: throw CloudError(.internalError, reason: "'\(name)' is \(String(describing: other))")
    }
  }

  /// The refusal that a result must hold.
  func refusal(_ name: String) throws -> (error: CloudError, current: ServerRecord?) {
    switch self[CloudName(name)] {
    case .failed(let error, let current)?: return (error, current)
    case let other: throw CloudError(.internalError, reason: "'\(name)' is \(String(describing: other))")
    }
  }
}

/// The error that a call must throw.
func refusal(_ body: () async throws -> Void) async throws -> CloudError {
  do { try await body() } catch let error as CloudError { return error }
  throw CloudError(.internalError, reason: "the call succeeded")
}
