// What the store keeps in sorted runs: the rows of its tables, and the keys that they stand under. Layout:
// Formats/index.md.
//
// A key begins with the number of its table. Records, and deleted names, stand in the order of zone and name, so that a list
// is a range of keys.

import StrandlineSystem

/// The tables in a run, by the first byte of their keys.
package enum RunTable: UInt8, CaseIterable {
  /// One row: all that is not kept for single records.
  case state = 0
  /// A row for each record that has an entry.
  case records = 1
  /// A row for each deleted name.
  case deletions = 2
  /// The rows of declared indexes; see IndexRow.swift.
  case indexes = 3

  /// The least key of the table.
  var key: [UInt8] { [rawValue] }
}

/// Keys of rows.
package enum RowKey {
  static let state = RunTable.state.key

  /// What the keys of all records of a zone, or of all its deleted names, begin with.
  static func zone(_ zone: ZoneID, table: RunTable = .records) -> [UInt8] {
    var key: [UInt8] = []
    key.reserveCapacity(40 + zone.name.utf8.count + zone.owner.utf8.count)
    key.append(table.rawValue)
    key.append(zone.scope.rawValue)
    append(zone.owner, to: &key)
    append(zone.name, to: &key)
    return key
  }

  static func record(_ id: RecordID, table: RunTable = .records) -> [UInt8] {
    var key = zone(id.zone, table: table)
    key.append(utf8: id.name)
    return key
  }

  /// The record that a key is of; nil if it is of none.
  package static func recordID(_ key: [UInt8], table: RunTable = .records) -> RecordID? {
    guard key.count > 2, key[0] == table.rawValue, let scope = DatabaseScope(rawValue: key[1]) else {
      return nil
    }
    var place = 2
    guard let owner = text(key, &place), let zone = text(key, &place), key.isUTF8(in: place..<key.count) else {
      return nil
    }
    return RecordID(key.text(in: place..<key.count), zone: ZoneID(zone, owner: owner, scope: scope))
  }

  // Text inside a key ends with 00 01, and a zero byte in it is 00 FF: so keys sort as the texts do.

  private static func append(_ text: String, to key: inout [UInt8]) {
    if text.hasZeroByte {
      for byte in text.utf8 {
        key.append(byte)
        if byte == 0 { key.append(0xFF) }
      }
    } else {
      key.append(utf8: text)
    }
    key.append(0)
    key.append(1)
  }

  private static func text(_ key: [UInt8], _ place: inout Int) -> String? {
    var bytes: [UInt8] = []
    while let zero = key[place...].firstIndex(of: 0), zero + 1 < key.count {
      let part = place..<zero
      place = zero + 2
      switch key[zero + 1] {
      case 1:
        if bytes.isEmpty { return key.isUTF8(in: part) ? key.text(in: part) : nil }
        bytes.append(contentsOf: key[part])
        return bytes.isUTF8(in: bytes.indices) ? bytes.text(in: bytes.indices) : nil
      case 0xFF: bytes.append(contentsOf: key[part] + [0])
      default: return nil
      }
    }
    return nil
  }
}
