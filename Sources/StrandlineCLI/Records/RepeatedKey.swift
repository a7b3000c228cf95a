// Finds a key that occurs twice in a JSON object. RFC 8259 allows it, but the decoder would silently drop one value.

import Foundation

enum RepeatedKey {
  /// Returns the first key that occurs twice in one object, at any depth, or nil.
  ///
  /// Requires JSON that the decoder has accepted: this only reads strings and brackets.
  static func first(in json: [UInt8]) -> String? {
    // The keys so far of each enclosing object; nil for a list.
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

  /// The index behind the closing quote of the string that begins at `start`.
  private static func endOfString(_ json: [UInt8], from start: Int) -> Int {
    var at = start + 1
    while at < json.count, json[at] != UInt8(ascii: "\"") { at += json[at] == UInt8(ascii: "\\") ? 2 : 1 }
    return min(at + 1, json.count)
  }

  /// Whether a colon follows: in an object, the string before `end` is then a key.
  private static func isKey(_ json: [UInt8], after end: Int) -> Bool {
    json[end...].first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) } == UInt8(ascii: ":")
  }

  /// The characters of a string with its escapes resolved, because two spellings may be the same key.
  private static func text(_ quoted: ArraySlice<UInt8>) -> String {
    let plain = String(decoding: quoted.dropFirst().dropLast(), as: UTF8.self)
    guard quoted.contains(UInt8(ascii: "\\")) else { return plain }
    return (try? JSONDecoder().decode(String.self, from: Data(quoted))) ?? plain
  }
}
