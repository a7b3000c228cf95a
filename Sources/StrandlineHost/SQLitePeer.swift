// SQLite for comparison in benchmarks: one connection, one table, and the settings that make a commit durable.
//
// Nothing else in the package uses it. The library is loaded when a benchmark needs it; without it the benchmark says
// so and omits these rows.

private import CStrandlineHost
private import Synchronization

/// An error that SQLite returned, or that SQLite is not installed.
package struct SQLiteError: Error, CustomStringConvertible {
  package var description: String
}

/// A connection to a SQLite database. Safe to use from every thread; a lock lets one transaction run at a time.
package final class SQLitePeer: Sendable {
  /// The connection's handle in C; 0 after `close`.
  private let handle: Mutex<Int>

  /// The version of the installed library; nil if there is none.
  package static let version: String? = {
    guard let text = unsafe strandline_sqlite_load() else { return nil }
    return unsafe String(cString: text)
  }()

  /// Opens the database at `path`, and creates it if it is missing, in journal mode WAL with synchronous FULL. Throws
  /// if reading these settings back yields others.
  package init(path: String) throws(SQLiteError) {
    guard Self.version != nil else { throw SQLiteError(description: "SQLite is not installed on this machine") }
    var message = [CChar](repeating: 0, count: 256)
    let opened = unsafe message.withUnsafeMutableBufferPointer { buffer in
      unsafe strandline_sqlite_open(path, buffer.baseAddress, buffer.count)
    }
    guard opened != 0 else {
      let bytes = message.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
      throw SQLiteError(description: "SQLite cannot open '\(path)': " + String(decoding: bytes, as: UTF8.self))
    }
    handle = Mutex(opened)
  }

  deinit { close() }

  /// Inserts `body` the given number of times in one transaction, which is durable when this returns.
  package func insert(_ body: [UInt8], times: Int = 1) throws(SQLiteError) {
    let code = handle.withLock { handle -> Int32 in
      guard handle != 0 else { return -1 }
      return unsafe body.withUnsafeBytes { bytes in
        unsafe strandline_sqlite_insert(handle, bytes.baseAddress, bytes.count, times)
      }
    }
    guard code == 0 else { throw SQLiteError(description: "SQLite cannot insert: result code \(code)") }
  }

  /// Reads the body that was inserted last and returns its length, or nil if there is none.
  ///
  /// For tests: they check with it that the rows were inserted.
  package func readLast() -> Int? {
    let length = handle.withLock { $0 == 0 ? -1 : strandline_sqlite_last($0) }
    return length < 0 ? nil : Int(length)
  }

  package func close() {
    handle.withLock { handle in
      if handle != 0 { strandline_sqlite_close(handle) }
      handle = 0
    }
  }
}
