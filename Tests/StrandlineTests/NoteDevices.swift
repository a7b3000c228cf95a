// Two devices that have synced the same records: what the tests of sweeps, of lost zones and of what a list leaves out begin with.

import Strandline
import StrandlineServer
import StrandlineSyncProofs
import Testing

/// What the server answers to a token that it does not take any more.
let tokenExpired = CloudError(.changeTokenExpired, reason: "the sync token has expired")

/// Two devices with the same synced records "n0", "n1" and so on, and the cloud of the second one, which has counted nothing yet.
func devicesWithNotes(
  _ count: Int
) async throws -> (fleet: Fleet, a: Device, b: Device, cloud: RefusingCloud) {
  let fleet = try Fleet()
  let (a, b) = (fleet.device("a"), fleet.device("b"))
  try await a.open().write { tx in
    for index in 0..<count {
      try tx.save(Record(type: "Note", id: RecordID("n\(index)"), fields: ["title": .string("t\(index)")]))
    }
  }
  try await exchange(a, b)
  let cloud = try await b.openRefusing()
  try await b.exchange()
  cloud.forgetSent()
  return (fleet, a, b, cloud)
}

/// The names of the records of `devicesWithNotes(_:)`.
func noteNames(_ count: Int) -> Set<String> { Set((0..<count).map { "n\($0)" }) }

extension Device {
  func mainZone() async throws -> StoreStatus.Zone {
    try #require(try await open().status().zones.first { $0.id == .main })
  }

  /// The names of the records that live.
  func livingNames() async throws -> Set<String> {
    var names: Set<String> = []
    try await open().forEachRecord { names.insert($0.id.name) }
    return names
  }
}
