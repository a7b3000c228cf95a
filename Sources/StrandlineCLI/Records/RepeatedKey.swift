// A key that an object of JSON has twice: allowed by the letter, and one of the two values would be lost unasked.

import Foundation

enum RepeatedKey {
  /// The first key that stands twice in one object, at any depth; nil if there is none.
  ///
  /// The text has been decoded before: only its strings and brackets are looked at.
  static func first(in json: [UInt8]) -> String? {
    // The keys of each object that is open; nil for a list.
    var open: [Set<String>?] = []
    var at = 0
    while at < json.count {
      switch json[at] {
      case UInt8(ascii: "{"): open.append([])
      case UInt8(ascii: "["): open.append(nil)
      case UInt8(ascii: "}"), UInt8(ascii: "]"): _ = open.popLast()
      case UInt8(ascii: "\""):
        let end = endOfString(json, from: at)
        if let last = open.indices.last, open[last] != nil, isKey(json, after: end) {
          let key = text(json[at..<end])
          if open[last]?.insert(key).inserted == false { return key }
        }
        at = end
        continue
      default: break
      }
      at += 1
    }
    return nil
  }

  /// Where a string ends that begins at a quote: behind its other quote.
  private static func endOfString(_ json: [UInt8], from start: Int) -> Int {
    var at = start + 1
    while at < json.count, json[at] != UInt8(ascii: "\"") { at += json[at] == UInt8(ascii: "\\") ? 2 : 1 }
    return min(at + 1, json.count)
  }

  /// In an object a string is a key if a colon follows.
  private static func isKey(_ json: [UInt8], after end: Int) -> Bool {
    json[end...].first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) } == UInt8(ascii: ":")
  }

  /// A string's characters, its escapes resolved: two spellings are one key.
  private static func text(_ quoted: ArraySlice<UInt8>) -> String {
    let plain = String(decoding: quoted.dropFirst().dropLast(), as: UTF8.self)
    guard quoted.contains(UInt8(ascii: "\\")) else { return plain }
    return (try? JSONDecoder().decode(String.self, from: Data(quoted))) ?? plain
  }
}
