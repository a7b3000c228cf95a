// Reads lines from a stream piece by piece, so that memory holds one line and one piece, however long the stream is.

import Strandline
import StrandlineHost
import StrandlineSystem

/// Splits a stream into lines.
struct LineReader {
  /// A line, without its end.
  enum Line {
    case bytes([UInt8])
    /// A line longer than `lineBytesMax`; its bytes were dropped.
    case tooLong

    /// The bytes; nil if there are only spaces.
    ///
    /// - Throws: `BadLine` if the line is too long.
    func content() throws -> [UInt8]? {
      guard case .bytes(let bytes) = self else {
        throw BadLine("longer than \(Words.bytes(UInt64(lineBytesMax)))")
      }
      return bytes.allSatisfy { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D } ? nil : bytes
    }
  }

  /// The longest line that is returned. A record has at most 1 MB, and base64 and escapes may make each byte six.
  static let lineBytesMax = 16 << 20
  private static let chunkBytes = 256 << 10

  /// The number of the line that `next` returned last, counted from 1.
  private(set) var number = 0
  /// How many bytes were read from the stream.
  private(set) var bytesRead: UInt64 = 0
  private let read: (Int) throws -> [UInt8]
  private var buffer: [UInt8] = []
  private var start = 0
  private var isAtEnd = false

  /// Reads from `read`, which returns at most the given number of bytes, and an empty array at the end.
  init(_ read: @escaping (Int) throws -> [UInt8]) { self.read = read }

  /// The next line, or nil after the last. The last line need not end with a line feed.
  mutating func next() throws -> Line? {
    var searched = start
    var isTooLong = false
    while true {
      if let end = buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
        defer { start = end + 1 }
        number += 1
        return isTooLong ? .tooLong : .bytes(Array(buffer[start..<end]))
      }
      if isAtEnd {
        guard start < buffer.count || isTooLong else { return nil }
        defer { start = buffer.count }
        number += 1
        return isTooLong ? .tooLong : .bytes(Array(buffer[start...]))
      }
      if buffer.count - start > Self.lineBytesMax {
        isTooLong = true
        start = buffer.count
      }
      buffer.removeSubrange(..<start)
      start = 0
      searched = buffer.count
      let more = try read(Self.chunkBytes)
      bytesRead += UInt64(more.count)
      if more.isEmpty { isAtEnd = true } else { buffer += more }
    }
  }
}

extension LineReader {
  /// Calls `body` with each record of a file, or of standard input for `-`; empty lines are passed over.
  ///
  /// - Throws: `Failure` with the number of the first bad line.
  static func forEachRecord(of path: String, _ console: Console, _ body: (Record) throws -> Void) throws {
    var (lines, _) = try opening(path, console)
    while let line = try lines.next() {
      do {
        guard let bytes = try line.content() else { continue }
        try body(RecordLine(json: bytes).record(in: ZoneID.main.name))
      } catch let bad as BadLine {
        throw Failure(
          .dataDamaged,
          "\(path == "-" ? "standard input" : "'\(path)'"), line \(lines.number)\(bad.place): \(bad.words)",
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
    var offset: UInt64 = 0
    let reader = LineReader { count in
      let bytes = try file.read(at: offset, count: count)
      offset += UInt64(bytes.count)
      return bytes
    }
    return (reader, try file.size())
  }
}
