// Reads lines from a stream piece by piece, so that memory holds one line and one piece, however long the stream is.

import Strandline
import StrandlineHost
import StrandlineSystem
import Synchronization

/// Splits a stream into lines.
struct LineReader: Sendable {
  /// The lines that one piece of the stream has completed.
  struct Block: Sendable {
    /// What the lines lie in.
    let bytes: [UInt8]
    /// Where each line is, without its end; nil for one longer than `lineBytesMax`, whose bytes were dropped.
    let lines: [Range<Int>?]
    /// The number of the first of them, counted from 1.
    let firstNumber: Int
    /// How many bytes of the stream were read for this block and those before it.
    let bytesRead: UInt64

    /// Where a line is; nil if there are only spaces.
    ///
    /// - Throws: `BadLine` if the line is too long.
    func content(_ line: Range<Int>?) throws(BadLine) -> Range<Int>? {
      guard let line else { throw BadLine("longer than \(Words.bytes(UInt64(lineBytesMax)))") }
      return bytes[line].allSatisfy { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D } ? nil : line
    }
  }

  /// The longest line that is returned. A record has at most 1 MB, and base64 and escapes may make each byte six.
  static let lineBytesMax = 16 << 20
  private static let chunkBytes = 256 << 10

  private let read: @Sendable (Int) throws -> [UInt8]
  /// The beginning of a line that is not complete; empty if it is too long.
  private var rest: [UInt8] = []
  private var isTooLong = false
  private var number = 1
  private var bytesRead: UInt64 = 0
  private var isAtEnd = false

  /// Reads from `read`, which returns at most the given number of bytes, and an empty array at the end.
  init(_ read: @escaping @Sendable (Int) throws -> [UInt8]) { self.read = read }

  /// Reads on until a line is complete, and returns it with the others that the same piece has completed; nil after the
  /// last. The last line need not end with a line feed.
  mutating func next() throws -> Block? {
    while !isAtEnd {
      let more = try read(Self.chunkBytes)
      bytesRead += UInt64(more.count)
      if more.isEmpty { isAtEnd = true }
      let last = more.lastIndex(of: UInt8(ascii: "\n"))
      guard let end = last.map({ $0 + 1 }) ?? (isAtEnd && (isTooLong || !rest.isEmpty) ? 0 : nil) else {
        take(more[...])
        continue
      }
      // What is not ended by a line feed is ended by the stream.
      defer { take(more[end...]) }
      return block(more[..<end])
    }
    return nil
  }

  /// Takes the beginning of a line, or more of it.
  private mutating func take(_ bytes: ArraySlice<UInt8>) {
    if isTooLong { return }
    rest += bytes
    if rest.count > Self.lineBytesMax { (rest, isTooLong) = ([], true) }
  }

  /// The lines of what was left of the last piece and of `more`.
  private mutating func block(_ more: ArraySlice<UInt8>) -> Block {
    var bytes = rest
    rest = []
    bytes += more
    var lines: [Range<Int>?] = []
    var start = 0
    while start < bytes.count || (lines.isEmpty && isTooLong) {
      let end = bytes.firstPlace(of: UInt8(ascii: "\n"), in: start..<bytes.count) ?? bytes.count
      lines.append(isTooLong || end - start > Self.lineBytesMax ? nil : start..<end)
      isTooLong = false
      start = end + 1
    }
    defer { number += lines.count }
    return Block(bytes: bytes, lines: lines, firstNumber: number, bytesRead: bytesRead)
  }
}

extension LineReader {
  /// Calls `body` with each record of a file, or of standard input for `-`; empty lines are passed over.
  ///
  /// - Throws: `Failure` with the number of the first bad line.
  static func forEachRecord(of path: String, _ console: Console, _ body: (Record) throws -> Void) throws {
    let (lines, _) = try opening(path, console)
    let records = try RecordLines(lines, zone: ZoneID.main.name)
    defer { records.stop() }
    while let line = try records.next() {
      do { try body(line.record.get()) } catch let bad as BadLine {
        throw Failure(
          .dataDamaged,
          "\(path == "-" ? "standard input" : "'\(path)'"), line \(line.number)\(bad.place): \(bad.words)",
          try: "correct the line, then the same command")
      }
    }
  }

  /// Opens a file, or standard input for `-`. `size` is the file's size; nil for standard input.
  static func opening(_ path: String, _ console: Console) throws -> (reader: LineReader, size: UInt64?) {
    if path == "-" { return (LineReader { try console.read(max: $0) }, nil) }
    let fileSystem = console.fileSystem
    switch try fileSystem.kind(of: path) {
    case .absent: throw Failure(.noSuchStore, "there is no file '\(path)'")
    case .directory: throw Failure(.noSuchStore, "'\(path)' is a directory, not a file of JSON Lines")
    case .other:
      throw Failure(
        .noSuchStore, "'\(path)' is not a regular file",
        try: "the same command with - instead of the path, and < \(ShellWord.quote(path))")
    case .file: break
    }
    let file = try fileSystem.open(path, .read)
    let offset = Mutex<UInt64>(0)
    let reader = LineReader { count in
      try offset.withLock { offset in
        let bytes = try file.read(at: offset, count: count)
        offset += UInt64(bytes.count)
        return bytes
      }
    }
    return (reader, try file.size())
  }
}
