// Rows on their way into a run: made in any order, sorted, and written. A flush has many thousands of small ones, so they
// lie behind each other in one array, and what is sorted are their places.

import StrandlineSystem

/// Rows of one table.
struct RowBuffer {
  private struct Row {
    /// The first bytes of the key behind those that all keys have in common, the first one the most significant.
    var prefix: UInt64 = 0
    var start: Int
    var keyEnd: Int
    /// `keyEnd - 1` for a row that removes the one that older runs have.
    var end: Int

    var key: Range<Int> { start..<keyEnd }
    var value: Range<Int>? { end < keyEnd ? nil : keyEnd..<end }
  }
  private var bytes = ByteWriter()
  private var rows: [Row] = []
  /// The length of the longest key.
  private(set) var keyBytesMax = 0

  var count: Int { rows.count }

  /// Adds a row.
  ///
  /// - Parameters:
  ///   - key: appends its key, which is not empty.
  ///   - value: appends its value and returns true, or returns false for a row that removes one.
  mutating func append(key: (inout ByteWriter) -> Void, value: (inout ByteWriter) -> Bool) {
    let start = bytes.count
    key(&bytes)
    let keyEnd = bytes.count
    let end = value(&bytes) ? bytes.count : keyEnd - 1
    rows.append(Row(start: start, keyEnd: keyEnd, end: end))
    keyBytesMax = max(keyBytesMax, keyEnd - start)
  }

  /// Puts the rows into the order of their keys.
  mutating func sort() {
    guard let first = rows.first?.key else { return }
    let bytes = bytes.bytes
    let common = rows.reduce(first.count) { common, row in
      bytes.commonPrefixCount(first.prefix(common), bytes, row.key)
    }
    for place in rows.indices {
      for at in rows[place].key.dropFirst(common).prefix(8) {
        rows[place].prefix |= UInt64(bytes[at]) << UInt64(56 - 8 * (at - rows[place].start - common))
      }
    }
    rows.sort { left, right in
      left.prefix == right.prefix ? bytes.precedes(left.key, bytes, right.key) : left.prefix < right.prefix
    }
  }

  /// Hands over the rows in their order: the bytes, and where in them the key and the value lie.
  func forEach<Failure: Error>(
    _ body: (_ bytes: [UInt8], _ key: Range<Int>, _ value: Range<Int>?) throws(Failure) -> Void
  ) throws(Failure) {
    for row in rows { try body(bytes.bytes, row.key, row.value) }
  }
}
