// The one binary search: sorted files, segments, tables of places and feeds all ask where in an order something begins.

extension RandomAccessCollection {
  /// The place of the first element for which `belongsAfter` is true; `endIndex` if it is true for none.
  ///
  /// The collection must be divided: after an element for which it is true, it is true for all.
  ///
  /// - Throws: the error that `belongsAfter` throws.
  /// - Complexity: O(log n) calls.
  @inlinable
  package func partitioningIndex<Failure: Error>(
    where belongsAfter: (Element) throws(Failure) -> Bool
  ) throws(Failure) -> Index {
    var first = startIndex
    var left = count
    while left > 0 {
      let half = left / 2
      let middle = index(first, offsetBy: half)
      if try belongsAfter(self[middle]) {
        left = half
      } else {
        first = index(after: middle)
        left -= half + 1
      }
    }
    return first
  }
}
