// Conditions that typed questions make and no `RecordFilter` can say: that a field's value lies in one of several spans. One value
// of a property may be read of several of a field: a Bool is true for every number but 0, and a number may be stored with a
// fraction or without.

import StrandlineSystem

/// That a field's value lies in one of several spans.
struct FieldSpans: Hashable, Sendable {
  /// The values of one type from one to another.
  struct Span: Hashable, Sendable {
    /// Nil: from the least of the type of `upper`.
    let lower: FieldValue?
    /// Nil: up to the greatest of the type of `lower`.
    let upper: FieldValue?

    static func from(_ lower: FieldValue) -> Span { Span(lower: lower, upper: nil) }
    static func to(_ upper: FieldValue) -> Span { Span(lower: nil, upper: upper) }
    static func between(_ lower: FieldValue, _ upper: FieldValue) -> Span { Span(lower: lower, upper: upper) }

    private init(lower: FieldValue?, upper: FieldValue?) { (self.lower, self.upper) = (lower, upper) }

    fileprivate func contains(_ value: FieldValue) -> Bool {
      // A value that cannot be compared with an end is of another type.
      if let lower, (value.order(lower) ?? -1) < 0 { return false }
      if let upper, (value.order(upper) ?? 1) > 0 { return false }
      return true
    }
  }

  let field: String
  let spans: [Span]

  init(_ field: String, _ spans: [Span]) { (self.field, self.spans) = (field, spans) }

  func matches(_ value: FieldValue?) -> Bool { value.map { value in spans.contains { $0.contains(value) } } ?? false }
}
