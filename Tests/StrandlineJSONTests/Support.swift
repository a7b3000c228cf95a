// A tree of JSON for tests, with a generator of random ones, because readers and writers have none.

import StrandlineJSON
import StrandlineSystem

/// Limits that none of a test's texts exceeds.
let wide = JSONLimits(bytesMax: 64 << 20, depthMax: 200_000)

/// Limits that a tree's own recursion stands.
let shallow = JSONLimits(bytesMax: 64 << 20, depthMax: 600)

indirect enum Tree: Equatable {
  case null
  case bool(Bool)
  case int64(Int64)
  case double(Double)
  case string(String)
  case bytes([UInt8])
  case list([Tree])
  case object([(key: String, value: Tree)])

  static func == (left: Tree, right: Tree) -> Bool {
    switch (left, right) {
    case (.null, .null): true
    case (.bool(let left), .bool(let right)): left == right
    case (.int64(let left), .int64(let right)): left == right
    case (.double(let left), .double(let right)): left.bitPattern == right.bitPattern
    // A double that is whole is written in its shortest form, which may be read as an integer of which it is the nearest.
    case (.double(let left), .int64(let right)), (.int64(let right), .double(let left)): left == Double(right)
    // Strings that are canonically equal may have other bytes.
    case (.string(let left), .string(let right)): Array(left.utf8) == Array(right.utf8)
    case (.list(let left), .list(let right)): left == right
    case (.object(let left), .object(let right)):
      left.count == right.count
        && zip(left, right).allSatisfy { Array($0.key.utf8) == Array($1.key.utf8) && $0.value == $1.value }
    default: false
    }
  }

  // MARK: Reading and writing

  /// Reads a whole text.
  init(_ bytes: [UInt8], limits: JSONLimits = shallow) throws(JSONError) {
    var reader = try JSONReader(bytes, limits: limits)
    self = try Tree(&reader)
    try reader.finish()
  }

  init(_ text: String) throws(JSONError) { try self.init(Array(text.utf8)) }

  /// Reads the next value.
  init(_ reader: inout JSONReader) throws(JSONError) {
    switch try reader.kind() {
    case .null:
      self = .null
      _ = try reader.skipNull()
    case .bool: self = .bool(try reader.bool())
    case .string: self = .string(try reader.string())
    case .number:
      let token = try reader.skipValue()
      switch try reader.number(of: token) {
      case .int64(let number): self = .int64(number)
      case .double(let number): self = .double(number)
      }
    case .array:
      var items: [Tree] = []
      try reader.beginArray()
      while try reader.nextItem() { items.append(try Tree(&reader)) }
      self = .list(items)
    case .object:
      var members: [(String, Tree)] = []
      try reader.beginObject()
      while let key = try reader.nextKey() { members.append((key, try Tree(&reader))) }
      self = .object(members)
    }
  }

  func write(_ writer: inout JSONWriter) throws(NonFiniteNumber) {
    switch self {
    case .null: writer.null()
    case .bool(let value): writer.bool(value)
    case .int64(let number): writer.int64(number)
    case .double(let number): try writer.double(number)
    case .string(let text): writer.string(text)
    case .bytes(let bytes): writer.base64(bytes)
    case .list(let items):
      writer.beginArray()
      for item in items { try item.write(&writer) }
      writer.endArray()
    case .object(let members):
      writer.beginObject()
      for (key, value) in members {
        writer.key(key)
        try value.write(&writer)
      }
      writer.endObject()
    }
  }

  func written(_ controls: JSONWriter.ControlEscapes = .short) throws(NonFiniteNumber) -> [UInt8] {
    var writer = JSONWriter(controls: controls)
    try write(&writer)
    return writer.finish()
  }
}

extension RandomSource {
  /// A tree of at most so many levels.
  func tree(_ depth: Int = 5) -> Tree {
    switch below(depth > 0 ? 9 : 6) {
    case 0: .null
    case 1: .bool(below(2) == 0)
    case 2: .int64(int64())
    case 3: .double(fraction())
    case 4, 5: .string(text())
    case 6: .list((0..<below(5)).map { _ in tree(depth - 1) })
    default:
      .object(
        (0..<below(below(10) == 0 ? 40 : 6)).map { (key: "\(text())\($0)", value: tree(depth - 1)) })
    }
  }

  func int64() -> Int64 { Int64(bitPattern: next()) >> Int64(below(64)) }

  /// A finite double with a fraction, so that it is not read back as an integer.
  func fraction() -> Double {
    while true {
      let number = below(2) == 0 ? Double(bitPattern: next()) : Double(int64()) / 1000
      if number.isFinite, number.rounded() != number { return number }
    }
  }

  /// A text of characters with and without escapes, of one to four bytes.
  func text() -> String {
    var text = ""
    for _ in 0..<below(below(4) == 0 ? 60 : 9) {
      switch below(12) {
      case 0: text.unicodeScalars.append(Unicode.Scalar(UInt8(below(0x20))))
      case 1: text += ["\"", "\\", "/", "\u{7F}"][Int(below(4))]
      case 2: text.unicodeScalars.append(Unicode.Scalar(UInt32(0x80 + below(0x780))) ?? "é")
      case 3: text.unicodeScalars.append(Unicode.Scalar(UInt32(0x800 + below(0xF800))) ?? "€")
      case 4: text.unicodeScalars.append(Unicode.Scalar(UInt32(0x10000 + below(0x100000))) ?? "😹")
      default: text.unicodeScalars.append(Unicode.Scalar(UInt8(0x20 + below(0x5F))))
      }
    }
    return text
  }
}
