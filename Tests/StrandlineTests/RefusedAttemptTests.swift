// What a refusal says about the request that was refused: nothing of it was applied. A deletion that another device makes
// at the server afterwards can then not have been one of what this request wanted to create.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

private let id = RecordID("n", zone: .main)

extension Device {
  fileprivate func recreate(_ title: String) async throws {
    try await open().write { tx in
      try tx.delete(id)
      var record = Record(type: "Note", id: id)
      record["title"] = .string(title)
      try tx.create(record)
    }
  }

  fileprivate var title: FieldValue? { get async throws { try await open().record(id)?["title"] } }
}

@Suite(.timeLimit(.minutes(30))) struct `An attempt that the server refused` {
  private func pair() async throws -> (a: Device, b: Device, cloud: RefusingCloud) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "first"])
    #expect(try await a.run() == nil)
    try await b.exchange()
    return (a, b, cloud)
  }

  /// Another device deletes the life before, and the refused one lives all the same.
  private func expectLife(_ title: FieldValue, _ a: Device, _ b: Device) async throws {
    try await b.erase("n")
    try await b.exchange()
    _ = try await a.run()
    #expect(try await a.title == title)
    let store = try await a.open()
    try await store.releaseHolds(of: store.status().held.map(\.id))
    #expect(try await a.run() == nil)
    try await b.exchange()
    #expect(try await a.title == title)
    #expect(try await b.title == title)
    try await expectAgreement(a, b)
  }

  @Test(arguments: [CloudError.Code.quotaExceeded, .limitExceeded, .badRequest])
  func `of one record does not end what it wanted to create`(_ code: CloudError.Code) async throws {
    let (a, b, cloud) = try await pair()
    cloud.refuse { $0.items["n"] = [CloudError(code, reason: "no"), CloudError(code, reason: "no")] }
    try await a.recreate("second")
    _ = try await a.run()
    #expect(try await a.unsettled == 1)
    try await a.recreate("third")
    _ = try await a.run()
    #expect(try await a.unsettled == 1)
    try await expectLife("third", a, b)
  }

  @Test(arguments: [CloudError.Code.limitExceeded, .quotaExceeded])
  func `as a whole does not end what it wanted to create, also after a relaunch`(_ code: CloudError.Code) async throws {
    let (a, b, cloud) = try await pair()
    cloud.refuse { $0.requests[.modify] = Array(repeating: CloudError(code, reason: "no"), count: 4) }
    try await a.recreate("second")
    try await a.write("m")
    _ = try await a.run()
    #expect(try await a.unsettled == 2)
    a.crash()
    try await a.open(database: cloud)
    cloud.refuse { $0.requests[.modify] = [] }
    try await expectLife("second", a, b)
  }

  @Test(arguments: [CloudError.Code.conflict, .exists])
  func `because the server has another version does not end what it wanted to create`(_ code: CloudError.Code)
    async throws
  {
    let (a, b, cloud) = try await pair()
    cloud.forgetSent()
    // Nothing is answered any more, so that the other device deletes the version before this one has looked it up.
    let isCut = Mutex(false)
    cloud.refuse { script in
      script.items["n"] = [CloudError(code, reason: "another version")]
      script.refusal = { request, _ in
        isCut.withLock { isCut in
          defer { if request == .modify { isCut = true } }
          return isCut ? CloudError(.networkError, reason: "no network") : nil
        }
      }
    }
    try await a.recreate("second")
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .unreachable)
    #expect(cloud.count(.modify) == 1)
    cloud.refuse { $0.refusal = nil }
    try await expectLife("second", a, b)
  }

  @Test func `leaves open what an earlier request does that was never answered`() async throws {
    let (a, b, cloud) = try await pair()
    cloud.refuse { script in
      // The first request is under way for longer than the device waits; the second one is refused.
      script.requests[.modify] = [CloudError(.networkError, reason: "no answer")]
      script.items["n"] = [CloudError(.quotaExceeded, reason: "no")]
      script.batches = []
    }
    try await a.recreate("second")
    _ = try await a.run()
    #expect(cloud.sent == [["n"], ["n"]])
    let late = try #require(cloud.script.withLock { $0.batches.first })
    _ = try await cloud.web.modify(late, in: .main, atomic: false)
    try await b.exchange()
    #expect(try await b.title == "second")
    try await b.erase("n")
    try await b.exchange()
    _ = try await a.run()
    try await b.exchange()
    #expect(try await a.title == nil)
    #expect(try await b.title == nil)
    try await expectAgreement(a, b)
  }
}
