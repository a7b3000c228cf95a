// A store that many reads of one process share. It is opened once and brought up to date before each of them, which costs a few
// reads of the disk, where opening costs as many as the store has sorted tables.

import Strandline
import StrandlineSystem
import Synchronization

/// A store that is open for reading.
package final class SharedReader: Sendable {
  private let path: String
  private let environment: SystemEnvironment
  private let opened = Mutex<RecordStore?>(nil)

  init(_ path: String, _ environment: SystemEnvironment) { (self.path, self.environment) = (path, environment) }

  /// The store, with everything that is durable now.
  func store() throws -> RecordStore {
    try opened.withLock { opened in
      if let store = opened {
        do {
          try store.refresh()
          return store
        } catch {
          // It may have been moved, or another one be in its place: opening it again says what is there.
          opened = nil
        }
      }
      let store = try RecordStore.openReadOnlyBlocking(at: path, environment: StoreEnvironment(environment))
      opened = store
      return store
    }
  }
}
