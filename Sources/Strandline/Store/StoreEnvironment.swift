// What a store stands on, for apps: opaque. The real one by default; StrandlineTesting makes simulated ones.

import StrandlineLog
package import StrandlineSystem

/// The disk, the clock and the random source of a store.
///
/// Apps leave it out. Their tests make one with StrandlineTesting: `.simulated(disk:clock:seed:)`.
public struct StoreEnvironment: Sendable {
  package let system: SystemEnvironment
  /// An app's test turns it.
  let isSimulated: Bool

  package init(_ system: SystemEnvironment, isSimulated: Bool = false) {
    self.system = system
    self.isSimulated = isSimulated
  }

  /// The log's options as they are here. Where time passes only when told, no thread waits for it; and where a test fills
  /// the disk, no space that was reserved ahead puts off the moment at which a write meets that.
  func adapted(_ options: LogOptions) -> LogOptions {
    guard isSimulated else { return options }
    var options = options
    options.controlIntervalMilliseconds = nil
    options.ballastBytes = 0
    options.upkeep = .onDemand
    options.preallocationFirstStepBytes = 1
    options.preallocationStepBytesMax = 1
    return options
  }

  /// This machine's.
  ///
  /// On iOS and its kin, a file that the system does not permit to be read or written counts as protected while the
  /// device is locked, and the store throws `.temporarilyUnavailable`. An app that wants to know it for certain passes its
  /// own word with `real(isProtectedDataAvailable:)`.
  public static var real: StoreEnvironment { StoreEnvironment(.real) }

  /// This machine's, for an app that knows whether protected files can be read: a call that the system refuses while
  /// `isProtectedDataAvailable` says false throws `.temporarilyUnavailable`, any other `.io`.
  ///
  /// - Parameter isProtectedDataAvailable: asked after a call was refused, on the thread of the call, which may be any, and in
  ///   the middle of it: it only answers. Calls of a store inside it throw `.misuse`, and those that throw nothing end the program. On
  ///   iOS an app keeps the value of `UIApplication.isProtectedDataAvailable`, which only the main thread may read, up to
  ///   date by `protectedDataDidBecomeAvailableNotification` and `protectedDataWillBecomeUnavailableNotification`.
  public static func real(isProtectedDataAvailable: @escaping @Sendable () -> Bool) -> StoreEnvironment {
    var system = SystemEnvironment.real
    system.fileSystem = ProtectedFileSystem(POSIXFileSystem(), isProtectedDataAvailable: isProtectedDataAvailable)
    return StoreEnvironment(system)
  }
}
