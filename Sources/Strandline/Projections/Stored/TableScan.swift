// A table in the order of its keys, from runs and memory together: what memory says of a key counts.

import StrandlineSystem

/// A walk through the rows of a table.
struct TableScan<ID, Row> {
  /// What memory says of a row; nil: it is gone.
  typealias Change = (key: [UInt8], id: ID, row: Row?)

  /// How the rows in runs are read.
  struct Table {
    /// What its keys begin with.
    let prefix: [UInt8]
    /// What a key is of; nil if it is of nothing that can be.
    let id: ([UInt8]) -> ID?
    let decode: ([UInt8], Range<Int>) throws(ByteReaderError) -> Row
  }

  private let table: Table
  private let runs: RunSet?
  private var stored: MergedCursor?
  private var hasStored = false
  /// In the order of their keys.
  private let changed: [Change]
  private var place = 0

  /// - Parameters:
  ///   - inputs: those of the runs that have rows of the table.
  ///   - start: the least key; if `isBehind`, the walk begins behind it.
  ///   - changed: from there on, in the order of the keys.
  init(
    _ table: Table, _ runs: RunSet?, _ inputs: [Run], from start: [UInt8], isBehind: Bool, changed: [Change]
  ) throws(StrandlineError) {
    self.table = table
    self.runs = runs
    self.changed = changed
    guard let runs else { return }
    try runs.checkBelieved()
    do throws(RunError) {
      var cursor = try MergedCursor(inputs, from: start)
      hasStored = try cursor.advance()
      if hasStored, isBehind, cursor.key == start { hasStored = try cursor.advance() }
      stored = cursor
    } catch {
      throw runs.fail(error)
    }
  }

  /// The next row; nil behind the last.
  ///
  /// - Throws: if a run cannot be read; it has failed then, and the scan is of no more use.
  mutating func next() throws(StrandlineError) -> (key: [UInt8], id: ID, row: Row)? {
    while true {
      let key = hasStored ? stored?.key : nil
      let isStored = key?.starts(with: table.prefix) == true
      guard place < changed.count else { return isStored ? try nextStored() : nil }
      if isStored, let key {
        if key.precedes(changed[place].key) { return try nextStored() }
        if key == changed[place].key { try advance() }
      }
      let next = changed[place]
      place += 1
      if let row = next.row { return (next.key, next.id, row) }
    }
  }

  private mutating func nextStored() throws(StrandlineError) -> (key: [UInt8], id: ID, row: Row)? {
    guard let runs, let key = stored?.key, let value = stored?.value else { return nil }
    let path = runs.runs.first?.path ?? ""
    let found: (key: [UInt8], id: ID, row: Row)
    do throws(RunError) {
      let row = try RunSet.decoding(path) { () throws(ByteReaderError) in try table.decode(value.bytes, value.range) }
      guard let id = table.id(key) else { throw RunError(.damaged, path, "a key is of nothing") }
      found = (key, id, row)
    } catch {
      throw runs.fail(error)
    }
    try advance()
    return found
  }

  private mutating func advance() throws(StrandlineError) {
    do throws(RunError) { hasStored = try stored?.advance() ?? false } catch {
      throw runs?.fail(error) ?? StrandlineError(.damaged, "\(error)")
    }
  }
}
