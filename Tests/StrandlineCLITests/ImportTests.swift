// `import`: which lines it accepts, its messages for bad lines, and what an acknowledgement guarantees.

import Strandline
import StrandlineCLI
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct ImportTests {
  @Test func `plain values, typed values and a parent come back from export as they went in`() async {
    let machine = Machine()
    let lines = [
      #"{"fields":{"b":1,"d":{"type":"DOUBLE","value":1.5},"l":["a","b"],"n":-9223372036854775808,"t":"x\"\\\u0001é"},"recordName":"a","recordType":"Note","zoneName":"Main"}"#,
      #"{"fields":{"as":{"type":"ASSETID","value":{"fileChecksum":"c","size":3}},"by":{"type":"BYTES","value":"aGVsbG8="},"el":{"type":"STRING_LIST","value":[]},"en":{"isEncrypted":true,"type":"STRING","value":"s"},"lo":{"type":"LOCATION","value":{"altitude":3.5,"latitude":1.0,"longitude":-2.0,"timestamp":5}},"re":{"type":"REFERENCE","value":{"action":"DELETE_SELF","recordName":"a"}},"rz":{"type":"REFERENCE","value":{"action":"NONE","recordName":"q","zoneID":{"zoneName":"Other"}}},"ts":{"type":"TIMESTAMP","value":1700000000000}},"parent":"a","recordName":"b","recordType":"Note","zoneName":"Main"}"#,
      #"{"fields":{"bl":{"type":"BYTES_LIST","value":["AA==","AQ=="]},"dl":{"type":"DOUBLE_LIST","value":[1.0,0.1]},"il":[1,2],"ll":{"type":"LOCATION_LIST","value":[{"latitude":0.0,"longitude":0.0}]},"rl":{"type":"REFERENCE_LIST","value":[{"action":"NONE","recordName":"a"}]},"tl":{"type":"TIMESTAMP_LIST","value":[1]}},"recordName":"c","recordType":"Note","zoneName":"Other"}"#,
    ].map { $0 + "\n" }.joined()
    let first = await machine.run("import", "/A", "-", input: lines)
    #expect(first == Screen(code: .done, out: "", err: "3 records imported\n"))
    let out = await machine.run("export", "/A")
    #expect(out == Screen(code: .done, out: lines, err: ""))
    #expect(await machine.run("import", "/B", "-", input: out.out).code == .done)
    #expect(await machine.run("export", "/B").out == lines)
    // Importing the same lines again changes nothing.
    let before = await machine.run("log-dump", "/A").out
    #expect(await machine.run("import", "/A", "-", input: lines).code == .done)
    #expect(await machine.run("log-dump", "/A").out == before)
    let other = await machine.run("export", "--zone", "Other", "/A").out
    #expect(
      other.hasSuffix(#""recordName":"c","recordType":"Note"}"# + "\n") && other.split(separator: "\n").count == 1)
  }

  @Test func `plain forms have one meaning each`() async {
    let machine = Machine()
    let line =
      #"{"recordType":"N","recordName":"a","fields":{"t":true,"f":false,"z":null,"h":1.5,"w":2.0,"m":[1,2.5],"e":[],"bl":[true],"v":{"type":"STRING","value":null},"inf":{"value":3}}}"#
    #expect(await machine.run("import", "/A", "-", input: line).code == .done)
    let out = await machine.run("export", "/A").out
    #expect(
      out
        == #"{"fields":{"bl":[1],"e":{"type":"UNKNOWN_LIST","value":[]},"f":0,"h":{"type":"DOUBLE","value":1.5},"inf":3,"m":{"type":"DOUBLE_LIST","value":[1.0,2.5]},"t":1,"w":2},"recordName":"a","recordType":"N","zoneName":"Main"}"#
        + "\n")
  }

  @Test func `an existing record is replaced, what the line does not name becomes null`() async {
    let machine = Machine()
    _ = await machine.run(
      "import", "/A", "-", input: #"{"recordType":"N","recordName":"a","fields":{"x":1,"y":2}}"#)
    _ = await machine.run("import", "/A", "-", input: #"{"recordType":"N","recordName":"a","fields":{"y":3}}"#)
    #expect(
      await machine.run("export", "--zone", "Main", "/A").out
        == #"{"fields":{"y":3},"recordName":"a","recordType":"N"}"# + "\n")
  }

  @Test func `the line's zone wins over the option's`() async {
    let machine = Machine()
    let lines = note("a", "x") + #"{"recordType":"Note","recordName":"b","zoneName":"Z2","fields":{}}"#
    _ = await machine.run("import", "--zone", "Z1", "/A", "-", input: lines)
    let out = await machine.run("export", "/A").out
    #expect(out.split(separator: "\n").map { $0.hasSuffix(#""zoneName":"Z1"}"#) } == [true, false])
    #expect(out.contains(#""zoneName":"Z2"}"#))
  }

  // MARK: Acknowledgements

  @Test func `each batch is acknowledged with its last event, one write each, and nothing else`() async {
    let machine = Machine()
    let lines = (0..<5).map { note("r\($0)", "t") }.joined()
    let screen = await machine.run("import", "--acks", "--batch", "2", "/A", "-", input: lines)
    // Event 1 is the `opened` event of the writer.
    #expect(screen.out == "ACK 3\nACK 5\nACK 6\n")
    #expect(machine.writes.withLock { $0 } == ["ACK 3\n", "ACK 5\n", "ACK 6\n"])
    // A batch that changes nothing is acknowledged with the last durable event.
    let again = await machine.run("import", "--acks", "--batch", "3", "/A", "-", input: lines)
    #expect(again.out == "ACK 6\nACK 6\n")
  }

  @Test func `what a line acknowledges outlasts a power cut at the moment of the line`() async throws {
    let disk = Mutex<SimulatedDisk?>(nil)
    let images = Mutex<[SimulatedDisk]>([])
    let machine = Machine(onOutput: { text in
      guard text.hasPrefix("ACK "), let image = disk.withLock({ $0 })?.imageAfterCrash(.none) else { return }
      images.withLock { $0.append(image) }
    })
    disk.withLock { $0 = machine.disk }
    let lines = (0..<6).map { note("r\($0)", "t") }.joined()
    _ = await machine.run("import", "--acks", "--batch", "2", "/A", "-", input: lines)
    let found = images.withLock { $0 }
    #expect(found.count == 3)
    for (number, image) in found.enumerated() {
      let environment = SystemEnvironment(fileSystem: image, clock: StandingClock(), random: SeededRandom(seed: 2))
      let store = try RecordStore.openBlocking(at: "/A", environment: StoreEnvironment(environment))
      // The next batch may be there as well: it is saved while the line is written.
      #expect(store.recordCount >= 2 * (number + 1))
      try store.closeBlocking()
    }
  }

  @Test func `an input that ends with a full batch has no empty batch after it, and an empty input none`() async {
    let machine = Machine()
    let lines = (0..<4).map { note("r\($0)", "t") }.joined()
    #expect(await machine.run("import", "--acks", "--batch", "2", "/A", "-", input: lines).out == "ACK 3\nACK 5\n")
    #expect(await machine.run("import", "--acks", "/B", "-", input: "\n \n").out == "")
  }

  @Test func `a bad line ends its batch; everything before it is saved and acknowledged`() async {
    let machine = Machine()
    let lines = note("a", "1") + note("b", "2") + note("c", "3") + "nonsense\n" + note("d", "4")
    let screen = await machine.run("import", "--acks", "--batch", "2", "/A", "-", input: lines)
    #expect(screen.code == .dataDamaged)
    #expect(screen.out == "ACK 3\nACK 4\n")
    #expect(
      screen.err == """
        3 records imported before the bad line
        error: standard input, line 4, column 1: not valid JSON: a word that is none of null, true and false
        try: correct the line, or add --keep-going; records that are saved already are not saved again

        """)
    #expect(await machine.run("export", "/A").out.split(separator: "\n").count == 3)
  }

  @Test func `with keep-going a bad line is not part of a batch, whether the decoder or the store rejects it`() async {
    let machine = Machine()
    // The decoder rejects line 2, the store line 4; the batches are a+c, d+e.
    let lines =
      note("a", "1") + "{\n" + note("c", "2") + note("_bad", "3") + note("d", "4") + note("e", "5")
    let screen = await machine.run("import", "--acks", "--keep-going", "--batch", "2", "/A", "-", input: lines)
    #expect(screen.code == .dataDamaged)
    #expect(screen.out == "ACK 3\nACK 5\n")
    #expect(
      screen.err == """
        error: standard input, line 2, column 2: not valid JSON: expected a key in double quotes, found the end of the text
        error: standard input, line 4: '_bad' cannot be a record's name: it begins with '_', which CloudKit reserves for the system
        4 records imported, 2 bad lines skipped

        """)
  }

  @Test func `a closed standard output stops the import with 74, and what was acknowledged stays`() async {
    let machine = Machine()
    machine.writesLeft.withLock { $0 = 1 }
    let lines = (0..<6).map { note("r\($0)", "t") }.joined()
    let screen = await machine.run("import", "--acks", "--batch", "2", "/A", "-", input: lines)
    #expect(screen.code == .inputOutput)
    #expect(screen.out == "ACK 3\n")
    #expect(screen.err.contains("error: cannot write to standard output"))
    machine.writesLeft.withLock { $0 = nil }
    // The second batch is durable, but writing its acknowledgement failed; meanwhile the third may have been saved too.
    #expect([4, 6].contains(await machine.run("export", "/A").out.split(separator: "\n").count))
  }

  @Test func `the same name twice in a batch is two saves`() async {
    let machine = Machine()
    let screen = await machine.run("import", "--acks", "/A", "-", input: note("a", "1") + note("a", "2"))
    #expect(screen.out == "ACK 3\n")
    #expect(await machine.run("export", "/A").out.contains(#""title":"2""#))
  }

  // MARK: Deleted names

  @Test func `the name of a deleted record is a bad line; with --recreate it is a new record`() async {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    #expect(await machine.run("delete", "/A", "a").code == .done)
    let refused = await machine.run("import", "/A", "-", input: note("b", "1") + note("a", "2"))
    #expect(refused.code == .dataDamaged)
    #expect(refused.err.contains("line 2: record 'Main/a' was deleted here (event 4)"))
    #expect(refused.err.hasSuffix("try: the same command with --recreate, to create a new record with this name\n"))
    #expect(await machine.run("import", "--recreate", "/A", "-", input: note("a", "2")).code == .done)
    #expect(await machine.run("get", "--json", "/A", "a").out.contains(#""title":"2""#))
  }

  // MARK: Values of an unknown type

  @Test func `a value that this version does not know goes out, and comes in only where it is`() async throws {
    let machine = Machine()
    var version = Version(
      type: "Note",
      fields: ["title": "t", "future": .opaque(OpaqueValue(type: "VECTOR", json: Array(#"{"a":[1,0.5]}"#.utf8)))])
    version.stamp.births = [Birth(time: .zero, writer: 1)]
    let fetched = FetchedSave(
      id: RecordID("n"), version: version, system: SystemFields(changeTag: "t"), source: .feed, isStamped: true)
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    try store.commitBlocking { try $0.append(.fetchedSave(fetched)) }
    try store.closeBlocking()
    let out = await machine.run("export", "/A").out
    #expect(
      out == #"{"fields":{"future":{"type":"VECTOR","value":{"a":[1,0.5]}},"title":"t"},"#
        + #""recordName":"n","recordType":"Note","verbatim":true,"zoneName":"Main"}"# + "\n")
    #expect(await machine.run("import", "/A", "-", input: out).code == .done)
    #expect(await machine.run("import", "/C", "-", input: out).code == .done)
    #expect(await machine.run("export", "/C").out == out)
    let byHand = out.replacing(#""verbatim":true,"#, with: "")
    #expect(await machine.run("import", "/A", "-", input: byHand).code == .done)
    let edited = byHand.replacing(#""title":"t""#, with: #""title":"u""#)
    #expect(await machine.run("put", "/A", "-", input: edited).code == .done)
    #expect(await machine.run("export", "/A").out == out.replacing(#""title":"t""#, with: #""title":"u""#))
    for line in [edited.replacing("0.5", with: "0.25"), edited.replacing("VECTOR", with: "TENSOR")] {
      let refused = await machine.run("import", "/A", "-", input: line)
      #expect(refused.code == .dataDamaged)
      #expect(refused.err.contains("which this version does not know and cannot make"))
    }
    #expect(await machine.run("import", "/B", "-", input: byHand).code == .dataDamaged)
  }

  @Test func `what only a server can have given goes out and comes in: names and a share's type`()
    async throws
  {
    let machine = Machine()
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    func fetched(
      _ name: String, _ type: String, _ fields: [String: FieldValue], zone: ZoneID = .main
    ) throws {
      var version = Version(type: type, fields: fields)
      version.stamp.births = [Birth(time: .zero, writer: 1)]
      let fetched = FetchedSave(
        id: RecordID(name, zone: zone), version: version, system: SystemFields(changeTag: "t"), source: .feed,
        isStamped: true)
      try store.commitBlocking { try $0.append(.fetchedSave(fetched)) }
    }
    try fetched("café", "Note", ["title": "t"])
    try fetched("_own", "Note", ["title": "t"])
    try fetched("below", "Note", [Version.parentField: .reference(Reference("café"))])
    try fetched("share", "cloudkit.share", ["title": "t"])
    try fetched("empty", "Note", ["items": .list(.unknown, [])])
    // A list whose type the server does not tell, with values.
    try fetched("list", "Note", ["items": .opaque(OpaqueValue(type: "UNKNOWN_LIST", json: Array(#"[{"a":1}]"#.utf8)))])
    try fetched("field", "Note", ["caf%C3%A9": "t", "creationDate": 5])
    try fetched("zoned", "Note", ["title": "t"], zone: ZoneID("Zöne"))
    try fetched("plain", "Note", ["title": "t", "n": 5])
    try store.closeBlocking()
    let out = await machine.run("export", "/A").out
    #expect(out.split(separator: "\n").count { $0.contains(#""verbatim":true"#) } == 7, "\(out)")
    let imported = await machine.run("import", "/B", "-", input: out)
    #expect(imported.code == .done, "\(imported.err)")
    #expect(await machine.run("export", "/B").out == out)
    // And over what is there.
    let edited = out.replacing(#""title":"t""#, with: #""title":"u""#)
      .replacing(#""caf%C3%A9":"t""#, with: #""caf%C3%A9":"u""#)
    #expect(await machine.run("import", "/B", "-", input: edited).code == .done)
    #expect(await machine.run("export", "/B").out == edited)
    // A person's mistake is refused as before, line by line.
    for line in edited.replacing(#""verbatim":true,"#, with: "").split(separator: "\n")
    where !line.contains(#""plain""#) && !line.contains(#""empty""#) {
      #expect(await machine.run("import", "/D", "-", input: line + "\n").code == .dataDamaged, "\(line)")
    }
  }

  // MARK: Lines that are no records

  @Test(arguments: [
    (#"{"recordType":"N","recordName":"x","foo":1}"#, "unknown key 'foo'"),
    (#"{"recordType":"N"}"#, "the key 'recordName' is missing"),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{}}}"#,
      "fields.a: an object as a value has the keys 'type' and 'value'; null clears a field"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"STRING"}}}"#,
      "fields.a: an object as a value has the keys 'type' and 'value'; null clears a field"
    ),
    (#"{"recordName":"x"}"#, "the key 'recordType' is missing"),
    (#"{"recordType":"N","recordName":5}"#, "column 32: recordName: expected a string, found a number"),
    (
      #"{"recordType":"N","recordName":"x","fields":[]}"#,
      "fields: expected an object, found a list"
    ),
    (
      #"{"recordType":"N","recordName":"x","recordName":"y"}"#,
      "line 2, column 36: the key 'recordName' occurs twice in one object"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":1,"b":{"type":"INT64","value":1},"\u0061" :2}}"#, "the key 'a'"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"value":1,"value":1}}}"#, "the key 'value' occurs twice"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"INT64","value":1.5}}}"#,
      "fields.a.value: a number that is not a whole number of 64 bits"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"INT64_LIST","value":[1,1.5]}}}"#,
      "a number that is not a whole number of 64 bits"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"INT64","value":"q"}}}"#,
      "fields.a.value: expected a number, found a string"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"INT64","value":"5"}}}"#,
      "column 74: fields.a.value: expected a number, found a string"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"value":1.5,"type":"TIMESTAMP"}}}"#,
      "column 59: fields.a.value: a time that is not whole milliseconds"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"INT64","value":{}}}}"#,
      "fields.a.value: expected a number, found an object"
    ),
    ("[1]", "line 2, column 1: expected an object, found a list"),
    ("hello", "line 2, column 1: not valid JSON: expected an object, found 'h'"),
    (
      #"{"recordType":"N","recordName":"x"}}"#,
      "line 2, column 36: not valid JSON: expected the end of the text, found '}'"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":"\ud800"}}"#,
      "line 2, column 51: not valid JSON: an escape of half a surrogate pair, without the other half"
    ),
    (
      #"{"recordType":"N","recordName":"é","fields":{"a":1,}}"#,
      "line 2, column 52: not valid JSON: expected a key in double quotes, found '}'"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":9223372036854775808}}"#,
      "fields.a: the integer does not fit into 64 bits"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":1e400}}"#,
      "fields.a: a number beyond the greatest double: 1e400"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"FOO","value":1}}}"#,
      "record 'Main/x', field 'a': a value of the type 'FOO', which this version does not know and cannot make"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"typ":"STRING","value":"x"}}}"#,
      "fields.a: unknown key 'typ'"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"BYTES","value":"%%"}}}"#,
      "fields.a.value: expected base64, found another string"
    ),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":[1,"b"]}}"#,
      "fields.a: a plain list holds only strings or only numbers"
    ),
    (#"{"recordType":"N","recordName":"x","fields":{"a":[null]}}"#, "fields.a: a list cannot hold null"),
    (#"{"recordType":"N","recordName":"","fields":{}}"#, "'' cannot be a record's name: it is empty"),
    (#"{"recordType":"N","recordName":"_x","fields":{}}"#, "it begins with '_'"),
    (#"{"recordType":"N","recordName":"é","fields":{}}"#, "it holds a character that is not printable ASCII"),
    (#"{"recordType":"1N","recordName":"x","fields":{}}"#, "it must begin with an ASCII letter"),
    (#"{"recordType":"N","recordName":"x","fields":{"strandlineStamp":1}}"#, "the sync engine's own"),
    (#"{"recordType":"N","recordName":"x","zoneName":"_defaultZone"}"#, "'_defaultZone' cannot be a zone's name here"),
    (
      #"{"recordType":"N","recordName":"x","fields":{"a":{"type":"REFERENCE","value":{"recordName":"q","action":"DELETE_SELF","zoneID":{"zoneName":"Z"}}}}}"#,
      "cannot leave its zone"
    ),
  ])
  func `a bad line is named with its number and what is wrong`(line: String, words: String) async {
    let machine = Machine()
    let screen = await machine.run("import", "/A", "-", input: note("good", "1") + line + "\n")
    #expect(screen.code == .dataDamaged)
    #expect(screen.err.contains("error: standard input, line 2"))
    #expect(screen.err.contains(words), "\(screen.err)")
    #expect(await machine.run("export", "/A").out.split(separator: "\n").count == 1)
  }

  @Test func `a line that is not UTF-8, and one that is nested too deeply, are named as such`() async {
    let machine = Machine()
    let deep = String(repeating: "[", count: 100_000)
    for (line, words) in [
      (
        Array(#"{"recordType":"N","recordName":"x","fields":{"a":""#.utf8) + [0xFF] + Array(#""}}"#.utf8),
        ", column 51: not valid JSON: a string whose bytes are not UTF-8"
      ),
      ([0xC3, 0x28], ", column 1: not valid JSON: expected an object, found the byte C3 (hexadecimal)"),
      (Array(deep.utf8), ", column 513: not valid JSON: more than 512 lists and objects in each other"),
      (
        Array(#"{"fields":{"a":"#.utf8) + Array(deep.utf8),
        ", column 526: not valid JSON: more than 512 lists and objects in each other"
      ), (Array(("{\"a\":\"" + deep).utf8), ", column 6: not valid JSON: a string without its closing quote"),
    ] {
      let screen = await machine.run(["import", "/A", "-"], input: line)
      #expect(screen.code == .dataDamaged)
      #expect(screen.err.contains("standard input, line 1\(words)\n"), "\(screen.err.prefix(300))")
    }
  }

  @Test func `a name of 255 characters is accepted, one of 256 is not`() async {
    let machine = Machine()
    #expect(await machine.run("import", "/A", "-", input: note(String(repeating: "n", count: 255), "1")).code == .done)
    let screen = await machine.run("import", "/A", "-", input: note(String(repeating: "n", count: 256), "1"))
    #expect(screen.code == .dataDamaged)
    #expect(screen.err.contains("it has 256 characters; CloudKit takes at most 255"))
  }

  @Test func `a record of a million bytes is refused by its size, a little less is taken`() async {
    let machine = Machine()
    let large = await machine.run("import", "/A", "-", input: note("a", String(repeating: "x", count: 1 << 20)))
    #expect(large.code == .dataDamaged)
    #expect(large.err.contains("CloudKit takes at most 1000000"))
    #expect(
      await machine.run("import", "/A", "-", input: note("a", String(repeating: "x", count: 999_000))).code == .done)
  }

  @Test func `a line that is too long is skipped without holding it in memory, and the next line is read`() async {
    let machine = Machine()
    let endless = String(repeating: "x", count: 17 << 20) + "\n" + note("b", "2")
    let screen = await machine.run("import", "--keep-going", "/A", "-", input: endless)
    #expect(screen.err == "error: standard input, line 1: longer than 16 MB\n1 record imported, 1 bad line skipped\n")
  }

  @Test func `a line may have 16 MB and no byte more`() async {
    let machine = Machine()
    let longest = 16 << 20
    for (count, words) in [(longest, "CloudKit takes at most 1000000"), (longest + 1, "longer than 16 MB")] {
      let title = String(repeating: "x", count: count - (note("a", "").utf8.count - 1))
      let screen = await machine.run("import", "/A", "-", input: note("a", title))
      #expect(screen.err.contains("standard input, line 1") && screen.err.contains(words), "\(screen.err.prefix(300))")
    }
  }

  @Test(arguments: [1, 2, 7, 64])
  func `lines are the same however the stream comes in pieces`(bytes: Int) async {
    let odd = #"{"recordType":"N","recordName":"é"}"# + "\r\n"
    let lines = "\n" + note("a", "1") + " \r\n\n" + odd + note("b", "2") + "{}"
    let whole = await Machine().run("import", "--keep-going", "/A", "-", input: lines)
    #expect(whole.err.contains("standard input, line 5: 'é'"))
    #expect(whole.err.contains("standard input, line 7, column 2: "))
    #expect(whole.err.hasSuffix("2 records imported, 2 bad lines skipped\n"))
    let machine = Machine(pace: InputPace(bytesMax: bytes))
    #expect(await machine.run("import", "--keep-going", "/A", "-", input: lines) == whole)
  }

  @Test func `a bad line ends the import although the producer has not ended`() throws {
    let folder = try TemporaryFolder()
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
    let child = try ChildProcess(
      (built + ["strandline"]).joined(separator: "/"), ["import", folder("A"), "-"], input: .pipe, output: .null,
      errorOutput: .pipe)
    defer {
      child.kill(.kill)
      _ = try? child.wait()
    }
    try child.write(Array((note("a", "1") + "nonsense\n").utf8))
    #expect(try child.wait() == .exited(ExitCode.dataDamaged.rawValue))
    let words = String(decoding: try child.errorOutput?.readAll() ?? [], as: UTF8.self)
    #expect(words.contains("1 record imported before the bad line\n"), "\(words)")
    #expect(words.contains("error: standard input, line 2, column 1: "), "\(words)")
  }

  @Test func `equal keys in different objects are not a repeated key`() async {
    let machine = Machine()
    let line =
      #"{"recordType":"N","recordName":"a","fields":{"a":"a","b":["a","a"],"c":"{\"a\":1,\"a\":2}","#
      + #""d":{"type":"STRING","value":"value"},"e":{"type":"STRING","value":"\\"}}}"# + "\n"
    #expect(
      await machine.run("import", "/A", "-", input: line) == Screen(code: .done, out: "", err: "1 record imported\n"))
  }

  // MARK: Places

  @Test func `a file that is not there leaves no store behind`() async throws {
    let machine = Machine()
    let screen = await machine.run("import", "/A", "/nope")
    #expect(screen.code == .noSuchStore)
    #expect(screen.err.hasPrefix("error: there is no file '/nope'\n"))
    #expect(try machine.disk.kind(of: "/A") == .absent)
  }

  @Test func `a store cannot be created in a directory that does not exist`() async {
    let screen = await Machine().run("import", "/no/such/A", "-", input: note("a", "1"))
    #expect(screen.code == .cannotCreate, "\(screen.err)")
    #expect(
      screen.err == "error: there is no directory '/no/such' to make the store in\ntry: mkdir -p /no/such\n")
  }

  @Test func `a failed import says that it has made a store`() async {
    let machine = Machine()
    let note = "note: made a new store at '/A'\n"
    #expect(await machine.run("import", "/A", "-", input: "{").err.contains(note))
    #expect(await !machine.run("import", "/A", "-", input: "{").err.contains(note))
  }

  @Test func `for a batch that is too large for a transaction the remedy is a smaller one`() async {
    let lines = (0..<76).map { note("r\($0)", String(repeating: "x", count: 900_000)) }.joined()
    let screen = await Machine().run("import", "/A", "-", input: lines)
    #expect(screen.code == .dataDamaged)
    #expect(
      screen.err.hasSuffix(
        "try: the same command with --batch 50; records that are saved already are not saved again\n"),
      "\(screen.err.suffix(300))")
  }

  @Test func `a directory with other files is not a store`() async throws {
    let machine = Machine()
    try machine.disk.makeDirectory("/D")
    try machine.file("/D/letter.txt", "dear")
    for words in [["import", "/D", "-"], ["export", "/D"], ["status", "/D"], ["verify", "/D"], ["log-dump", "/D"]] {
      let screen = await machine.run(words, input: [])
      #expect(screen.code == .noSuchStore, "\(words)")
      #expect(screen.err.hasPrefix("error: "))
      // A verb that reads asks for a store, and not for a new place to make one.
      let isReading = words[0] != "import"
      #expect(screen.err.contains("'/D' is not a store: it holds no segment") == isReading, "\(screen.err)")
      #expect(screen.err.contains("new or empty") == !isReading, "\(screen.err)")
    }
    for verb in ["export", "status", "verify", "log-dump", "compact", "repair"] {
      let screen = await machine.run(verb, "/D/letter.txt")
      #expect(screen.code == .noSuchStore, "\(verb)")
      #expect(
        screen.err
          == "error: '/D/letter.txt' is not a directory, and a store is one\ntry: the path of a store; to make "
          + "one of a file of JSON Lines: strandline import STORE /D/letter.txt\n", "\(verb): \(screen.err)")
    }
  }

  @Test func `a store with a writer is locked: 75, and readers can open it`() async throws {
    let machine = Machine()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let store = try RecordStore.openBlocking(at: "/A", environment: machine.storeEnvironment)
    defer { #expect(throws: Never.self) { try store.closeBlocking() } }
    let screen = await machine.run("import", "/A", "-", input: note("b", "1"))
    #expect(screen.code == .tryLater)
    #expect(screen.err.contains("is being written by another process"))
    #expect(await machine.run("get", "/A", "a").code == .done)
    #expect(await machine.run("export", "/A").code == .done)
  }
}
