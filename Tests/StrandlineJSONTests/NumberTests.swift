// Numbers: integers are exact or refused, doubles are the nearest, and what is written reads back as the same.

import StrandlineJSON
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `Numbers of JSON` {
  private func read<Value>(
    _ text: String, _ body: (inout JSONReader) throws(JSONError) -> Value
  ) throws(JSONError) -> Value {
    var reader = try JSONReader(Array(text.utf8), limits: wide)
    let value = try body(&reader)
    try reader.finish()
    return value
  }

  private func int64(_ text: String) throws(JSONError) -> Int64 {
    try read(text) { reader throws(JSONError) in try reader.int64() }
  }
  private func uint64(_ text: String) throws(JSONError) -> UInt64 {
    try read(text) { reader throws(JSONError) in try reader.uint64() }
  }
  private func double(_ text: String) throws(JSONError) -> Double {
    try read(text) { reader throws(JSONError) in try reader.double() }
  }

  @Test func `are exact integers, however they are written`() throws {
    for (text, value) in [
      ("0", 0), ("-0", 0), ("-0.0e5", 0), ("0e999999999999999999999", 0), ("7", 7), ("-7", -7), ("3.0", 3),
      ("30e-1", 3),
      ("0.3e1", 3), ("3e2", 300), ("1.5e1", 15), ("9223372036854775807", .max), ("-9223372036854775808", .min),
      ("9223372036854775807.000000000000000000000", .max), ("922337203685477580700e-2", .max),
      ("0.9223372036854775807e19", .max), ("-9.223372036854775808E+18", .min),
      ("9007199254740993.0", 9_007_199_254_740_993),
      ("1" + String(repeating: "0", count: 400) + "e-400", 1),
      ("0." + String(repeating: "0", count: 400) + "5e401", 5),
      ("0." + String(repeating: "0", count: 5000) + "5e5001", 5),
    ] as [(String, Int64)] { #expect(try int64(text) == value, "\(text)") }
    for text in [
      "9223372036854775808", "-9223372036854775809", "1.5", "1e-1", "1e19", "1e400", "123456789012345678901",
      String(repeating: "9", count: 400), "3.0000000000000000000000000000001", "0.1e-999999999999999999999",
      "1e999999999999999999999",
    ] { #expect(throws: JSONError.self, "\(text)") { try int64(text) } }
    #expect(try uint64("18446744073709551615") == .max)
    #expect(try uint64("-0") == 0)
    #expect(try uint64("1844674407370955161.5e1") == .max)
    for text in ["18446744073709551616", "-1", "0.5", "184467440737095516150"] {
      #expect(throws: JSONError.self, "\(text)") { try uint64(text) }
    }
  }

  @Test func `of which a caller does not know the type are integers where they are whole`() throws {
    for (text, number) in [
      ("1", .int64(1)), ("1.0", .int64(1)), ("1e2", .int64(100)), ("-0.0", .int64(0)), ("1.5", .double(1.5)),
      ("9223372036854775808", .double(0x1p63)), ("1e300", .double(1e300)),
    ] as [(String, JSONNumber)] {
      let found = try read(text) { reader throws(JSONError) in try reader.number(of: try reader.skipValue()) }
      #expect(found == number, "\(text)")
    }
    #expect(throws: JSONError.self) {
      try self.read("1e309") { reader throws(JSONError) in try reader.number(of: try reader.skipValue()) }
    }
  }

  @Test func `are the nearest doubles`() throws {
    for text in [
      "0", "-0.0", "1", "0.1", "0.3", "1e22", "1e23", "123456789012345678", "9007199254740993", "9007199254740992",
      "9007199254740991e22", "9007199254740991e-22", "9007199254740993e-22", "5e-324", "2.4703282292062327e-324",
      "2.4703282292062328e-324", "2.2250738585072011e-308", "2.2250738585072014e-308", "1.7976931348623157e308",
      "1.7976931348623158e308", "179769313486231570000e288", "37.33182000000001", "-122.03118", "1e-400", "-1e-400",
      "0.000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001e99",
      "1" + String(repeating: "0", count: 300), "0." + String(repeating: "123456789", count: 50),
      String(repeating: "9", count: 308), "1.00000000000000011102230246251565404236316680908203125",
      "1.00000000000000011102230246251565404236316680908203124",
    ] {
      let nearest = try #require(Double(text))
      #expect(try double(text).bitPattern == nearest.bitPattern, "\(text)")
    }
    for text in [
      "1e309", "-1e309", "1.7976931348623159e308", "1e999999999999999999999", String(repeating: "9", count: 400),
    ] {
      #expect(throws: JSONError.self, "\(text)") { try double(text) }
    }
  }

  @Test(arguments: Campaign.seeds(1...8)) func `of random digits agree with the standard library`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    for _ in 0..<20_000 {
      func digits(_ count: UInt64) -> String { (0..<count).map { _ in "\(random.below(10))" }.joined() }
      var text = random.below(2) == 0 ? "-" : ""
      text += random.below(3) == 0 ? "0" : "\(1 + random.below(9))" + digits(random.below(22))
      if random.below(3) > 0 { text += "." + digits(1 + random.below(22)) }
      if random.below(2) == 0 { text += "e\(Int(random.below(60)) - 30)" }
      let nearest = try #require(Double(text))
      #expect(try double(text).bitPattern == nearest.bitPattern, "\(text)")
      // An integer without fraction and exponent is one for Swift as well.
      if !text.contains(where: { ".e".contains($0) }) {
        if let exact = Int64(text) {
          #expect(try int64(text) == exact, "\(text)")
        } else {
          #expect(throws: JSONError.self, "\(text)") { try int64(text) }
        }
      }
    }
  }

  @Test(arguments: Campaign.seeds(1...8)) func `of random bits read back as they were`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    for round in 0..<20_000 {
      let bits = random.next()
      let integer = Int64(bitPattern: bits) >> Int64(round % 64)
      let unsigned = bits >> UInt64(round % 64)
      let number = Double(bitPattern: bits)
      var writer = JSONWriter()
      writer.beginArray()
      writer.int64(integer)
      writer.uint64(unsigned)
      if number.isFinite { try writer.double(number) } else { writer.null() }
      try writer.double(Double(integer) / 1024)
      writer.endArray()
      let bytes = writer.finish()
      var reader = try JSONReader(bytes, limits: wide)
      try reader.beginArray()
      #expect(try reader.nextItem())
      #expect(try reader.int64() == integer)
      #expect(try reader.nextItem())
      #expect(try reader.uint64() == unsigned)
      #expect(try reader.nextItem())
      if number.isFinite {
        #expect(try reader.double().bitPattern == number.bitPattern, "\(number)")
      } else {
        #expect(try reader.skipNull())
      }
      #expect(try reader.nextItem())
      #expect(try reader.double() == Double(integer) / 1024)
      #expect(try !reader.nextItem())
    }
  }
}
