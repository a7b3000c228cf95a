// The JSON that golden dumps are written in: keys sorted, no spaces, and numbers that never pass through a double, so
// that another language's writer can give the same bytes.

/// A JSON value.
indirect enum JSON {
  case null
  case bool(Bool)
  case int(Int64)
  case uint(UInt64)
  case text(String)
  case list([JSON])
  case object([String: JSON])

  static func optional(_ text: String?) -> JSON { text.map { .text($0) } ?? .null }
  static func count(_ number: Int) -> JSON { .int(Int64(number)) }
  static func hexed(_ bytes: some Sequence<UInt8>) -> JSON { .text(hex(bytes)) }
  /// The 64 bits of a double: exact, and the same in every language.
  static func bits(_ number: Double) -> JSON {
    let digits = String(number.bitPattern, radix: 16)
    return .text(String(repeating: "0", count: 16 - digits.count) + digits)
  }

  /// The one way to write it.
  var line: String {
    switch self {
    case .null: "null"
    case .bool(let value): value ? "true" : "false"
    case .int(let number): String(number)
    case .uint(let number): String(number)
    case .text(let text): JSON.quoted(text)
    case .list(let items): "[" + items.map(\.line).joined(separator: ",") + "]"
    case .object(let members):
      "{"
        + members.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }
        .map { JSON.quoted($0.key) + ":" + $0.value.line }.joined(separator: ",") + "}"
    }
  }

  private static func quoted(_ text: String) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"": result += "\\\""
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      case "\r": result += "\\r"
      case "\t": result += "\\t"
      case "\u{8}": result += "\\b"
      case "\u{C}": result += "\\f"
      case _ where scalar.value < 0x20: result += "\\u00" + hex([UInt8(scalar.value)])
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result + "\""
  }
}
