// The public suite: what it asks for, and what the reader does with what it leaves open.

import StrandlineJSON
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The public test suite` {
  /// The cases that must be accepted, and that the reader refuses all the same: an object with a key twice says two things,
  /// and RFC 8259 (section 4) leaves open which one a reader takes.
  private static let refused: Set<String> = ["y_object_duplicated_key", "y_object_duplicated_key_and_value"]

  /// The open cases that are accepted: numbers that JSON has and Swift's types have not. The caller gets an error when it
  /// asks for such a value, but where the nearest double is 0; what nests 500 lists is the caller's limit.
  private static let accepted: Set<String> = [
    "i_number_double_huge_neg_exp", "i_number_huge_exp", "i_number_neg_int_huge_exp", "i_number_pos_double_huge_exp",
    "i_number_real_neg_overflow", "i_number_real_pos_overflow", "i_number_real_underflow", "i_number_too_big_neg_int",
    "i_number_too_big_pos_int", "i_number_very_big_negative_int", "i_structure_500_nested_arrays",
  ]

  /// The open cases of which the values are refused as well.
  private static let withoutValue: Set<String> = [
    "i_number_huge_exp", "i_number_neg_int_huge_exp", "i_number_pos_double_huge_exp", "i_number_real_neg_overflow",
    "i_number_real_pos_overflow",
  ]

  @Test func `is accepted and refused as its names say`() throws {
    #expect(SuiteTable.cases.count == 324)
    #expect(Set(SuiteTable.cases.map(\.name)).count == SuiteTable.cases.count)
    for test in SuiteTable.cases {
      let isAccepted =
        switch test.name.first {
        case "y": !Self.refused.contains(test.name)
        case "n": false
        default: Self.accepted.contains(test.name)
        }
      #expect(Self.isSkipped(test.bytes) == isAccepted, "\(test.name)")
      // Who reads the values meets the same rules.
      let hasValues = isAccepted && !Self.withoutValue.contains(test.name)
      #expect(Self.isRead(test.bytes) == hasValues, "\(test.name)")
      if isAccepted { #expect(Self.hasStructure(test.bytes), "\(test.name)") }
    }
  }

  @Test func `is refused for what is wrong and not for another reason`() throws {
    var kinds: [JSONError.Kind: Set<String>] = [:]
    for test in SuiteTable.cases {
      do throws(JSONError) { _ = try Tree(test.bytes, limits: shallow) } catch {
        kinds[error.kind, default: []].insert(test.name)
      }
    }
    #expect(kinds[.repeatedKey] == Self.refused)
    #expect(kinds[.value] == Self.withoutValue)
    #expect(kinds[.limit] == ["n_structure_100000_opening_arrays", "n_structure_open_array_object"])
    let texts = kinds[.text, default: []]
    for name in texts {
      #expect(
        name.contains("string") || name == "n_object_lone_continuation_byte_in_key_and_trailing_comma"
          || name == "i_object_key_lone_2nd_surrogate" || name == "n_structure_open_open"
          || name == "n_array_spaces_vertical_tab_formfeed", "\(name)")
    }
    for name in kinds[.number, default: []] { #expect(name.contains("number") || name.contains("minus"), "\(name)") }
    #expect(texts.count > 30)
  }

  /// Where strings and numbers are bad and nothing else, the end of a value can be found all the same.
  @Test func `has structure wherever only a string, a number or a key is bad`() {
    for test in SuiteTable.cases {
      do throws(JSONError) { _ = try Tree(test.bytes, limits: shallow) } catch {
        guard [.repeatedKey, .value].contains(error.kind) || (error.kind == .text && test.name.hasPrefix("i_")) else {
          continue
        }
        #expect(Self.hasStructure(test.bytes), "\(test.name)")
      }
    }
  }

  private static func isSkipped(_ bytes: [UInt8]) -> Bool {
    do {
      var reader = try JSONReader(bytes, limits: wide)
      let token = try reader.skipValue()
      try reader.finish()
      #expect(token.range.lowerBound >= 0 && token.range.upperBound <= bytes.count)
      return true
    } catch { return false }
  }

  private static func isRead(_ bytes: [UInt8]) -> Bool {
    do throws(JSONError) {
      _ = try Tree(bytes, limits: shallow)
      return true
    } catch { return false }
  }

  private static func hasStructure(_ bytes: [UInt8]) -> Bool {
    do {
      var reader = try JSONReader(bytes, limits: wide)
      _ = try reader.skipStructure()
      try reader.finish()
      return true
    } catch { return false }
  }
}
