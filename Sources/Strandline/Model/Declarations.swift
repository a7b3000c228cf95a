// What an app declares of its records. It is the store's: a store without sync keeps to it in its transactions, and the sync
// engine reads it there.

/// What a store was opened with.
package struct Declarations: Sendable {
  package var conflicts = ConflictRules()
  package var schema = Schema()
  package var atomicZones: Set<ZoneID> = []

  package init() {}
}
