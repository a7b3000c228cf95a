// Why an event's bytes cannot be decoded. A type, because the two cases end differently: a store of a newer version is
// left to that version, a malformed event is damage.

package import StrandlineSystem

/// Why an event's bytes cannot be decoded.
package enum EventError: Error, Hashable, Sendable, CustomStringConvertible {
  /// A kind or a version that this version does not know and may not skip.
  case newerVersion(kind: UInt16, version: UInt8)
  /// The bytes are not those of an event of this kind.
  case malformed(ByteReaderError)

  package var description: String {
    switch self {
    case .newerVersion(let kind, let version): "an event of a newer version (kind \(kind), version \(version))"
    case .malformed(let error): "\(error)"
    }
  }
}
