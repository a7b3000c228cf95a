// What a writer writes, byte for byte, and that a reader and Foundation read it back.

import Foundation
import StrandlineJSON
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A writer of JSON` {
  private func text(_ controls: JSONWriter.ControlEscapes = .short, _ body: (inout JSONWriter) throws -> Void) rethrows
    -> String
  {
    var writer = JSONWriter(controls: controls)
    try body(&writer)
    return String(decoding: writer.finish(), as: UTF8.self)
  }

  @Test func `puts commas and colons where they belong`() throws {
    let written = try text { writer in
      writer.beginObject()
      writer.key("none")
      writer.beginArray()
      writer.endArray()
      writer.key("empty")
      writer.beginObject()
      writer.endObject()
      writer.key("some")
      writer.beginArray()
      writer.null()
      writer.bool(true)
      writer.bool(false)
      writer.beginArray()
      writer.int64(-1)
      writer.endArray()
      writer.beginObject()
      writer.key("a")
      writer.uint64(2)
      writer.key("b")
      try writer.double(2.5)
      writer.endObject()
      writer.string("[")
      writer.raw(Array(#"{"x": [1]}"#.utf8))
      writer.raw(Array("[12]".utf8), 1..<3)
      writer.endArray()
      writer.key("data")
      writer.base64(Array("any carnal pleas".utf8))
      writer.endObject()
    }
    #expect(
      written
        == #"{"none":[],"empty":{},"some":[null,true,false,[-1],{"a":2,"b":2.5},"[",{"x": [1]},12],"data":"YW55IGNhcm5hbCBwbGVhcw=="}"#
    )
  }

  @Test func `escapes what must be escaped and nothing else`() throws {
    let all = String(String.UnicodeScalarView((0..<0x82).compactMap { Unicode.Scalar($0) })) + "é€😹\u{2028}/"
    let short = text { $0.string(all) }
    let hexadecimal = text(.hexadecimal) { $0.string(all) }
    let rest = "\u{7F}\u{80}\u{81}é€😹\u{2028}/\""
    #expect(short.hasPrefix(#""\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e"#))
    #expect(hexadecimal.hasPrefix(#""\u0000\u0001"#))
    for (text, begin) in [
      (short, ##"\u001e\u001f !\"#$%"##), (hexadecimal, #"\u0008\u0009\u000a\u000b\u000c\u000d\u000e"#),
    ] {
      #expect(text.contains(begin))
      #expect(text.contains(#"Z[\\]^"#))
      #expect(text.hasSuffix(rest))
      #expect(try Tree(text) == .string(all))
    }
  }

  @Test func `writes the UTF-8 of others where it lies`() {
    let bytes = Array("xé\n\"z".utf8)
    let written = text { writer in
      writer.beginObject()
      writer.key(utf8: bytes, 1..<4)
      writer.string(utf8: bytes, 1..<6)
      writer.endObject()
    }
    #expect(written == #"{"é\n":"é\n\"z"}"#)
  }

  @Test func `writes numbers in their shortest form`() throws {
    for (number, form) in [
      (3.0, "3.0"), (-0.0, "-0.0"), (1e-5, "1e-05"), (1e21, "1e+21"), (.leastNonzeroMagnitude, "5e-324"), (0.1, "0.1"),
      (1.7976931348623157e308, "1.7976931348623157e+308"), (1e16, "1e+16"), (123456789.125, "123456789.125"),
    ] as [(Double, String)] { #expect(try text { try $0.double(number) } == form) }
    for (number, form) in [
      (0, "0"), (9, "9"), (10, "10"), (-10, "-10"), (.max, "9223372036854775807"), (.min, "-9223372036854775808"),
      (1_000_000, "1000000"),
    ] as [(Int64, String)] { #expect(text { $0.int64(number) } == form) }
    #expect(text { $0.uint64(.max) } == "18446744073709551615")
    for number in [Double.nan, .infinity, -.infinity, .signalingNaN] {
      var writer = JSONWriter()
      writer.beginArray()
      let error = #expect(throws: NonFiniteNumber.self) { try writer.double(number) }
      #expect(error?.description == "\(number) is not a finite number, and JSON has no other")
      // Nothing was written: the caller may write something else.
      writer.null()
      writer.endArray()
      #expect(writer.finish() == Array("[null]".utf8))
    }
  }

  @Test func `writes whole numbers without a fraction where the caller asks for it`() throws {
    let numbers: [(Double, String)] = [
      (0, "0"), (-0.0, "-0"), (3, "3"), (-3, "-3"), (0.5, "0.5"), (1e15, "1000000000000000"), (1e16, "1e+16"),
      (9_007_199_254_740_991, "9007199254740991"), (9_007_199_254_740_992, "9007199254740992"),
      (-9_007_199_254_740_994, "-9.007199254740994e+15"), (1e21, "1e+21"), (.leastNonzeroMagnitude, "5e-324"),
      (1e-5, "1e-05"),
    ]
    for (number, expected) in numbers {
      var writer = JSONWriter()
      try writer.number(number)
      let bytes = writer.finish()
      #expect(String(decoding: bytes, as: UTF8.self) == expected)
      #expect(Double(expected)?.bitPattern == number.bitPattern)
    }
    for number in [Double.nan, .infinity] {
      var writer = JSONWriter()
      #expect(throws: NonFiniteNumber.self) { try writer.number(number) }
    }
  }

  @Test func `writes lines into one array`() {
    var writer = JSONWriter(capacity: 100)
    for number in 0..<3 as Range<Int64> {
      writer.beginArray()
      writer.int64(number)
      writer.endArray()
      writer.endLine()
    }
    #expect(writer.bytes == Array("[0]\n[1]\n[2]\n".utf8))
    writer.removeAll()
    writer.null()
    #expect(writer.finish() == Array("null".utf8))
    writer.bool(true)
    #expect(writer.finish() == Array("true".utf8))
  }

  @Test func `traps where a caller would write no JSON`() async {
    await #expect(processExitsWith: .failure) {
      var writer = JSONWriter()
      writer.beginObject()
      writer.null()
    }
    await #expect(processExitsWith: .failure) {
      var writer = JSONWriter()
      writer.beginObject()
      writer.key("a")
      writer.endObject()
    }
    await #expect(processExitsWith: .failure) {
      var writer = JSONWriter()
      writer.beginArray()
      _ = writer.finish()
    }
    await #expect(processExitsWith: .failure) {
      var writer = JSONWriter()
      writer.null()
      writer.null()
    }
  }

  @Test(arguments: Campaign.seeds(1...16)) func `writes what readers read back`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    for round in 0..<400 {
      let tree = random.tree()
      let bytes = try tree.written(round % 2 == 0 ? .short : .hexadecimal)
      #expect(try Tree(bytes) == tree, "\(random), round \(round)")
      #expect(try Tree(bytes).written(round % 2 == 0 ? .short : .hexadecimal) == bytes)
      _ = try JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed)
    }
  }

  // MARK: Base64

  @Test func `writes base64 that Foundation reads, and reads only what is canonical`() throws {
    let random = SeededRandom(seed: 7)
    for count in 0..<200 {
      let bytes = random.bytes(count)
      let written = text { $0.base64(bytes) }
      #expect(Data(base64Encoded: String(written.dropFirst().dropLast())) == Data(bytes))
      var reader = try JSONReader(Array(written.utf8), limits: wide)
      #expect(try reader.base64() == bytes)
      // With each '/' escaped, as some write it.
      let escaped = written.split(separator: "/", omittingEmptySubsequences: false).joined(separator: #"\/"#)
      try reader.restart(Array(escaped.utf8), 0..<escaped.utf8.count)
      #expect(try reader.base64() == bytes)
    }
    for text in [
      "A", "AA", "AAA", "AA=", "A===", "=", "====", "AB==", "AAB=", "AA==AAAA", "AAA=AAAA", "A A=", "AAA-", "AA\u{E9}=",
      "AA=A",
    ] {
      var reader = try JSONReader(Array("\"\(text)\"".utf8), limits: wide)
      #expect(throws: JSONError.self, "\(text)") { try reader.base64() }
    }
  }
}
