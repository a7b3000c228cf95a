// Every number of the table file's format, once; Formats/table.md states the same and a test holds the two together.
//
// Two sizes are constants and not fields that a reader believes: the header's page and the block. So nothing that is
// read from a damaged file decides how much memory is asked for.

/// The bytes of a table file: a page of header, blocks, a footer.
package enum TableFormat {
  /// As a segment's, with a T for its R: 89, "STT", and the four bytes that a transfer in text mode would change.
  package static let magic: [UInt8] = [0x89, 0x53, 0x54, 0x54, 0x0D, 0x0A, 0x1A, 0x0A]
  package static let major: UInt16 = 1
  package static let minor: UInt16 = 0
  package static let headerBytes = Header.crc + 4
  /// The header has a page for itself; the rest of it is zero.
  package static let headerPageBytes = 4096
  package static let payloadBytesMax = 256
  package static let keyBytes = 16
  package static let hashKeyBytes = 16
  /// What an entry may have, its key counted.
  package static let entryBytes = keyBytes...1024

  /// Where each field of the header lies.
  package enum Header {
    package static let magic = LogFormat.Header.magic
    package static let major = LogFormat.Header.major
    package static let minor = LogFormat.Header.minor
    package static let headerLength = LogFormat.Header.headerLength
    package static let incompatibleBits = LogFormat.Header.incompatibleBits
    package static let readOnlyCompatibleBits = LogFormat.Header.readOnlyCompatibleBits
    package static let compatibleBits = LogFormat.Header.compatibleBits
    package static let storeUUID = LogFormat.Header.storeUUID
    package static let fileID = 56
    package static let salt = 64
    package static let kind = 68
    package static let entryBytes = 72
    package static let blockBytes = 76
    package static let entryCount = 80
    package static let blockCount = 88
    package static let boundLSN = 96
    package static let boundChain = 104
    package static let payloadLength = 108
    package static let hashKey = 112
    package static let createdNanoseconds = 128
    package static let payload = 136
    package static let reserved = 392
    package static let crc = 508
  }

  package static let blockBytes = 16 << 10
  package static let blockHeaderBytes = 4 + 4 + 4 + 4

  /// Where each field of a block's header lies.
  package enum Block {
    package static let crc = 0
    package static let blockNumber = 4
    package static let entryCount = 8
    package static let reserved = 12
  }

  package static let footerBytes = 4 + 8 + 4

  /// Where each field of the footer lies.
  package enum Footer {
    package static let totalCRC = 0
    package static let reserved = 4
    package static let crc = 12
  }

  /// Block numbers have 32 bits.
  package static let blocksMax = UInt64(UInt32.max)
  /// What a writer keeps before it writes, and a scan reads at once.
  package static let blocksAtOnce = LogFormat.readChunkBytes / blockBytes

  /// How many entries a block has room for; every block but the last has as many.
  package static func entriesPerBlock(entryBytes: Int) -> Int { (blockBytes - blockHeaderBytes) / entryBytes }
}
