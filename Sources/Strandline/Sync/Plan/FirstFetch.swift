// In which order a device gets a zone that it has never fetched.

/// In which order a device gets a zone that it has never fetched: what the user sees first, and when.
public enum FirstFetch: Hashable, Sendable {
  /// Page after page, in the order in which the records were changed last: the newest come last. The fewest requests.
  case pageByPage
  /// The newest records of some types first, so that the app is usable at once; then the list of all names, which takes the
  /// deletions along and reaches the end of the feed; then the other records, 200 a request, behind whatever else is due.
  ///
  /// The newest are asked for with a query, for which the app's schema needs an index of the modified timestamp
  /// (`___modTime`, sortable) for each type; a type without one is skipped. It costs a request for each 200 records more
  /// than `pageByPage`, and much less until the first record is here.
  ///
  /// - Parameters:
  ///   - types: the types that the app shows first.
  ///   - count: how many of each.
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
