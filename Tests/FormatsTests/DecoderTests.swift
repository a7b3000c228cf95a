// The proof that the pages are enough: a decoder in another language, written from them, prints each golden store as
// this package's code does. It needs python3 and nothing else.

import StrandlineSystem
import Testing

struct `A decoder written from the pages` {
  /// python3's path, if this machine has one.
  private static func python() throws -> String? {
    for folder in (ProcessEnvironment.value(of: "PATH") ?? "").split(separator: ":") {
      let path = "\(folder)/python3"
      if try Repository.disk.kind(of: path) != .absent { return path }
    }
    return nil
  }

  @Test(arguments: Vector.all) func `prints what the code understands`(_ vector: Vector) throws {
    guard let python = try Self.python() else {
      print("NOT TESTED: there is no python3 on this machine, so no other language has read the golden stores.")
      return
    }
    let child = try ChildProcess(
      python,
      ["-B", Repository.path("Tests/FormatsTests/decoder.py"), Repository.path(vector.folder)],
      input: .null, output: .pipe)
    let lines = try #require(child.output).readAll()
    #expect(try child.wait() == .exited(0))
    let text = String(decoding: lines, as: UTF8.self)
    #expect(text == (try Repository.text("\(vector.folder)/dump.jsonl")))
  }
}
