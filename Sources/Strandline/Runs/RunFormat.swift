// Every number of the format of sorted runs, once.
//
// The page Formats/runs.md states the same numbers for people and a test holds the two against each other. All integers
// are little-endian. Sums are written as sums so that a reader can check them by eye. What the headers share with those
// of the log's files stands in `LogFormat`.

import StrandlineLog

/// The bytes of a run and of the list of runs.
package enum RunFormat {
  // MARK: Names

  /// A run's name is its number in 16 hex digits and this.
  package static let runSuffix = ".run"
  /// Which runs of a folder are in use.
  package static let listName = "RUNS"
  /// A file that is not yet what it will be: ignored by readers.
  package static var temporarySuffix: String { LogFormat.temporarySuffix }

  // MARK: Headers

  /// 89, "STS", and the four bytes that a transfer in text mode would change (as in PNG).
  package static let runMagic: [UInt8] = [0x89, 0x53, 0x54, 0x53, 0x0D, 0x0A, 0x1A, 0x0A]
  /// 89, "STL", and the same four bytes.
  package static let listMagic: [UInt8] = [0x89, 0x53, 0x54, 0x4C, 0x0D, 0x0A, 0x1A, 0x0A]
  package static let version: UInt16 = 1
  /// What both headers begin with, as the headers of the log's files do.
  package static var commonHeaderBytes: Int { LogFormat.commonHeaderBytes }
  package static let runHeaderBytes = LogFormat.commonHeaderBytes + 8 + 4 + 4
  package static let listHeaderBytes = LogFormat.commonHeaderBytes + 8 + 4 + 4 + 4

  /// Where each field of a run's header lies; both headers have those up to `storeUUID`.
  package enum Header {
    package static var magic: Int { LogFormat.Header.magic }
    package static var version: Int { LogFormat.Header.version }
    package static var reserved: Int { LogFormat.Header.reserved }
    package static var headerLength: Int { LogFormat.Header.headerLength }
    package static var incompatibleBits: Int { LogFormat.Header.incompatibleBits }
    package static var readOnlyCompatibleBits: Int { LogFormat.Header.readOnlyCompatibleBits }
    package static var storeUUID: Int { LogFormat.Header.storeUUID }
    package static let runNumber = 48
    package static let salt = 56
    package static let crc = 60
  }

  // MARK: Block

  /// A block with several entries has at most so many bytes.
  package static let blockBytesMax = 4096
  package static let blockHeaderBytes = 4 + 4 + 2
  /// Where each field of a block's header lies.
  package enum BlockField {
    package static let crc = 0
    package static let length = 4
    package static let entryCount = 8
  }
  /// Each entry whose number in its block is a multiple of this has its whole key.
  package static let restartInterval = 16
  package static let restartBytes = 2
  /// An entry has three varints at least.
  package static let entryBytesMin = 3
  package static let keyBytesMax = (1 << 16) - 1
  package static let valueBytesMax = 1 << 26

  // MARK: Index, filter, footer

  package static let indexEntryBytes = 8 + 4
  /// Where each field of an entry of the index lies.
  package enum IndexField {
    package static let offset = 0
    package static let keyEnd = 8
  }
  package static let filterBitsPerKey = 10
  package static let filterLineBytes = 64
  package static let filterProbes = 6
  package static let filterFactor: UInt32 = 0x9E37_79B9
  package static let propertiesBytesMax = 4096
  package static let footerBytes = 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 8
  /// Where each field of the footer lies.
  package enum FooterField {
    package static let crc = 0
    package static let tailCRC = 4
    package static let blocksCRC = 8
    package static let entryCount = 12
    package static let tombstoneCount = 20
    package static let blockCount = 28
    package static let indexOffset = 32
    package static let filterOffset = 40
    package static let propertiesOffset = 48
  }

  // MARK: List

  /// Where each field of the list's own header lies, behind those that both headers have.
  package enum ListHeader {
    package static let nextRunNumber = 48
    package static let runCount = 56
    package static let bindingBytes = 60
    package static let crc = 64
  }
  package static let listEntryBytes = 8 + 8 + 4
  /// Where each field of an entry of the list lies.
  package enum ListEntryField {
    package static let runNumber = 0
    package static let fileBytes = 8
    package static let footerCRC = 16
  }
  package static let bindingBytesMax = 4096
  /// No store gets there by counting: a larger run number was not given by a writer, and sums with it might overflow.
  package static let numberMax: UInt64 = 1 << 62

  // MARK: Writing and reading in steps

  /// How much is written at once, and read at once by a cursor that reads a whole run.
  package static let chunkBytes = 256 * 1024
}
