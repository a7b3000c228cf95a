// Dates as people write them on a command line: ISO 8601, by Foundation.

internal import Foundation

package enum ISODate {
  /// A time in UTC, with its milliseconds if it has some. A time of no year that four digits name is written as the number that it is.
  package static func text(_ milliseconds: Int64) -> String {
    guard years.contains(milliseconds) else { return "\(milliseconds) ms since 1970" }
    let date = Date(timeIntervalSince1970: Double(milliseconds) / 1_000)
    return date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: milliseconds % 1_000 != 0))
  }

  /// The years 1 to 9999.
  private static let years: ClosedRange<Int64> = -62_135_596_800_000...253_402_300_799_999

  private static let forms: [Date.ISO8601FormatStyle] = [
    .iso8601, Date.ISO8601FormatStyle(includingFractionalSeconds: true), .iso8601.year().month().day(),
  ]

  /// The time of a text such as `2026-01-31`, which is midnight in UTC, or `2026-01-31T18:00:00Z`, in milliseconds since 1970;
  /// nil for every other text.
  package static func milliseconds(_ text: String) -> Int64? {
    for form in forms {
      // A text that is in none of the forms is no date: that is the answer and not an error.
      guard let date = try? form.parse(text), form.format(date).count == text.count else { continue }
      return Int64(exactly: (date.timeIntervalSince1970 * 1000).rounded())
    }
    return nil
  }
}
