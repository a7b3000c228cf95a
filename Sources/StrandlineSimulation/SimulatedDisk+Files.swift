// The calls of `FileSystem`, `Folder` and `File` on the simulated disk.

package import StrandlineSystem
internal import Synchronization

extension SimulatedDisk {
  package func absolutePath(_ path: String) throws(SystemError) -> String {
    var text = path.hasPrefix("/") ? path : "/" + path
    while text.utf8.count > 1, text.hasSuffix("/") { text.removeLast() }
    return text
  }

  package func folder(_ path: String) throws(SystemError) -> any Folder {
    let index = try read(path) { (state) throws(SystemError) in try state.directory("open", path) }
    return SimulatedFolder(disk: self, index: index, path: path)
  }

  package func kind(of path: String) throws(SystemError) -> PathKind { try kind(of: path, in: 0, path) }

  package func makeDirectory(_ path: String) throws(SystemError) { try makeDirectory(path, in: 0, path) }

  package func removeDirectory(_ path: String) throws(SystemError) { try removeDirectory(path, in: 0, path) }

  package func renameFolder(_ path: String, to newPath: String) throws(SystemError) {
    try mutate(path) { (state) throws(SystemError) in
      guard case .directory = try state.entry("rename", path) else {
        throw try state.entry("rename", path) == nil ? .absent("rename", path) : .notDirectory("rename", path)
      }
      if (newPath + "/").hasPrefix(path + "/"), newPath != path { throw .invalid("rename", path) }
      try Self.rename(path, to: newPath, in: 0, path, &state)
    }
  }

  fileprivate static func create(
    _ call: String, _ name: String, in root: Int, _ path: String, _ state: inout SimulatedDiskState
  ) throws(SystemError) -> Int {
    let location = try state.newLocation(call, name, in: root)
    guard state.directories[location.directory].current[location.name] == nil else { throw .taken(call, path) }
    try state.requireRoom(call, path)
    state.nodes.append(SimulatedNode())
    let node = state.nodes.count - 1
    state.perform(
      SimulatedNameOperation(
        call: "create", path: path,
        edits: [.init(directory: location.directory, name: location.name, entry: .file(node))]))
    return node
  }

  fileprivate func kind(of name: String, in root: Int, _ path: String) throws(SystemError) -> PathKind {
    try read(path) { (state) throws(SystemError) in
      switch try state.entry("lstat", name, in: root) {
      case .file: .file
      case .directory: .directory
      case nil: .absent
      }
    }
  }

  fileprivate func makeDirectory(_ name: String, in root: Int, _ path: String) throws(SystemError) {
    try mutate(path) { (state) throws(SystemError) in
      let location = try state.newLocation("mkdir", name, in: root)
      guard state.directories[location.directory].current[location.name] == nil else { throw .taken("mkdir", path) }
      try state.requireRoom("mkdir", path)
      state.directories.append(SimulatedDirectory())
      state.perform(
        SimulatedNameOperation(
          call: "mkdir", path: path,
          edits: [
            .init(
              directory: location.directory, name: location.name, entry: .directory(state.directories.count - 1))
          ]))
    }
  }

  fileprivate static func rename(
    _ name: String, to newName: String, in root: Int, _ path: String, _ state: inout SimulatedDiskState
  ) throws(SystemError) {
    guard let entry = try state.entry("rename", name, in: root) else { throw .absent("rename", path) }
    let from = try state.location("rename", name, in: root)
    let to = try state.newLocation("rename", newName, in: root)
    switch (entry, state.directories[to.directory].current[to.name]) {
    case (_, nil): break
    case (let old, .some(let new)) where old == new: return
    case (.file, .file(let replaced)): state.release(replaced)
    case (.directory, .directory(let replaced)):
      guard state.directories[replaced].current.isEmpty else { throw .notEmpty("rename", path) }
      state.directories[replaced].isRemoved = true
    case (.file, .directory): throw .isDirectory("rename", path)
    case (.directory, .file): throw .notDirectory("rename", path)
    }
    state.perform(
      SimulatedNameOperation(
        call: "rename", path: "\(name) to \(newName)",
        edits: [
          .init(directory: from.directory, name: from.name, entry: nil),
          .init(directory: to.directory, name: to.name, entry: entry),
        ]))
  }

  fileprivate func removeDirectory(_ name: String, in root: Int, _ path: String) throws(SystemError) {
    try mutate(path) { (state) throws(SystemError) in
      let location = try state.location("rmdir", name, in: root)
      let directory = try state.directory("rmdir", name, in: root)
      guard state.directories[directory].current.isEmpty else { throw .notEmpty("rmdir", path) }
      state.directories[directory].isRemoved = true
      state.perform(
        SimulatedNameOperation(
          call: "rmdir", path: path,
          edits: [.init(directory: location.directory, name: location.name, entry: nil)]))
    }
  }

  fileprivate func unlock(_ node: Int, isExclusive: Bool) {
    state.withLock { state in
      guard var lock = state.locks[node] else { return }
      if isExclusive { lock.isExclusive = false } else { lock.shared -= 1 }
      state.locks[node] = lock
    }
  }
}

/// An open folder of the simulated disk: its number. It stays the same one when it is moved or removed.
private final class SimulatedFolder: Folder {
  private let disk: SimulatedDisk
  private let index: Int
  private let currentPath: Mutex<String>

  init(disk: SimulatedDisk, index: Int, path: String) {
    self.disk = disk
    self.index = index
    currentPath = Mutex(path)
  }

  var path: String { currentPath.withLock { $0 } }
  func wasMoved(to path: String) { currentPath.withLock { $0 = path } }

  /// - Throws: EINVAL for a name that leads out of the folder.
  private func checked(_ call: String, _ name: String) throws(SystemError) -> String {
    let path = path(of: name)
    guard !name.hasPrefix("/"), !name.split(separator: "/").contains("..") else { throw .invalid(call, path) }
    return path
  }

  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File {
    let path = try checked("open", name)
    let index = index
    switch mode {
    case .read, .readWrite:
      let (node, device) = try disk.read(path) { (state) throws(SystemError) in
        let node = try state.file("open", name, in: index)
        state.handles[node, default: 0] += 1
        return (node, state.device)
      }
      return SimulatedFile(disk: disk, node: node, device: device, path: path, isWritable: mode == .readWrite)
    case .create, .createPrivate:
      let (node, device) = try disk.mutate(path) { (state) throws(SystemError) in
        let node = try SimulatedDisk.create("open", name, in: index, path, &state)
        state.handles[node] = 1
        return (node, state.device)
      }
      return SimulatedFile(disk: disk, node: node, device: device, path: path, isWritable: true)
    }
  }

  func kind(of name: String) throws(SystemError) -> PathKind {
    try disk.kind(of: name, in: index, try checked("lstat", name))
  }

  func list(_ name: String) throws(SystemError) -> [String] {
    let index = index
    return try disk.read(try checked("opendir", name)) { (state) throws(SystemError) in
      // Sorted, so that a run does not depend on the order of a hash table.
      state.directories[try state.directory("opendir", name, in: index)].current.keys.sorted()
    }
  }

  func sizes(of names: [String]) throws(SystemError) -> [UInt64?] {
    let index = index
    return try disk.read(path) { (state) throws(SystemError) in
      var result: [UInt64?] = []
      for name in names {
        switch try state.entry("fstatat", name, in: index) {
        case .file(let node): result.append(UInt64(state.nodes[node].current.size))
        case .directory: result.append(0)
        case nil: result.append(nil)
        }
      }
      return result
    }
  }

  func makeFolder(_ name: String) throws(SystemError) {
    try disk.makeDirectory(name, in: index, try checked("mkdir", name))
  }

  func rename(_ name: String, to newName: String) throws(SystemError) {
    let path = try checked("rename", name)
    _ = try checked("rename", newName)
    let index = index
    try disk.mutate(path) { (state) throws(SystemError) in
      try SimulatedDisk.rename(name, to: newName, in: index, path, &state)
    }
  }

  func unlink(_ name: String) throws(SystemError) {
    let path = try checked("unlink", name)
    let index = index
    try disk.mutate(path) { (state) throws(SystemError) in
      let node = try state.file("unlink", name, in: index)
      let location = try state.location("unlink", name, in: index)
      state.release(node)
      state.perform(
        SimulatedNameOperation(
          call: "unlink", path: path,
          edits: [.init(directory: location.directory, name: location.name, entry: nil)]))
    }
  }

  func removeFolder(_ name: String) throws(SystemError) {
    try disk.removeDirectory(name, in: index, try checked("rmdir", name))
  }

  func sync(_ name: String) throws(SystemError) {
    let index = index
    try disk.mutate(try checked("open", name), isSync: true) { (state) throws(SystemError) in
      let directory = try state.directory("open", name, in: index)
      if let failure = state.syncFailures[state.callCount] { throw failure }
      state.syncNames(of: directory)
    }
  }

  func lock(_ name: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    let path = try checked("open", name)
    let index = index
    let isMissing = try disk.read(path) { (state) throws(SystemError) in
      try state.entry("open", name, in: index) == nil
    }
    if isMissing && exclusive {
      try disk.mutate(path) { (state) throws(SystemError) in
        // Another thread may have created the file meanwhile; both then try to lock it below.
        if try state.entry("open", name, in: index) == nil {
          _ = try SimulatedDisk.create("open", name, in: index, path, &state)
        }
      }
    }
    let found = try disk.read(path) { (state) throws(SystemError) -> (Int, UInt64)? in
      let node = try state.file("open", name, in: index)
      var lock = state.locks[node] ?? .init()
      guard !lock.isExclusive, !exclusive || lock.shared == 0 else { return nil }
      if exclusive { lock.isExclusive = true } else { lock.shared += 1 }
      state.locks[node] = lock
      return (node, state.device)
    }
    guard let (node, device) = found else { return nil }
    return SimulatedLock(disk: disk, node: node, device: device, path: path, isExclusive: exclusive)
  }

  func identity(of name: String) throws(SystemError) -> FileIdentity? {
    let index = index
    return try disk.read(try checked("fstatat", name)) { (state) throws(SystemError) in
      try state.entry("fstatat", name, in: index).map { state.identity(of: $0) }
    }
  }

  func setTreatment(_ treatment: FileTreatment) throws(SystemError) { disk.note(treatment, of: path) }
}

extension SimulatedDisk {
  /// The identity of an open file: it keeps the device of the time when it was opened.
  fileprivate func identity(of node: Int, _ device: UInt64, _ path: String) throws(SystemError) -> FileIdentity {
    try read(path) { (state) throws(SystemError) in
      var identity = state.identity(of: .file(node))
      identity.device = device
      return identity
    }
  }
}

/// A lock on a file of the simulated disk.
private final class SimulatedLock: FileLock {
  private let disk: SimulatedDisk
  private let node: Int
  private let device: UInt64
  private let path: String
  private let isExclusive: Bool
  private let isHeld = Atomic<Bool>(true)

  init(disk: SimulatedDisk, node: Int, device: UInt64, path: String, isExclusive: Bool) {
    self.disk = disk
    self.node = node
    self.device = device
    self.path = path
    self.isExclusive = isExclusive
  }

  func identity() throws(SystemError) -> FileIdentity { try disk.identity(of: node, device, path) }

  func unlock() {
    if isHeld.exchange(false, ordering: .acquiringAndReleasing) { disk.unlock(node, isExclusive: isExclusive) }
  }

  deinit { unlock() }
}

/// An open file of the simulated disk. It stays usable after its name was removed, as a descriptor does.
private final class SimulatedFile: File {
  let path: String
  private let disk: SimulatedDisk
  private let node: Int
  private let device: UInt64
  private let isWritable: Bool
  private let isOpen = Atomic<Bool>(true)

  /// Larger than any file of a test, and small enough that a wrong offset cannot exhaust memory.
  private static let sizeLimit: UInt64 = 1 << 34

  init(disk: SimulatedDisk, node: Int, device: UInt64, path: String, isWritable: Bool) {
    self.disk = disk
    self.node = node
    self.device = device
    self.path = path
    self.isWritable = isWritable
  }

  private func requireOpen(_ call: String, toWrite: Bool = false) throws(SystemError) {
    guard isOpen.load(ordering: .acquiring), isWritable || !toWrite else { throw .closed(call, path) }
  }

  private func end(_ call: String, _ offset: UInt64, _ count: UInt64) throws(SystemError) -> Int {
    let (end, overflow) = offset.addingReportingOverflow(count)
    guard !overflow, end <= Self.sizeLimit else { throw .tooLarge(call, path) }
    return Int(end)
  }

  func identity() throws(SystemError) -> FileIdentity {
    try requireOpen("fstat")
    return try disk.identity(of: node, device, path)
  }

  func size() throws(SystemError) -> UInt64 {
    try requireOpen("fstat")
    return try disk.read(path) { (state) throws(SystemError) in UInt64(state.nodes[node].current.size) }
  }

  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    try requireOpen("pread")
    return try disk.read(path) { (state) throws(SystemError) in
      let size = state.nodes[node].current.size
      guard count > 0, offset < UInt64(size) else { return [] }
      let start = Int(offset)
      return state.nodes[node].current.read(start..<start + min(count, size - start))
    }
  }

  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    try requireOpen("pwrite", toWrite: true)
    let end = try end("pwrite", offset, UInt64(range.count))
    guard !range.isEmpty else { return }
    try disk.mutate(path) { (state) throws(SystemError) in
      try state.reserve(max(0, end - state.nodes[node].current.size), "pwrite", path)
      let barriers = state.barriers
      state.nodes[node].write(bytes[range], at: Int(offset), barriers: barriers)
      state.inFlight = .init(node: node, effect: state.nodes[node].effects.count - 1)
    }
  }

  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    try requireOpen("fallocate", toWrite: true)
    let end = try end("fallocate", offset, length)
    try disk.mutate(path) { (state) throws(SystemError) in
      let growth = end - state.nodes[node].current.size
      guard growth > 0 else { return }
      try state.reserve(growth, "fallocate", path)
      let barriers = state.barriers
      state.nodes[node].resize(to: end, barriers: barriers)
    }
  }

  func truncate(to size: UInt64) throws(SystemError) {
    try requireOpen("ftruncate", toWrite: true)
    let end = try end("ftruncate", size, 0)
    try disk.mutate(path) { (state) throws(SystemError) in
      let growth = end - state.nodes[node].current.size
      if growth < 0 {
        state.release(node)
        state.used += end
      } else {
        try state.reserve(growth, "ftruncate", path)
      }
      let barriers = state.barriers
      state.nodes[node].resize(to: end, barriers: barriers)
    }
  }

  func sync(_ strength: SyncStrength) throws(SystemError) {
    try requireOpen("fdatasync")
    try disk.mutate(path, isSync: true) { (state) throws(SystemError) in
      if let failure = state.syncFailures[state.callCount] {
        if state.failedSyncLosesPages { state.nodes[node].losePages() }
        throw failure
      }
      state.syncData(of: node, strength)
    }
  }

  func close() {
    if isOpen.exchange(false, ordering: .acquiringAndReleasing) { disk.closed(node) }
  }

  deinit { close() }
}
