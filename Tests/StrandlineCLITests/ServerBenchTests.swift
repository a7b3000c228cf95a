// The rows of `bench wire` that measure a server, at their smallest sizes on the real disk: a server is started, put under
// load and killed, every acknowledged record is read back, and no process and no file is left. The figures depend on the
// machine and are not tested.

import Foundation
import StrandlineHost
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct ServerBenchTests {
  @Test func `measures a server of its own under load, and leaves nothing`() throws {
    let folder = try TemporaryFolder()
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
    let child = try ChildProcess(
      (built + ["strandline"]).joined(separator: "/"),
      ["bench", "wire", "--quick", "--rounds", "1", "--only", "server.", "--json", "--directory", folder.path],
      output: .pipe, errorOutput: .pipe)
    defer {
      child.kill(.kill)
      _ = try? child.wait()
    }
    let out = String(decoding: try child.output?.readAll() ?? [], as: UTF8.self)
    let err = String(decoding: try child.errorOutput?.readAll() ?? [], as: UTF8.self)
    #expect(try child.wait() == .exited(0), "\(err)")
    try JSONPage.check(out, of: "bench")
    var works: [String] = []
    for line in out.split(separator: "\n") {
      let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
      works.append(try #require(object["work"] as? String))
      #expect((object["ours"] as? Double).map { $0 > 0 } == true && object["sqlite"] is NSNull, "\(line)")
    }
    let expected = ["lookup", "modify", "lookup.x2", "modify.x2", "rss"].map { "server.\($0)" }
    #expect(works == expected)
    #expect(try POSIXFileSystem().list(folder.path) == [])
  }
}
