// Which events name which contents of files. The folder `assets/` keeps what this table has.
//
// An event enters when it is applied. What a compaction removes leaves when that is on the medium: until then, and after a crash in
// between, the table has more than the log, and a content stays longer than it must, never shorter.

import StrandlineSystem

/// The contents that events name, each with those events.
package struct ContentTable: Sendable {
  /// A content.
  struct Row: Hashable, Sendable {
    /// The size of the content in bytes.
    var size: Int64
    /// The events that name it, ascending.
    var versions: [LSN]
  }
  private(set) var rows: [ContentHash: Row] = [:]

  package init() {}

  /// How many contents are named.
  package var count: Int { rows.count }
  /// The bytes of all of them. O(contents).
  package var byteCount: Int64 { rows.values.reduce(0) { $0 &+ max(0, $1.size) } }
  /// Those that are named, in order. O(contents · log contents).
  package var all: [NamedContent] {
    rows.map { NamedContent(hash: $0.key, size: $0.value.size) }.sorted { $0.hash < $1.hash }
  }

  /// Whether an event names the content.
  package func contains(_ hash: ContentHash) -> Bool { rows[hash] != nil }

  /// Whether an event up to `lsn` does.
  func contains(_ hash: ContentHash, upTo lsn: LSN) -> Bool { rows[hash]?.versions.first.map { $0 <= lsn } ?? false }

  /// The event at `lsn`, which is later than all others here, names a content.
  mutating func add(_ content: NamedContent, at lsn: LSN) {
    var row = rows[content.hash] ?? Row(size: content.size, versions: [])
    if row.versions.last != lsn { row.versions.append(lsn) }
    rows[content.hash] = row
  }

  /// The event at `lsn` does not name the content any more, because it is gone.
  mutating func remove(_ hash: ContentHash, at lsn: LSN) {
    guard var row = rows[hash], let place = row.versions.lastIndex(of: lsn) else { return }
    row.versions.remove(at: place)
    rows[hash] = row.versions.isEmpty ? nil : row
  }

  /// The events up to `limit` that name contents, with those, in the order of the events.
  func versions(upTo limit: LSN) -> [(lsn: LSN, hash: ContentHash)] {
    rows.flatMap { hash, row in row.versions.prefix { $0 <= limit }.map { ($0, hash) } }.sorted { $0.0 < $1.0 }
  }

  /// What this lacks of a table that was made from the log; nil if nothing.
  func missing(of other: ContentTable) -> String? {
    for (hash, row) in other.rows.sorted(by: { $0.key < $1.key }) {
      let known = Set(rows[hash]?.versions ?? [])
      if let lsn = row.versions.first(where: { !known.contains($0) }) {
        return "event \(lsn) names the content \(hash.hexadecimal), and the table of contents does not know that"
      }
    }
    return nil
  }
}

// MARK: In runs

extension ContentTable {
  /// A row as a run holds it.
  struct Named: Hashable, Sendable {
    var hash: ContentHash
    var size: UInt64
    var versions: [LSN]
  }

  /// The rows in the order of their hashes.
  var stored: [Named] {
    rows.sorted { $0.key < $1.key }.map { hash, row in
      Named(hash: hash, size: UInt64(max(0, row.size)), versions: row.versions)
    }
  }

  init(_ stored: [Named]) {
    for named in stored { rows[named.hash] = Row(size: Int64(clamping: named.size), versions: named.versions) }
  }
}

extension ContentTable.Named: FieldGroup {
  static var tableName: String { "content" }
  static var bytesMin: Int { ContentHash.byteCount + 2 }
  init<Coder: FieldCoder>(_ row: Self?, _ field: inout Coder) throws(Coder.Failure) {
    hash = try field("hash", .contentHash, row?.hash)
    size = try field("size", .varint, row?.size)
    versions = try field("versions", .list(.lsn), row?.versions)
    try field.require(
      !versions.isEmpty && zip(versions, versions.dropFirst()).allSatisfy { $0 < $1 }, "events out of order")
    try field.require(size <= UInt64(Int64.max), "a size that is too large")
  }
}

/// The hash of a content.
struct ContentHashType: FieldType {
  var name: String { "raw32" }
  var bytesMin: Int { ContentHash.byteCount }
  func read(from reader: inout ByteReader) throws(ByteReaderError) -> ContentHash {
    let start = reader.offset
    guard let hash = ContentHash(try reader.raw(ContentHash.byteCount)) else {
      throw ByteReaderError(offset: start, what: "a hash that is cut")
    }
    return hash
  }
  func write(_ value: ContentHash, to writer: inout ByteWriter) { writer.raw(value.bytes) }
  func content(of value: ContentHash) -> FieldContent { .bytes(value.bytes) }
}

extension FieldType where Self == ContentHashType { static var contentHash: Self { Self() } }
