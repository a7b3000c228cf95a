// Which contents of files a version names by their hash: what the store may not remove as long as the event is there.

import StrandlineSystem

/// A file's content that a version names.
package struct NamedContent: Hashable, Sendable {
  package var hash: ContentHash
  /// The size of the content in bytes.
  package var size: Int64

  package init(hash: ContentHash, size: Int64) {
    self.hash = hash
    self.size = size
  }

  fileprivate init?(_ asset: Asset) {
    guard let hash = asset.contentHash else { return nil }
    self.init(hash: hash, size: asset.size)
  }
}

extension FieldValue {
  /// The contents that the value names by their hash.
  package var namedContents: [NamedContent] {
    switch self {
    case .asset(let asset): NamedContent(asset).map { [$0] } ?? []
    case .list(.assets, let items): items.flatMap(\.namedContents)
    default: []
    }
  }

  /// The contents in the value that are on this device alone.
  package var localContents: [NamedContent] {
    switch self {
    case .asset(let asset): asset.state == .local ? namedContents : []
    case .list(.assets, let items): items.flatMap(\.localContents)
    default: []
    }
  }
}

extension EncodedContent {
  /// The contents that the version names by their hash. Of bytes that mean nothing, which a read of the record throws, those
  /// before them.
  package var namedContents: [NamedContent] {
    var found: [NamedContent] = []
    var reader = reader
    do throws(ByteReaderError) { try Self.find(&found, in: &reader) } catch { return found }
    return found
  }

  private static func find(_ found: inout [NamedContent], in reader: inout ByteReader) throws(ByteReaderError) {
    try reader.skip(try reader.count(minimumBytes: FieldStamp.bytesMin) * FieldStamp.bytesMin)
    for _ in 0..<(try reader.count(minimumBytes: ContentField.bytesMin)) {
      try reader.skipBlob()
      _ = try reader.varint()
      guard FieldCodec.mayNameContent(reader) else {
        try FieldCodec.skip(from: &reader)
        continue
      }
      if let value = try FieldCodec.decode(from: &reader) { found += value.namedContents }
    }
  }
}

extension FieldCodec {
  /// Whether the value that begins here is an asset or a list of some.
  fileprivate static func mayNameContent(_ reader: ByteReader) -> Bool {
    guard !reader.isAtEnd else { return false }
    switch reader.bytes[reader.offset] {
    case ValueTag.asset.rawValue: return true
    case ValueTag.list.rawValue:
      return reader.offset + 1 < reader.end
        && reader.bytes[reader.offset + 1] == FieldValue.ListKind.assets.rawValue
    default: return false
    }
  }
}
