// Numbers as the command and its benchmarks print them for people.

/// Numbers for people.
package enum Words {
  /// 1234567 as 1,234,567.
  package static func count(_ number: some BinaryInteger) -> String {
    var digits = Array(String(number))
    var place = digits.count - 3
    while place > (digits.first == "-" ? 1 : 0) {
      digits.insert(",", at: place)
      place -= 3
    }
    return String(digits)
  }

  /// "1 record", "2 records".
  package static func plural(_ number: some BinaryInteger, _ one: String, _ many: String? = nil) -> String {
    "\(count(number)) \(number == 1 ? one : many ?? one + "s")"
  }

  /// Seconds with one decimal.
  package static func seconds(nanoseconds: UInt64) -> String {
    let tenths = (nanoseconds + 50_000_000) / 100_000_000
    return "\(tenths / 10).\(tenths % 10) s"
  }

  /// Bytes in the unit that reads best.
  package static func bytes(_ number: UInt64) -> String {
    if number < 10_000 { return "\(count(number)) bytes" }
    if number < 10_000_000 { return "\(count(number / 1_000)) kB" }
    return "\(count(number / 1_000_000)) MB"
  }

  /// A duration for people.
  package static func duration(milliseconds: Int64) -> String {
    let seconds = max(0, milliseconds) / 1_000
    if seconds < 120 { return "\(seconds) s" }
    if seconds < 7_200 { return "\(seconds / 60) min" }
    if seconds < 172_800 { return "\(seconds / 3_600) h" }
    return "\(seconds / 86_400) d"
  }
}
