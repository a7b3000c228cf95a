// The places and the words of errors: a person must find the byte that is wrong.

import StrandlineJSON
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `An error of JSON` {
  @Test(arguments: [
    ("", "line 1, column 1: expected a value, found the end of the text"),
    ("  ", "line 1, column 3: expected a value, found the end of the text"),
    ("[1,]", "line 1, column 4: expected a value, found ']'"),
    ("[1 2]", "line 1, column 4: expected ',' or ']', found '2'"),
    ("[1}", "line 1, column 3: expected ',' or ']', found '}'"),
    (#"{"a":1,}"#, "line 1, column 8: expected a key in double quotes, found '}'"),
    (#"{"a":1]"#, "line 1, column 7: expected ',' or '}', found ']'"),
    (#"{"a" 1}"#, "line 1, column 6: expected ':' after a key, found '1'"),
    ("{a:1}", "line 1, column 2: expected a key in double quotes, found 'a'"),
    ("[\n  1,\n  é\n]", "line 3, column 3: expected a value, found the byte C3 (hexadecimal)"),
    ("{\"é😹\":\n1,\"日本\":x}", "line 2, column 8: expected a value, found 'x'"),
    ("[\u{1}]", "line 1, column 2: expected a value, found the byte 01 (hexadecimal)"),
    ("1 2", "line 1, column 3: expected the end of the text, found '2'"),
    ("nul", "line 1, column 1: a word that is none of null, true and false"),
    ("[truth]", "line 1, column 2: a word that is none of null, true and false"),
    ("\u{FEFF}{}", "line 1, column 1: expected a value, found a byte order mark"),
    ("01", "line 1, column 1: a number with a 0 before other digits"),
    ("[-01]", "line 1, column 3: a number with a 0 before other digits"),
    ("[-]", "line 1, column 3: a number without a digit where there must be one"),
    ("1.e5", "line 1, column 3: a number without a digit where there must be one"),
    ("1e+", "line 1, column 4: a number without a digit where there must be one"),
    (#"["abc"#, "line 1, column 2: a string without its closing quote"),
    ("\"ab\ncd\"", "line 1, column 4: the control character U+000A in a string, which must be written as an escape"),
    ("\"\t\"", "line 1, column 2: the control character U+0009 in a string, which must be written as an escape"),
    ("\"\u{1F}\"", "line 1, column 2: the control character U+001F in a string, which must be written as an escape"),
    (#""ab\x""#, "line 1, column 4: a backslash that begins no escape of JSON"),
    (#""ab\u12G4""#, "line 1, column 4: a backslash that begins no escape of JSON"),
    (#""\ud83d""#, "line 1, column 2: an escape of half a surrogate pair, without the other half"),
    (#""\ude39\ud83d""#, "line 1, column 2: an escape of half a surrogate pair, without the other half"),
    (#"{"a":1,"b":2,"a":3}"#, "line 1, column 14: the key 'a' occurs twice in one object"),
    (#"{"a":1,"b":2,"\u0061":3}"#, "line 1, column 14: the key 'a' occurs twice in one object"),
  ])
  func `says where it is, what was expected and what was found`(text: String, words: String) {
    do {
      var reader = try JSONReader(Array(text.utf8), limits: wide)
      try reader.skipValue()
      try reader.finish()
      Issue.record("\(text) is accepted")
    } catch {
      #expect(error.description == words, "\(text)")
    }
  }

  @Test(arguments: [
    ("[", "7", "line 1, column 1: expected a list, found a number"),
    ("{", "[]", "line 1, column 1: expected an object, found a list"),
    ("string", " {}", "line 1, column 2: expected a string, found an object"),
    ("string", "", "line 1, column 1: expected a string, found the end of the text"),
    ("base64", "null", "line 1, column 1: expected a string, found null"),
    ("base64", #""abc""#, "line 1, column 1: expected base64, found another string"),
    ("int64", #""7""#, "line 1, column 1: expected a number, found a string"),
    ("int64", "1.5", "line 1, column 1: expected a whole number of 64 bits, found 1.5"),
    (
      "int64", "9223372036854775808",
      "line 1, column 1: expected a whole number of 64 bits, found 9223372036854775808"
    ),
    (
      "int64", String(repeating: "9", count: 400),
      "line 1, column 1: expected a whole number of 64 bits, found \(String(repeating: "9", count: 40))…"
    ),
    ("uint64", "-1", "line 1, column 1: expected a whole number of 64 bits that is not below 0, found -1"),
    ("double", "true", "line 1, column 1: expected a number, found true or false"),
    ("double", "-1e999", "line 1, column 1: a number beyond the greatest double: -1e999"),
    ("bool", "0", "line 1, column 1: expected true or false, found a number"),
  ])
  func `names the value that was asked for`(call: String, text: String, words: String) throws {
    var reader = try JSONReader(Array(text.utf8), limits: wide)
    do throws(JSONError) {
      switch call {
      case "[": try reader.beginArray()
      case "{": try reader.beginObject()
      case "string": _ = try reader.string()
      case "base64": _ = try reader.base64()
      case "int64": _ = try reader.int64()
      case "uint64": _ = try reader.uint64()
      case "double": _ = try reader.double()
      default: _ = try reader.bool()
      }
      Issue.record("\(text) is a \(call)")
    } catch {
      #expect(error.description == words)
      #expect(error.kind == (text.isEmpty ? .structure : .value))
    }
  }

  @Test func `names the value that a token is not`() throws {
    var reader = try JSONReader(Array("[ 7,\"a\"]".utf8), limits: wide)
    try reader.beginArray()
    #expect(try reader.nextItem())
    let number = try reader.skipValue()
    #expect(try reader.nextItem())
    let text = try reader.skipValue()
    do { _ = try reader.string(of: number) } catch {
      #expect(error.description == "line 1, column 3: expected a string, found a number")
    }
    do { _ = try reader.base64(of: number) } catch {
      #expect(error.description == "line 1, column 3: expected a string, found a number")
    }
    do { _ = try reader.number(of: text) } catch {
      #expect(error.description == "line 1, column 5: expected a number, found a string")
    }
    #expect(throws: JSONError.self) { try reader.string(of: number) }
    #expect(throws: JSONError.self) { try reader.base64(of: number) }
    #expect(throws: JSONError.self) { try reader.number(of: text) }
    #expect(try reader.string(of: text) == "a")
    #expect(try !reader.nextItem())
  }

  @Test func `has the path that its caller names, and its end for what an object lacks`() throws {
    var reader = try JSONReader(Array("{\"a\": [1, {}]}".utf8), limits: wide)
    try reader.skipValue()
    let error = reader.missing("b")
    #expect(error.description == "line 1, column 14: the key 'b' is missing")
    #expect(error.words == "the key 'b' is missing" && error.path.isEmpty)
    let inner = error.inside(item: 1).inside(item: 0).inside("a").inside("c")
    #expect(inner.path == "c.a[0][1]" && inner.words == "c.a[0][1]: the key 'b' is missing")
    #expect(inner.kind == .value && inner.offset == 13)
  }

  @Test func `finds bytes that are not UTF-8 at their place`() throws {
    for (bytes, place) in [
      ([0xFF], 0), ([0xC0, 0xAF], 0), ([0x41, 0xED, 0xA0, 0x80], 1), ([0xC3, 0xA9, 0xE2, 0x82], 2), ([0x80], 0),
      ([0xF4, 0x90, 0x80, 0x80], 0), ([0xF0, 0x80, 0x80, 0x80], 0),
      ([0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0xF5], 7),
    ] as [([UInt8], Int)] {
      let quoted = [UInt8(ascii: "\"")] + bytes + [UInt8(ascii: "\"")]
      for text in [quoted, Array("{".utf8) + quoted + Array(":1}".utf8)] {
        var reader = try JSONReader(text, limits: wide)
        do {
          try reader.skipValue()
          Issue.record("\(bytes)")
        } catch {
          #expect(error.kind == .text)
          #expect(error.offset == place + 1 + (text.count - quoted.count) / 4)
          #expect(error.message == "a string whose bytes are not UTF-8")
        }
      }
    }
  }

  @Test func `counts lines once, in whichever order places are asked for`() throws {
    let text = Array(String(repeating: "[\n", count: 50).utf8)
    var reader = try JSONReader(text, limits: wide)
    for line in [1, 3, 50, 2, 49, 50] {
      let error = reader.error("here", at: 2 * (line - 1))
      #expect((error.line, error.column, error.offset) == (line, 1, 2 * (line - 1)))
      let end = reader.error("here", at: 2 * line - 1)
      #expect((end.line, end.column) == (line, 2))
    }
    #expect(reader.error("here", at: 100).description == "line 51, column 1: here")
    #expect(reader.error("here", at: 100).kind == .value)
  }

  @Test func `costs no more in a text of one long line, however many there are`() throws {
    let text = Array(("[" + repeatElement(#""é\q""#, count: 20_000).joined(separator: ",") + "]").utf8)
    var reader = try JSONReader(text, limits: wide)
    try reader.beginArray()
    var columns: [Int] = []
    while try reader.nextItem() {
      let mark = reader.mark
      do { try reader.skipValue() } catch { columns.append(error.column) }
      reader.move(to: mark)
      _ = try reader.skipStructure()
    }
    #expect(columns == (0..<20_000).map { 6 * $0 + 4 })
  }

  @Test func `counts from the beginning of its text in larger bytes`() throws {
    let bytes = Array("\n\n\n[1,\n x]".utf8)
    var reader = try JSONReader(bytes, 3..<bytes.count, limits: wide)
    do {
      try reader.skipValue()
      Issue.record("it is accepted")
    } catch {
      #expect((error.line, error.column, error.offset) == (2, 2, 5))
    }
  }
}
