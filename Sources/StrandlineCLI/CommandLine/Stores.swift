// How verbs open stores: for writing, with the lock, and closed whether or not the verb fails; for reading, without the
// lock.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineSystem

extension Command {
  /// Opens a store for writing (creating it if it is missing and `create` is true), runs `body` and closes the store,
  /// also if `body` throws.
  static func withStore(
    _ path: String, _ console: Console, create: Bool = true, _ body: (RecordStore) throws -> ExitCode
  ) throws -> ExitCode {
    if create { try checkParent(of: path, console, purpose: "to make the store in") }
    let store = try RecordStore.openBlocking(
      at: path, environment: StoreEnvironment(console.environment), createIfAbsent: create)
    sayRecovery(of: store, at: path, console)
    let outcome = Result { try body(store) }
    let closed = Result { try store.closeBlocking() }
    let code = try outcome.get()
    try closed.get()
    return code
  }

  /// Prints a note for each segment that this open for writing has removed or moved to `quarantine/`.
  static func sayRecovery(of store: RecordStore, at path: String, _ console: Console) {
    let path = printable(path)
    for id in store.recovery.removed {
      console.say(
        "note: removed '\(path)/\(SegmentName.name(id))', which an interrupted process had left; no event is lost")
    }
    for id in store.recovery.quarantined {
      console.say(
        "note: moved '\(path)/\(SegmentName.name(id))' to '\(path)/\(LogFormat.quarantineName)'; it belongs to this "
          + "store, does not continue its log, and has events that the log does not have")
    }
  }

  /// Checks that the directory in which a store or a file is to be made exists.
  ///
  /// - Throws: `Failure` with the exit code 73, because what is missing is not the store but the place for it.
  static func checkParent(of path: String, _ console: Console, purpose: String) throws {
    var name = path[...]
    while name.count > 1, name.last == "/" { name.removeLast() }
    guard let slash = name.lastIndex(of: "/"), slash > name.startIndex else { return }
    let parent = String(name[..<slash])
    let kind: PathKind
    do { kind = try console.fileSystem.kind(of: parent) } catch {
      throw Failure(error.isForbidden ? .notPermitted : .cannotCreate, "cannot look at '\(parent)': \(error)")
    }
    switch kind {
    case .directory: return
    case .absent:
      throw Failure(
        .cannotCreate, "there is no directory '\(parent)' \(purpose)", try: "mkdir -p \(ShellWord.quote(parent))")
    case .file, .other:
      throw Failure(.cannotCreate, "'\(parent)' is not a directory \(purpose)", try: "another path")
    }
  }

  /// Whether nothing is at the path, so that opening a store there makes one.
  static func isNew(_ path: String, _ console: Console) -> Bool {
    // If the system cannot say it, the open that follows reports why.
    (try? console.fileSystem.kind(of: path)) == .absent
  }

  /// Prints a note that a store was made: the path may be mistyped, and the store is otherwise found by chance.
  static func sayNew(_ path: String, _ console: Console) {
    console.say("note: made a new store at '\(printable(path))'")
  }

  /// Opens a store for reading.
  static func readOnly(_ path: String, _ console: Console) throws -> RecordStore {
    if let reader = console.reader { return try reader.store() }
    return try RecordStore.openReadOnlyBlocking(at: path, environment: StoreEnvironment(console.environment))
  }
}

extension QuarantinedFile {
  /// The line that `verify`, `status` and `compact` print for the file in the store at `path`.
  func line(in path: String) -> String {
    "quarantine: '\(printable("\(path)/\(LogFormat.quarantineName)/\(name)"))', \(bytes) bytes; no command reads it"
  }

  /// The object in their JSON.
  var json: JSONValue {
    .object(["name": .string(name), "bytes": .integer(Int64(clamping: bytes))])
  }
}
