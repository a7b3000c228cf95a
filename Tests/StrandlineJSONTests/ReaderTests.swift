// What a reader returns, where it stands afterwards, and what it refuses: keys, lists, marks, tokens and limits.

import StrandlineJSON
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A reader of JSON` {
  private enum Name: Int, CaseIterable { case a, zoneName, recordChangeTag, serverRecordSnapshotVersion }
  private static let keys = JSONKeys(Name.self)

  private func reader(_ text: String, depthMax: Int = 64) throws(JSONError) -> JSONReader {
    try JSONReader(Array(text.utf8), limits: JSONLimits(bytesMax: 1 << 20, depthMax: depthMax))
  }

  @Test func `reads values into what the caller has for them`() throws {
    var reader = try reader(
      #" { "name" : "caf\u00e9" , "count":-12,"size":18446744073709551615,"ratio":0.25,"isOn":true,"data":"aGk=","no":null} "#
    )
    try reader.beginObject()
    #expect(try reader.nextKey() == "name")
    #expect(try reader.string() == "café")
    #expect(try reader.nextKey() == "count")
    #expect(try reader.int64() == -12)
    #expect(try reader.nextKey() == "size")
    #expect(try reader.uint64() == .max)
    #expect(try reader.nextKey() == "ratio")
    #expect(try reader.double() == 0.25)
    #expect(try reader.nextKey() == "isOn")
    #expect(try !reader.skipNull())
    #expect(try reader.bool())
    #expect(try reader.nextKey() == "data")
    #expect(try reader.base64() == Array("hi".utf8))
    #expect(try reader.nextKey() == "no")
    #expect(try reader.skipNull())
    #expect(try reader.nextKey() == nil)
    try reader.finish()
  }

  @Test func `finds the keys that a decoder knows, of any length and with escapes`() throws {
    var reader = try reader(
      #"""
      {"a":1,"":2,"zoneName":3,"zonename":4,"recordChangeTag":5,"recordChangeTaf":6,"serverRecordSnapshotVersion":7,
       "serverRecordSnapShotVersion":8,"b":9,"serverRecordXXXXXXXXVersion":10}
      """#)
    var found: [String] = []
    try reader.beginObject()
    while let key = try reader.nextKey(in: Self.keys) {
      let name = Name(rawValue: key)
      #expect(name != nil || key == -1)
      found.append(name.map { "\($0)" } ?? "?" + reader.key)
      #expect(try reader.int64() == found.count)
    }
    #expect(
      found == [
        "a", "?", "zoneName", "?zonename", "recordChangeTag", "?recordChangeTaf", "serverRecordSnapshotVersion",
        "?serverRecordSnapShotVersion", "?b", "?serverRecordXXXXXXXXVersion",
      ])
    // At the very end of the bytes there are no eight bytes to look at.
    var short = try self.reader(#"{"\u0061":1,"zone\u004eame":[{"a":0}]}"#)
    try short.beginObject()
    #expect(try short.nextKey(in: Self.keys) == Name.a.rawValue)
    try short.skipValue()
    #expect(try short.nextKey(in: Self.keys) == Name.zoneName.rawValue)
    #expect(short.key == "zoneName")
    try short.beginArray()
    #expect(try short.nextItem())
    try short.beginObject()
    #expect(try short.nextKey(in: Self.keys) == Name.a.rawValue)
  }

  @Test func `finds each of many keys`() throws {
    let names = (0..<500).map { String(repeating: "k", count: $0 % 23) + "\($0)" }
    let keys = JSONKeys(Many.self)
    #expect(Many.allCases.count == 3)
    var writer = JSONWriter()
    writer.beginObject()
    for name in names {
      writer.key(name)
      writer.null()
    }
    writer.endObject()
    var reader = try JSONReader(writer.finish(), limits: wide)
    try reader.beginObject()
    var found: [String] = []
    while let key = try reader.nextKey(in: keys) {
      if let name = Many(rawValue: key) { found.append("\(name)") }
      try reader.skipValue()
    }
    #expect(found == ["k1", "kk2", "kkkkkkkkkkkkkkkkkkkk20"])
  }
  private enum Many: Int, CaseIterable { case k1, kk2, kkkkkkkkkkkkkkkkkkkk20 }

  // MARK: Keys that occur twice

  @Test func `refuses a key that an object has twice, in any spelling`() {
    for text in [
      #"{"a":1,"a":2}"#, #"{"a":1,"\u0061":2}"#, #"{"\u0061":1,"a":2}"#, #"{"\u0061":1,"\u0061":2}"#,
      #"{"é":1,"\u00E9":2}"#, #"{"":1,"":2}"#, #"[{"b":{"a":1,"c":2,"a":3}}]"#,
      #"{"0123456789abcdefghij":1,"0123456789abcdefghij":2}"#,
    ] {
      #expect(throws: JSONError.self, "\(text)") { try Tree(text) }
      do { _ = try Tree(text) } catch { #expect(error.kind == .repeatedKey) }
    }
  }

  @Test func `takes keys that differ, and the same key in another object`() throws {
    for text in [
      #"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#, #"{"a":1,"A":2,"aa":3,"a\u0000":4}"#,
      // Their first and last eight bytes are equal.
      #"{"01234567_A_01234567":1,"01234567_B_01234567":2}"#, #"{"01234567A89012345":1,"01234567B89012345":2}"#,
      // Canonically equal, but other bytes.
      #"{"\u00e9":1,"e\u0301":2}"#,
    ] { _ = try Tree(text) }
  }

  @Test(arguments: [15, 16, 17, 64, 65, 1000]) func `finds a repeated key among many`(count: Int) throws {
    for isEscaped in [false, true] {
      for place in [0, count / 2, count - 1] {
        // Long keys with equal ends, which only all of their bytes tell from each other.
        let names = (0..<count).map { number in
          let digits = String(1_000_000 + number)
          return "0123456789\(isEscaped && number % 3 == 0 ? #"\u0031"# : "1")\(digits.dropFirst())abcdefghij"
        }
        let text = "{" + names.map { "\"\($0)\":{\"x\":0}" }.joined(separator: ",")
        _ = try Tree(text + "}")
        let repeated = text + ",\"\(names[place])\":1}"
        do {
          _ = try Tree(repeated)
          Issue.record("\(count) keys and the one at \(place) again")
        } catch {
          #expect(error.kind == .repeatedKey)
          #expect(error.offset == text.utf8.count + 1)
        }
      }
    }
  }

  @Test func `takes 100,000 keys of one object in a moment, and large objects in each other`() throws {
    let many = "{" + (0..<100_000).map { "\"key\($0)\":\($0)" }.joined(separator: ",") + "}"
    var reader = try JSONReader(Array(many.utf8), limits: wide)
    try reader.skipValue()
    try reader.finish()
    let some = (0..<30).map { "\"key\($0)\":0" }.joined(separator: ",")
    let nested = "{\(some),\"in\":{\(some),\"in\":{\(some)},\"more\":1},\"key30\":0,\"more\":2}"
    _ = try Tree(nested)
    #expect(throws: JSONError.self) { try Tree(nested.dropLast() + ",\"key7\":1}") }
    // A table of an object that was left by `move` is gone.
    var moved = try JSONReader(Array("[{\(some),\"in\":{\(some)}}]".utf8), limits: wide)
    try moved.beginArray()
    #expect(try moved.nextItem())
    let mark = moved.mark
    try moved.beginObject()
    for _ in 0..<30 {
      _ = try moved.nextKey()
      try moved.skipValue()
    }
    moved.move(to: mark)
    try moved.skipValue()
    #expect(try !moved.nextItem())
  }

  // MARK: Going on after an error, and reading a value late

  @Test func `goes back to a value, and behind one that is bad`() throws {
    var reader = try reader(#"[{"value":"aGk=","type":"BYTES"},{"value":"a\q","a":[1,{"a":1,"a":2}]},7]"#)
    try reader.beginArray()
    #expect(try reader.nextItem())
    try reader.beginObject()
    #expect(try reader.nextKey() == "value")
    let mark = reader.mark
    let token = try reader.skipValue()
    #expect(token.kind == .string && Array(reader.bytes[token.range]) == Array(#""aGk=""#.utf8))
    #expect(try reader.nextKey() == "type")
    #expect(try reader.string() == "BYTES")
    let after = reader.mark
    #expect(try reader.base64(of: token) == Array("hi".utf8))
    reader.move(to: mark)
    #expect(try reader.string() == "aGk=")
    reader.move(to: after)
    #expect(try reader.nextKey() == nil)

    #expect(try reader.nextItem())
    let bad = reader.mark
    #expect(throws: JSONError.self) { try reader.skipValue() }
    reader.move(to: bad)
    let range = try reader.skipStructure()
    #expect(reader.bytes.text(in: range) == #"{"value":"a\q","a":[1,{"a":1,"a":2}]}"#)
    #expect(try reader.nextItem())
    #expect(try reader.int64() == 7)
    #expect(try !reader.nextItem())
    try reader.finish()
  }

  @Test func `goes back to a list that was passed over as a token`() throws {
    var reader = try reader(#"{"value":[1,2.5,[]],"type":"X","z":0}"#)
    try reader.beginObject()
    _ = try reader.nextKey()
    let token = try reader.skipValue()
    #expect(token.kind == .array)
    _ = try reader.nextKey()
    #expect(try reader.string() == "X")
    for isClosed in [false, true] {
      let after = reader.goBack(to: token)
      #expect(try Tree(&reader) == .list([.int64(1), .double(2.5), .list([])]))
      reader.move(to: after)
      guard !isClosed else { break }
      #expect(try reader.nextKey() == "z")
      #expect(try reader.int64() == 0)
      #expect(try reader.nextKey() == nil)
    }
    try reader.finish()
  }

  @Test func `finds the end of what is bad inside`() throws {
    for text in [
      "[1,-,-e.E9,00]", #"["\u12","\", "#.dropLast(2) + #""]"#, "[\"\u{1}\"]", #"{"a":1,"a":{"b":[],"b":[]}}"#,
      #"[NaN,-Infinity,{"a":undefined,"b":0x1F,"c":tru},'x',<é>]"#, "nil",
    ] {
      let bytes = Array(text.utf8)
      var reader = try JSONReader(bytes + Array(" 5".utf8), 0..<bytes.count, limits: wide)
      #expect(try reader.skipStructure() == 0..<bytes.count, "\(text)")
      try reader.finish()
    }
    for text in [
      "[", "[1", "[1,]", "[1 2]", #"{"a"}"#, #"{"a":}"#, #"{"a":1,}"#, #"{a:1}"#, #"["a]"#, "[}", "[,]", ":", "]", "",
    ] {
      var reader = try reader(text)
      #expect(throws: JSONError.self, "\(text)") { try reader.skipStructure() }
    }
    var invalid = try JSONReader([0x22, 0xFF, 0xC0, 0x22], limits: wide)
    #expect(try invalid.skipStructure() == 0..<4)
  }

  // MARK: Limits and texts

  @Test func `keeps to the limits that the caller gives`() throws {
    for (depth, fits) in [(64, true), (65, false)] {
      for (open, close) in [("[", "]"), (#"{"a":"#, "}")] {
        let text = String(repeating: open, count: depth) + "1" + String(repeating: close, count: depth)
        for isStructure in [false, true] {
          var reader = try reader(text)
          do {
            if isStructure { _ = try reader.skipStructure() } else { try reader.skipValue() }
            try reader.finish()
            #expect(fits)
          } catch {
            #expect(!fits)
            #expect(error.kind == .limit)
            #expect(error.message == "more than 64 lists and objects in each other")
          }
        }
      }
    }
    let limits = JSONLimits(bytesMax: 4, depthMax: 1)
    _ = try JSONReader(Array("true".utf8), limits: limits)
    _ = try JSONReader(Array("[true]".utf8), 1..<5, limits: limits)
    do {
      _ = try JSONReader(Array("false".utf8), limits: limits)
      Issue.record("5 bytes")
    } catch {
      #expect(error.kind == .limit)
      #expect(error.message == "the text has 5 bytes; the limit is 4")
    }
  }

  @Test func `passes over 100,000 levels without its stack`() throws {
    for (open, close) in [("[", "]"), (#"{"":"#, "}")] {
      let text = String(repeating: open, count: 100_000) + "0" + String(repeating: close, count: 100_000)
      var reader = try JSONReader(Array(text.utf8), limits: wide)
      try reader.skipValue()
      try reader.finish()
      try reader.restart(in: 0..<text.utf8.count)
      #expect(try reader.skipStructure() == 0..<text.utf8.count)
    }
  }

  @Test func `reads the lines of a file one after the other with one reader`() throws {
    let file = Array("{\"a\":1}\n[2,\n\"c\"".utf8)
    var reader = try JSONReader(file, 0..<7, limits: wide)
    try reader.skipValue()
    try reader.finish()
    try reader.restart(in: 8..<11)
    do {
      try reader.skipValue()
      Issue.record("the list is open")
    } catch {
      #expect(error.description == "line 1, column 4: expected a value, found the end of the text")
    }
    // What the error left open is closed.
    try reader.restart(in: 12..<15)
    #expect(try reader.string() == "c")
    try reader.finish()
    try reader.restart(Array(" null".utf8), 0..<5)
    #expect(try reader.skipNull())
    try reader.finish()
  }

  @Test func `does not look beyond its range`() throws {
    let bytes = Array(#"{"a":"xyz"}123456"#.utf8)
    for end in 0..<11 {
      var reader = try JSONReader(bytes, 0..<end, limits: wide)
      #expect(throws: JSONError.self, "\(end)") { try reader.skipValue() }
    }
    var number = try JSONReader(bytes, 11..<13, limits: wide)
    #expect(try number.int64() == 12)
    try number.finish()
    var word = try JSONReader(Array("true".utf8), 0..<3, limits: wide)
    #expect(throws: JSONError.self) { try word.bool() }
  }
}
