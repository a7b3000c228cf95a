// Everything a simulated disk knows, as one value: copying it is how a disk is cloned.
//
// Names and contents are apart, as on a real disk: a folder is a table from names to numbers, a number is
// a file or a folder. Each has a durable side and a current side, and what lies between them is a list of
// operations in the order of the calls.

internal import StrandlineSystem

/// What a name leads to.
enum SimulatedEntry: Hashable, Sendable {
  case file(Int)
  case directory(Int)
}

/// A folder.
struct SimulatedDirectory: Sendable {
  var durable: [String: SimulatedEntry] = [:]
  var current: [String: SimulatedEntry] = [:]
}

/// A change to one or two names, done or lost as a whole.
struct SimulatedNameOperation: Sendable {
  struct Edit: Sendable {
    var directory: Int
    var name: String
    var entry: SimulatedEntry?
  }
  var call: String
  var path: String
  var edits: [Edit]
  /// As for a file's effect; names are under no barrier themselves.
  var born = 0

  /// The two concern one name, so that the later one cannot have happened without the earlier.
  func shares(nameWith other: SimulatedNameOperation) -> Bool {
    edits.contains { mine in
      other.edits.contains { $0.directory == mine.directory && $0.name == mine.name }
    }
  }
}

/// A disk as a value.
struct SimulatedDiskState: Sendable {
  struct Lock: Sendable {
    var shared = 0
    var isExclusive = false
  }
  struct WriteInFlight: Sendable {
    var node: Int
    var effect: Int
  }

  var nodes: [SimulatedNode] = []
  /// The first is the root.
  var directories: [SimulatedDirectory] = [SimulatedDirectory()]
  var operations: [SimulatedNameOperation] = []
  var locks: [Int: Lock] = [:]
  /// Contents of files that were removed or cut: what may shine through in a file that grew without data.
  var graveyard: [SimulatedContent] = []

  var callCount = 0
  var crashAtCall: Int?
  var isTearing = false
  var isOff = false
  var failedSyncLosesPages = false
  var syncFailures: [Int: SystemError] = [:]
  /// Calls of any kind that fail, by number.
  var failingCalls: Set<Int> = []
  /// How many environments were made for this disk and those that it came from by a crash.
  var starts: UInt64 = 0
  /// A sync of strength `.ordered` is a barrier and no more.
  var isOrderedSyncWeak = false
  /// The barriers so far.
  var barriers = 0
  /// The write that the power cut met, if it met one; in a state of the history, the write that was just done.
  var inFlight: WriteInFlight?
  /// The write that the last mutating call did; nil if that was no write.
  var lastWrite: WriteInFlight?
  var history: [SimulatedDiskState]?

  var capacity: Int?
  /// The sizes of all files that have a name.
  var used = 0

  // MARK: Names

  /// By bytes: paths are taken apart at every call, and characters would cost more than all the rest.
  private static func parts(_ path: String) -> [Substring] {
    path.utf8.split(separator: UInt8(ascii: "/")).map { Substring($0) }.filter { $0 != "." }
  }

  /// What stands at a path, nil if nothing does.
  func entry(_ call: String, _ path: String) throws(SystemError) -> SimulatedEntry? {
    var entry = SimulatedEntry.directory(0)
    for part in Self.parts(path) {
      guard case .directory(let index) = entry else { throw .notDirectory(call, path) }
      guard let next = directories[index].current[String(part)] else { return nil }
      entry = next
    }
    return entry
  }

  func file(_ call: String, _ path: String) throws(SystemError) -> Int {
    switch try entry(call, path) {
    case .file(let node): return node
    case .directory: throw .isDirectory(call, path)
    case nil: throw .absent(call, path)
    }
  }

  func directory(_ call: String, _ path: String) throws(SystemError) -> Int {
    switch try entry(call, path) {
    case .directory(let index): return index
    case .file: throw .notDirectory(call, path)
    case nil: throw .absent(call, path)
    }
  }

  /// The folder of a path, and the name in it.
  func place(_ call: String, _ path: String) throws(SystemError) -> (directory: Int, name: String) {
    var parts = Self.parts(path)
    guard let name = parts.popLast() else { throw .taken(call, path) }
    return (try directory(call, parts.joined(separator: "/")), String(name))
  }

  mutating func perform(_ operation: SimulatedNameOperation) {
    for edit in operation.edits { directories[edit.directory].current[edit.name] = edit.entry }
    operations.append(operation)
    operations[operations.count - 1].born = barriers
  }

  /// Makes a file's bytes durable, or puts them under a barrier.
  mutating func syncData(of node: Int, _ strength: SyncStrength) {
    if isOrderedSyncWeak && strength == .ordered {
      barriers += 1
      nodes[node].seal(barriers)
    } else {
      nodes[node].sync()
      emptyCache()
    }
  }

  /// A durable sync empties the whole cache of the drive, and with it what barriers have put there.
  private mutating func emptyCache() {
    guard barriers > 0 else { return }
    for node in nodes.indices { nodes[node].syncSealed() }
  }

  /// Makes the pending operations on a folder's names durable, and those that they build on.
  mutating func syncNames(of directory: Int) {
    var isWanted = operations.map { $0.edits.contains { $0.directory == directory } }
    for index in operations.indices.reversed() where !isWanted[index] {
      isWanted[index] = (index + 1..<operations.count).contains {
        isWanted[$0] && operations[$0].shares(nameWith: operations[index])
      }
    }
    var rest: [SimulatedNameOperation] = []
    for (index, operation) in operations.enumerated() {
      guard isWanted[index] else {
        rest.append(operation)
        continue
      }
      for edit in operation.edits { directories[edit.directory].durable[edit.name] = edit.entry }
    }
    operations = rest
    emptyCache()
  }

  /// Calls `body` with each path, in the order of the names.
  func walk(_ body: (String, SimulatedEntry) -> Void) {
    func visit(_ directory: Int, _ path: String) {
      for (name, entry) in directories[directory].current.sorted(by: { $0.key < $1.key }) {
        body(path + "/" + name, entry)
        if case .directory(let index) = entry { visit(index, path + "/" + name) }
      }
    }
    visit(0, "")
  }

  // MARK: Space

  /// Accounts for growth, or refuses it.
  mutating func claim(_ count: Int, _ call: String, _ path: String) throws(SystemError) {
    if let capacity, count > 0, used + count > capacity { throw .full(call, path) }
    used += count
  }

  /// Refuses a new name on a disk that has no byte left.
  func requireRoom(_ call: String, _ path: String) throws(SystemError) {
    if let capacity, used >= capacity { throw .full(call, path) }
  }

  /// A name has let go of a file; nobody but open handles can reach its bytes now.
  mutating func bury(_ node: Int) {
    used -= nodes[node].current.size
    guard nodes[node].current.size > 0 else { return }
    graveyard.append(nodes[node].current)
    if graveyard.count > 4 { graveyard.removeFirst() }
  }

  /// The same disk for other hands: no locks, no plans for faults, no past.
  func detached() -> SimulatedDiskState {
    var copy = self
    copy.locks = [:]
    copy.history = nil
    return copy
  }
}
