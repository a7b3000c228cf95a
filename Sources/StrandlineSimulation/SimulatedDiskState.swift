// The whole state of a simulated disk as one value, so that copying the value copies the disk.
//
// Names and contents are separate, as on a real disk: a directory is a table from names to the indexes of files and
// directories. Each file and each directory has a durable and a current state, and a list of the operations between the
// two in the order of the calls.

internal import StrandlineSystem

/// What a name refers to: an index into `nodes` or `directories`.
enum SimulatedEntry: Hashable, Sendable {
  case file(Int)
  case directory(Int)
}

/// The names in a directory, as they survive a crash and as they are now.
struct SimulatedDirectory: Sendable {
  var durable: [String: SimulatedEntry] = [:]
  var current: [String: SimulatedEntry] = [:]
  /// It has no name any more, and nothing new gets a name in it.
  var isRemoved = false
}

/// A change to one or two names, which a crash keeps or loses as a whole.
struct SimulatedNameOperation: Sendable {
  struct Edit: Sendable {
    var directory: Int
    var name: String
    var entry: SimulatedEntry?
  }
  var call: String
  var path: String
  var edits: [Edit]
  /// The number of barriers before this operation, as for a file's effect. No barrier covers the operation itself.
  var born = 0

  /// Whether both operations change the same name, so that the later one can survive only if the earlier one does.
  func hasCommonName(with other: SimulatedNameOperation) -> Bool {
    edits.contains { mine in
      other.edits.contains { $0.directory == mine.directory && $0.name == mine.name }
    }
  }
}

/// The state of a simulated disk.
struct SimulatedDiskState: Sendable {
  struct Lock: Sendable {
    var shared = 0
    var isExclusive = false
  }
  /// The number of the medium: another one after it was mounted again.
  var device: UInt64 = 1
  var countsNames = true

  struct WriteInFlight: Sendable {
    var node: Int
    var effect: Int
  }

  var nodes: [SimulatedNode] = []
  /// All directories; the first is the root.
  var directories: [SimulatedDirectory] = [SimulatedDirectory()]
  var operations: [SimulatedNameOperation] = []
  var locks: [Int: Lock] = [:]
  /// How many handles of each file are open.
  var handles: [Int: Int] = [:]
  /// The contents of the last four files that were removed or truncated. After a crash their bytes may be found in a file
  /// that grew without its data.
  var removedContents: [SimulatedContent] = []

  var callCount = 0
  var crashAtCall: Int?
  var isTearing = false
  var isOff = false
  var failedSyncLosesPages = false
  var syncFailures: [Int: SystemError] = [:]
  /// The numbers of calls, of any kind, that fail.
  var failingCalls: Set<Int> = []
  /// How many environments were made for this disk and for the disks of which it is an image after a crash.
  var starts: UInt64 = 0
  /// Whether a sync of strength `.ordered` is only a barrier.
  var isOrderedSyncWeak = false
  /// The number of barriers so far.
  var barriers = 0
  /// The write during which the power was cut, if any; in a copy of the history, the write of the last call.
  var inFlight: WriteInFlight?
  /// The write of the last mutating call; nil if that call was not a write.
  var lastWrite: WriteInFlight?
  var history: [SimulatedDiskState]?

  var capacity: Int?
  /// The sizes of all files that have a name.
  var used = 0

  // MARK: Names

  /// Takes the last component off a path; nil if it has none. By bytes and without an array, because each call of the disk does
  /// it.
  private static func popLast(_ path: inout Substring) -> Substring? {
    while !path.isEmpty {
      let begin = path.utf8.lastIndex(of: UInt8(ascii: "/"))
      let last = path[(begin.map(path.utf8.index(after:)) ?? path.startIndex)...]
      path = path[..<(begin ?? path.startIndex)]
      if !last.isEmpty, last != "." { return last }
    }
    return nil
  }

  /// What a path names, or nil if it names nothing.
  ///
  /// - Parameter root: the directory at which it begins.
  func entry(_ call: String, _ path: String, in root: Int = 0) throws(SystemError) -> SimulatedEntry? {
    try entry(call, path[...], of: path, in: root)
  }

  private func entry(
    _ call: String, _ part: Substring, of path: String, in root: Int
  ) throws(SystemError) -> SimulatedEntry? {
    var parent = part
    guard let name = Self.popLast(&parent) else { return .directory(root) }
    switch try entry(call, parent, of: path, in: root) {
    case .directory(let index): return directories[index].current[String(name)]
    case .file: throw .notDirectory(call, path)
    case nil: return nil
    }
  }

  func file(_ call: String, _ path: String, in root: Int = 0) throws(SystemError) -> Int {
    switch try entry(call, path, in: root) {
    case .file(let node): return node
    case .directory: throw .isDirectory(call, path)
    case nil: throw .absent(call, path)
    }
  }

  func directory(_ call: String, _ path: String, in root: Int = 0) throws(SystemError) -> Int {
    switch try entry(call, path, in: root) {
    case .directory(let index): return index
    case .file: throw .notDirectory(call, path)
    case nil: throw .absent(call, path)
    }
  }

  /// The directory of a path, and the name in it.
  func location(
    _ call: String, _ path: String, in root: Int = 0
  ) throws(SystemError) -> (directory: Int, name: String) {
    var parent = path[...]
    guard let name = Self.popLast(&parent) else { throw .taken(call, path) }
    return (try directory(call, String(parent), in: root), String(name))
  }

  /// The same for a new name.
  func newLocation(
    _ call: String, _ path: String, in root: Int
  ) throws(SystemError) -> (directory: Int, name: String) {
    let location = try location(call, path, in: root)
    guard !directories[location.directory].isRemoved else { throw .absent(call, path) }
    return location
  }

  /// What tells a file or directory from all others, with the number of its names.
  func identity(of entry: SimulatedEntry) -> FileIdentity {
    let links =
      countsNames ? directories.reduce(0) { sum, directory in sum + directory.current.values.count { $0 == entry } } : 0
    switch entry {
    case .file(let node): return FileIdentity(device: device, number: UInt64(node) * 2, links: UInt64(links))
    case .directory(let index):
      return FileIdentity(device: device, number: UInt64(index) * 2 + 1, links: UInt64(links))
    }
  }

  mutating func perform(_ operation: SimulatedNameOperation) {
    for edit in operation.edits { directories[edit.directory].current[edit.name] = edit.entry }
    operations.append(operation)
    operations[operations.count - 1].born = barriers
  }

  /// Syncs a file: makes its bytes durable, or adds a barrier that covers them.
  mutating func syncData(of node: Int, _ strength: SyncStrength) {
    if isOrderedSyncWeak && strength == .ordered {
      barriers += 1
      nodes[node].seal(barriers)
    } else {
      nodes[node].sync()
      flushCache()
    }
  }

  /// Makes durable what barriers cover, because a durable sync flushes the whole cache of the drive.
  private mutating func flushCache() {
    guard barriers > 0 else { return }
    for node in nodes.indices { nodes[node].syncSealed() }
  }

  /// Makes the pending operations on a directory's names durable, and those that they depend on.
  mutating func syncNames(of directory: Int) {
    var isWanted = operations.map { $0.edits.contains { $0.directory == directory } }
    for index in operations.indices.reversed() where !isWanted[index] {
      isWanted[index] = (index + 1..<operations.count).contains {
        isWanted[$0] && operations[$0].hasCommonName(with: operations[index])
      }
    }
    var rest: [SimulatedNameOperation] = []
    var replaced: [Int] = []
    for (index, operation) in operations.enumerated() {
      guard isWanted[index] else {
        rest.append(operation)
        continue
      }
      for edit in operation.edits {
        if case .file(let node)? = directories[edit.directory].durable[edit.name] { replaced.append(node) }
        directories[edit.directory].durable[edit.name] = edit.entry
      }
    }
    operations = rest
    for node in replaced { freeIfGone(node) }
    flushCache()
  }

  /// Empties a file that no handle has open and to which no name leads, neither now nor after a crash. Else the memory of a disk
  /// would grow with the files that it ever had. Without power nothing changes.
  mutating func freeIfGone(_ node: Int) {
    let entry = SimulatedEntry.file(node)
    guard !isOff, handles[node] == nil, lastWrite?.node != node, inFlight?.node != node,
      !directories.contains(where: { $0.current.values.contains(entry) || $0.durable.values.contains(entry) }),
      !operations.contains(where: { $0.edits.contains { $0.entry == entry } })
    else { return }
    nodes[node] = SimulatedNode()
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

  /// Adds `count` to the used space, or throws ENOSPC if that would exceed the capacity.
  mutating func reserve(_ count: Int, _ call: String, _ path: String) throws(SystemError) {
    if let capacity, count > 0, used + count > capacity { throw .full(call, path) }
    used += count
  }

  /// Throws ENOSPC if the disk is full. A new name needs space too.
  func requireRoom(_ call: String, _ path: String) throws(SystemError) {
    if let capacity, used >= capacity { throw .full(call, path) }
  }

  /// Frees the space of a file whose name is removed, or which is truncated, and keeps its bytes in `removedContents`.
  mutating func release(_ node: Int) {
    used -= nodes[node].current.size
    guard nodes[node].current.size > 0 else { return }
    removedContents.append(nodes[node].current)
    if removedContents.count > 4 { removedContents.removeFirst() }
  }

  /// A copy of the state without locks, handles and history.
  func detached() -> SimulatedDiskState {
    var copy = self
    (copy.locks, copy.handles) = ([:], [:])
    copy.history = nil
    return copy
  }
}
