// The rows of declared indexes: keys without a value, in the table behind records and deletions. Layout: Formats/index.md.
//
// A key is the table's number, the index's number, the encoded value and the record's key: so a range of values is a range
// of keys, and records of equal values stand in the order of zone and name. The bytes of encoded values sort as
// `FieldValue.sortOrder` says. What a row says is a hint: a query that finds a record by it compares the record itself.

import StrandlineSystem

/// An index as the runs of a store know it.
package struct StoredIndex: Hashable, Sendable {
  /// Of all indexes that a store ever had, no two have the same one. 0: it is not being built.
  package var number: UInt32
  package var index: RecordIndex

  package init(number: UInt32, index: RecordIndex) {
    self.number = number
    self.index = index
  }

  /// What the keys of all its rows begin with.
  package var prefix: [UInt8] {
    [RunTable.indexes.rawValue] + (0..<4).map { UInt8(truncatingIfNeeded: number >> UInt32(24 - 8 * $0)) }
  }

  private static let prefixBytes = 1 + 4

  /// The number of the index that a row is of; nil if it is of none.
  package static func number(_ key: [UInt8]) -> UInt32? {
    guard key.count >= prefixBytes, key[0] == RunTable.indexes.rawValue else { return nil }
    return key[1..<prefixBytes].reduce(0) { $0 << 8 | UInt32($1) }
  }

  /// Whether the bytes of values are inverted, so that the greatest comes first.
  package var isInverted: Bool { index.fields.first.map { !$0.ascending } ?? false }

  /// The bytes of an encoded value as they stand in a key.
  func stored(_ value: [UInt8]) -> [UInt8] { isInverted ? value.map { ~$0 } : value }

  // MARK: Rows

  /// The keys of a record's rows.
  package func rows(_ record: Record) -> Set<[UInt8]> {
    let id = RowKey.record(record.id).dropFirst()
    guard let field = index.fields.first else { return [prefix + id] }
    return Set(IndexValue.all(record.indexed(field.field)).map { prefix + stored($0) + id })
  }

  /// What the keys of the rows of a record's children begin with, of an index on the field that names the parent.
  func childPrefixes(of parent: RecordID) -> [[UInt8]] {
    let zone = RowKey.zone(parent.zone).dropFirst()
    let values =
      [IndexValue.sorted(.string(parent.name))]
      + FieldValue.reference(Reference(parent.name)).sameValues.compactMap { IndexValue.equal($0) }
    return values.map { prefix + stored($0) + zone }
  }

  /// Where the record's key begins in a row's; nil if it is no row of this index.
  func recordStart(_ key: [UInt8]) -> Int? {
    index.fields.isEmpty
      ? Self.prefixBytes : IndexValue.end(key, from: Self.prefixBytes, isInverted: isInverted)
  }

  /// The key of the record that a row is of; nil if it is of none.
  package func recordKey(_ key: [UInt8]) -> [UInt8]? {
    guard let start = recordStart(key), start < key.count else { return nil }
    var record: [UInt8] = []
    record.reserveCapacity(1 + key.count - start)
    record.append(RunTable.records.rawValue)
    record.append(contentsOf: key[start...])
    return record
  }

  /// The encoded value in a row's key, as it stands there.
  package func value(_ key: [UInt8]) -> ArraySlice<UInt8> { key[Self.prefixBytes..<(recordStart(key) ?? key.count)] }

  /// Whether the row has the whole value, and not only its beginning.
  package func isWhole(_ key: [UInt8]) -> Bool {
    guard let field = index.fields.first, let end = recordStart(key) else { return true }
    let tag = key[Self.prefixBytes] ^ (field.ascending ? 0 : 0xFF)
    guard let tag = IndexValue.Tag(rawValue: tag), IndexValue.hasText(tag) || tag == .item else { return true }
    return key[end - 1] ^ (field.ascending ? 0 : 0xFF) != IndexValue.cutEnd
  }
}

extension Record {
  /// What an index on a field has of it: the field's value, or the parent.
  func indexed(_ field: String) -> FieldValue? {
    field == Version.parentField ? parent.map { .reference(Reference($0)) } : self[field]
  }
}

extension FieldValue {
  /// All values that a question for this one finds, each of which has rows of its own: of a reference one for each action.
  var sameValues: [FieldValue] {
    guard case .reference(let reference) = self else { return [self] }
    return Reference.Action.allCases.map { .reference(Reference(reference.name, zone: reference.zone, action: $0)) }
  }
}

/// How values are encoded in rows.
package enum IndexValue {
  /// The first byte: first the ranks of sorting, then what is looked for by equality only.
  package enum Tag: UInt8, CaseIterable {
    case none = 0
    case text = 1
    case int64 = 2
    case double = 3
    case date = 4
    case bytes = 5
    /// Any other value; all of them are equal in the order of sorting.
    case other = 6
    /// An item of a list; its own encoding follows.
    case item = 7
    /// A reference or a location, by the bytes that an event has for it.
    case exact = 8
  }

  /// So many bytes of a text or of bytes are in a row at most, without those that stand for zero bytes.
  package static let textBytesMax = 200
  /// What stands behind the last byte of a whole text, and of one that was cut; after a zero byte.
  package static let wholeEnd: UInt8 = 1
  package static let cutEnd: UInt8 = 2

  package static func hasText(_ tag: Tag) -> Bool { tag == .text || tag == .bytes || tag == .exact }

  /// Under what a record with this value of the field stands.
  package static func all(_ value: FieldValue?) -> [[UInt8]] {
    switch value {
    case .list(_, let items)?: [sorted(value)] + items.compactMap(item)
    case .reference?, .location?: [sorted(value), exact(value)]
    default: [sorted(value)]
    }
  }

  /// The encoding that sorts as the value does.
  package static func sorted(_ value: FieldValue?) -> [UInt8] {
    switch value {
    case nil: return [Tag.none.rawValue]
    case .string(let text)?: return escaped(.text, text.utf8)
    case .int64(let number)?: return number64(.int64, UInt64(bitPattern: number) ^ 1 << 63)
    case .double(let number)?:
      let bits = (number == 0 ? 0 : number.isNaN ? .nan : number).bitPattern
      return number64(.double, bits >> 63 == 1 ? ~bits : bits ^ 1 << 63)
    case .date(let milliseconds)?: return number64(.date, UInt64(bitPattern: milliseconds) ^ 1 << 63)
    case .bytes(let bytes)?: return escaped(.bytes, bytes)
    default: return [Tag.other.rawValue]
    }
  }

  /// The encoding of a single value that is looked for by equality; nil for one that cannot be asked for.
  static func equal(_ value: FieldValue) -> [UInt8]? {
    switch value {
    case .reference, .location: exact(value)
    case .asset, .encrypted, .opaque, .list: nil
    default: sorted(value)
    }
  }

  /// The encoding of an item of a list; nil for one that cannot be asked for.
  static func item(_ value: FieldValue) -> [UInt8]? { equal(value).map { [Tag.item.rawValue] + $0 } }

  /// What the encodings of all texts with a beginning begin with.
  static func beginning(_ text: String) -> [UInt8] {
    var key = escaped(.text, text.utf8)
    key.removeLast(2)
    return key
  }

  /// What the encodings of all values of the same type begin with.
  static func type(_ value: FieldValue) -> [UInt8] { [sorted(value)[0]] }

  private static func exact(_ value: FieldValue?) -> [UInt8] {
    var writer = ByteWriter()
    FieldCodec.encode(value, into: &writer)
    return escaped(.exact, writer.bytes)
  }

  private static func number64(_ tag: Tag, _ bits: UInt64) -> [UInt8] {
    var writer = ByteWriter(capacity: 9)
    writer.u8(tag.rawValue)
    writer.u64(bits.byteSwapped)
    return writer.bytes
  }

  /// As text in the keys of records, and its end says whether that is all of it. A text that was cut sorts behind the
  /// whole one with the same bytes, which is shorter.
  private static func escaped(_ tag: Tag, _ bytes: some Collection<UInt8>) -> [UInt8] {
    var key = [tag.rawValue]
    for byte in bytes.prefix(textBytesMax) {
      key.append(byte)
      if byte == 0 { key.append(0xFF) }
    }
    key.append(0)
    key.append(bytes.count > textBytesMax ? cutEnd : wholeEnd)
    return key
  }

  /// Where an encoded value ends; nil if it is none.
  package static func end(_ key: [UInt8], from start: Int, isInverted: Bool) -> Int? {
    let mask: UInt8 = isInverted ? 0xFF : 0
    guard start < key.count, let tag = Tag(rawValue: key[start] ^ mask) else { return nil }
    switch tag {
    case .none, .other: return start + 1
    case .int64, .double, .date: return start + 9 <= key.count ? start + 9 : nil
    case .item: return end(key, from: start + 1, isInverted: isInverted)
    case .text, .bytes, .exact:
      var place = start + 1
      while place + 1 < key.count {
        guard key[place] ^ mask == 0 else {
          place += 1
          continue
        }
        let next = key[place + 1] ^ mask
        place += 2
        if next == wholeEnd || next == cutEnd { return place }
      }
      return nil
    }
  }
}
