// The records that `bench store` writes and reads: made from a seed and a number, so that no run has to keep a million of
// them, and each process of a run makes the same ones.

import Strandline
import StrandlineHost

/// A set of records of 100 bytes: a rank of 8 and a text of 92.
struct BenchData: Sendable {
  static let type = "Note"
  /// A quarter of the records are of this type.
  static let otherType = "Photo"
  static let rankField = "rank"
  static let textField = "text"
  /// The bytes of each record's values.
  static let bytes = 100
  private static let textBytes = 92

  private let seed: UInt64

  init(seed: UInt64) { self.seed = seed }

  /// The record's name: 16 hexadecimal digits in no order. Different numbers have different names.
  func name(_ number: Int) -> String { Self.hexadecimal(key(number)) }

  func id(_ number: Int) -> RecordID { RecordID(name(number)) }

  func type(_ number: Int) -> String { number % 4 == 3 ? Self.otherType : Self.type }

  /// A number of 63 bits, not negative.
  func rank(_ number: Int) -> Int64 { Int64(mixed(number, 0) >> 1) }

  /// - Parameter version: Another version of the record has another text.
  func text(_ number: Int, version: Int = 0) -> String {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(Self.textBytes)
    var part = UInt64(version) * 16 + 1
    while bytes.count < Self.textBytes {
      var word = mixed(number, part)
      part += 1
      // Ten characters of six bits each.
      for _ in 0..<min(10, Self.textBytes - bytes.count) {
        bytes.append(Self.alphabet[Int(word & 63)])
        word >>= 6
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  func record(_ number: Int, version: Int = 0) -> Record {
    Record(
      type: type(number), id: id(number),
      fields: [Self.rankField: .int64(rank(number)), Self.textField: .string(text(number, version: version))])
  }

  /// The same record for SQLite.
  func row(_ number: Int) -> SQLiteRecord {
    SQLiteRecord(id: name(number), type: type(number), rank: rank(number), body: Array(text(number).utf8))
  }

  /// The numbers below `count` in the order of the names.
  func sorted(_ count: Int) -> [Int] {
    let keys = (0..<count).map { (key: key($0), number: $0) }
    return keys.sorted { $0.key < $1.key }.map(\.number)
  }

  // MARK: Numbers

  private static let alphabet = Array("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz .".utf8)
  private static let digits = Array("0123456789abcdef".utf8)

  private func key(_ number: Int) -> UInt64 { Self.mix(UInt64(number) &+ Self.mix(seed)) }

  private func mixed(_ number: Int, _ part: UInt64) -> UInt64 { Self.mix(key(number) &+ part &* 0x9E37_79B9_7F4A_7C15) }

  /// The last step of splitmix64, which maps different numbers to different numbers.
  private static func mix(_ number: UInt64) -> UInt64 {
    var z = number
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  private static func hexadecimal(_ number: UInt64) -> String {
    let bytes = (0..<16).map { digits[Int(truncatingIfNeeded: number >> UInt64(60 - 4 * $0)) & 15] }
    return String(decoding: bytes, as: UTF8.self)
  }
}

/// The records of the corpus as values.
struct RankedNote: SyncRecord {
  static var recordType: String { BenchData.type }

  var id: String
  var rank: Int64
  var text: String
}

/// A typed value of ten fields, for the rows that encode and decode.
struct BenchNote: SyncRecord {
  static var recordType: String { "BenchNote" }

  var id: String
  var title: String
  var body: String
  var author: String
  var made: Int64
  var changed: Int64
  var stars: Int
  var share: Double
  var isDone: Bool
  var tags: [String]
  var link: String?

  init(_ number: Int, _ data: BenchData) {
    let text = data.text(number)
    id = data.name(number)
    title = String(text.prefix(20))
    body = text
    author = String(text.suffix(12))
    made = data.rank(number)
    changed = data.rank(number) / 2
    stars = number % 5
    share = Double(number) / 7
    isDone = number % 2 == 0
    tags = [String(text.prefix(4)), String(text.suffix(4))]
    link = number % 3 == 0 ? nil : "https://example.org/" + data.name(number)
  }
}
