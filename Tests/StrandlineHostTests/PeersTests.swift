// SQLite as a peer in benchmarks, if it is installed: inserted rows can be read, and a failing open throws.

import StrandlineHost
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.enabled(if: SQLitePeer.version != nil, "SQLite is not installed on this machine"), .timeLimit(.minutes(30)))
struct `SQLite as a peer` {
  @Test func `inserts one by one and many in a transaction`() throws {
    let folder = try TemporaryFolder()
    let peer = try SQLitePeer(path: folder("a.sqlite"))
    #expect(peer.readLast() == nil)
    try peer.insert([1, 2, 3])
    #expect(peer.readLast() == 3)
    try peer.insert([UInt8](repeating: 7, count: 500), times: 40)
    #expect(peer.readLast() == 500)
    peer.close()
    peer.close()
    #expect(throws: SQLiteError.self) { try peer.insert([1]) }
    let again = try SQLitePeer(path: folder("a.sqlite"))
    #expect(again.readLast() == 500)
  }

  @Test func `stores records, and finds them by their IDs, types and ranks`() throws {
    let folder = try TemporaryFolder()
    let database = try SQLiteRecords(path: folder("a.sqlite"))
    func record(_ id: String, _ type: String, _ rank: Int64) -> SQLiteRecord {
      SQLiteRecord(id: id, type: type, rank: rank, body: Array("body of \(id)".utf8) + [0])
    }
    try database.save((0..<10).map { record("n\($0)", $0 % 2 == 0 ? "Note" : "Photo", Int64(9 - $0)) })
    try database.indexRanks()
    // A record with an ID that exists replaces it.
    try database.save([record("n4", "Note", -1)])
    let found = try #require(try database.record("n4"))
    #expect(found.rank == -1 && found.type == "Note" && found.body == Array("body of n4".utf8) + [0])
    #expect(try database.record("n") == nil)
    #expect(try database.ids(ofType: "Note", from: "", to: "~", limit: 3) == ["n0", "n2", "n4"])
    #expect(try database.ids(ofType: "Photo", from: "n3", to: "n7", limit: 3) == ["n3", "n5"])
    #expect(try database.records(ofType: "Note", fromRank: 0, limit: 2).map(\.id) == ["n8", "n6"])
    #expect(try database.records(ofType: "Note", fromRank: 100, limit: 2).isEmpty)
    database.close()
    database.close()
    #expect(throws: SQLiteError.self) { try database.save([]) }
    let again = try SQLiteRecords(path: folder("a.sqlite"))
    #expect(try again.record("n9")?.rank == 0)
  }

  @Test func `says why it cannot open`() throws {
    let folder = try TemporaryFolder()
    #expect(throws: SQLiteError.self) { try SQLitePeer(path: folder("nowhere/a.sqlite")) }
    #expect(throws: SQLiteError.self) { try SQLiteRecords(path: folder("nowhere/a.sqlite")) }
  }
}
