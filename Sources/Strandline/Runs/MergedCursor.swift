// Goes through several runs as if they were one, and writes them as one.
//
// Of entries with the same key that of the newest run counts; a tombstone hides the older ones.

import StrandlineSystem

/// A place in several runs.
package struct MergedCursor {
  /// One for each run, the newest first.
  private var cursors: [RunCursor]
  /// The cursors that stand at an entry, by key and then by age: the first one is the current entry.
  private var order: [Int] = []
  private let hidesTombstones: Bool
  private var hasBegun = false

  /// A cursor through the cache, before the first key that does not sort before `key`. It passes tombstones.
  ///
  /// - Parameter runs: the newest first.
  package init(_ runs: [Run], from key: [UInt8] = []) throws(RunError) {
    cursors = []
    for run in runs { cursors.append(try run.cursor(from: key)) }
    hidesTombstones = true
  }

  /// A cursor through whole runs, past the cache.
  init(whole runs: [Run], hidesTombstones: Bool) {
    cursors = runs.map { RunCursor(whole: $0) }
    self.hidesTombstones = hidesTombstones
  }

  /// The key of the current entry. Requires, as `value` does, that `advance` has returned true.
  package var key: [UInt8] { cursors[order[0]].key }

  /// The value of the current entry; nil if it is a tombstone.
  package var value: RunValue? { cursors[order[0]].value }

  /// Moves to the next key; to the first one, when it is called for the first time.
  ///
  /// - Returns: false if there is none.
  /// - Throws: as `RunCursor.advance`.
  /// - Complexity: O(runs) comparisons at most; one where a run has many keys in a row.
  package mutating func advance() throws(RunError) -> Bool {
    repeat {
      if hasBegun {
        try leaveKey()
      } else {
        hasBegun = true
        for number in cursors.indices { try advance(number) }
      }
      guard let first = order.first else { return false }
      if !hidesTombstones || !cursors[first].isTombstone { return true }
    } while true
  }

  /// Moves every cursor that stands at the current key.
  private mutating func leaveKey() throws(RunError) {
    guard let first = order.first else { return }
    var leaving = 1
    while leaving < order.count, cursors[order[leaving]].key == cursors[first].key { leaving += 1 }
    if leaving == 1 {
      // Most often it stays the first.
      let hasMore = try cursors[first].advance()
      if hasMore, order.count == 1 || isBefore(first, order[1]) { return }
      order.removeFirst()
      return hasMore ? insert(first) : ()
    }
    // A cursor that is moved takes its place behind those that are still to be moved: its new key is larger.
    for _ in 0..<leaving { try advance(order.removeFirst()) }
  }

  /// Moves one cursor and puts it in its place of the order; a cursor at its end has none.
  private mutating func advance(_ number: Int) throws(RunError) {
    if try cursors[number].advance() { insert(number) }
  }

  private mutating func insert(_ number: Int) {
    var place = 0
    while place < order.count, isBefore(order[place], number) { place += 1 }
    order.insert(number, at: place)
  }

  private func isBefore(_ left: Int, _ right: Int) -> Bool {
    if cursors[left].key.precedes(cursors[right].key) { return true }
    return left < right && cursors[left].key == cursors[right].key
  }
}

extension RunWriter {
  /// Appends what several runs say together. The caller then calls `finish`. Reads past the cache, and each run once.
  ///
  /// - Parameters:
  ///   - runs: the newest first; between them and in age, no other run may be missing.
  ///   - dropsTombstones: whether no older run remains that they would hide something of.
  ///   - isKept: whether an entry is needed, by its key.
  ///   - isCancelled: asked now and then.
  /// - Returns: false if that has cancelled it; the writer is of no more use then.
  /// - Throws: as `RunCursor.advance` and `append`.
  package func merge(
    _ runs: [Run], dropsTombstones: Bool, isKept: ([UInt8]) -> Bool = { _ in true },
    isCancelled: () -> Bool = { false }
  ) throws(RunError) -> Bool {
    var cursor = MergedCursor(whole: runs, hidesTombstones: dropsTombstones)
    var count = 0
    while try cursor.advance() {
      if isKept(cursor.key) { try append(cursor.key, cursor.value) }
      count += 1
      if count % 1024 == 0, isCancelled() { return false }
    }
    return true
  }
}
