// Goal: no record is sent before the records that it refers to, no target is deleted before the records that refer to
// it, and a request is not larger than its estimate. Method: chosen and drawn graphs of records; and the bodies of real requests beside their
// estimates.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

private let zone = ZoneID("Notes")

@Suite(.timeLimit(.minutes(30)))
struct UploadPlanTests {
  private func save(_ name: String, _ lsn: UInt64, _ targets: CloudName...) -> UploadItem {
    UploadItem(id: RecordID(name, zone: zone), lsn: LSN(lsn), isDeletion: false, targets: targets)
  }

  private func deletion(_ name: String, _ lsn: UInt64, _ targets: CloudName...) -> UploadItem {
    UploadItem(id: RecordID(name, zone: zone), lsn: LSN(lsn), isDeletion: true, targets: targets)
  }

  private func names(_ items: [UploadItem]) -> [String] { UploadPlan.units(items).joined().map(\.id.name) }

  @Test func `targets go before the records that refer to them, and ties keep the order of the log`() {
    #expect(names([]) == [])
    #expect(names([save("a", 1), save("b", 2), save("c", 3)]) == ["a", "b", "c"])
    #expect(names([save("child", 1, "parent"), save("other", 2), save("parent", 3)]) == ["parent", "child", "other"])
    #expect(names([save("c", 1, "b"), save("b", 2, "a"), save("a", 3), save("d", 4, "a")]) == ["a", "b", "c", "d"])
    // What is not in the list is at the server already, or held.
    #expect(names([save("a", 1, "elsewhere"), save("b", 2)]) == ["a", "b"])
  }

  @Test func `deletions go last, a target after the records that referred to it`() {
    #expect(names([deletion("gone", 1), save("kept", 2)]) == ["kept", "gone"])
    #expect(names([deletion("parent", 1), deletion("child", 2, "parent")]) == ["child", "parent"])
    #expect(names([deletion("child", 1, "parent"), deletion("parent", 2)]) == ["child", "parent"])
    #expect(names([deletion("a", 1), deletion("b", 2), deletion("c", 3)]) == ["a", "b", "c"])
    // A save that points at a record which is deleted in the same plan does not move it.
    #expect(names([deletion("a", 1), save("b", 2, "a")]) == ["b", "a"])
  }

  @Test func `of a parent and a child that are turned round the former child goes first, whichever was saved first`() {
    #expect(names([save("parent", 1, "child"), save("child", 2)]) == ["child", "parent"])
    #expect(names([save("child", 1), save("parent", 2, "child")]) == ["child", "parent"])
  }

  @Test func `a cycle stands together, and each record once`() {
    let circle = [save("a", 2, "b"), save("b", 4, "c"), save("c", 5, "a")]
    let items = [save("x", 1), circle[0], save("y", 3), circle[1], circle[2], save("z", 6, "a")]
    #expect(names(items) == ["x", "a", "b", "c", "y", "z"])
    #expect(UploadPlan.units(items).map(\.count) == [1, 3, 1, 1])
    #expect(names([save("a", 1, "a", "a")]) == ["a"])
    #expect(Set(UploadPlan.units(items).joined()) == Set(items))
  }

  @Test(arguments: 1...20) func `in random graphs each target goes before the records that refer to it`(_ seed: UInt64)
    throws
  {
    let random = SeededRandom(seed: seed)
    let count = 2 + Int(random.below(60))
    // References lead from a larger number to a smaller one, so there is no cycle; the order of the log is random.
    var order = Array(0..<count)
    for place in order.indices.reversed() { order.swapAt(place, Int(random.below(UInt64(place + 1)))) }
    let items = order.enumerated().map { lsn, number in
      let targets = (0..<Int(random.below(4))).map { _ -> CloudName in "r\(random.below(UInt64(max(number, 1))))" }
      return UploadItem(
        id: RecordID("r\(number)", zone: zone), lsn: LSN(UInt64(lsn + 1)), isDeletion: random.below(3) == 0,
        targets: targets.filter { $0 != "r\(number)" })
    }
    let plan = Array(UploadPlan.units(items).joined())
    #expect(plan.count == count && Set(plan) == Set(items))
    let places = Dictionary(uniqueKeysWithValues: plan.enumerated().map { ($1.id.key, $0) })
    let deletions = Set(items.filter(\.isDeletion).map(\.id.key))
    let firstDeletion = plan.firstIndex { $0.isDeletion } ?? count
    let lastSave = plan.lastIndex { !$0.isDeletion } ?? -1
    #expect(lastSave < firstDeletion)
    for (place, item) in plan.enumerated() {
      for target in item.targets where deletions.contains(target) == item.isDeletion {
        let other = try #require(places[target])
        #expect(item.isDeletion ? place < other : other < place, "\(item.id.name) and \(target)")
      }
    }
  }

  @Test func `a chain of a hundred thousand records does not overflow the stack`() {
    let count = 100_000
    let items = (0..<count).map { number in
      UploadItem(
        id: RecordID("r\(number)", zone: zone), lsn: LSN(UInt64(number + 1)), isDeletion: false,
        targets: number + 1 < count ? ["r\(number + 1)"] : [])
    }
    #expect(Array(UploadPlan.units(items).joined()) == items.reversed())
  }

  @Test func `a request is never larger than its estimate`() async throws {
    let transport = Sizes()
    let client = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "", session: nil,
      baseURL: "http://cloud.invalid",
      transport: transport, environment: .simulated(SimulatedDisk(), seed: 1))
    let odd = "\u{1}\n\"\\/\u{7F}\u{2028}ü\u{1F30A}"
    let reference = Reference(odd, zone: ZoneID("Other/\"", owner: "_owner"), action: .deleteSelf)
    let values: [FieldValue] = [
      .string(""), .string(String(repeating: odd, count: 100)), .int64(.min), .double(-1.234567890123456e-300),
      .date(milliseconds: .min / 2), .bytes([]), .bytes([UInt8](repeating: 0xFF, count: 1000)), .bytes([1]),
      .reference(reference), .reference(Reference("x")),
      .location(
        Location(
          latitude: -89.12345678901234, longitude: -179.1234567890123, horizontalAccuracy: 1.234567890123456,
          verticalAccuracy: 1.234567890123456, altitude: -1234.567890123456, speed: 123.4567890123456,
          course: 123.4567890123456, timestamp: -62_135_769_600_000)),
      .list(.strings, []), .list(.strings, [.string(odd), .string("")]), .list(.int64s, [.int64(.min), .int64(0)]),
      .list(.doubles, [.double(.leastNonzeroMagnitude)]), .list(.references, [.reference(reference)]),
      .list(.bytes, [.bytes([1, 2]), .bytes([])]), .list(.dates, [.date(milliseconds: 0)]),
    ]
    var operations = values.enumerated().map { number, value in
      CloudOperation(.create, name: "n\(number)", type: "Type\(number)", fields: ["field": value])
    }
    let cleared: [String: FieldValue?] = ["a": nil as FieldValue?, odd: 1]
    operations.append(CloudOperation(.update, name: odd, type: "T", changeTag: odd, fields: cleared))
    let parent = String(repeating: "p", count: 255)
    operations.append(CloudOperation(.replace, name: "p", type: "T", changeTag: "t", parent: parent))
    let escaped = String(repeating: "\u{1}", count: 255)
    operations.append(CloudOperation(.create, name: escaped, type: escaped, fields: [escaped: .reference(reference)]))
    operations.append(CloudOperation(.delete, name: "d", changeTag: "t"))
    let empty = try await transport.size(of: [], client)
    for operation in operations {
      let size = try await transport.size(of: [operation], client) - empty
      let estimate = UploadPlan.jsonBytes(operation)
      #expect(size <= estimate, "\(operation)")
    }
    let all = try await transport.size(of: operations, client) - empty
    #expect(all <= operations.reduce(0) { $0 + UploadPlan.jsonBytes($1) })
  }
}

/// Keeps how large the last request was, and answers it with nothing.
private final class Sizes: Transport {
  private let last = Mutex(0)

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    last.withLock { $0 = request.body.count }
    return HTTPResponse(status: 200, body: Array(#"{"records":[]}"#.utf8))
  }

  func size(of operations: [CloudOperation], _ client: WebServicesDatabase) async throws -> Int {
    _ = try await client.modify(operations, in: zone, atomic: false)
    return last.withLock { $0 }
  }
}
