// Dates as people write them on a command line: ISO 8601, by Foundation.

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

enum ISODate {
  private static let forms: [Date.ISO8601FormatStyle] = [
    .iso8601, Date.ISO8601FormatStyle(includingFractionalSeconds: true), .iso8601.year().month().day(),
  ]

  /// The time of a text such as `2026-01-31`, which is midnight in UTC, or `2026-01-31T18:00:00Z`, in milliseconds since 1970;
  /// nil for every other text.
  static func milliseconds(_ text: String) -> Int64? {
    for form in forms {
      // A text that is in none of the forms is no date: that is the answer and not an error.
      guard let date = try? form.parse(text), form.format(date).count == text.count else { continue }
      return Int64(exactly: (date.timeIntervalSince1970 * 1000).rounded())
    }
    return nil
  }
}
