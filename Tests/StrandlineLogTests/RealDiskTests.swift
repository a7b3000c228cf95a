// The log on the real disk: what every other suite proves on simulated disks must at least happen here.

import StrandlineLog
import StrandlineHost
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
