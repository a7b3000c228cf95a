// The order of strings in every file and on every device: by their UTF-8 bytes. Swift's own `<` compares canonical
// forms: strings with different bytes may be equal to it, and it is slower.

#if canImport(Glibc)
  private import Glibc
#elseif canImport(Musl)
  private import Musl
#elseif canImport(Darwin)
  private import Darwin
#endif

extension String {
  /// Whether this string sorts before `other` by UTF-8 bytes.
  package func precedesByUTF8(_ other: String) -> Bool {
    let fast: Bool?? = unsafe utf8.withContiguousStorageIfAvailable { mine in
      unsafe other.utf8.withContiguousStorageIfAvailable { theirs in
        let common = min(mine.count, theirs.count)
        guard common > 0, let left = mine.baseAddress, let right = theirs.baseAddress else {
          return mine.count < theirs.count
        }
        let order = unsafe memcmp(left, right, common)
        return order == 0 ? mine.count < theirs.count : order < 0
      }
    }
    if let fast, let fast { return fast }
    // A string bridged from Objective-C may have no contiguous UTF-8.
    return utf8.lexicographicallyPrecedes(other.utf8)
  }
}
