// SQLite as a store of records, for comparison in benchmarks: a table of ID, type, rank and body, with an index on the type.
//
// Every statement is prepared once, and what a read returns is copied out of SQLite, as an app would do it.

private import CStrandlineHost
private import Synchronization

/// A row of the table.
package struct SQLiteRecord: Sendable {
  package var id: String
  package var type: String
  package var rank: Int64
  package var body: [UInt8]

  package init(id: String, type: String, rank: Int64, body: [UInt8]) {
    self.id = id
    self.type = type
    self.rank = rank
    self.body = body
  }
}

/// A connection to a database of records. Safe to use from every thread; a lock lets one call run at a time.
package final class SQLiteRecords: Sendable {
  /// The connection's handle in C; 0 after `close`.
  private let handle: Mutex<Int>

  /// Opens the database at `path`, and creates it if it is missing, in journal mode WAL with synchronous FULL. Throws
  /// if reading these settings back yields others.
  package init(path: String) throws(SQLiteError) {
    guard SQLitePeer.version != nil else { throw SQLiteError(description: "SQLite is not installed on this machine") }
    var message = [CChar](repeating: 0, count: 256)
    let opened = unsafe message.withUnsafeMutableBufferPointer { buffer in
      unsafe strandline_sqlite_records_open(path, buffer.baseAddress, buffer.count)
    }
    guard opened != 0 else {
      let bytes = message.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
      throw SQLiteError(description: "SQLite cannot open '\(path)': " + String(decoding: bytes, as: UTF8.self))
    }
    handle = Mutex(opened)
  }

  deinit { close() }

  /// Inserts or replaces the records in one transaction, which is durable when this returns.
  package func save(_ records: some Sequence<SQLiteRecord>) throws(SQLiteError) {
    try run("save") { handle in
      var code = strandline_sqlite_begin(handle)
      for record in records where code == 0 {
        code = unsafe record.body.withUnsafeBytes { bytes in
          unsafe strandline_sqlite_save(
            handle, record.id, record.type, record.rank, bytes.baseAddress, bytes.count)
        }
      }
      return code == 0 ? strandline_sqlite_commit(handle) : code
    }
  }

  /// Makes an index on type and rank, which `records(ofType:fromRank:limit:)` uses.
  package func indexRanks() throws(SQLiteError) { try run("make an index") { strandline_sqlite_index_ranks($0) } }

  /// The record with an ID; nil if there is none.
  package func record(_ id: String) throws(SQLiteError) -> SQLiteRecord? {
    var found: SQLiteRecord?
    try run("read a record") { handle in
      unsafe Self.eachRow(handle, strandline_sqlite_find(handle, id)) { found = Self.record(handle) }
    }
    return found
  }

  /// The first IDs of a type from `low` to below `high`, in order.
  package func ids(ofType type: String, from low: String, to high: String, limit: Int) throws(SQLiteError) -> [String] {
    var found: [String] = []
    try run("list records") { handle in
      unsafe Self.eachRow(handle, strandline_sqlite_list(handle, type, low, high, limit)) {
        found.append(Self.text(handle, 0))
      }
    }
    return found
  }

  /// The first records of a type with at least this rank, in the order of their ranks.
  package func records(
    ofType type: String, fromRank rank: Int64, limit: Int
  ) throws(SQLiteError) -> [SQLiteRecord] {
    var found: [SQLiteRecord] = []
    try run("query records") { handle in
      unsafe Self.eachRow(handle, strandline_sqlite_range(handle, type, rank, limit)) {
        found.append(Self.record(handle))
      }
    }
    return found
  }

  package func close() {
    handle.withLock { handle in
      if handle != 0 { strandline_sqlite_records_close(handle) }
      handle = 0
    }
  }

  // MARK: Helpers

  private func run(_ what: String, _ body: (Int) -> Int32) throws(SQLiteError) {
    let code = handle.withLock { $0 == 0 ? -1 : body($0) }
    guard code == 0 else { throw SQLiteError(description: "SQLite cannot \(what): result code \(code)") }
  }

  /// Calls `body` at each row of what was asked for. Returns 0 or SQLite's result code.
  private static func eachRow(_ handle: Int, _ asked: Int32, _ body: () -> Void) -> Int32 {
    guard asked == 0 else { return asked }
    while true {
      let code = strandline_sqlite_next(handle)
      guard code == 1 else { return -code }
      body()
    }
  }

  private static func text(_ handle: Int, _ column: Int32) -> String {
    guard let text = unsafe strandline_sqlite_text(handle, column) else { return "" }
    return unsafe String(cString: text)
  }

  private static func record(_ handle: Int) -> SQLiteRecord {
    var count = 0
    let bytes = unsafe strandline_sqlite_blob(handle, 3, &count)
    return SQLiteRecord(
      id: text(handle, 0), type: text(handle, 1), rank: strandline_sqlite_integer(handle, 2),
      body: unsafe [UInt8](UnsafeRawBufferPointer(start: bytes, count: count)))
  }
}
