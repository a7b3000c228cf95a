// Date and Data for those who use fields without a Swift type of their own. The rest of the model has no Foundation.

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

extension FieldValue {
  /// A time, rounded to whole milliseconds; for a date that they cannot hold the least or the greatest, which a save refuses.
  public static func date(_ date: Date) -> FieldValue {
    .date(milliseconds: date.wholeMilliseconds)
  }

  /// Raw bytes.
  public static func data(_ data: Data) -> FieldValue { .bytes(Array(data)) }

  /// The time, if this is one; else nil.
  package var dateValue: Date? {
    guard case .date(let milliseconds) = self else { return nil }
    return Date(milliseconds: milliseconds)
  }

  /// The bytes, if this is bytes; else nil.
  package var dataValue: Data? {
    guard case .bytes(let bytes) = self else { return nil }
    return Data(bytes)
  }
}

extension Record {
  /// A field's time; nil if the field has none. Setting nil clears the field.
  ///
  /// ```swift
  /// record[date: "due"] = Date(timeIntervalSince1970: 1_767_225_600)
  /// ```
  public subscript(date field: String) -> Date? {
    get { fields[field]?.dateValue }
    set { fields[field] = newValue.map { .date($0) } }
  }

  /// A field's bytes; nil if the field has none. Setting nil clears the field.
  ///
  /// ```swift
  /// record[data: "drawing"] = Data([1, 2, 3])
  /// ```
  public subscript(data field: String) -> Data? {
    get { fields[field]?.dataValue }
    set { fields[field] = newValue.map { .data($0) } }
  }
}

extension ServerTimestamp {
  /// A time of the server, rounded to whole milliseconds, with its user and device.
  public init(_ date: Date, user: String = "", device: String = "") {
    self.init(milliseconds: date.wholeMilliseconds, user: user, device: device)
  }

  /// The time, by the server's clock.
  public var date: Date { Date(milliseconds: milliseconds) }
}

extension Date {
  package init(milliseconds: Int64) { self.init(timeIntervalSince1970: Double(milliseconds) / 1000) }

  /// Milliseconds since 1970, rounded; for a date that they cannot hold the least or the greatest.
  fileprivate var wholeMilliseconds: Int64 {
    let exact = (timeIntervalSince1970 * 1000).rounded()
    return Int64(exactly: exact) ?? (exact > 0 ? .max : .min)
  }
}
