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

  @Test func `says why it cannot open`() throws {
    let folder = try TemporaryFolder()
    #expect(throws: SQLiteError.self) { try SQLitePeer(path: folder("nowhere/a.sqlite")) }
  }
}
