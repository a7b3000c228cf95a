// The app's choice: in which order a device fetches a zone for the first time. A large zone takes many pages, and the feed brings the
// newest records last.

/// In which order a device fetches a zone for the first time, which decides what the user sees first.
public enum FirstFetch: Hashable, Sendable {
  /// Page after page, ordered by the records' last change: the newest come last. The fewest requests.
  case pageByPage
  /// The newest records of some types first, so that the app is usable at once; then the names of all records and deletions,
  /// to the end of the feed; then the other records, 200 in a request, after everything else that is due.
  ///
  /// The newest are asked for with a query, for which the app's schema needs a sortable index of the modified timestamp
  /// (`___modTime`) for each type; a type without one is skipped. It takes one request more for each 200 records than
  /// `pageByPage`, and the first records arrive much earlier.
  ///
  /// - Parameters:
  ///   - types: the types that the app shows first.
  ///   - count: how many records of each type.
  case recentFirst(types: [String], count: Int = 200)
}

extension FirstFetch: CustomStringConvertible {
  /// The order.
  public var description: String {
    switch self {
    case .pageByPage: "page by page"
    case .recentFirst(let types, let count):
      "first the newest \(count) of each of \(types.joined(separator: ", "))".oneLine
    }
  }
}
