// A number as JSON writes it (RFC 8259, section 6), and what it is as an integer or as a double.
//
// A decimal becomes a double exactly, by one multiplication or division, if its digits make an integer of at most 53 bits
// and its power of ten is a double too (Clinger, "How to Read Floating Point Numbers Accurately", 1990). All others go
// through the standard library, whose result is the nearest double as well.

private import StrandlineSystem

/// A number: ± `digits` × 10^`exponent`.
struct DecimalNumber: Sendable {
  var isNegative = false
  /// The digits as an integer, as many as fit.
  var digits: UInt64 = 0
  var exponent = 0
  /// Whether digits other than 0 were left out, for which `digits` has no room.
  var isCut = false

  enum Defect: Error {
    /// No digit where one must be.
    case noDigit(Int)
    /// A 0 before other digits.
    case leadingZero(Int)
  }

  /// Reads the number at `at`, which becomes the place behind it.
  @inline(__always)
  init(_ bytes: [UInt8], _ at: inout Int, _ end: Int) throws(Defect) {
    if at < end, bytes[at] == UInt8(ascii: "-") {
      isNegative = true
      at += 1
    }
    let start = at
    take(bytes, &at, end)
    guard at > start else { throw .noDigit(at) }
    guard bytes[start] != UInt8(ascii: "0") || at == start + 1 else { throw .leadingZero(start) }
    if at < end, bytes[at] == UInt8(ascii: ".") {
      at += 1
      let point = at
      take(bytes, &at, end)
      guard at > point else { throw .noDigit(at) }
      exponent -= at - point
    }
    if at < end, bytes[at] | 0x20 == UInt8(ascii: "e") { try takeExponent(bytes, &at, end) }
  }

  /// Takes digits. For each that is left out, the exponent grows by one.
  @inline(__always)
  private mutating func take(_ bytes: [UInt8], _ at: inout Int, _ end: Int) {
    while at < end {
      let digit = bytes[at] &- UInt8(ascii: "0")
      guard digit < 10 else { return }
      // Below this, another digit always fits. From there on `digits` stays above it.
      if digits < UInt64.max / 10 {
        digits = digits &* 10 &+ UInt64(digit)
      } else {
        takeLate(digit)
      }
      at += 1
    }
  }

  @inline(never)
  private mutating func takeLate(_ digit: UInt8) {
    let (product, isTooLarge) = digits.multipliedReportingOverflow(by: 10)
    let (sum, isTooLargeSum) = product.addingReportingOverflow(UInt64(digit))
    // A digit fits behind one that was left out only if that was 6 to 9, so `isCut` is set then.
    if !isTooLarge, !isTooLargeSum {
      digits = sum
    } else {
      exponent += 1
      if digit != 0 { isCut = true }
    }
  }

  @inline(never)
  private mutating func takeExponent(_ bytes: [UInt8], _ at: inout Int, _ end: Int) throws(Defect) {
    at += 1
    var isBelow = false
    if at < end, bytes[at] == UInt8(ascii: "-") || bytes[at] == UInt8(ascii: "+") {
      isBelow = bytes[at] == UInt8(ascii: "-")
      at += 1
    }
    let start = at
    var power = 0
    while at < end, case let digit = bytes[at] &- UInt8(ascii: "0"), digit < 10 {
      // Beyond this no count of digits brings the number back.
      if power < 1 << 40 { power = power * 10 + Int(digit) }
      at += 1
    }
    guard at > start else { throw .noDigit(at) }
    exponent += isBelow ? -power : power
  }

  // MARK: Values

  /// The number's magnitude if it is whole and fits: `3`, `3.0`, `30e-1` and `0.3e1` are 3.
  private var whole: UInt64? {
    guard digits != 0 else { return 0 }
    guard !isCut, exponent < 20 else { return nil }
    var (value, power) = (digits, exponent)
    while power < 0 {
      let (quotient, remainder) = value.quotientAndRemainder(dividingBy: 10)
      guard remainder == 0 else { return nil }
      value = quotient
      power += 1
    }
    while power > 0 {
      let (product, isTooLarge) = value.multipliedReportingOverflow(by: 10)
      if isTooLarge { return nil }
      value = product
      power -= 1
    }
    return value
  }

  /// The number, if it is whole and fits.
  var uint64: UInt64? {
    guard let whole, !isNegative || whole == 0 else { return nil }
    return whole
  }

  /// The number, if it is whole and fits.
  var int64: Int64? {
    guard let whole else { return nil }
    if !isNegative { return Int64(exactly: whole) }
    return whole <= 1 << 63 ? Int64(truncatingIfNeeded: 0 &- whole) : nil
  }

  /// The nearest double, if that takes no rounding but one.
  var exactDouble: Double? {
    guard digits <= 1 << 53, !isCut, exponent.magnitude < UInt(Self.powers.count) else { return nil }
    let power = Self.powers[Int(exponent.magnitude)]
    let magnitude = exponent < 0 ? Double(digits) / power : Double(digits) * power
    return isNegative ? -magnitude : magnitude
  }

  /// The powers of ten that are doubles.
  private static let powers: [Double] = [
    1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
  ]
}
