// SQLite for comparison, if this machine has it: one connection, one table, the settings that make a commit durable.
//
// Nothing of the package stands on it. It is loaded when a benchmark asks, and a benchmark without it says so.

private import CStrandlineHost
private import Synchronization

/// SQLite refused.
package struct SQLiteError: Error, CustomStringConvertible {
  package var description: String
}

/// A connection behind a lock: safe to use from every thread, one transaction at a time.
package final class SQLitePeer: Sendable {
  /// The C side's name of the connection; 0 when it is closed.
  private let handle: Mutex<Int>

  /// The version that was found; nil if there is none.
  package static let version: String? = {
    guard let text = unsafe strandline_sqlite_load() else { return nil }
    return unsafe String(cString: text)
  }()

  /// Opens the database at `path`, or makes it: WAL, synchronous FULL, both read back and checked.
  package init(path: String) throws(SQLiteError) {
    guard Self.version != nil else { throw SQLiteError(description: "SQLite is not on this machine") }
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

  /// Inserts `body` so many times in one transaction. When it returns, the transaction is durable.
  package func insert(_ body: [UInt8], times: Int = 1) throws(SQLiteError) {
    let code = handle.withLock { handle -> Int32 in
      guard handle != 0 else { return -1 }
      return unsafe body.withUnsafeBytes { bytes in
        unsafe strandline_sqlite_insert(handle, bytes.baseAddress, bytes.count, times)
      }
    }
    guard code == 0 else { throw SQLiteError(description: "SQLite did not insert: code \(code)") }
  }

  /// Reads the last body; its length, nil if there is none.
  ///
  /// For tests: a benchmark only inserts, and this shows that the rows are there.
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
