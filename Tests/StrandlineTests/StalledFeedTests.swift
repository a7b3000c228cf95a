// Goal: what a request may have created before its answer was lost is not created a second time before the zone's feed has ended,
// because another device may have deleted it meanwhile. Method: the process ends with the answer; the feed of the next one stalls.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A creation whose answer a process did not hear` {
  private final class Flag: Sendable {
    let isUp = Mutex(false)
    let token = Mutex<ChangeToken?>(nil)
  }

  private final class Holder: Sendable {
    let task = Mutex<Task<Void, any Error>?>(nil)
  }

  /// The device has sent "n", heard no answer, and was started again.
  private func unheard(_ body: (Device, Device) async throws -> Void) async throws -> (
    a: Device, b: Device, cloud: RefusingCloud
  ) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("old")
    #expect(try await a.run() == nil)
    let flag = Flag()
    cloud.refuse { script in
      script.beforeModify = { _ in flag.isUp.withLock { $0 = true } }
      script.lostAnswers = [CloudError(.networkError, reason: "away")]
      script.refusal = { request, _ in
        request != .modify && flag.isUp.withLock { $0 } ? CloudError(.networkError, reason: "away") : nil
      }
    }
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() != nil)
    try await body(a, b)
    a.crash()
    return (a, b, try await a.openRefusing())
  }

  /// After the first page the feed says that there is more, and shows nothing.
  private func stall(_ cloud: RefusingCloud) {
    let flag = Flag()
    cloud.refuse { script in
      script.pageMax = 1
      script.page = { _, page in
        guard let token = flag.token.withLock({ $0 }) else {
          flag.token.withLock { $0 = page.token }
          return page
        }
        return ZonePage(changes: [], token: token, moreComing: true)
      }
    }
  }

  @Test func `is not sent again while the feed stalls, and stays deleted`() async throws {
    let (a, b, cloud) = try await unheard { _, b in
      for name in ["x", "y"] { try await b.put(name, ["title": "other"]) }
      try await b.exchange()
      try await b.erase("n")
      try await b.exchange()
    }
    stall(cloud)
    _ = try await a.run()
    #expect(cloud.count(.modify) == 0 && cloud.count(.zoneChanges) >= 2)
    #expect(try await a.open().engine.status.waits.fetch == 1)
    cloud.refuse { $0.page = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.value("n") == nil)
    #expect(cloud.count(.modify) == 0)
    try await b.exchange()
    #expect(try await b.value("n") == nil)
    try await expectAgreement(a, b)
  }

  @Test func `is sent again when the feed has ended without it`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    let cloud = try await a.openRefusing()
    try await a.write("old")
    #expect(try await a.run() == nil)
    // It never arrived.
    cloud.refuse { $0.refusal = { request, _ in request == .modify ? CloudError(.networkError, reason: "away") : nil } }
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() != nil)
    a.crash()
    let again = try await a.openRefusing()
    #expect(try await a.run() == nil)
    #expect(again.sent == [["n"]] && again.count(.zoneChanges) == 1)
    #expect(try await a.owesNothing)
  }

  @Test(arguments: [CloudError.Code.unexpectedServerResponse, .answerTooLarge])
  func `waits for the end of the feed also where its answer could not be read`(_ code: CloudError.Code) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("old")
    #expect(try await a.run() == nil)
    let flag = Flag()
    cloud.refuse { script in
      script.beforeModify = { _ in flag.isUp.withLock { $0 = true } }
      script.lostAnswers = [CloudError(code, reason: "unread")]
      // From then on pages are refused for a while, and nothing else.
      script.refusal = { request, _ in
        request == .zoneChanges && flag.isUp.withLock { $0 } ? CloudError(.internalError, reason: "not now") : nil
      }
    }
    try await a.write("n", ["title": "one"])
    let sent = cloud.count(.modify)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(cloud.count(.modify) == sent + 1)
    try await b.exchange()
    #expect(try await b.lives("n"))
    try await b.erase("n")
    try await b.exchange()
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(cloud.count(.modify) == sent + 1)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.value("n") == nil)
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test func `waits for the end of the feed also where a sync was cancelled that had sent it`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("old")
    #expect(try await a.run() == nil)
    let sync = Holder()
    cloud.refuse { script in
      script.afterModify = {
        sync.task.withLock { $0?.cancel() }
        throw CloudError(.networkError, reason: "away")
      }
    }
    try await a.write("n", ["title": "one"])
    let task = Task {
      while sync.task.withLock({ $0 == nil }) { await Task.yield() }
      _ = try await a.sync()
    }
    sync.task.withLock { $0 = task }
    guard case .failure = await task.result else {
      Issue.record("the sync was not cancelled")
      return
    }
    try await b.exchange()
    #expect(try await b.lives("n"))
    try await b.erase("n")
    try await b.exchange()
    // Pages are refused for a while, and nothing else.
    let sent = cloud.count(.modify)
    cloud.refuse { script in
      script.afterModify = nil
      script.refusal = { request, _ in request == .zoneChanges ? CloudError(.internalError, reason: "not now") : nil }
    }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(cloud.count(.modify) == sent)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.value("n") == nil)
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test func `whose record the server postpones is sent again at its time, also by cycles that wait for nothing`()
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("old")
    #expect(try await a.run() == nil)
    let codes: [CloudError.Code] = [.throttled, .internalError, .zoneBusy, .throttled]
    cloud.refuse { $0.items["n"] = codes.map { CloudError($0, reason: "later") } }
    try await a.write("n")
    let asked = cloud.requestCount
    for _ in 0..<30 where try await !a.owesNothing {
      try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)
      a.clock.advance(milliseconds: 10_000)
    }
    #expect(try await a.owesNothing)
    #expect(cloud.sent.count { $0.contains("n") } == 5)
    // A list and a page before each upload.
    #expect(cloud.requestCount - asked <= 60)
  }

  @Test func `that a copy of the log may have sent is deleted where its zone was never made`() async throws {
    let (a, work) = (try Fleet().device("a"), ZoneID("Work"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    let image = a.disk.imageAfterCrash(.none)
    try await a.write("w", ["title": "one"], zone: work)
    // The zone of "n" may not be made; that of "w" is, and the server says there what the earlier disk does not know of.
    cloud.refuse { $0.requests[.createZone] = [CloudError(.accessDenied, reason: "no")] }
    #expect(try await a.run() != nil)
    #expect(cloud.sent == [["w"]])
    try await a.close()
    a.restore(from: image)
    let again = try await a.openRefusing()
    try await a.erase("n")
    #expect(try await a.run() == nil)
    #expect(again.count(.lookup) == 1)
    #expect(again.count(.modify) == 0)
    #expect(try await a.owesNothing)
    #expect(try await a.value("n") == nil)
  }
}
