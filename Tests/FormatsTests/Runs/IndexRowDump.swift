// The rows of declared indexes, as the decoder prints them: what stands in a key is decoded here, and believed only if the
// code's encoder makes the same bytes of it.

import Strandline
import StrandlineHost
import StrandlineSystem

extension IndexVector {
  /// The declared indexes of a store's folder.
  static func definitions(_ path: String, storeUUID: [UInt8]) throws -> IndexDefinitions {
    let name = "\(path)/\(StoreIndex.folderName)/\(IndexDefinitions.fileName)"
    let file = try Repository.disk.open(name, .read)
    defer { file.close() }
    return try IndexDefinitions.decode(
      try file.read(at: 0, count: Int(try file.size())), storeUUID: storeUUID, file: name)
  }

  static func line(_ definitions: IndexDefinitions, _ binding: RunBinding) -> JSON {
    let indexes = definitions.indexes.map { stored -> JSON in
      let fields = stored.index.fields.map { field -> JSON in
        .object(["field": .text(field.field), "ascending": .bool(field.ascending)])
      }
      return .object([
        "number": .uint(UInt64(stored.number)), "type": .text(stored.index.recordType), "fields": .list(fields),
        "isComplete": .bool(binding.indexes.contains(RunBinding.Complete(stored))),
      ])
    }
    return .object([
      "declared": .object(["nextNumber": .uint(UInt64(definitions.nextNumber)), "indexes": .list(indexes)])
    ])
  }

  static func line(index key: [UInt8], isRemoved: Bool, _ definitions: IndexDefinitions) throws -> JSON {
    guard let number = StoredIndex.number(key) else { throw PageError("a row of an index without its number") }
    var members: [String: JSON] = [
      "table": .text("indexes"), "number": .uint(UInt64(number)), "row": isRemoved ? .null : .object([:]),
    ]
    guard let stored = definitions.indexes.first(where: { $0.number == number }) else {
      members["key"] = .hexed(key.dropFirst(5))
      return .object(members)
    }
    guard let recordKey = stored.recordKey(key), let id = RowKey.recordID(recordKey) else {
      throw PageError("a row of no record: \(hex(key))")
    }
    members["record"] = .group(id)
    members["value"] = .null
    if !stored.index.fields.isEmpty {
      let bytes = stored.value(key).map { stored.isInverted ? ~$0 : $0 }
      let found = try value(bytes)
      guard IndexValue.all(found.sample).contains(bytes), stored.isWhole(key) == found.isWhole else {
        throw PageError("the code gives the value of this row other bytes: \(hex(key))")
      }
      members["value"] = found.json
    }
    return .object(members)
  }

  private struct Found {
    var json: JSON
    /// A value whose encoded values are these bytes, or have them among others.
    var sample: FieldValue?
    var isWhole = true
  }

  private static func value(_ bytes: [UInt8]) throws -> Found {
    guard let tag = bytes.first.flatMap({ IndexValue.Tag(rawValue: $0) }) else {
      throw PageError("a value without a tag: \(hex(bytes))")
    }
    func found(_ value: FieldValue) -> Found {
      Found(json: .object(["tag": .text("\(tag)"), "value": .value(value)]), sample: value)
    }
    let bits = bytes.dropFirst().prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    switch tag {
    case .none: return Found(json: .object(["tag": .text("none")]))
    case .other: return Found(json: .object(["tag": .text("other")]), sample: .list(.unknown, []))
    case .int64: return found(.int64(Int64(bitPattern: bits ^ 1 << 63)))
    case .date: return found(.date(milliseconds: Int64(bitPattern: bits ^ 1 << 63)))
    case .double: return found(.double(Double(bitPattern: bits >> 63 == 1 ? bits ^ 1 << 63 : ~bits)))
    case .item:
      let item = try value(Array(bytes.dropFirst()))
      return Found(
        json: .object(["tag": .text("item"), "item": item.json]),
        sample: .list(.unknown, item.sample.map { [$0] } ?? []), isWhole: item.isWhole)
    case .text, .bytes, .exact:
      var plain: [UInt8] = []
      var rest = bytes.dropFirst().dropLast(2)
      while let byte = rest.popFirst() {
        plain.append(byte)
        // What follows a zero byte says that it is one.
        if byte == 0 { rest = rest.dropFirst() }
      }
      guard bytes.last != IndexValue.cutEnd else {
        let sample: FieldValue =
          tag == .text ? .string(String(decoding: plain, as: UTF8.self) + "?") : .bytes(plain + [0])
        return Found(
          json: .object(["tag": .text("\(tag)"), "beginning": .hexed(plain)]), sample: sample, isWhole: false)
      }
      if tag == .text { return found(.string(String(decoding: plain, as: UTF8.self))) }
      if tag == .bytes { return found(.bytes(plain)) }
      var reader = ByteReader(plain)
      guard let value = try FieldCodec.decode(from: &reader), reader.isAtEnd else {
        throw PageError("exact bytes of no value: \(hex(bytes))")
      }
      return found(value)
    }
  }
}
