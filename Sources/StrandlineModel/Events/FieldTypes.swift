// The types of fields, by the names that the tables of Formats give them. Layout: Formats/events.md, "Types".
//
// Each is an empty value with a short spelling (`.varint`, `.optional(.text)`), so that a description reads like its
// table.

package import StrandlineSystem

// MARK: Numbers

package struct UInt8Type: FieldType {
  package var name: String { "u8" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> UInt8 { try reader.u8() }
  package func write(_ value: UInt8, to writer: inout ByteWriter) { writer.u8(value) }
  package func content(of value: UInt8) -> FieldContent { .unsigned(UInt64(value)) }
}

package struct UInt16Type: FieldType {
  package var name: String { "u16" }
  package var bytesMin: Int { 2 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> UInt16 { try reader.u16() }
  package func write(_ value: UInt16, to writer: inout ByteWriter) { writer.u16(value) }
  package func content(of value: UInt16) -> FieldContent { .unsigned(UInt64(value)) }
}

package struct UInt32Type: FieldType {
  package var name: String { "u32" }
  package var bytesMin: Int { 4 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> UInt32 { try reader.u32() }
  package func write(_ value: UInt32, to writer: inout ByteWriter) { writer.u32(value) }
  package func content(of value: UInt32) -> FieldContent { .unsigned(UInt64(value)) }
}

package struct UInt64Type: FieldType {
  package var name: String { "u64" }
  package var bytesMin: Int { 8 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> UInt64 { try reader.u64() }
  package func write(_ value: UInt64, to writer: inout ByteWriter) { writer.u64(value) }
  package func content(of value: UInt64) -> FieldContent { .unsigned(value) }
}

/// A hybrid time, as its `u64`.
package struct HybridTimeType: FieldType {
  package var name: String { "u64" }
  package var bytesMin: Int { 8 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> HybridTime {
    HybridTime(rawValue: try reader.u64())
  }
  package func write(_ value: HybridTime, to writer: inout ByteWriter) { writer.u64(value.rawValue) }
  package func content(of value: HybridTime) -> FieldContent { .unsigned(value.rawValue) }
}

package struct VarintType: FieldType {
  package var name: String { "varint" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> UInt64 { try reader.varint() }
  package func write(_ value: UInt64, to writer: inout ByteWriter) { writer.varint(value) }
  package func content(of value: UInt64) -> FieldContent { .unsigned(value) }
}

/// An LSN as a varint; 0 is none.
package struct LSNType: FieldType {
  package var name: String { "varint" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> LSN { LSN(try reader.varint()) }
  package func write(_ value: LSN, to writer: inout ByteWriter) { writer.varint(value.rawValue) }
  package func content(of value: LSN) -> FieldContent { .unsigned(value.rawValue) }
}

package struct ZigzagType: FieldType {
  package var name: String { "zigzag" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> Int64 { try reader.zigzag() }
  package func write(_ value: Int64, to writer: inout ByteWriter) { writer.zigzag(value) }
  package func content(of value: Int64) -> FieldContent { .signed(value) }
}

/// One byte, 0 or 1; anything else is refused.
package struct FlagType: FieldType {
  package init() {}

  package var name: String { "flag" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> Bool {
    let start = reader.offset
    switch try reader.u8() {
    case 0: return false
    case 1: return true
    default: throw ByteReaderError(offset: start, what: "a flag that is neither 0 nor 1")
    }
  }
  package func write(_ value: Bool, to writer: inout ByteWriter) { writer.u8(value ? 1 : 0) }
  package func content(of value: Bool) -> FieldContent { .flag(value) }
}

/// One byte that stands for a case of an enumeration; a number without a case is refused.
package struct ChoiceType<Choice: RawRepresentable & Sendable>: FieldType where Choice.RawValue == UInt8 {
  package var name: String { "u8" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> Choice {
    let start = reader.offset
    let number = try reader.u8()
    guard let value = Choice(rawValue: number) else {
      throw ByteReaderError(offset: start, what: "\(number), which is no \(Choice.self)")
    }
    return value
  }
  package func write(_ value: Choice, to writer: inout ByteWriter) { writer.u8(value.rawValue) }
  package func content(of value: Choice) -> FieldContent { .unsigned(UInt64(value.rawValue)) }
}

// MARK: Bytes and text

package struct TextType: FieldType {
  package var name: String { "text" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> String { try reader.string() }
  package func write(_ value: String, to writer: inout ByteWriter) { writer.string(value) }
  package func content(of value: String) -> FieldContent { .text(value) }
}

/// A change token, as text.
package struct TokenType: FieldType {
  package var name: String { "text" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> ChangeToken {
    ChangeToken(rawValue: try reader.string())
  }
  package func write(_ value: ChangeToken, to writer: inout ByteWriter) { writer.string(value.rawValue) }
  package func content(of value: ChangeToken) -> FieldContent { .text(value.rawValue) }
}

package struct BytesType: FieldType {
  package var name: String { "bytes" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> [UInt8] { try reader.blob() }
  package func write(_ value: [UInt8], to writer: inout ByteWriter) { writer.blob(value) }
  package func content(of value: [UInt8]) -> FieldContent { .bytes(value) }
}

/// Sixteen bytes without a length.
package struct Raw16Type: FieldType {
  package var name: String { "raw16" }
  package var bytesMin: Int { 16 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> [UInt8] { try reader.raw(16) }
  package func write(_ value: [UInt8], to writer: inout ByteWriter) { writer.raw(value) }
  package func content(of value: [UInt8]) -> FieldContent { .bytes(value) }
}

/// Everything up to the end.
package struct RestType: FieldType {
  package var name: String { "rest" }
  package var bytesMin: Int { 0 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> [UInt8] { reader.rest() }
  package func write(_ value: [UInt8], to writer: inout ByteWriter) { writer.raw(value) }
  package func content(of value: [UInt8]) -> FieldContent { .bytes(value) }
}

/// A value of a record's field; nil is null.
package struct ValueType: FieldType {
  package var name: String { "value" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> FieldValue? {
    try FieldCodec.decode(from: &reader)
  }
  package func write(_ value: FieldValue?, to writer: inout ByteWriter) { FieldCodec.encode(value, into: &writer) }
  package func content(of value: FieldValue?) -> FieldContent { .value(value) }
}

// MARK: Made of others

/// Fields with a table of their own.
package struct GroupType<Group: FieldGroup>: FieldType {
  package init() {}
  package var name: String { Group.tableName }
  package var bytesMin: Int { Group.bytesMin }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> Group { try Group(nil, &reader) }
  package func write(_ value: Group, to writer: inout ByteWriter) { _ = Group(value, &writer) }
  package func content(of value: Group) -> FieldContent {
    .group(table: Group.tableName, bytesMin: Group.bytesMin, value.listedFields)
  }
}

/// A flag that says whether a value follows, then the value.
package struct OptionalType<Wrapped: FieldType>: FieldType {
  let wrapped: Wrapped
  package var name: String { wrapped.name + "?" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> Wrapped.Value? {
    try FlagType().read(from: &reader) ? try wrapped.read(from: &reader) : nil
  }
  package func write(_ value: Wrapped.Value?, to writer: inout ByteWriter) {
    writer.u8(value == nil ? 0 : 1)
    if let value { wrapped.write(value, to: &writer) }
  }
  package func content(of value: Wrapped.Value?) -> FieldContent { value.map { wrapped.content(of: $0) } ?? .null }
}

/// A count, then so many items.
package struct ListType<Item: FieldType>: FieldType {
  let item: Item
  package var name: String { item.name + "*" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> [Item.Value] {
    let count = try reader.count(minimumBytes: item.bytesMin)
    var items: [Item.Value] = []
    items.reserveCapacity(count)
    for _ in 0..<count { items.append(try item.read(from: &reader)) }
    return items
  }
  package func write(_ value: [Item.Value], to writer: inout ByteWriter) {
    writer.varint(UInt64(value.count))
    for one in value { item.write(one, to: &writer) }
  }
  package func content(of value: [Item.Value]) -> FieldContent { .list(value.map { item.content(of: $0) }) }
}

// MARK: How descriptions spell them

extension FieldType where Self == UInt8Type { package static var u8: Self { Self() } }
extension FieldType where Self == UInt16Type { package static var u16: Self { Self() } }
extension FieldType where Self == UInt32Type { package static var u32: Self { Self() } }
extension FieldType where Self == UInt64Type { package static var u64: Self { Self() } }
extension FieldType where Self == HybridTimeType { package static var time: Self { Self() } }
extension FieldType where Self == VarintType { package static var varint: Self { Self() } }
extension FieldType where Self == LSNType { package static var lsn: Self { Self() } }
extension FieldType where Self == ZigzagType { package static var zigzag: Self { Self() } }
extension FieldType where Self == FlagType { package static var flag: Self { Self() } }
extension FieldType where Self == TextType { package static var text: Self { Self() } }
extension FieldType where Self == TokenType { package static var token: Self { Self() } }
extension FieldType where Self == BytesType { package static var bytes: Self { Self() } }
extension FieldType where Self == Raw16Type { package static var raw16: Self { Self() } }
extension FieldType where Self == RestType { package static var rest: Self { Self() } }
extension FieldType where Self == ValueType { package static var value: Self { Self() } }
extension FieldType where Self == GroupType<ZoneID> { package static var zone: Self { Self() } }
extension FieldType where Self == GroupType<RecordID> { package static var id: Self { Self() } }
extension FieldType where Self == GroupType<ServerTimestamp> { package static var touch: Self { Self() } }

extension FieldType {
  package static func choice<Choice>(_ type: Choice.Type) -> Self where Self == ChoiceType<Choice> { Self() }
  package static func group<Group>(_ type: Group.Type) -> Self where Self == GroupType<Group> { Self() }
  package static func optional<Wrapped>(_ wrapped: Wrapped) -> Self where Self == OptionalType<Wrapped> {
    Self(wrapped: wrapped)
  }
  package static func list<Item>(_ item: Item) -> Self where Self == ListType<Item> { Self(item: item) }
}
