// The app's declarations about its records. They belong to the store: also a store without sync applies them in its transactions, and
// the sync engine reads them there.

/// The declarations with which a store was opened.
package struct Declarations: Sendable {
  package var conflicts = ConflictRules()
  package var schema = Schema()
  package var atomicZones: Set<ZoneID> = []
  package var assetBytesMax = Names.assetBytesMax
  package var fetchedBytesMax: Int64 = 500_000_000

  package init() {}
}
