// How many files and sockets this process may have open. A server that has used up the last one cannot write its journal
// either, so it must know the number.

internal import CStrandline

/// The number of descriptors that this process may have.
package enum DescriptorLimit {
  /// The number now; the largest if the system does not tell.
  package static var current: Int { raise(to: 0) }

  /// Raises the number, as far as the system permits it, and returns the number now.
  @discardableResult
  package static func raise(to wanted: Int) -> Int {
    let limit = strandline_descriptor_limit(Int64(wanted))
    return limit > 0 ? Int(limit) : Int(Int32.max)
  }
}
