// Formats numbers for the text output of the command and its benchmarks.

/// Numbers as text.
package enum Words {
  /// A number with a comma before each three digits: 1,234,567.
  package static func count(_ number: some BinaryInteger) -> String {
    var digits = Array(String(number))
    var index = digits.count - 3
    while index > (digits.first == "-" ? 1 : 0) {
      digits.insert(",", at: index)
      index -= 3
    }
    return String(digits)
  }

  /// A number with its noun in the singular or plural: "1 record", "2 records".
  package static func plural(_ number: some BinaryInteger, _ one: String, _ many: String? = nil) -> String {
    "\(count(number)) \(number == 1 ? one : many ?? one + "s")"
  }

  /// Seconds with one decimal.
  package static func seconds(nanoseconds: UInt64) -> String {
    let tenths = (nanoseconds + 50_000_000) / 100_000_000
    return "\(tenths / 10).\(tenths % 10) s"
  }

  /// A size in bytes below 10,000, in kB (1,000 bytes) below 10,000,000, else in MB.
  package static func bytes(_ number: UInt64) -> String {
    if number < 10_000 { return "\(count(number)) bytes" }
    if number < 10_000_000 { return "\(count(number / 1_000)) kB" }
    return "\(count(number / 1_000_000)) MB"
  }

  /// A duration in whole seconds, minutes, hours or days, depending on its length.
  package static func duration(milliseconds: Int64) -> String {
    let seconds = max(0, milliseconds) / 1_000
    if seconds < 120 { return "\(seconds) s" }
    if seconds < 7_200 { return "\(seconds / 60) min" }
    if seconds < 172_800 { return "\(seconds / 3_600) h" }
    return "\(seconds / 86_400) d"
  }
}
