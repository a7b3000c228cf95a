// The proof that the pages are enough: a decoder in another language, written from them, prints each golden store as
// this package's code does. It needs python3 and nothing else.

import StrandlineHost
import StrandlineLog
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A decoder written from the pages` {
  @Test(arguments: Vector.all) func `prints what the code understands`(_ vector: Vector) throws {
    let python = try Repository.python()
    let child = try ChildProcess(
      python,
      ["-B", Repository.path("Tests/FormatsTests/decoder.py"), Repository.path(vector.folder)],
      input: .null, output: .pipe)
    let lines = try #require(child.output).readAll()
    #expect(try child.wait() == .exited(0))
    let text = String(decoding: lines, as: UTF8.self)
    #expect(text == (try Repository.text("\(vector.folder)/dump.jsonl")))
  }

  /// The recovery rule as the page tells it, against the code's: a small log cut at every length, and with a bit
  /// changed in every byte.
  @Test(arguments: [Vector.threeEvents, .tornTail, .copiedTail, .madeAhead])
  func `judges every cut and every changed byte as the code does`(_ vector: Vector) throws {
    let python = try Repository.python()
    let folder = try TemporaryFolder()
    var expected: [String] = []
    func add(_ name: String, _ files: [String: [UInt8]]) throws {
      try Repository.disk.makeDirectory(folder(name))
      for (file, bytes) in files {
        let file = try Repository.disk.open(folder(name) + "/" + file, .create)
        defer { file.close() }
        try file.write(bytes, at: 0)
      }
      expected.append(try Dump.verdict(folder(name), log: name))
    }
    let files = try vector.make()
    for (name, bytes) in files.sorted(by: { $0.key < $1.key }) {
      // Most of the header's page says nothing, and most of CONTROL is zero; a few places stand for all.
      let (lengths, places): ([Int], [Int]) =
        switch name {
        case LogFormat.controlName:
          (
            [0, 80, 4095, 4096, 8191],
            (0...1).flatMap { slot in [0, 8, 20, 35, 50, 60, 74, 76, 99, 4095].map { slot * 4096 + $0 } }
          )
        case LogFormat.manifestName: (Array(stride(from: 0, to: bytes.count, by: 9)), Array(bytes.indices))
        default: ([0, 60, 128, 4095] + Array(4096...bytes.count), Array(0..<130) + Array(4096..<bytes.count))
        }
      for length in lengths {
        var cut = files
        cut[name] = Array(bytes[..<length])
        try add("\(name)-cut-\(10_000 + length)", cut)
      }
      for place in places {
        var changed = files
        changed[name]?[place] ^= UInt8(1 << (place % 8))
        try add("\(name)-bit-\(10_000 + place)", changed)
      }
    }
    // Files that are missing, doubled under another name, or of an older day.
    for name in files.keys {
      var missing = files
      missing[name] = nil
      try add("\(name)-missing", missing)
    }
    let copy = SegmentName.name(77)
    try add("copy", files.merging([copy: files[SegmentName.name(1)] ?? []]) { $1 })
    for (name, bytes) in try Vector.manySegments.make() {
      try add("\(name)-of-another", files.merging([name: bytes]) { $1 })
    }
    let child = try ChildProcess(
      python, ["-B", Repository.path("Tests/FormatsTests/decoder.py"), "--verdicts", folder.path],
      input: .null, output: .pipe)
    let text = String(decoding: try #require(child.output).readAll(), as: UTF8.self)
    #expect(try child.wait() == .exited(0))
    let found = text.split(separator: "\n").map(String.init).sorted()
    #expect(found.count == expected.count)
    for (theirs, ours) in zip(found, expected.sorted()) where theirs != ours {
      Issue.record("the page says \(theirs), the code \(ours)")
      break
    }
    // Not all the same: the rule has been tried from several sides. A log that is promised to its end tears nowhere.
    let isPromised = vector.name == "copied-tail" || vector.name == "three-events"
    for word in ["sound", "damaged", "refused"] + (isPromised ? [] : ["torn"]) {
      #expect(found.contains { $0.contains("\"verdict\":\"\(word)\"") }, "\(word) never came")
    }
  }
}
