// Whether a number of Foundation's was made of a whole one. A cast cannot tell: a truth value and 3.0 pass for an Int64.

#if canImport(CloudKit)
  internal import Foundation

  extension NSNumber {
    /// The letter by which Objective-C names the type of the number that this was made of.
    private var typeLetter: String { unsafe String(cString: objCType) }

    /// The number as CloudKit has it: INT64 or DOUBLE. Nil for one that neither holds.
    var whole: Int64? {
      switch typeLetter {
      case "d", "f": nil
      // Above what 64 bits with a sign hold.
      case "Q" where uint64Value > UInt64(Int64.max): nil
      default: int64Value
      }
    }

    /// The number as a DOUBLE; nil if it is a whole one, or not finite.
    var real: Double? {
      guard typeLetter == "d" || typeLetter == "f", doubleValue.isFinite else { return nil }
      return doubleValue == 0 ? 0 : doubleValue
    }
  }
#endif
