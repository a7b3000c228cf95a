// SQLite as an app's own database beside a store: the worked example of a projection keeps its full text index in it.
//
// No product and no command uses it. The library is loaded when a test needs it; without it the test says so and is
// skipped.

private import CStrandlineHost
private import Synchronization

/// For tests: a connection to a SQLite database. Safe to use from every thread; statements run one at a time.
package final class SQLiteDatabase: Sendable {
  /// The connection's handle in C; 0 after `close`.
  private let handle: Mutex<Int>

  /// For tests: whether the library is installed and has full text search (FTS5).
  package static let hasFullTextSearch: Bool = {
    guard isLoaded else { return false }
    do {
      let database = try SQLiteDatabase(path: ":memory:")
      try database.run("CREATE VIRTUAL TABLE words USING fts5(word)")
      return true
    } catch { return false }
  }()

  private static let isLoaded = strandline_database_load() != 0

  /// Opens the database at `path`, and creates it if it is missing.
  package init(path: String) throws(SQLiteError) {
    guard Self.isLoaded else { throw SQLiteError(description: "SQLite is not installed on this machine") }
    var message = [CChar](repeating: 0, count: 256)
    let opened = unsafe message.withUnsafeMutableBufferPointer { buffer in
      unsafe strandline_database_open(path, buffer.baseAddress, buffer.count)
    }
    guard opened != 0 else {
      let bytes = message.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
      throw SQLiteError(description: "SQLite cannot open '\(path)': " + String(decoding: bytes, as: UTF8.self))
    }
    handle = Mutex(opened)
  }

  deinit { close() }

  /// For tests: runs one statement, with `values` in the place of its question marks; nil for a null.
  ///
  /// - Returns: its rows, each column as text.
  @discardableResult
  package func run(_ text: String, _ values: String?...) throws(SQLiteError) -> [[String?]] {
    try handle.withLock { handle throws(SQLiteError) in
      guard handle != 0 else { throw SQLiteError(description: "the database is closed") }
      let statement = unsafe strandline_database_prepare(handle, text)
      guard statement != 0 else { throw Self.failure(handle, text) }
      defer { strandline_database_finalize(statement) }
      for (index, value) in values.enumerated() {
        guard let value else { continue }
        let code = unsafe strandline_database_bind(statement, Int32(index + 1), value, value.utf8.count)
        guard code == 0 else { throw Self.failure(handle, text) }
      }
      var rows: [[String?]] = []
      while true {
        switch strandline_database_step(statement) {
        case 100: rows.append(Self.row(statement))
        case 101: return rows
        default: throw Self.failure(handle, text)
        }
      }
    }
  }

  private static func row(_ statement: Int) -> [String?] {
    (0..<strandline_database_columns(statement)).map { column in
      var count = 0
      guard let text = unsafe strandline_database_text(statement, column, &count) else { return nil }
      return unsafe String(
        decoding: UnsafeRawBufferPointer(start: UnsafeRawPointer(text), count: count), as: UTF8.self)
    }
  }

  private static func failure(_ handle: Int, _ text: String) -> SQLiteError {
    let words = unsafe strandline_database_message(handle).map { unsafe String(cString: $0) } ?? "an unknown error"
    return SQLiteError(description: "SQLite cannot run '\(text)': \(words)")
  }

  /// Closes the connection; a transaction that is open is rolled back.
  package func close() {
    handle.withLock { handle in
      if handle != 0 { strandline_database_close(handle) }
      handle = 0
    }
  }
}
