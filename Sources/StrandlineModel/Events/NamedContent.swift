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

  /// The assets in the value.
  package var assets: [Asset] {
    switch self {
    case .asset(let asset): [asset]
    case .list(.assets, let items): items.flatMap(\.assets)
    default: []
    }
  }

  /// The value with another asset in the place of each.
  package func replacingAssets(_ replacement: (Asset) -> Asset) -> FieldValue {
    switch self {
    case .asset(let asset): .asset(replacement(asset))
    case .list(.assets, let items): .list(.assets, items.map { $0.replacingAssets(replacement) })
    default: self
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

extension Asset {
  /// Whether both are of one content, as far as both say.
  package func isSameFile(as other: Asset) -> Bool {
    guard size == other.size else { return false }
    if let ours = server?.fileChecksum, let theirs = other.server?.fileChecksum { return ours.equalsUTF8(theirs) }
    return contentHash != nil && contentHash == other.contentHash
  }

  /// The same with the content's hash.
  package func with(_ hash: ContentHash) -> Asset {
    server.map { Asset(server: $0, size: size, contentHash: hash) } ?? Asset(contentHash: hash, size: size)
  }
}

extension Version {
  /// Takes over the hashes of contents from another version of the record: of each field that both have from one write, and of each file
  /// that both have. The server never says a hash.
  package mutating func learnHashes(from other: Version) {
    for (name, value) in fields {
      let known = other.fields[name]?.assets ?? []
      guard !known.isEmpty, case let assets = value.assets, !assets.isEmpty else { continue }
      let isOneWrite =
        stamp.fields[name] != nil && stamp.fields[name] == other.stamp.fields[name] && assets.count == known.count
      var place = 0
      fields[name] = value.replacingAssets { asset in
        defer { place += 1 }
        guard asset.contentHash == nil else { return asset }
        if isOneWrite, known[place].size == asset.size, let hash = known[place].contentHash { return asset.with(hash) }
        return known.first { $0.isSameFile(as: asset) }?.contentHash.map { asset.with($0) } ?? asset
      }
    }
  }

  /// The same with the files that another version has for its contents: what the server calls them, and where they can be fetched.
  package func naming(filesAs other: Version) -> Version {
    var result = self
    for (name, value) in fields {
      let known = other.fields[name]?.assets ?? []
      guard !known.isEmpty, !value.assets.isEmpty else { continue }
      result.fields[name] = value.replacingAssets { asset in known.first { $0.isSameFile(as: asset) } ?? asset }
    }
    return result
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
