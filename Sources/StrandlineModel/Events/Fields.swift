// How the layout of an event is described: once, as an initializer that names each field with its type, in the order
// of the bytes. Reading, writing, the tables of Formats and the text of golden stores all follow from it.
//
// The initializer takes the value to describe, or nil when the value is still to be read, and a coder:
//
//     init<Coder: FieldCoder>(_ event: Self?, _ field: inout Coder) throws(Coder.Failure) {
//       zone = try field("zone", .zone, event?.zone)
//       epoch = try field("epoch", .varint, event?.epoch)
//     }
//
// A property that no line names is not initialized, so the compiler finds it. The order of the lines is the order of
// the bytes. The compiler specializes the initializer for each coder; nothing is looked up at run time.

package import StrandlineSystem

/// A type of field: how its bytes are read and written, and what the tables of Formats call it.
package protocol FieldType: Sendable {
  associatedtype Value
  /// As in the column "type" of the tables: "varint", "text?", "birth*".
  var name: String { get }
  /// The least number of bytes that a value takes. A list is refused if its items cannot fit into the bytes left.
  var bytesMin: Int { get }
  func read(from reader: inout ByteReader) throws(ByteReaderError) -> Value
  func write(_ value: Value, to writer: inout ByteWriter)
  /// The value in a form that a dump prints.
  func content(of value: Value) -> FieldContent
}

/// What a description is carried out by: the reader and the writer of bytes, and the list of fields.
package protocol FieldCoder {
  /// `Never`, where nothing can go wrong.
  associatedtype Failure: Error
  /// Reads, writes or lists one field. `value` is not nil unless the coder reads.
  mutating func callAsFunction<Kind: FieldType>(
    _ name: StaticString, _ type: Kind, _ value: @autoclosure () -> Kind.Value?
  ) throws(Failure) -> Kind.Value
  /// Refuses what was read unless `condition` holds.
  mutating func require(_ condition: @autoclosure () -> Bool, _ what: StaticString) throws(Failure)
}

/// Anything whose bytes are described field by field.
package protocol FieldDescribed: Sendable {
  /// The description. The result equals `value` unless the coder reads.
  init<Coder: FieldCoder>(_ value: Self?, _ field: inout Coder) throws(Coder.Failure)
}

/// Several fields that occur together in more than one place, and have a table of their own.
package protocol FieldGroup: FieldDescribed {
  /// The heading of its table, and its name in the column "type" of others.
  static var tableName: String { get }
  /// The sum of its fields' `bytesMin`.
  static var bytesMin: Int { get }
}

extension FieldDescribed {
  /// The fields of a value, in the order of their bytes.
  package var listedFields: [ListedField] {
    var list = FieldList()
    _ = Self(self, &list)
    return list.fields
  }
}

// MARK: Coders

extension ByteReader: FieldCoder {
  package mutating func callAsFunction<Kind: FieldType>(
    _ name: StaticString, _ type: Kind, _ value: @autoclosure () -> Kind.Value?
  ) throws(ByteReaderError) -> Kind.Value { try type.read(from: &self) }

  package mutating func require(
    _ condition: @autoclosure () -> Bool, _ what: StaticString
  ) throws(ByteReaderError) {
    if !condition() { throw ByteReaderError(offset: offset, what: "\(what)") }
  }
}

extension ByteWriter: FieldCoder {
  package mutating func callAsFunction<Kind: FieldType>(
    _ name: StaticString, _ type: Kind, _ value: @autoclosure () -> Kind.Value?
  ) throws(Never) -> Kind.Value {
    guard let value = value() else { preconditionFailure("a description was asked to write nothing") }
    type.write(value, to: &self)
    return value
  }

  /// What is written has been made by this code; only a reader meets other bytes.
  package mutating func require(_ condition: @autoclosure () -> Bool, _ what: StaticString) throws(Never) {}
}

/// The fields of a value as a list: names and types for the tables of Formats, contents for dumps.
package struct FieldList: FieldCoder {
  package private(set) var fields: [ListedField] = []

  package init() {}

  package mutating func callAsFunction<Kind: FieldType>(
    _ name: StaticString, _ type: Kind, _ value: @autoclosure () -> Kind.Value?
  ) throws(Never) -> Kind.Value {
    guard let value = value() else { preconditionFailure("a description was asked to list nothing") }
    fields.append(
      ListedField(name: "\(name)", type: type.name, bytesMin: type.bytesMin, content: type.content(of: value)))
    return value
  }

  package mutating func require(_ condition: @autoclosure () -> Bool, _ what: StaticString) throws(Never) {}
}

/// One field of a value.
package struct ListedField: Sendable {
  package var name: String
  package var type: String
  package var bytesMin: Int
  package var content: FieldContent
}

/// What a field holds.
package indirect enum FieldContent: Sendable {
  case null
  case flag(Bool)
  case signed(Int64)
  case unsigned(UInt64)
  case text(String)
  case bytes([UInt8])
  case list([FieldContent])
  /// A group of fields; `table` is the heading of its table.
  case group(table: String, bytesMin: Int, [ListedField])
  /// A field of a record; nil is null.
  case value(FieldValue?)
  /// The content of a version, which is decoded apart.
  case version(EncodedContent)
}
