// What a transport needs of a content that goes up, and where it puts one that comes down: pieces, so that no content is ever in memory
// as a whole. On the web the pieces go through a socket; natively the framework takes the file at a path, and gives one.

import StrandlineSystem

/// A field of a record that names a content.
public struct ContentPlace: Hashable, Sendable {
  /// The record that names the content.
  public var record: RecordID
  /// The record's type.
  public var type: String
  /// The field of the record that holds the asset.
  public var field: String

  /// Joins the parts.
  public init(record: RecordID, type: String, field: String) {
    self.record = record
    self.type = type
    self.field = field
  }

  /// Equal to the byte.
  public static func == (left: ContentPlace, right: ContentPlace) -> Bool {
    left.record == right.record && left.type.equalsUTF8(right.type) && left.field.equalsUTF8(right.field)
  }

  /// Hashes the record and the field.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(record)
    field.hashUTF8(into: &hasher)
  }
}

extension ContentPlace: CustomStringConvertible {
  /// "field 'photo' of record 'Main/n'".
  public var description: String { "field '\(field)' of record '\(record)'" }
}

/// A content that is to be uploaded. It is read in pieces, from any place, any number of times.
public struct ContentSource: Sendable {
  /// The content's size in bytes.
  public let size: Int64
  /// The file that has it and nothing else, for a transport that takes files. It stays until the upload has ended.
  public let path: String
  private let read: @Sendable (_ offset: Int64, _ count: Int) throws -> [UInt8]

  /// A content that `read` reads.
  ///
  /// - Parameters:
  ///   - size: its bytes.
  ///   - path: the file that has it.
  ///   - read: returns at most `count` bytes that begin at `offset`; none at the end.
  public init(size: Int64, path: String, read: @escaping @Sendable (_ offset: Int64, _ count: Int) throws -> [UInt8]) {
    self.size = size
    self.path = path
    self.read = read
  }

  /// The bytes from a place on.
  ///
  /// - Parameters:
  ///   - offset: the place.
  ///   - count: the most bytes to return.
  /// - Returns: at least one byte.
  /// - Throws: what the reading throws; `StrandlineError` with `.damaged` if the content ends before its size.
  public func piece(at offset: Int64, count: Int) throws -> [UInt8] {
    let bytes = try read(offset, Int(min(Int64(count), size - offset)))
    guard !bytes.isEmpty else {
      throw StrandlineError(
        .damaged,
        "the content '\(path)' ends after \(offset) bytes, and its record says \(size): restore it from a backup",
        file: path)
    }
    return bytes
  }

  /// All of it, for a transport that has no other way.
  package func whole() throws -> [UInt8] {
    var bytes: [UInt8] = []
    while bytes.count < size { bytes += try piece(at: Int64(bytes.count), count: 1 << 20) }
    return bytes
  }
}

extension ContentSource: CustomStringConvertible {
  /// The size, and where it is.
  public var description: String { "content of \(String.count(size, "byte")) at '\(path)'" }
}

/// Takes a content that comes down, piece by piece and in order. It is for one download.
public struct ContentSink: Sendable {
  /// The most bytes that it takes: the size that the server has named for the content.
  public let size: Int64
  private let write: @Sendable ([UInt8]) throws -> Void

  /// A place for a content.
  ///
  /// - Parameters:
  ///   - size: the bytes that are expected.
  ///   - write: takes the next bytes.
  public init(size: Int64, write: @escaping @Sendable ([UInt8]) throws -> Void) {
    self.size = size
    self.write = write
  }

  /// Takes the next bytes.
  ///
  /// - Parameter piece: the bytes.
  /// - Throws: what the writing throws.
  public func write(_ piece: [UInt8]) throws { try write(piece) }
}

extension ContentSink: CustomStringConvertible {
  /// The size that is expected.
  public var description: String { "place for a content of \(String.count(size, "byte"))" }
}
