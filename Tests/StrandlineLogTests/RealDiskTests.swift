// The log on the real disk: what every other suite proves on simulated disks must at least happen here.

import StrandlineHost
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A log on the real disk` {
  @Test func `what was acknowledged is there after a close and after none`() async throws {
    let folder = try TemporaryFolder()
    defer { folder.remove() }
    let path = folder.path + "/notes.strand"
    var bodies: [[UInt8]] = []
    var log = try Log.open(at: path, role: .store, environment: .real) { _ in }
    #expect(log.isNew)
    for round in 0..<3 {
      for index in 0..<20 {
        var transaction = LogTransaction()
        for part in 0...(index % 3) {
          let body = [UInt8](repeating: UInt8(round * 50 + index), count: index * 37 + part)
          transaction.add(schema: UInt16(part), body: body)
          bodies.append(body)
        }
        let lsns = try log.append(transaction)
        if index % 2 == 0 {
          try await log.waitUntilDurable(lsns.upperBound)
        } else {
          try log.waitUntilDurableBlocking(lsns.upperBound)
        }
        #expect(try log.read(lsns.upperBound).body == bodies.last)
      }
      try log.close()
      var seen: [[UInt8]] = []
      log = try Log.open(at: path, role: .store, environment: .real) { seen.append($0.body) }
      #expect(seen == bodies)
      #expect(!log.isNew)
      #expect(log.durableLSN == UInt64(bodies.count))
      for (index, body) in bodies.enumerated() { #expect(try log.read(UInt64(index + 1)).body == body) }
    }
    try log.close()
  }

  /// Removed, or moved, and another one made in its place by a writer of its own; more is written than a segment holds.
  @Test(arguments: [true, false]) func `a store that takes the place of another is never written by its writer`(
    removes: Bool
  ) throws {
    let folder = try TemporaryFolder()
    defer { folder.remove() }
    let disk = POSIXFileSystem()
    let (path, moved) = (folder.path + "/A.strand", folder.path + "/B.strand")
    let clock = SimulatedClock()
    let environment = SystemEnvironment(fileSystem: disk, clock: clock, random: SystemRandom())
    let log = try Log.open(at: path, role: .store, options: tiny, environment: environment) { _ in }
    for number in 0..<5 { try log.write(body(number)) }
    if removes {
      try disk.folder(path).removeContents()
      try disk.removeDirectory(path)
    } else {
      try disk.renameFolder(path, to: moved)
    }
    let other = try Log.open(
      at: path, role: .store, options: tiny,
      environment: SystemEnvironment(fileSystem: SecondProcess(disk), clock: clock, random: SystemRandom())
    ) { _ in }
    try other.write(body(100))
    // Until the next look, before the next segment at the latest, it goes on in the folder that it has.
    var written = 5
    while logError({ try log.write(body(written, count: 700)) }) == nil { written += 1 }
    #expect(written < 20)
    clock.advance(milliseconds: 200)
    let error = logError { try log.write(body(999)) }
    #expect(error?.code == .replaced, "\(error as Any)")
    #expect(logError { try log.close() }?.code == .replaced)
    try other.write(body(101))
    try other.close()
    var seen: [[UInt8]] = []
    try Log.open(at: path, role: .store, environment: environment) { seen.append($0.body) }.close()
    #expect(seen == [body(100), body(101)])
    guard !removes else { return }
    seen = []
    try Log.open(at: moved, role: .store, environment: environment) { seen.append($0.body) }.close()
    #expect(seen == (0..<written).map { body($0, count: $0 < 5 ? 20 : 700) })
  }

  @Test func `an older copy that is put over the files is noticed before more is written into it`() throws {
    let folder = try TemporaryFolder()
    defer { folder.remove() }
    let disk = POSIXFileSystem()
    let (path, copy) = (folder.path + "/A.strand", folder.path + "/copy")
    let clock = SimulatedClock()
    let environment = SystemEnvironment(fileSystem: disk, clock: clock, random: SystemRandom())
    func open() throws -> Log {
      try Log.open(at: path, role: .store, options: publishing, environment: environment) { _ in }
    }
    var log = try open()
    for number in 0..<5 { try log.write(body(number)) }
    try log.close()
    try disk.copyTree(path, to: copy)
    log = try open()
    for number in 5..<9 { try log.write(body(number)) }
    for name in try disk.list(copy) {
      let bytes = try disk.open(copy + "/" + name, .read).read(at: 0, count: 1 << 20)
      let file = try disk.open(path + "/" + name, .readWrite)
      try file.truncate(to: 0)
      try file.write(bytes, at: 0)
    }
    #expect(logError { try log.close() }?.code == .replaced)
    for name in try disk.list(copy) {
      let (old, new) = (try disk.open(copy + "/" + name, .read), try disk.open(path + "/" + name, .read))
      #expect(try old.read(at: 0, count: 1 << 20) == new.read(at: 0, count: 1 << 20), "\(name)")
    }
  }

  private var publishing: LogOptions {
    var options = tiny
    options.publishesGroups = true
    return options
  }
}

/// The same disk as another process sees it.
private final class SecondProcess: ForwardingFileSystem {
  let base: any FileSystem
  let openStores = OpenStores()
  init(_ base: any FileSystem) { self.base = base }
}

/// A folder under the system's temporary one.
struct TemporaryFolder {
  let path: String
  init() throws {
    path = "/tmp/strandline-log-\(SystemRandom().next())"
    try POSIXFileSystem().makeDirectory(path)
  }
  func remove() { try? Self.remove(path) }
  private static func remove(_ path: String) throws(SystemError) {
    let fileSystem = POSIXFileSystem()
    for name in try fileSystem.list(path) {
      let child = path + "/" + name
      if try fileSystem.kind(of: child) == .directory { try remove(child) } else { try fileSystem.unlink(child) }
    }
    try fileSystem.removeDirectory(path)
  }
}
