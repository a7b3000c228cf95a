// The real file system and its errno values. Each test has a directory of its own.

import StrandlineHost
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct POSIXFileTests {
  private let disk = POSIXFileSystem()
  private let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder() }

  @Test func `opening a pipe in the place of a file throws and does not block`() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/0000000000000001.seg"
    let child = try ChildProcess("/usr/bin/env", ["mkfifo", path])
    #expect(try child.wait() == .exited(0))
    #expect(throws: SystemError.self) { try POSIXFileSystem().open(path, .read) }
  }

  @Test func `a sync calls the system, and throws when that fails`() throws {
    // The kernel refuses to sync a pipe. A sync that did not call it would succeed here.
    let path = folder("pipe")
    #expect(try ChildProcess("/usr/bin/env", ["mkfifo", path]).wait() == .exited(0))
    let pipe = try disk.open(path, .readWrite)
    defer { pipe.close() }
    for strength in [SyncStrength.durable, .ordered] {
      let error = #expect(throws: SystemError.self) { try pipe.sync(strength) }
      #if os(Linux)
        #expect(error?.call == "fdatasync")
      #endif
    }
    #if os(Linux)
      // /proc is not on a disk, and its directories cannot be synced.
      let error = #expect(throws: SystemError.self) { try disk.syncDirectory("/proc") }
      #expect(error?.call == "fsync")
    #endif
  }

  @Test func `what was written is read back`() throws {
    let file = try disk.open(folder("a"), .create)
    let bytes = SeededRandom(seed: 1).bytes(200_000)
    try file.write(bytes, at: 10)
    try file.sync(.durable)
    try file.sync(.ordered)
    #expect(try file.size() == 200_010)
    #expect(try file.read(at: 10, count: 200_000) == bytes)
    #expect(try file.read(at: 0, count: 10) == [UInt8](repeating: 0, count: 10))
    try file.write(bytes, 5..<8, at: 0)
    #expect(try file.read(at: 0, count: 3) == Array(bytes[5..<8]))
  }

  @Test func `a read into an array holds what was read and nothing else`() throws {
    let folder = try TemporaryFolder()
    let file = try POSIXFileSystem().open(folder("a"), .create)
    let bytes = SeededRandom(seed: 5).bytes(200_000)
    try file.write(bytes, at: 0)
    var buffer: [UInt8] = [9, 9]
    for (offset, count) in [(0, 100_000), (100_000, 100_000), (150_000, 100_000), (0, 7), (200_000, 5), (3, 0)] {
      try file.read(at: UInt64(offset), count: count, into: &buffer)
      #expect(buffer == Array(bytes[offset..<min(bytes.count, offset + count)]))
    }
    file.close()
    buffer = [1]
    #expect(throws: SystemError.self) { try file.read(at: 0, count: 1, into: &buffer) }
    #expect(buffer == [])
  }

  @Test func `a read ends with the file and allocates no more than it`() throws {
    let file = try disk.open(folder("a"), .create)
    try file.write([1, 2, 3], at: 0)
    #expect(try file.read(at: 1, count: 100) == [2, 3])
    #expect(try file.read(at: 0, count: 1 << 40) == [1, 2, 3])
    #expect(try file.read(at: 3, count: 10) == [])
    #expect(try file.read(at: 1 << 40, count: 1 << 40) == [])
    #expect(try file.read(at: 0, count: 0) == [])
    // An offset beyond the kernel's range throws and does not trap.
    #expect(throws: SystemError.self) { try file.read(at: .max, count: 1) }
    #expect(throws: SystemError.tooLarge("pwrite", folder("a"))) { try file.write([1], at: .max) }
  }

  @Test func `preallocation grows, zeros and never shrinks`() throws {
    let file = try disk.open(folder("a"), .create)
    try file.write([1, 2, 3], at: 0)
    try file.preallocate(at: 0, length: 100_000)
    #expect(try file.size() == 100_000)
    #expect(try file.read(at: 0, count: 4) == [1, 2, 3, 0])
    try file.preallocate(at: 0, length: 10)
    #expect(try file.size() == 100_000)
    try file.truncate(to: 2)
    #expect(try file.read(at: 0, count: 10) == [1, 2])
  }

  @Test func `errors carry the call, the path and the errno`() throws {
    let absent = folder("nothing")
    #expect(throws: SystemError.absent("open", absent)) { try disk.open(absent, .read) }
    #expect(try disk.kind(of: absent) == .absent)
    _ = try disk.open(folder("a"), .create)
    #expect(throws: SystemError.taken("open", folder("a"))) { try disk.open(folder("a"), .create) }
    #expect(throws: SystemError.notDirectory("lstat", folder("a/b"))) { try disk.kind(of: folder("a/b")) }
    #expect(throws: SystemError.isDirectory("open", folder.path)) { try disk.open(folder.path, .read) }
    #expect(throws: SystemError.isDirectory("open", folder.path)) { try disk.open(folder.path, .readWrite) }
    let reader = try disk.open(folder("a"), .read)
    #expect(throws: SystemError.closed("pwrite", folder("a"))) { try reader.write([1], at: 0) }
  }

  #if os(Linux)
    @Test func `a write to a full device throws ENOSPC`() throws {
      let file = try disk.open("/dev/full", .readWrite)
      let error = #expect(throws: SystemError.self) { try file.write([1], at: 0) }
      #expect(error?.isFull == true)
    }

    @Test func `only the owner can read a private file`() throws {
      _ = try disk.open(folder("session"), .createPrivate)
      _ = try disk.open(folder("plain"), .create)
      let child = try ChildProcess(
        "/usr/bin/stat", ["-c", "%a", folder("session"), folder("plain")], output: .pipe)
      #expect(try child.output?.readLine() == "600")
      // The umask may remove bits from the mode of the other file.
      #expect(try child.output?.readLine()?.hasPrefix("6") == true)
      #expect(try child.wait() == .exited(0))
    }
  #endif

  @Test func `calls on a closed file throw`() throws {
    let file = try disk.open(folder("a"), .create)
    file.close()
    file.close()
    #expect(throws: SystemError.closed("pread", folder("a"))) { try file.read(at: 0, count: 1) }
    #expect(throws: SystemError.closed("pwrite", folder("a"))) { try file.write([1], at: 0) }
    #expect(throws: SystemError.closed("sync", folder("a"))) { try file.sync(.durable) }
    #expect(throws: SystemError.closed("fstat", folder("a"))) { try file.size() }
  }

  @Test func `a close during reads never reaches another file`() throws {
    // Threads read a file of ones while it is closed, and files of twos are opened with its descriptor number.
    for _ in 0..<20 {
      let file = try disk.open(folder("ones"), .create)
      try file.write([UInt8](repeating: 1, count: 4_096), at: 0)
      let threads = try (0..<3).map { _ in
        try BlockingThread.start(name: "reader") {
          while let bytes = try? file.read(at: 0, count: 4_096) {
            #expect(bytes.allSatisfy { $0 == 1 })
          }
        }
      }
      file.close()
      let other = try disk.open(folder("twos"), .create)
      try other.write([UInt8](repeating: 2, count: 4_096), at: 0)
      for thread in threads { thread.join() }
      try disk.unlink(folder("ones"))
      try disk.unlink(folder("twos"))
    }
  }

  @Test func `directories are listed, renamed and removed`() throws {
    try disk.makeDirectory(folder("ünï cødé"))
    #expect(throws: SystemError.taken("mkdir", folder("ünï cødé"))) { try disk.makeDirectory(folder("ünï cødé")) }
    _ = try disk.open(folder("ünï cødé/x"), .create)
    try disk.syncDirectory(folder("ünï cødé"))
    #expect(try disk.list(folder("ünï cødé")) == ["x"])
    let error = #expect(throws: SystemError.self) { try disk.removeDirectory(folder("ünï cødé")) }
    #expect(error?.isTaken == true)
    try disk.rename(folder("ünï cødé"), to: folder("plain"))
    try disk.unlink(folder("plain/x"))
    try disk.removeDirectory(folder("plain"))
    #expect(try disk.list(folder.path) == [])
    #expect(throws: SystemError.absent("open", folder("plain"))) { try disk.list(folder("plain")) }
    #expect(throws: SystemError.absent("open", folder("plain"))) { try disk.syncDirectory(folder("plain")) }
  }

  @Test func `sizes are those of the files of a directory, whatever else is there`() throws {
    try disk.makeDirectory(folder("d"))
    for (name, count) in [("a", 3), ("b", 0)] {
      try disk.open(folder("d/\(name)"), .create).write([UInt8](repeating: 1, count: count), at: 0)
    }
    try disk.makeDirectory(folder("d/c"))
    #expect(try disk.folder(folder("d")).sizes(of: ["b", "x", "a", "c"]) == [0, nil, 3, 0])
    #expect(try disk.folder(folder("d")).sizes(of: []) == [])
    #expect(throws: SystemError.absent("open", folder("y"))) { try disk.folder(folder("y")).sizes(of: ["a"]) }
    #expect(throws: SystemError.self) { try disk.folder(folder("d/a")).sizes(of: ["a"]) }
  }

  @Test func `two descriptors exclude each other by lock`() throws {
    let path = folder("LOCK")
    #expect(throws: SystemError.absent("open", path)) { try disk.lock(path, exclusive: false) }
    let first = try #require(try disk.lock(path, exclusive: true))
    #expect(try disk.lock(path, exclusive: true) == nil)
    #expect(try disk.lock(path, exclusive: false) == nil)
    first.unlock()
    first.unlock()
    let shared = try #require(try disk.lock(path, exclusive: false))
    let another = try #require(try disk.lock(path, exclusive: false))
    #expect(try disk.lock(path, exclusive: true) == nil)
    shared.unlock()
    another.unlock()
    #expect(try disk.lock(path, exclusive: true) != nil)
  }

  @Test func `a child does not inherit a lock`() throws {
    let path = folder("LOCK")
    let lock = try #require(try disk.lock(path, exclusive: true))
    let child = try ChildProcess("/bin/sleep", ["100"])
    lock.unlock()
    #expect(try disk.lock(path, exclusive: true) != nil)
    child.kill(.kill)
    #expect(try child.wait() == .signalled(9))
  }
}
