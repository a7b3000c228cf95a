// The proof that the pages are enough: a decoder in another language, written from them, prints each golden store as
// this package's code does. It needs python3 and nothing else.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSystem
import StrandlineHost
import StrandlineTestSupport
import Testing

/// The decoder in Python. A machine without python3 fails these tests: what no other language has read is not proved.
enum Decoder {
  /// What a script of this folder prints.
  static func output(_ script: String, _ arguments: [String]) throws -> String {
    let child = try ChildProcess(
      try python(), ["-B", Repository.path("Tests/FormatsTests/\(script)")] + arguments, input: .null, output: .pipe)
    let bytes = try #require(child.output).readAll()
    #expect(try child.wait() == .exited(0), "\(script) \(arguments)")
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func python() throws -> String {
    for folder in (ProcessEnvironment.value(of: "PATH") ?? "").split(separator: ":") {
      let path = "\(folder)/python3"
      if try Repository.disk.kind(of: path) != .absent { return path }
    }
    throw PageError("there is no python3 in PATH, so no other language can read the golden stores")
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A decoder written from the pages` {
  @Test(arguments: Vector.all) func `prints what the code understands`(_ vector: Vector) throws {
    let text = try Decoder.output("decoder.py", [Repository.path(vector.folder)])
    #expect(text == (try Repository.text("\(vector.folder)/dump.jsonl")))
  }

  /// The checks of an event as the page tells them, against the code's: the body of each sample cut at every length, with
  /// every byte changed in three ways, and with a byte more.
  @Test(arguments: [false, true])
  func `judges every cut and every changed byte of an event as the code does`(_ isJournal: Bool) throws {
    let lsn: UInt64 = 5000
    let bodies: [[UInt8]] =
      isJournal
      ? JournalSamples.transactions(tenure: 5).joined().map { $0.encoded() }
      : try EventSamples.all().map { EventCodec.encode($0) }
    var text = ""
    var expected: [String] = []
    func add(_ body: [UInt8]) {
      text += "\(lsn) \(hex(body))\n"
      expected.append((isJournal ? Self.judgeJournal(body) : Self.judge(body, at: lsn)).line)
    }
    for body in bodies {
      for length in body.indices { add(Array(body[..<length])) }
      add(body + [0])
      for place in Campaign.places(body.indices, body.count) {
        for change in [UInt8(1), 0x80, 0xFF] {
          var changed = body
          changed[place] ^= change
          add(changed)
        }
      }
    }
    let folder = try TemporaryFolder()
    let file = try Repository.disk.open(folder("bodies"), .create)
    try file.write(Array(text.utf8), at: 0)
    file.close()
    let found = try Decoder.output("events.py", [isJournal ? "--decode-journal" : "--decode", folder("bodies")])
      .split(separator: "\n").map(String.init)
    #expect(found.count == expected.count)
    let differences = zip(found, expected).filter { $0 != $1 }
    for (theirs, ours) in differences.prefix(3) { Issue.record("the page says \(theirs), the code \(ours)") }
    for word in ["damaged", "fromTheFuture"] {
      #expect(expected.contains { $0.contains("\"verdict\":\"\(word)\"") }, "\(word) never came")
    }
  }

  private static func judge(_ body: [UInt8], at lsn: UInt64) -> JSON {
    do { return try JSON.event(EventCodec.decode(body), at: lsn) } catch EventCodecError.fromNewerVersion {
      return .object(["verdict": .text("fromTheFuture")])
    } catch {
      return .object(["verdict": .text("damaged")])
    }
  }

  private static func judgeJournal(_ body: [UInt8]) -> JSON {
    do throws(JournalEventError) { return try JournalEvent.decode(body).map(JSON.journal) ?? skipped(body) } catch {
      return .object(["verdict": .text(error.isFromNewerVersion ? "fromTheFuture" : "damaged")])
    }
  }

  private static func skipped(_ body: [UInt8]) -> JSON {
    let kind = UInt16(body[0]) | UInt16(body[1]) << 8
    return .object(["kind": .text("unknown-\(kind)"), "bytes": .hexed(body)])
  }

  /// The recovery rule as the page tells it, against the code's: a small log cut at every length, and with a bit
  /// changed in every byte.
  @Test(arguments: [Vector.threeEvents, .tornTail, .copiedTail, .compacted])
  func `judges every cut and every changed byte as the code does`(_ vector: Vector) throws {
    let folder = try TemporaryFolder()
    var expected: [String] = []
    func add(_ name: String, _ files: [String: [UInt8]]) throws {
      try Repository.disk.makeDirectory(folder(name))
      for (file, bytes) in files {
        let file = try Repository.disk.open(folder(name) + "/" + file, .create)
        defer { file.close() }
        try file.write(bytes, at: 0)
      }
      expected.append(try Dump.verdict(folder(name), log: name).line)
    }
    let files = try vector.make()
    for (name, bytes) in files.sorted(by: { $0.key < $1.key }) {
      // Most of the header's page says nothing, and so does most of CONTROL; a few places stand for all.
      let (lengths, places): ([Int], [Int]) =
        switch name {
        case LogFormat.controlName:
          (
            [0, 63, 64, 4096, 4159, 4160],
            (0...1).flatMap { slot in [0, 8, 20, 35, 40, 50, 56, 60, 63, 64, 4095].map { slot * 4096 + $0 } }
          )
        case LogFormat.manifestName: (Array(stride(from: 0, to: bytes.count, by: 9)), Array(bytes.indices))
        default: ([0, 60, 128, 4095] + Array(4096...bytes.count), Array(0..<130) + Array(4096..<bytes.count))
        }
      for length in Campaign.places(lengths, bytes.count) {
        var cut = files
        cut[name] = Array(bytes[..<length])
        try add("\(name)-cut-\(10_000 + length)", cut)
      }
      for place in Campaign.places(places, bytes.count) {
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
    let text = try Decoder.output("decoder.py", ["--verdicts", folder.path])
    let found = text.split(separator: "\n").map(String.init)
    #expect(found.count == expected.count)
    let differences = zip(found.map(Self.essence).sorted(), expected.map(Self.essence).sorted()).filter { $0 != $1 }
    for (theirs, ours) in differences.prefix(3) {
      Issue.record("the page says \(theirs), the code \(ours); and \(differences.count) such differences in all")
    }
    // Not all the same: the rule has been tried from several sides. A log that is promised to its end tears nowhere.
    let isPromised = ["copied-tail", "three-events", "compacted"].contains(vector.name)
    for word in ["sound", "damaged", "missing", "foreign"] + (isPromised ? [] : ["torn"]) {
      #expect(found.contains { $0.contains("\"verdict\":\"\(word)\"") }, "\(word) never came")
    }
  }

  /// A verdict without what log.md leaves to the reader: how exactly a refusal is described, but for the place at which
  /// frames end that were acknowledged.
  private static func essence(_ line: String) -> String {
    let parts = line.dropFirst().dropLast().split(separator: ",").map(String.init)
    func part(_ name: String) -> String? { parts.first { $0.hasPrefix("\"\(name)\":") } }
    let log = part("log") ?? ""
    guard let file = part("file"), let verdict = part("verdict") else { return "\(log) \(line)" }
    let from = part("from").flatMap { Int($0.drop { $0 != ":" }.dropFirst()) } ?? 0
    let place = verdict.contains("damaged") && from > LogFormat.headerPageBytes ? " at \(from)" : ""
    return "\(log) \(verdict) \(file)\(place)"
  }
}
