// The folder `assets/` of a store: the contents of files, each under its hash. Layout: Formats/assets.md.
//
// A content gets its name when it is on the medium: it is written under a temporary name and synced; then it is noted in the file
// of staged names, renamed, and the folder is synced. So a file under a hash is whole. One that no event names and that is not
// noted was never given out, and is removed.

import StrandlineLog
package import StrandlineSystem

/// The folder of contents in the folder of a store.
package struct ContentFolder: Sendable {
  package let store: any Folder

  package init(_ store: any Folder) { self.store = store }

  static let name = LogFormat.contentFolderName
  private static let temporarySuffix = ".tmp"
  private static let stagedFile = "staged"

  /// The name of a content in the folder of the store.
  private static func file(_ hash: ContentHash) -> String { "\(name)/\(hash.hexadecimal)" }

  /// Where a content lies: for messages and for readers.
  func path(of hash: ContentHash) -> String { store.path(of: Self.file(hash)) }

  // MARK: What is there

  var isThere: Bool { get throws(SystemError) { try store.kind(of: Self.name) == .directory } }

  /// The contents, and the files that interrupted writers left. Other names are left alone.
  package func list() throws(SystemError) -> (contents: [ContentHash], temporaries: [String]) {
    guard try isThere else { return ([], []) }
    var found: (contents: [ContentHash], temporaries: [String]) = ([], [])
    for name in try store.list(Self.name) {
      if let hash = ContentHash(hexadecimal: name) {
        found.contents.append(hash)
      } else if name.hasSuffix(Self.temporarySuffix) {
        found.temporaries.append(name)
      }
    }
    found.contents.sort()
    return found
  }

  /// The size of a content in bytes; nil if it is not there.
  package func size(of hash: ContentHash) throws(SystemError) -> Int64? {
    try sizeOfFile(Self.file(hash))
  }

  func sizeOfFile(_ file: String) throws(SystemError) -> Int64? {
    guard try store.kind(of: file) == .file else { return nil }
    return try store.sizes(of: [file]).first.flatMap { $0 }.map { Int64(clamping: $0) }
  }

  /// Reads a content in pieces.
  package func open(_ hash: ContentHash) throws(SystemError) -> any File { try store.open(Self.file(hash), .read) }

  /// The hash of the bytes that lie under a name.
  func hash(of hash: ContentHash) throws -> ContentHash? {
    let file = try open(hash)
    defer { file.close() }
    var digest = SHA256Digest()
    try Self.forEachPiece(of: file) { digest.update($0) }
    return ContentHash(digest.finish())
  }

  /// So many bytes are read and written at a time.
  private static let pieceBytes = 1 << 20

  /// Hands the bytes of a file to `body`, piece by piece.
  package static func forEachPiece(of file: any File, _ body: ([UInt8]) throws -> Void) throws {
    var buffer: [UInt8] = []
    var offset: UInt64 = 0
    while true {
      try file.read(at: offset, count: pieceBytes, into: &buffer)
      if buffer.isEmpty { return }
      try body(buffer)
      offset += UInt64(buffer.count)
    }
  }

  // MARK: Writing

  package func make() throws(SystemError) {
    if try !isThere {
      do throws(SystemError) { try store.makeFolder(Self.name) } catch  where error.isTaken {
        // Another stage has made it.
      }
    }
    // Also where it is there: who has made it may not have come to this.
    try store.sync()
  }

  /// Makes the names in it durable.
  package func sync() throws(SystemError) { try store.sync(Self.name) }

  package func temporaryName(_ random: any RandomSource) -> String {
    let digits = String(random.next(), radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits + Self.temporarySuffix
  }

  /// That of the copy of a content.
  static func temporaryName(of hash: ContentHash) -> String { hash.hexadecimal + temporarySuffix }

  package func create(_ temporary: String) throws(SystemError) -> any File {
    try store.open("\(Self.name)/\(temporary)", .create)
  }

  /// Gives a content that is synced its name. `sync` follows.
  package func publish(_ temporary: String, as hash: ContentHash) throws(SystemError) {
    try store.rename("\(Self.name)/\(temporary)", to: Self.file(hash))
  }

  /// Removes what an interrupted writer left; nothing is said of one that is gone.
  package func remove(_ temporary: String) throws(SystemError) { try unlink("\(Self.name)/\(temporary)") }

  /// Removes a content. Who has it open goes on reading it.
  func remove(_ hash: ContentHash) throws(SystemError) { try unlink(Self.file(hash)) }

  func unlink(_ file: String) throws(SystemError) {
    do throws(SystemError) { try store.unlink(file) } catch  where error.isAbsent { return }
  }

  // MARK: The staged names

  /// Reads the file of staged names.
  ///
  /// - Returns: nil if it is damaged.
  func staged() throws(SystemError) -> StagedNames? { try times(in: Self.stagedFile) }

  /// Reads a file of times; nil if it is damaged.
  func times(in name: String) throws(SystemError) -> StagedNames? {
    let name = "\(Self.name)/\(name)"
    guard try store.kind(of: name) == .file else { return StagedNames() }
    let file = try store.open(name, .read)
    defer { file.close() }
    return StagedNames(bytes: try file.read(at: 0, count: Int(clamping: try file.size())))
  }

  /// Replaces it. `sync` follows.
  func write(_ staged: StagedNames) throws(SystemError) { try write(staged, to: Self.stagedFile) }

  /// Replaces a file of times. `sync` follows.
  func write(_ staged: StagedNames, to name: String) throws(SystemError) {
    let name = "\(Self.name)/\(name)"
    let temporary = name + Self.temporarySuffix
    let file: any File
    do throws(SystemError) { file = try store.open(temporary, .create) } catch  where error.isTaken {
      try store.unlink(temporary)
      file = try store.open(temporary, .create)
    }
    defer { file.close() }
    try file.write(staged.bytes, at: 0)
    try file.sync(.durable)
    try store.rename(temporary, to: name)
  }
}

/// Times of contents: when they were staged that no durable event named at that time; when copies were used last.
struct StagedNames: Hashable, Sendable {
  /// In milliseconds since 1970, by the wall clock.
  var times: [ContentHash: Int64] = [:]

  private static let form: UInt8 = 1
  private static let checksumBytes = 4

  init() {}

  init?(bytes: [UInt8]) {
    guard bytes.count > Self.checksumBytes,
      CRC32C.checksum(bytes, Self.checksumBytes..<bytes.count) == bytes.u32(at: 0)
    else { return nil }
    var reader = ByteReader(bytes, Self.checksumBytes..<bytes.count)
    do throws(ByteReaderError) {
      guard try reader.u8() == Self.form else { return nil }
      for _ in 0..<(try reader.count(minimumBytes: ContentHash.byteCount + 1)) {
        guard let hash = ContentHash(try reader.raw(ContentHash.byteCount)) else { return nil }
        times[hash] = try reader.zigzag()
      }
      guard reader.isAtEnd else { return nil }
    } catch {
      return nil
    }
  }

  var bytes: [UInt8] {
    var writer = ByteWriter(capacity: 16 + times.count * (ContentHash.byteCount + 8))
    writer.u8(Self.form)
    writer.varint(UInt64(times.count))
    for (hash, time) in times.sorted(by: { $0.key < $1.key }) {
      writer.raw(hash.bytes)
      writer.zigzag(time)
    }
    var whole = ByteWriter(capacity: Self.checksumBytes + writer.count)
    whole.u32(CRC32C.checksum(writer.bytes))
    whole.raw(writer.bytes)
    return whole.bytes
  }
}
