// Bytes that were changed at random: they never trap a reader, its ways of reading them agree, and it accepts what
// Foundation accepts, with exceptions that are named here.

import Foundation
import StrandlineJSON
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `Changed bytes of JSON` {
  private static let begins = [
    #"{"records":[{"recordName":"A-1","recordType":"N\u006fte","fields":{"t":{"value":"caf\u00e9 \ud83d\ude39\n","type":"STRING"}}}]}"#,
    #"[0,-1.5e+10,1E-3,123456789012345678901234567890,0.1,true,false,null,"",[],{},[[[{"a":[]}]]]]"#,
    "{\"a\": 1,\r\n\t\"b\" : [ 1 , 2 ] , \"日本\":\"é€😹\u{2028}\"}", #""a string alone""#, " -0.0 ",
    #"{"k":1,"K":2,"kk":3,"k\u006bk":4,"":5}"#,
  ].map { Array($0.utf8) }

  /// Bytes that matter in JSON, more often than others.
  private static let bytes =
    Array(#"{}[]:,"\\/bfnrtu0123456789+-.eEtrufalsn \#t\#n\#r"#.utf8) + [
      0, 0x1F, 0x7F, 0x80, 0xC0, 0xE0, 0xED, 0xF4, 0xFF,
    ]

  private static func changed(_ random: SeededRandom) throws -> [UInt8] {
    var bytes = random.below(3) == 0 ? try random.tree(3).written() : begins[Int(random.below(UInt64(begins.count)))]
    for _ in 0..<random.below(4) {
      let place = Int(random.below(UInt64(bytes.count + 1)))
      let byte = Self.bytes[Int(random.below(UInt64(Self.bytes.count)))]
      switch random.below(5) {
      case 0: bytes.insert(byte, at: place)
      case 1 where place < bytes.count: bytes.remove(at: place)
      case 2 where place < bytes.count: bytes[place] = byte
      case 3 where place < bytes.count: bytes[place] ^= 1 << UInt8(random.below(8))
      case 4 where random.below(6) == 0: bytes.removeSubrange(place...)
      default: break
      }
    }
    return bytes
  }

  /// What one way of reading makes of bytes: nil if it accepts them.
  private static func defect(_ body: () throws(JSONError) -> Void) -> JSONError? {
    do {
      try body()
      return nil
    } catch { return error }
  }

  @Test(arguments: Campaign.seeds(1...24)) func `are read alike in all ways, and as Foundation reads them`(seed: UInt64)
    throws
  {
    let random = SeededRandom(seed: seed)
    var (accepted, refused) = (0, 0)
    for round in 0..<2500 {
      let bytes = try Self.changed(random)
      let place: Comment = "\(random), round \(round): \(String(decoding: bytes, as: UTF8.self))"
      let skipping = Self.defect { () throws(JSONError) in
        var reader = try JSONReader(bytes, limits: shallow)
        let token = try reader.skipValue()
        try reader.finish()
        #expect(token.range.upperBound <= bytes.count)
      }
      var tree: Tree?
      let reading = Self.defect { () throws(JSONError) in tree = try Tree(bytes) }
      // Only a reader of values finds numbers that Swift has not.
      if reading?.kind != .value { #expect(reading == skipping, place) }
      if let defect = skipping { #expect(defect.offset <= bytes.count && defect.line > 0 && defect.column > 0, place) }
      let structure = Self.defect { () throws(JSONError) in
        var reader = try JSONReader(bytes, limits: shallow)
        _ = try reader.skipStructure()
        try reader.finish()
      }
      if skipping == nil { #expect(structure == nil, place) }
      if let structure { #expect(structure.kind == .structure, place) }
      if let tree { #expect(try Tree(try tree.written()) == tree, place) }
      Self.compare(bytes, reading, place)
      if skipping == nil { accepted += 1 } else { refused += 1 }
    }
    #expect(accepted > 300 && refused > 300)
  }

  /// Compares with Foundation. It differs where
  /// - it takes one of the values of a key that an object has twice;
  /// - it takes a comma behind the last item;
  /// - it takes other encodings than UTF-8, and a byte order mark;
  /// - it takes bytes behind the value that are 0.
  private static func compare(_ bytes: [UInt8], _ defect: JSONError?, _ place: Comment) {
    let isAccepted: Bool
    do {
      _ = try JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed)
      isAccepted = true
    } catch { isAccepted = false }
    guard isAccepted != (defect == nil) else { return }
    guard let defect else {
      Issue.record("Foundation refuses what the reader accepts; \(place)")
      return
    }
    let isTrailing =
      defect.kind == .structure
      && (defect.message.hasSuffix("expected a value, found ']'")
        || defect.message.hasSuffix("double quotes, found '}'"))
    #expect(
      defect.kind == .repeatedKey || isTrailing || bytes.contains(0) || bytes.starts(with: [0xEF, 0xBB, 0xBF]),
      "Foundation accepts what the reader refuses: \(defect); \(place)")
  }

  @Test func `are read without a trap when they are cut at every place`() throws {
    for bytes in Self.begins {
      for end in bytes.indices {
        let defect = Self.defect { () throws(JSONError) in _ = try Tree(Array(bytes[..<end])) }
        // A number is whole wherever it is cut.
        #expect(defect != nil || bytes[..<end].allSatisfy { " -0.".utf8.contains($0) }, "\(end)")
      }
    }
  }
}
