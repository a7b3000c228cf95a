// What a zone's listing has named and is still to be fetched: not the names, which lie in the log, but the events that hold
// them. So a store that has listed a million records holds a few thousand numbers.

/// The `listed` events of a zone that have not ended.
package struct ListedNames: Hashable, Sendable {
  /// How many names each of them has. A name counts until the last one of its event is here.
  package private(set) var events: [LSN: Int] = [:]
  /// How many names they have together.
  package private(set) var count = 0

  package init() {}

  /// Begins or ends one (nil); returns what was known of it.
  mutating func assign(_ names: Int?, _ lsn: LSN) -> Int? {
    let old = events.assign(names, lsn)
    count += (names ?? 0) - (old ?? 0)
    return old
  }
}
