// Every number of the log's format, once.
//
// The page Formats/log.md states the same numbers for people and a test holds the two against each other; no
// other file of this target says an offset, a size or a magic byte. All integers are little-endian. Sums are
// written as sums so that a reader can check them by eye.

/// The bytes of a segment's header, of a frame, and of the bodies that the log itself writes.
package enum LogFormat {
  // MARK: Names

  /// The advisory lock of the one writer; empty, never deleted.
  package static let lockName = "LOCK"
  /// A segment's name is its ID in 16 hex digits and this.
  package static let segmentSuffix = ".seg"
  /// Which segments are the log, in their order.
  package static let manifestName = "MANIFEST"
  /// Lower bounds of what must be there.
  package static let controlName = "CONTROL"
  /// Space that recovery may have when the disk is full.
  package static let ballastName = "BALLAST"
  /// Files that are no part of the log are moved here and never read.
  package static let quarantineName = "quarantine"
  /// What the log's owner keeps beside it. The log neither reads nor writes it, and removes it with an unfinished store.
  package static let ownerFolderName = "runs"
  /// The folder of the contents of files that a store's events name.
  package static let contentFolderName = "assets"
  /// A file that is not yet what it will be: ignored by readers, removed by the next writer.
  package static let temporarySuffix = ".tmp"
  /// A store that is not yet there: `<store>.init-<16 hex digits>`.
  package static let initInfix = ".init-"

  // MARK: Headers

  /// 89, "STR", and the four bytes that a transfer in text mode would change (as in PNG).
  package static let magic: [UInt8] = [0x89, 0x53, 0x54, 0x52, 0x0D, 0x0A, 0x1A, 0x0A]
  /// 89, "STM", and the same four bytes.
  package static let manifestMagic: [UInt8] = [0x89, 0x53, 0x54, 0x4D, 0x0D, 0x0A, 0x1A, 0x0A]
  /// 89, "STC", and the same four bytes.
  package static let controlMagic: [UInt8] = [0x89, 0x53, 0x54, 0x43, 0x0D, 0x0A, 0x1A, 0x0A]
  package static let version: UInt16 = 1
  /// What the headers of MANIFEST and of a segment begin with.
  package static let commonHeaderBytes = 8 + 2 + 2 + 4 + 8 + 8 + 16
  package static let headerBytes = commonHeaderBytes + 8 + 4 + 4 + 1 + 59 + 4
  /// The header of a segment has a page for itself, so that no append rewrites its block.
  package static let headerPageBytes = 4096

  /// Where each field of a segment's header lies.
  package enum Header {
    package static let magic = 0
    package static let version = 8
    package static let reserved = 10
    package static let headerLength = 12
    package static let incompatibleBits = 16
    package static let readOnlyCompatibleBits = 24
    package static let storeUUID = 32
    package static let segmentID = 48
    package static let salt = 56
    package static let role = 60
    package static let kind = 64
    package static let reservedEnd = 65
    package static let compactedLSN = 116
    package static let crc = 124
  }

  // MARK: Frame

  package static let frameHeaderBytes = 4 + 4 + 8 + 1 + 1 + 2 + 4 + 4 + 4
  /// Frames begin at multiples of this; a body is padded with zeros.
  package static let frameAlignment = 8
  /// The longest body of a frame.
  package static let bodyBytesMax = 1 << 26
  /// No log gets there by counting: a larger LSN or segment ID was not given by a writer, and sums with it might
  /// overflow.
  package static let numberMax: UInt64 = 1 << 62

  /// Where each field of a frame's header lies.
  package enum FrameField {
    package static let headCRC = 0
    package static let bodyLength = 4
    package static let lsn = 8
    package static let type = 16
    package static let flags = 17
    package static let schema = 18
    package static let indexInTransaction = 20
    package static let tag = 24
    package static let bodyCRC = 28
  }

  package static let flagFirst: UInt8 = 1
  package static let flagLast: UInt8 = 2
  /// Everything before this frame was on the medium before this frame was written.
  package static let flagSynced: UInt8 = 4
  /// Types from here on may be skipped by a reader that does not know them.
  package static let skippableTypes: UInt8 = 0x80

  // MARK: Bodies

  package static let openingBodyBytes = 8 + 8 + 4 + 4 + 4 + 4
  package static let openingFrameBytes = frameHeaderBytes + openingBodyBytes
  /// Where the opening frame ends.
  package static let openingEnd = headerPageBytes + openingFrameBytes
  /// One place in an index frame: LSN above the segment's first, offset.
  package static let indexEntryBytes = 4 + 4
  /// Bytes of frames between two places of an index, at least: what a read of one event reads beside it, at most.
  package static let indexStepBytes = 4 * 1024
  package static let sealBodyBytes = 4 + 4
  package static let sealFrameBytes = frameHeaderBytes + sealBodyBytes
  /// What one step of the chain is taken over: chain, LSN, type, schema, body length, body CRC.
  package static let chainStepBytes = 4 + 8 + 1 + 2 + 4 + 4

  // MARK: MANIFEST and CONTROL

  package static let manifestHeaderBytes = commonHeaderBytes + 4 + 4 + 8 + 4 + 56 + 4
  /// Where each field of MANIFEST's own header lies, behind those that both headers have.
  package enum ManifestHeader {
    package static let role = 48
    package static let entryCount = 52
    package static let nextSegmentID = 56
    package static let ownerBytes = 64
    package static let reserved = 68
    package static let crc = 124
  }
  /// Where each field of an entry lies.
  package enum ManifestEntryField {
    package static let segmentID = 0
    package static let firstLSN = 8
    package static let lastLSN = 16
    package static let end = 24
    package static let chain = 28
    package static let salt = 32
    package static let reserved = 36
  }
  package static let manifestEntryBytes = 8 + 8 + 8 + 4 + 4 + 4 + 4
  /// What is read of MANIFEST before its header was checked.
  package static let manifestReadBytes = 64 << 10
  package static let ownerBytesMax = 256
  /// Within one sector: a power cut that tears a write leaves a slot as it was, as it should be, or not verifying, and
  /// no later write that tears can complete what an earlier one left.
  package static let controlSlotBytes = 64
  package static let controlSlots = 2
  /// A slot begins every so many bytes, alone in its page: a drive may rewrite 4 KiB around a sector.
  package static let controlPageBytes = 4096
  /// Where each field of a slot lies.
  package enum ControlField {
    package static let magic = 0
    package static let version = 8
    package static let reserved = 10
    package static let incompatibleBits = 12
    package static let storeUUID = 16
    package static let sequence = 32
    package static let tailSegmentID = 40
    package static let durableLSN = 48
    package static let durableEnd = 56
    package static let crc = 60
  }

  // MARK: Reading

  /// How much of a file is read at once.
  package static let readChunkBytes = 256 * 1024

  /// The bytes of a frame whose body has `bodyLength` bytes: header, body, zeros up to the next multiple of 8.
  package static func frameBytes(bodyLength: Int) -> Int {
    frameHeaderBytes + (bodyLength + frameAlignment - 1) / frameAlignment * frameAlignment
  }
}
