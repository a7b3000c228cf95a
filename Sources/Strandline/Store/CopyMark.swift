// The mark of a copy: what a store keeps in MANIFEST's owner bytes. Formats/events.md, "The mark of a copy".
//
// A store and its backup have the same events, and would go on under the same writer name: two writers whose stamps
// other devices cannot tell apart. So a backup says up to which event it is a copy, and its first writer takes a new
// name. It has begun when a tenure begins behind that event; the mark stays, so that no moment at which it is removed can
// fall between the two.

import StrandlineLog
package import StrandlineSystem

/// Up to which event a store is a copy of another one.
package struct CopyMark: Hashable, Sendable {
  /// The last event that was copied.
  package var lsn: LSN

  package static let form: UInt8 = 1
  package static let byteCount = 9

  package init(lsn: LSN) { self.lsn = lsn }

  package var bytes: [UInt8] {
    var writer = ByteWriter(capacity: Self.byteCount)
    writer.u8(Self.form)
    writer.u64(lsn.rawValue)
    return writer.bytes
  }

  /// The mark in a store's owner bytes; nil in a store that is no copy.
  ///
  /// - Throws: `.fromTheFuture` if the bytes have a form that this version does not know.
  package init?(ownerBytes bytes: [UInt8], of folder: any Folder) throws(StrandlineError) {
    guard let form = bytes.first else { return nil }
    guard form == Self.form, bytes.count == Self.byteCount else {
      throw StrandlineError(
        .fromTheFuture,
        "the list of segments of '\(folder.path)' holds \(bytes.count) bytes of form \(form) for the store, which this "
          + "version does not know; nothing was changed; use a later version of Strandline",
        file: folder.path(of: LogFormat.manifestName))
    }
    lsn = LSN(bytes.u64(at: 1))
  }
}

extension StoreCore {
  /// In a copy that no writer of its own has gone on with: the first event is written under a new writer name. What is
  /// unsent may then have been sent by the original.
  package mutating func renameWriter(ofCopy mark: CopyMark?) {
    guard let mark, (projections.sync.tenures.last?.first ?? .zero) <= mark.lsn else { return }
    renameWriter()
  }
}
