// Goal: each public value of the products' library prints itself in one line, and no line holds a credential or what is
// inside. Method: a table of values and their lines; and the sources are read, so that no public type is forgotten.

import StrandlineCloudKit
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Testing

@testable import Strandline

@Suite(.timeLimit(.minutes(30)))
struct `A public value` {
  /// Public types without a line of their own, and why.
  private static let plain: Set<String> = [
    // Noncopyable, so that no `print` can take it.
    "WriteTransaction",
    // Printed as their text form.
    "LogPosition",
    // Sequences: what they give out is printed, and not they.
    // A view reads it on the main actor; its value is printed.
    "Live",
    "StoreObservation", "RecordChanges", "StoreRefreshes", "SyncStatuses", "AsyncIterator",
  ]

  @Test func `describes itself in one line`() async throws {
    let id = RecordID("n")
    let touch = ServerTimestamp(milliseconds: 7, user: "_u", device: "phone")
    let system = SystemFields(changeTag: "t1", created: touch, modified: nil)
    let server = ServerRecord(name: "n", type: "Note", fields: ["title": "secret\nlife"], system: system)
    let refusal = CloudError(.quotaExceeded, reason: "too\nmuch")
    let lines: [(any Sendable, String)] = [
      (Record(type: "Note", id: id, fields: ["title": "x"]), "Note Main/n, 1 field"),
      (Reference("m", zone: ZoneID("Other"), action: .validate), "Other/m (validate)"), (Reference("m"), "m"),
      (Location(latitude: 53.9, longitude: 8.5), "53.9, 8.5"),
      (ChangeToken(rawValue: "abc"), "abc"), (touch, "7 ms by _u on phone"),
      (system, "tag 't1', created 7 ms by _u on phone"), (SystemFields(), "none"),
      (StrandlineError.Code.diskFull, "diskFull"), (CloudError.Code.conflict, "CONFLICT"),
      (refusal, "QUOTA_EXCEEDED: too\\u{a}much"),
      (CloudAddress(container: "iCloud.app", environment: .development), "iCloud.app development private"),
      (server, "Note 'n', 1 field, tag 't1', created 7 ms by _u on phone"),
      (CloudOperation(.delete, name: "n", changeTag: "t1"), "delete 'n', tag 't1'"),
      (CloudResult.record(server), "\(server)"), (CloudResult.deleted, "deleted"),
      (CloudResult.failed(refusal, serverRecord: nil), "QUOTA_EXCEEDED: too\\u{a}much"),
      (
        ZonePage(changes: [.deleted(name: "n")], token: ChangeToken(rawValue: "t"), moreComing: true),
        "1 change, more to come"
      ),
      (ZoneQuery(.main, since: nil, limit: 200), "Main from the beginning, 200 changes at most"),
      (SyncedZones.all, "all zones"), (SyncedZones.only([.main]), "only Main"),
      (SyncedZones.allBut([ZoneID("B"), ZoneID("A")]), "all but A, B"),
      (ZoneChange.deleted(name: "n"), "'n' deleted"), (ZoneChange.failed(name: "n", refusal), "'n': \(refusal)"),
      (MutationOutcome.superseded(by: LSN(rawValue: 7)), "superseded by event 7"),
      (MutationOutcome.rejected(code: .exists, reason: "two\nlines"), "rejected: EXISTS, two\\u{a}lines"),
      (
        RecordQuery(
          "Note", in: ZoneID("Z"), where: [RecordFilter("title", .beginsWith, "x")],
          sortedBy: [RecordSort("title", ascending: false)], limit: 3),
        "Note in Z, where title BEGINS_WITH string(\"x\"), by title descending, at most 3"
      ),
      (ValueOrder<Item>.descending(\.title), "title descending"), (ValueOrder<Item>.ascending(\.parent), "no field"),
      (Undone.Kept(id: id, field: "title", reason: .changedSince), "Main/n, title: changedSince"),
      (RecordIndex("Note", "made", ascending: false), "Note(made descending)"), (RecordIndex("Note"), "Note()"),
      (ProjectionBatch(beginsAnew: true, deleted: [id], position: nil), "anew, 0 saved, 1 deleted, more to come"),
      (ProjectionBatch(position: .start), "0 saved, 0 deleted, up to event 0"),
      (StoreOptions(), "segments of 16777216 bytes"), (StoreEnvironment.real, "this machine"),
      (SyncReport(), "0 requests"), (ZoneVerification(zone: .main), "Main: 0 of 0 records equal"),
      (Schema(), "no type is declared"), (TypeSchema(), "nothing is declared"),
      (ParentSchema("list", whenDeleted: .move(to: "inbox")), "parent: list, when it is deleted: move to 'inbox'"),
      (ChildRule.setNil, "setNil"),
      (PendingChange.Obstacle.together(RecordID("n")), "goes with Main/n, which cannot go"),
      (SchemaVersion(2, whenNewer: .reject), "version 2 in schemaVersion, later ones: reject"),
      (HTTPHeaders(dictionaryLiteral: ("X-Token", "secret"), ("Accept", "*")), "X-Token, Accept"),
      (HTTPHeaders.Field(name: "X-Token", value: "secret"), "X-Token"),
      (HTTPRequest(origin: "https://c", path: "/p", query: "ckWebAuthToken=secret"), "POST https://c/p"),
      (HTTPResponse(status: 200, body: [1]), "200, 1 bytes"), (SocketTransport(), "transport over sockets"),
      (
        WebServicesDatabase(
          address: CloudAddress(container: "c", environment: .development), apiToken: "secret", baseURL: "https://c/"),
        "c development private at https://c"
      ),
    ]
    for (value, line) in lines {
      #expect("\(value)" == line)
      // In an array and in an optional too.
      #expect("\([value])" == "[\(line)]")
    }
  }

  @Test func `of a store describes itself in one line`() async throws {
    let store = try await RecordStore.open(
      at: "/s", syncing: .simulated(SimulatedCloud()), environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let none = try await store.write { _ in }
    let one = try await store.write { try $0.save(Record(type: "Note", id: RecordID("n"))) }
    let two = try await store.write { tx in
      for name in ["a", "b"] { try tx.save(Record(type: "Note", id: RecordID(name))) }
    }
    #expect("\(none)" == "no event, durable up to 0")
    #expect("\(one)" == "events 1-2, durable up to 2")
    #expect("\(two)" == "events 3-4, durable up to 4")
    #expect("\(store)" == "store at '/s'")
    #expect("\(try await store.undo(none))" == "no event, durable up to 4; 0 changes stay")
    #expect("\(try store.view())" == "view of event 4 of store at '/s'")
    let page = try store.query(RecordQuery("Note", limit: 2))
    #expect("\(page)" == "2 records, more to come")
    #expect(page.cursor.map { "\($0)" } == "after Main/b")
    let changes = try store.changes(since: .start, limit: 1)
    #expect("\(changes)" == "1 change up to event 2, more to come")
    #expect("\(changes.changes[0])" == "saved Main/n at event 2, local")
    #expect("\(try store.history(of: RecordID("n")))" == "1 change")
    #expect("\(try store.engine)" == "sync of store at '/s' with iCloud.simulated development private")
    #expect("\(try store.status())" == "3 records, 3 unsent, durable up to 4")
    #expect("\(try store.status().zones[0])" == "Main: 3 records")
    let report = try await store.sync()
    #expect("\(report)" == "4 requests, 3 uploaded")
    #expect(
      "\(CompactionPolicy())"
        == "history of 2592000.0 seconds; compacts from a part of 0.3333333333333333 on, in 0.25 of the time")
    #expect("\(try await store.compact())".hasPrefix("bytes "))
    #expect("\(SyncConfiguration.simulated(SimulatedCloud()))" == "sync by hand")
    #expect("\(SyncPace.prompt)" == "syncs 0.5 s after a write and every 60.0 s, waits up to 300.0 s")
    try await store.close()
  }

  @Test func `has a type that describes its values`() throws {
    let root = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
    let texts = try ["StrandlineModel", "StrandlineSync", "Strandline", "StrandlineCloudKit"].flatMap {
      try Self.sources(in: "\(root)/Sources/\($0)")
    }
    let lines = texts.flatMap { $0.split(separator: "\n") }
    let describing = Set(
      lines.filter { $0.contains("CustomStringConvertible") }.compactMap { line -> Substring? in
        let words = line.split(whereSeparator: { " :<{".contains($0) })
        guard let kind = words.firstIndex(where: { ["struct", "class", "enum", "extension"].contains($0) }) else {
          return nil
        }
        return words[kind + 1].split(separator: ".").last
      })
    #expect(describing.count > 30, "the sources are read")
    for line in lines {
      let words = line.split(whereSeparator: { " :<{".contains($0) })
      guard words.first == "public",
        let kind = words.firstIndex(where: { $0 == "struct" || $0 == "class" }), kind <= 2
      else { continue }
      let name = words[kind + 1]
      #expect(describing.contains(name) || Self.plain.contains(String(name)), "\(name) prints what is inside")
    }
  }

  private static func sources(in folder: String) throws -> [String] {
    let disk = POSIXFileSystem()
    return try disk.list(folder).flatMap { name -> [String] in
      let path = "\(folder)/\(name)"
      if try disk.kind(of: path) == .directory { return try sources(in: path) }
      guard name.hasSuffix(".swift") else { return [] }
      let file = try disk.open(path, .read)
      defer { file.close() }
      return [String(decoding: try file.read(at: 0, count: Int(try file.size())), as: UTF8.self)]
    }
  }
}
