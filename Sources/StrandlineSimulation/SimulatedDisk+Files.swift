// The calls of `FileSystem` and `File` on the simulated disk.

package import StrandlineSystem
internal import Synchronization

extension SimulatedDisk {
  package func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File {
    switch mode {
    case .read, .readWrite:
      let node = try read(path) { (state) throws(SystemError) in
        let node = try state.file("open", path)
        state.handles[node, default: 0] += 1
        return node
      }
      return SimulatedFile(disk: self, node: node, path: path, isWritable: mode == .readWrite)
    case .create, .createPrivate:
      let node = try mutate(path) { (state) throws(SystemError) in
        let node = try Self.create("open", path, &state)
        state.handles[node] = 1
        return node
      }
      return SimulatedFile(disk: self, node: node, path: path, isWritable: true)
    }
  }

  private static func create(
    _ call: String, _ path: String, _ state: inout SimulatedDiskState
  ) throws(SystemError) -> Int {
    let location = try state.location(call, path)
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

  package func kind(of path: String) throws(SystemError) -> PathKind {
    try read(path) { (state) throws(SystemError) in
      switch try state.entry("lstat", path) {
      case .file: .file
      case .directory: .directory
      case nil: .absent
      }
    }
  }

  package func list(_ directory: String) throws(SystemError) -> [String] {
    try read(directory) { (state) throws(SystemError) in
      // Sorted, so that a run does not depend on the order of a hash table.
      state.directories[try state.directory("opendir", directory)].current.keys.sorted()
    }
  }

  package func sizes(of names: [String], in directory: String) throws(SystemError) -> [UInt64?] {
    try read(directory) { (state) throws(SystemError) in
      let entries = state.directories[try state.directory("open", directory)].current
      return names.map { name in
        switch entries[name] {
        case .file(let node): UInt64(state.nodes[node].current.size)
        case .directory: 0
        case nil: nil
        }
      }
    }
  }

  package func makeDirectory(_ path: String) throws(SystemError) {
    try mutate(path) { (state) throws(SystemError) in
      let location = try state.location("mkdir", path)
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

  package func rename(_ path: String, to newPath: String) throws(SystemError) {
    try mutate(path) { (state) throws(SystemError) in
      guard let entry = try state.entry("rename", path) else { throw .absent("rename", path) }
      let from = try state.location("rename", path)
      let to = try state.location("rename", newPath)
      if case .directory = entry, (newPath + "/").hasPrefix(path + "/"), newPath != path {
        throw .invalid("rename", path)
      }
      switch (entry, state.directories[to.directory].current[to.name]) {
      case (_, nil): break
      case (let old, .some(let new)) where old == new: return
      case (.file, .file(let replaced)): state.release(replaced)
      case (.directory, .directory(let replaced)):
        guard state.directories[replaced].current.isEmpty else { throw .notEmpty("rename", path) }
      case (.file, .directory): throw .isDirectory("rename", path)
      case (.directory, .file): throw .notDirectory("rename", path)
      }
      state.perform(
        SimulatedNameOperation(
          call: "rename", path: "\(path) to \(newPath)",
          edits: [
            .init(directory: from.directory, name: from.name, entry: nil),
            .init(directory: to.directory, name: to.name, entry: entry),
          ]))
    }
  }

  package func unlink(_ path: String) throws(SystemError) {
    try mutate(path) { (state) throws(SystemError) in
      let node = try state.file("unlink", path)
      let location = try state.location("unlink", path)
      state.release(node)
      state.perform(
        SimulatedNameOperation(
          call: "unlink", path: path,
          edits: [.init(directory: location.directory, name: location.name, entry: nil)]))
    }
  }

  package func removeDirectory(_ path: String) throws(SystemError) {
    try mutate(path) { (state) throws(SystemError) in
      let location = try state.location("rmdir", path)
      let directory = try state.directory("rmdir", path)
      guard state.directories[directory].current.isEmpty else { throw .notEmpty("rmdir", path) }
      state.perform(
        SimulatedNameOperation(
          call: "rmdir", path: path,
          edits: [.init(directory: location.directory, name: location.name, entry: nil)]))
    }
  }

  package func syncDirectory(_ path: String) throws(SystemError) {
    try mutate(path, isSync: true) { (state) throws(SystemError) in
      let directory = try state.directory("open", path)
      if let failure = state.syncFailures[state.callCount] { throw failure }
      state.syncNames(of: directory)
    }
  }

  package func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    let isMissing = try read(path) { (state) throws(SystemError) in try state.entry("open", path) == nil }
    if isMissing && exclusive {
      try mutate(path) { (state) throws(SystemError) in
        // Another thread may have created the file meanwhile; both then try to lock it below.
        if try state.entry("open", path) == nil { _ = try Self.create("open", path, &state) }
      }
    }
    let node = try read(path) { (state) throws(SystemError) -> Int? in
      let node = try state.file("open", path)
      var lock = state.locks[node] ?? .init()
      guard !lock.isExclusive, !exclusive || lock.shared == 0 else { return nil }
      if exclusive { lock.isExclusive = true } else { lock.shared += 1 }
      state.locks[node] = lock
      return node
    }
    guard let node else { return nil }
    return SimulatedLock(disk: self, node: node, isExclusive: exclusive)
  }

  fileprivate func unlock(_ node: Int, isExclusive: Bool) {
    state.withLock { state in
      guard var lock = state.locks[node] else { return }
      if isExclusive { lock.isExclusive = false } else { lock.shared -= 1 }
      state.locks[node] = lock
    }
  }
}

/// A lock on a file of the simulated disk.
private final class SimulatedLock: FileLock {
  private let disk: SimulatedDisk
  private let node: Int
  private let isExclusive: Bool
  private let isHeld = Atomic<Bool>(true)

  init(disk: SimulatedDisk, node: Int, isExclusive: Bool) {
    self.disk = disk
    self.node = node
    self.isExclusive = isExclusive
  }

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
  private let isWritable: Bool
  private let isOpen = Atomic<Bool>(true)

  /// Larger than any file of a test, and small enough that a wrong offset cannot exhaust memory.
  private static let sizeLimit: UInt64 = 1 << 34

  init(disk: SimulatedDisk, node: Int, path: String, isWritable: Bool) {
    self.disk = disk
    self.node = node
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
