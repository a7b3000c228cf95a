// How verbs open stores: for writing, with the lock and a close whatever happens; for reading, with neither.

import Strandline
import StrandlineSystem

extension Command {
  /// Opens a store for writing, creating it if there is none, and closes it whatever happens.
  static func withStore(
    _ path: String, _ console: Console, create: Bool = true, _ body: (RecordStore) throws -> ExitCode
  ) throws -> ExitCode {
    let store = try RecordStore.openBlocking(
      at: path, environment: StoreEnvironment(console.environment), createIfAbsent: create)
    let outcome = Result { try body(store) }
    let closed = Result { try store.closeBlocking() }
    let code = try outcome.get()
    try closed.get()
    return code
  }

  /// Opens a store for reading.
  static func readOnly(_ path: String, _ console: Console) throws -> RecordStore {
    try RecordStore.openReadOnly(at: path, environment: StoreEnvironment(console.environment))
  }
}
