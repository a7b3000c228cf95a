// Pushes: over the web the engine waits for them itself; natively the system hands them to the app, which hands them on.
//
// A push only says that something has changed. So the engine asks what, as it does when it polls: one that is lost costs time, one
// that comes twice costs a request, and none can bring anything wrong.

import StrandlineSystem

extension SyncEngine {
  /// The longest wait after a failure. A sign-in is noticed after it at the latest.
  private static let waitMillisecondsMax: Int64 = 60_000

  /// Begins a fetch at each push, as long as the transport has pushes of its own.
  func listen() async {
    let environment = store.environment
    var failures = 0
    while !Task.isCancelled {
      do {
        try await database.awaitPush()
        failures = 0
        wake(.push)
      } catch let error as CloudError where error.code == .unsupported {
        return
      } catch {
        // Whatever it is, polling goes on, whose errors the status shows.
        failures += 1
        let wait = min(Self.waitMillisecondsMax, 1_000 << Int64(min(failures - 1, 6)))
        let late = Int64(environment.random.below(UInt64(wait / 2) + 1))
        do { try await environment.clock.sleep(milliseconds: wait - late) } catch { return }
      }
    }
  }

  /// Takes a notification that the system has handed to the app (`application(_:didReceiveRemoteNotification:)`), and begins a fetch if it
  /// says that something in this store's container has changed. Returns at once, as `wake(_:)` with `SyncCause.push`.
  ///
  /// - Parameter notification: what the system handed over. A dictionary of another sender is left alone.
  /// - Returns: whether it is CloudKit's, and of this container.
  /// - Complexity: O(1).
  @discardableResult
  public func handle(remoteNotification notification: [AnyHashable: Any]) -> Bool {
    guard RemoteNotification(notification)?.container.equalsUTF8(database.address.container) == true else {
      return false
    }
    wake(.push)
    return true
  }
}

/// What a notification of CloudKit says.
package struct RemoteNotification: Hashable, Sendable {
  /// The container that has changed.
  package let container: String

  /// Reads a notification; nil if it is not CloudKit's.
  package init?(_ notification: [AnyHashable: Any]) {
    guard let body = notification["ck"] as? [AnyHashable: Any], let container = body["cid"] as? String else {
      return nil
    }
    self.container = container
  }
}
