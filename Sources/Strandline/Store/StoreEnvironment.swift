// What a store stands on, for apps: opaque. The real one by default; StrandlineTesting makes simulated ones.

package import StrandlineSystem

/// The disk, the clocks and the dice of a store.
public struct StoreEnvironment: Sendable {
  package let system: SystemEnvironment

  package init(_ system: SystemEnvironment) { self.system = system }

  /// This machine's.
  public static var real: StoreEnvironment { StoreEnvironment(.real) }
}
