// How many operations a request has: what the server was found to take, which the next process knows as well.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct UploadSizeTests {
  /// Has the cloud refuse requests of more operations than this as too much.
  private func limit(_ cloud: RefusingCloud, _ most: Int?) {
    cloud.refuse { script in
      script.refusal = { request, operations in
        guard request == .modify, let most, operations.count > most else { return nil }
        return CloudError(.limitExceeded, reason: "at most \(most)")
      }
    }
  }

  private func create(_ count: Int, _ prefix: String, _ device: Device) async throws {
    try await device.open().write { tx in
      for number in 0..<count { try tx.create(Record(type: "Note", id: RecordID("\(prefix)\(number)"))) }
    }
  }

  private func relaunch(_ device: Device, _ cloud: RefusingCloud) async throws {
    try await device.close()
    try await device.open(database: cloud)
    cloud.forgetSent()
  }

  @Test(arguments: [0, 100, 199])
  func `one wrong record makes no later request smaller, in this process or the next`(_ place: Int) async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.refusal = { request, operations in
        guard request == .modify, operations.contains(where: { $0.name == "n\(place)" }) else { return nil }
        return CloudError(.badRequest, reason: "wrong", httpStatus: 400)
      }
    }
    try await create(200, "n", a)
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.map(\.id.name) == ["n\(place)"])
    // Each halving costs two requests.
    #expect(cloud.count(.modify) <= 1 + 2 * 8)
    cloud.forgetSent()
    try await create(200, "m", a)
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [200])
    try await relaunch(a, cloud)
    try await create(200, "o", a)
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [200])
  }

  @Test(arguments: [CloudError.Code.badRequest, .limitExceeded, .accessDenied])
  func `31: a record that is refused beside no other makes no later request smaller than half`(
    _ code: CloudError.Code
  ) async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.items["n7"] = [CloudError(code, reason: "the item")]
      // Refused as a whole beside others.
      script.refusal = { request, operations in
        let holdsIt = request == .modify && operations.contains { $0.name == "n7" }
        return holdsIt && operations.count > 1 ? CloudError(.limitExceeded, reason: "too large") : nil
      }
    }
    try await create(200, "n", a)
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.map(\.id.name) == ["n7"])
    try await relaunch(a, cloud)
    try await create(200, "m", a)
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(cloud.sent.map(\.count) == [100, 100])
  }

  @Test(arguments: [
    CloudError(.quotaExceeded, reason: "full", httpStatus: 413),
    CloudError(.throttled, reason: "later", retryAfter: 3_600, httpStatus: 503),
  ])
  func `a search for the wrong record that is interrupted makes no later request smaller`(
    _ error: CloudError
  ) async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let count = Mutex(0)
    cloud.refuse { script in
      script.refusal = { request, operations in
        guard request == .modify, operations.contains(where: { $0.name == "n0" }) else { return nil }
        let number = count.withLock { count in
          count += 1
          return count
        }
        if number == 4 { return error }
        return number < 4 ? CloudError(.badRequest, reason: "wrong", httpStatus: 400) : nil
      }
    }
    try await create(200, "n", a)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    a.clock.advance(milliseconds: 3_600_000)
    cloud.forgetSent()
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await create(200, "m", a)
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count).max() == 200)
  }

  @Test func `28: the next process begins with what the server takes, and with more once it takes more`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    limit(cloud, 60)
    try await create(200, "n", a)
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [200, 100, 50, 50, 50, 50])
    try await relaunch(a, cloud)
    try await create(100, "m", a)
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [50, 50])
    limit(cloud, nil)
    try await create(2_000, "o", a)
    #expect(try await a.run() == nil)
    let most = try #require(cloud.sent.map(\.count).max())
    #expect(most > 50)
    try await relaunch(a, cloud)
    try await create(400, "p", a)
    #expect(try await a.run() == nil)
    #expect(try #require(cloud.sent.first).count >= most)
  }

  @Test func `31: one record that is too large makes no later request smaller than its own half`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.refusal = { request, operations in
        guard request == .modify, operations.contains(where: { $0.name == "n0" }) else { return nil }
        return CloudError(.limitExceeded, reason: "too large")
      }
    }
    try await create(200, "n", a)
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.map(\.id.name) == ["n0"])
    #expect(cloud.count(.modify) <= 1 + 2 * 8)
    try await relaunch(a, cloud)
    try await create(200, "m", a)
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [100, 100])
  }

  @Test func `28: what is learned ends no wait that the server named`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let count = Mutex(0)
    cloud.refuse { script in
      script.refusal = { request, operations in
        guard request == .modify else { return nil }
        if operations.count > 100 { return CloudError(.limitExceeded, reason: "too many") }
        // The last half.
        let isLast = count.withLock { count in
          count += 1
          return count == 2
        }
        return isLast ? CloudError(.throttled, reason: "later", retryAfter: 3_600, httpStatus: 503) : nil
      }
    }
    try await create(200, "n", a)
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
    try await relaunch(a, cloud)
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
    #expect(cloud.requestCount == 0)
    a.clock.advance(milliseconds: 3_600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    #expect(cloud.sent.allSatisfy { $0.count <= 100 })
  }
}
