// What has changed between two moments of durability: what observers ask before they look again.

/// The records and types that changed. More may stand here than has changed, never less.
package struct DurableChanges: Sendable {
  package private(set) var ids: Set<RecordID> = []
  /// Zone by zone, the types of those records before and after.
  package private(set) var types: [ZoneID: Set<String>] = [:]
  /// Zones, holds, tokens or waits changed.
  package var hasSyncChanged = false

  package init() {}

  package var isEmpty: Bool { ids.isEmpty && !hasSyncChanged }

  mutating func add(_ id: RecordID, types before: String?, _ after: String?) {
    guard ids.insert(id).inserted || before != after else { return }
    for type in [before, after] {
      if let type { types[id.zone, default: []].insert(type) }
    }
  }
}
