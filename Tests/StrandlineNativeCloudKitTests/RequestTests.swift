// Goal: a save through CloudKit's framework is taken only on top of its base, and every result reaches its record: conflicts with the
// server's version, refused parts, atomic requests, replacements, deletions. Method: requests to a server in this process, against
// what the web shows of it.

import CloudKit
import Foundation
import Strandline
import StrandlineCloudKit
@testable import StrandlineNativeCloudKit
import StrandlineServer
import StrandlineSystem
import Testing

private func update(
  _ name: String, _ base: SystemFields, _ fields: [String: FieldValue?], _ kind: CloudOperation.Kind = .update,
  parent: String? = nil
) -> CloudOperation {
  CloudOperation(
    kind, name: name, type: "Note", changeTag: base.changeTag, archive: base.archive, fields: fields, parent: parent)
}

@Suite(.timeLimit(.minutes(30)))
struct `Requests through CloudKit's framework` {
  @Test func `save what was changed on top of the base, in one request`() async throws {
    let scene = try await NativeScene()
    let first = try await scene.create("n", ["title": "a", "body": "b", "gone": "c"], parent: nil)
    #expect(first.changeTag != nil && !first.archive.isEmpty && first.created == first.modified)
    _ = scene.cloud.takeRequests()
    let second = try await scene.modify(update("n", first, ["title": "d"])).saved("n").system
    #expect(scene.cloud.takeRequests() == ["private/records/modify"])
    #expect(second.changeTag != first.changeTag && second.created == first.created)
    let found = try await scene.atServer("n")
    #expect(found.fields == ["title": "d", "body": "b", "gone": "c"] && found.system.changeTag == second.changeTag)
    // The archive of the answer is that of the new version.
    _ = try await scene.modify(update("n", second, ["title": "e"])).saved("n")
  }

  @Test func `clear a field of the record that the server has, and of no other version`() async throws {
    let scene = try await NativeScene()
    let first = try await scene.create("n", ["title": "a", "gone": "c"], parent: nil)
    _ = scene.cloud.takeRequests()
    let second = try await scene.modify(update("n", first, ["gone": nil])).saved("n").system
    #expect(scene.cloud.takeRequests() == ["private/records/lookup", "private/records/modify"])
    #expect(try await scene.atServer("n").fields == ["title": "a"])
    _ = try await scene.modify(update("n", second, ["title": "b"])).saved("n")
    let (error, current) = try await scene.modify(update("n", second, ["title": nil])).refusal("n")
    #expect(error.code == .conflict && current?.fields == ["title": "b"])
  }

  @Test func `bring the server's version with a conflict, and ask for nothing`() async throws {
    let scene = try await NativeScene()
    let base = try await scene.create("n", ["title": "a"])
    _ = try await scene.web.modify(
      [update("n", base, ["title": "theirs", "more": 1])], in: scene.zone, atomic: false
    ).saved("n")
    let (error, current) = try await scene.modify(update("n", base, ["title": "mine"])).refusal("n")
    #expect(error.code == .conflict)
    #expect(current?.fields == ["title": "theirs", "more": 1])
    #expect(try await scene.atServer("n").fields["title"] == "theirs")
    // On top of that version it is taken.
    let later = try #require(current?.system)
    _ = try await scene.modify(update("n", later, ["title": "mine"])).saved("n")
    // So is a creation of a name that exists.
    let (exists, there) = try await scene.modify(
      CloudOperation(.create, name: "n", type: "Note", fields: ["title": "new"])
    ).refusal("n")
    #expect(exists.code == .conflict && there?.fields["title"] == "mine")
  }

  @Test func `without a usable archive look once, and send only on top of the base`() async throws {
    let scene = try await NativeScene()
    let made = try await scene.create("n", ["title": "a"])
    let other = try await scene.create("m", ["title": "a"])
    for archive in [[], [1, 2, 3], other.archive, Array(made.archive.dropLast(9))] {
      var base = try await scene.atServer("n").system
      base.archive = archive
      _ = scene.cloud.takeRequests()
      _ = try await scene.modify(update("n", base, ["title": .string("\(archive.count)")])).saved("n")
      #expect(scene.cloud.takeRequests() == ["private/records/lookup", "private/records/modify"])
    }
    // An archive of an older version is none of this one.
    var newest = try await scene.atServer("n").system
    newest.archive = made.archive
    _ = try await scene.modify(update("n", newest, ["title": "newest"])).saved("n")
    var stale = made
    stale.archive = []
    let (error, current) = try await scene.modify(update("n", stale, ["title": "late"])).refusal("n")
    #expect(error.code == .conflict && current?.fields["title"] == "newest")
    #expect(try await scene.atServer("n").fields["title"] == "newest")
    stale.changeTag = "gone"
    let missing = try await scene.modify(update("missing", stale, ["title": "late"])).refusal("missing")
    #expect(missing.error.code == .notFound && missing.current == nil)
  }

  @Test func `replace a record and take away what they do not name`() async throws {
    let scene = try await NativeScene()
    _ = try await scene.create("above", [:])
    let base = try await scene.create(
      "n", ["title": "a", "body": "b", "secret": .encrypted("s"), "kept": .encrypted("k")], parent: "above")
    _ = try await scene.modify(
      update("n", base, ["title": "c", "kept": .encrypted("l")], .replace)
    ).saved("n")
    let found = try await scene.atServer("n")
    #expect(found.fields == ["title": "c", "kept": .encrypted("l")] && found.parent == nil)
    // A tag that is not the newest is refused.
    let (error, current) = try await scene.modify(update("n", base, ["title": "d"], .replace)).refusal("n")
    #expect(error.code == .conflict && current?.fields == found.fields)
  }

  @Test func `clear a field where it is, also an encrypted one after a relaunch`() async throws {
    let scene = try await NativeScene()
    let base = try await scene.create("n", ["plain": "a", "secret": .encrypted("s"), "other": .encrypted("o")])
    let next = try await scene.modify(update("n", base, ["plain": nil, "secret": nil])).saved("n").system
    #expect(try await scene.atServer("n").fields == ["other": .encrypted("o")])
    // The archive still knows what is encrypted.
    let draft = try #require(
      NativeDraft(
        next.archive, id: CKRecord.ID(recordName: "n", zoneID: CKRecordZone.ID(scene.zone)),
        changeTag: next.changeTag))
    #expect(draft.encrypted == ["secret", "other"])
    var written = draft
    try written.write(update("n", next, ["plain": nil, "other": nil]))
    #expect(written.record.changedKeys() == ["plain"] && written.record.encryptedValues.changedKeys() == ["other"])
  }

  @Test func `delete the version that they know, and no other`() async throws {
    let scene = try await NativeScene()
    let base = try await scene.create("n", ["title": "a"])
    let other = try await scene.create("m", ["title": "a"])
    _ = try await scene.modify(update("m", other, ["title": "b"]))
    _ = scene.cloud.takeRequests()
    let results = try await scene.modify(
      update("n", base, [:], .delete), update("m", other, [:], .delete), update("x", base, [:], .delete))
    #expect(scene.cloud.takeRequests() == ["private/records/lookup", "private/records/modify"])
    guard case .deleted? = results["n"] else {
      Issue.record("\(results)")
      return
    }
    #expect(try results.refusal("m").error.code == .conflict)
    #expect(try results.refusal("x").error.code == .notFound)
    #expect(try await scene.database.lookup(["n"], in: scene.zone).refusal("n").error.code == .notFound)
    #expect(try await scene.atServer("m").fields["title"] == "b")
    // What may go in any version goes without a look.
    _ = scene.cloud.takeRequests()
    _ = try await scene.modify(CloudOperation(.forceDelete, name: "m"))
    #expect(scene.cloud.takeRequests() == ["private/records/modify"])
  }

  @Test func `give each part its own result`() async throws {
    let scene = try await NativeScene()
    let base = try await scene.create("n", ["count": 1])
    let results = try await scene.modify(
      CloudOperation(.create, name: "new", type: "Note", fields: ["count": 2]),
      // The field holds whole numbers.
      CloudOperation(.create, name: "wrong", type: "Note", fields: ["count": "text"]),
      update("n", base, ["count": 3]),
      CloudOperation(.create, name: "child", type: "Note", fields: [:], parent: "n"))
    #expect(try results.refusal("wrong").error.code == .badRequest)
    for name in ["new", "n", "child"] { _ = try results.saved(name) }
    #expect(results.count == 4)
  }

  @Test func `do all or nothing if they are atomic`() async throws {
    let scene = try await NativeScene()
    let base = try await scene.create("n", ["count": 1])
    func tried(_ bad: CloudOperation) async throws -> [CloudName: CloudResult] {
      try await scene.modify(
        CloudOperation(.create, name: "new", type: "Note", fields: ["count": 2]), bad, update("n", base, ["count": 3]),
        atomic: true)
    }
    for (bad, code) in [
      (CloudOperation(.create, name: "bad", type: "Note", fields: ["count": "text"]), CloudError.Code.badRequest),
      (CloudOperation(.create, name: "bad", type: "Note", fields: ["count": .double(.nan)]), .badRequest),
      (update("bad", base, [:], .delete), .notFound),
    ] {
      let results = try await tried(bad)
      #expect(try results.refusal("bad").error.code == code, "\(bad)")
      for name in ["new", "n"] { #expect(try results.refusal(name).error.code == .atomicError, "\(bad)") }
      #expect(try await scene.database.lookup(["new"], in: scene.zone).refusal("new").error.code == .notFound)
    }
    let stale = base
    _ = try await scene.modify(update("n", base, ["count": 4]))
    let results = try await scene.modify(
      update("n", stale, ["count": 5]), CloudOperation(.create, name: "new", type: "Note"), atomic: true)
    #expect(try results.refusal("n").current?.fields == ["count": 4])
    #expect(try results.refusal("new").error.code == .atomicError)
  }

  @Test func `hold 400 operations, and no more`() async throws {
    let scene = try await NativeScene()
    func creations(_ count: Int) -> [CloudOperation] {
      (0..<count).map { CloudOperation(.create, name: "n\($0)", type: "Note", fields: ["number": .int64(Int64($0))]) }
    }
    let tooMany = try await refusal {
      _ = try await scene.database.modify(creations(401), in: scene.zone, atomic: false)
    }
    #expect(tooMany.code == .badRequest)
    let results = try await scene.database.modify(creations(400), in: scene.zone, atomic: false)
    #expect(results.count == 400)
    for name in results.keys { _ = try results.saved(name.text) }
    let twice = CloudOperation(.create, name: "a", type: "Note")
    #expect(try await refusal { _ = try await scene.modify(twice, twice) }.code == .badRequest)
    let forced = CloudOperation(.forceUpdate, name: "a", type: "Note")
    #expect(try await refusal { _ = try await scene.modify(forced) }.code == .unsupported)
    #expect(try await scene.database.modify([], in: scene.zone, atomic: false).isEmpty)
    #expect(try await scene.database.lookup([], in: scene.zone).isEmpty)
  }

  @Test func `are made in the app's way`() async throws {
    var options = NativeRequestOptions()
    options.allowsCellularAccess = false
    options.requestTimeout = .milliseconds(1_500)
    options.resourceTimeout = .seconds(30)
    options.groupName = "Notes"
    let scene = try await NativeScene(options: options)
    for isUrgent in [false, true, false] {
      scene.database.beginCycle(isUserInitiated: isUrgent)
      _ = try await scene.database.zones()
      #expect(
        scene.cloud.takeManners() == [
          StandInCloud.Manner(
            isUrgent: isUrgent, allowsCellularAccess: false, requestSeconds: 1.5, resourceSeconds: 30, group: "Notes")
        ])
    }
  }

  @Test func `name the user in place of the framework's word for him, once he is known`() async throws {
    let scene = try await NativeScene()
    _ = try await scene.create("n", [:])
    #expect(
      try await scene.database.lookup(["n"], in: scene.zone).saved("n").system.created?.user == "__defaultOwner__")
    #expect(try await scene.database.user() == CloudServer.defaultUser)
    let known = try await scene.database.lookup(["n"], in: scene.zone).saved("n").system
    #expect(known.created?.user == CloudServer.defaultUser && known.modified?.user == CloudServer.defaultUser)
    let there = try await scene.atServer("n").system
    #expect(known.created?.milliseconds == there.created?.milliseconds)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `Feeds through CloudKit's framework` {
  @Test func `go on from a token that was kept as text`() async throws {
    let scene = try await NativeScene()
    func page(_ token: ChangeToken?, limit: Int = 200, listsOnly: Bool = false) async throws -> ZonePage {
      let query = ZoneQuery(scene.zone, since: token, limit: limit, listsOnly: listsOnly)
      return try #require(try await scene.database.zoneChanges(of: [query])[scene.zone]).get()
    }
    func names(_ page: ZonePage) -> [String] {
      page.changes.map { change in
        switch change {
        case .saved(let record): record.name
        case .deleted(let name): "-" + name
        case .failed(let name, _): "?" + name
        }
      }
    }
    let base = try await scene.create("b", ["title": "a"])
    for name in ["a", "c"] { _ = try await scene.create(name, ["title": "a"]) }
    let first = try await page(nil, limit: 2)
    #expect(first.moreComing && first.hasFields && names(first) == ["a", "b"])
    #expect(first.token.isNative)
    let second = try await page(ChangeToken(rawValue: String(first.token.rawValue)))
    #expect(!second.moreComing && names(second) == ["c"])
    _ = try await scene.modify(update("b", base, [:], .delete))
    #expect(names(try await page(second.token)) == ["-b"])
    let listed = try await page(nil, listsOnly: true)
    guard case .saved(let record)? = listed.changes.first else {
      Issue.record("\(listed)")
      return
    }
    #expect(!listed.hasFields && record.fields.isEmpty && record.type == "Note" && record.system.changeTag != nil)
  }

  @Test func `take a token of the other face, a damaged one and an expired one for expired`() async throws {
    let scene = try await NativeScene()
    func refused(_ database: any CloudDatabase, _ token: ChangeToken) async throws -> CloudError? {
      let query = ZoneQuery(scene.zone, since: token, limit: 10)
      guard case .failure(let error)? = try await database.zoneChanges(of: [query])[scene.zone] else { return nil }
      return error
    }
    func page(_ database: any CloudDatabase) async throws -> ZonePage {
      try #require(try await database.zoneChanges(of: [ZoneQuery(scene.zone, since: nil, limit: 10)])[scene.zone]).get()
    }
    let (native, web) = (try await page(scene.database).token, try await page(scene.web).token)
    #expect(native.isNative && !web.isNative)
    #expect(try await refused(scene.database, native) == nil)
    #expect(try await refused(scene.web, web) == nil)
    _ = scene.cloud.takeRequests()
    for token in [
      web, ChangeToken(rawValue: "native:"), ChangeToken(rawValue: "native:AAAA"), ChangeToken(rawValue: ""),
    ] {
      #expect(try await refused(scene.database, token)?.code == .changeTokenExpired)
      #expect(
        try await refusal { _ = try await scene.database.databaseChanges(since: token, limit: 9) }.code
          == .changeTokenExpired)
    }
    #expect(scene.cloud.takeRequests() == [], "no request says what is known")
    let asked = scene.server.statistics.requests
    #expect(try await refused(scene.web, native)?.code == .changeTokenExpired)
    #expect(
      try await refusal { _ = try await scene.web.databaseChanges(since: native, limit: 9) }.code
        == .changeTokenExpired)
    #expect(scene.server.statistics.requests == asked)
    // Of two zones the web still asks for the one whose token is its own.
    let other = ZoneID("Other")
    try await scene.database.createZone(other)
    let both = try await scene.web.zoneChanges(of: [
      ZoneQuery(scene.zone, since: native, limit: 9), ZoneQuery(other, since: nil, limit: 9),
    ])
    #expect((try? both[other]?.get()) != nil && (try? both[scene.zone]?.get()) == nil)
    var faults = ServerFaults()
    faults.expireTokens = true
    scene.server.setFaults(faults)
    #expect(try await refused(scene.database, native)?.code == .changeTokenExpired)
  }

  @Test func `say which zones changed, and why others are gone`() async throws {
    let scene = try await NativeScene()
    let (database, cloud) = (scene.database, scene.cloud)
    let start = try await database.databaseChanges(since: nil, limit: 100)
    #expect(start.zones == [DatabasePage.Zone(id: scene.zone)] && !start.moreComing)
    let reasons: [(String, CKDatabase.DatabaseChange.Deletion.Reason, ZoneLoss)] = [
      ("A", .deleted, .deleted), ("B", .purged, .purged), ("C", .encryptedDataReset, .encryptedDataReset),
    ]
    for (name, reason, _) in reasons {
      try await database.createZone(ZoneID(name))
      cloud.name(reason, forZone: name)
    }
    #expect(try await Set(database.zones()) == Set(["A", "B", "C", "Main"].map { ZoneID($0) }))
    for (name, _, _) in reasons { try await database.deleteZone(ZoneID(name)) }
    let page = try await database.databaseChanges(since: start.token, limit: 100)
    #expect(Set(page.zones) == Set(reasons.map { DatabasePage.Zone(id: ZoneID($0.0), loss: $0.2) }))
    #expect(try await database.databaseChanges(since: page.token, limit: 100).zones.isEmpty)
    #expect(try await refusal { try await database.deleteZone(ZoneID("A")) }.code == .zoneNotFound)
    let small = try await database.databaseChanges(since: nil, limit: 1)
    #expect(small.moreComing && small.zones.count == 1)
  }
}
