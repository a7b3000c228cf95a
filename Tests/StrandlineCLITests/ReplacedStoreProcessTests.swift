// A store that is removed, moved or overwritten while a process of its own writes it, on the real disk: the trials that
// found a writer in another store. A second process finds what the first one has acknowledged.

import Strandline
import StrandlineCLI
import StrandlineHost
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A process whose store is replaced` {
  private static func command() throws -> String {
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
    return (built + ["strandline"]).joined(separator: "/")
  }

  /// Imports what it is sent, a record a transaction.
  private func writer(_ path: String) throws -> ChildProcess {
    try ChildProcess(
      try Self.command(), ["import", path, "-", "--batch", "1", "--acks"], input: .pipe, output: .pipe,
      errorOutput: .pipe)
  }

  private func line(_ name: String, _ count: Int = 1) -> [UInt8] {
    let text = String(repeating: "x", count: count)
    return Array(#"{"recordName":"\#(name)","recordType":"Note","fields":{"text":"\#(text)"}}"#.utf8) + [0x0A]
  }

  private func make(_ path: String, _ name: String) throws {
    let store = try RecordStore.openBlocking(at: path)
    try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID(name), fields: ["text": "1"])) }
    try store.closeBlocking()
  }

  private func names(_ path: String) throws -> Set<String> {
    let store = try RecordStore.openReadOnlyBlocking(at: path)
    var result: Set<String> = []
    try store.forEachRecord { result.insert($0.id.name) }
    try store.closeBlocking()
    return result
  }

  private func words(_ child: ChildProcess) throws -> String {
    String(decoding: try child.errorOutput?.readAll() ?? [], as: UTF8.self)
  }

  @Test func `and that is idle leaves the new one as it is, and says what is lost`() throws {
    let folder = try TemporaryFolder()
    let path = folder("A.strand")
    let child = try writer(path)
    try child.write(line("own"))
    #expect(try child.output?.readLine()?.hasPrefix("ACK ") == true)
    // What was acknowledged is there for another process, at once.
    #expect(try names(path) == ["own"])
    try POSIXFileSystem().removeTree(path)
    try make(path, "other")
    child.closeInput()
    let said = try words(child)
    #expect(try child.wait() == .exited(74))
    #expect(said.contains("was removed while it was open"), "\(said)")
    #expect(try names(path) == ["other"])
    try make(path, "more")
    #expect(try names(path) == ["more", "other"])
  }

  @Test func `and that goes on beyond a segment writes into its own folder alone`() throws {
    let folder = try TemporaryFolder()
    let (path, moved) = (folder("A.strand"), folder("B.strand"))
    let child = try writer(path)
    try child.write(line("own"))
    #expect(try child.output?.readLine()?.hasPrefix("ACK ") == true)
    try POSIXFileSystem().renameFolder(path, to: moved)
    try make(path, "other")
    var acknowledged: Set<String> = ["own"]
    for number in 0..<400 {
      do { try child.write(line("n\(number)", 100_000)) } catch { break }
      guard try child.output?.readLine()?.hasPrefix("ACK") == true else { break }
      acknowledged.insert("n\(number)")
    }
    child.closeInput()
    let said = try words(child)
    #expect(try child.wait() == .exited(74))
    #expect(said.contains("moved away"), "\(said)")
    #expect(try names(path) == ["other"])
    #expect(try names(moved).isSuperset(of: acknowledged))
    try make(path, "more")
    try make(moved, "more")
  }

  @Test func `and whose files an older copy was put over says so, and does not damage the copy`() throws {
    let folder = try TemporaryFolder()
    let (path, copy) = (folder("A.strand"), folder("copy"))
    try make(path, "old")
    let disk = POSIXFileSystem()
    try disk.copyTree(path, to: copy)
    let child = try writer(path)
    try child.write(line("own"))
    #expect(try child.output?.readLine()?.hasPrefix("ACK") == true)
    for name in try disk.list(copy) where try disk.kind(of: copy + "/" + name) == .file {
      let source = try disk.open(copy + "/" + name, .read)
      let bytes = try source.read(at: 0, count: Int(try source.size()))
      let file = try disk.open(path + "/" + name, .readWrite)
      try file.truncate(to: 0)
      try file.write(bytes, at: 0)
    }
    child.closeInput()
    let said = try words(child)
    #expect(try child.wait() == .exited(74))
    #expect(said.contains("another copy was put over"), "\(said)")
  }
}
