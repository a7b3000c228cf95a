// What the model's values print: one line, for a log or a debugger. No line shows a credential.

extension String {
  /// A number of things: "1 record", "2 records".
  package static func count(_ number: some BinaryInteger, _ thing: String) -> String {
    "\(number) \(thing)\(number == 1 ? "" : "s")"
  }

  /// The text with its line breaks and other control characters as "\u{a}": texts of servers and apps may have any.
  package var oneLine: String {
    guard unicodeScalars.contains(where: Self.isControl) else { return self }
    return unicodeScalars.reduce(into: "") { text, scalar in
      if Self.isControl(scalar) {
        text += "\\u{\(String(scalar.value, radix: 16))}"
      } else {
        text.unicodeScalars.append(scalar)
      }
    }
  }

  private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control, .lineSeparator, .paragraphSeparator: true
    default: false
    }
  }
}

extension StrandlineError.Code: CustomStringConvertible {
  /// The code's name.
  public var description: String { rawValue }
}

extension ChangeToken: CustomStringConvertible {
  /// The server's text.
  public var description: String { rawValue.oneLine }
}

extension Record: CustomStringConvertible {
  /// Type, identity, and the number of fields; `fields` shows their values.
  public var description: String { "\(type) \(id), \(String.count(fields.count, "field"))".oneLine }
}

extension ServerTimestamp: CustomStringConvertible {
  /// When, and by whom.
  public var description: String {
    ("\(milliseconds) ms" + (user.isEmpty ? "" : " by \(user)") + (device.isEmpty ? "" : " on \(device)")).oneLine
  }
}

extension SystemFields: CustomStringConvertible {
  /// Tag and times.
  public var description: String {
    let parts = [
      changeTag.map { "tag '\($0)'" }, created.map { "created \($0)" }, modified.map { "modified \($0)" },
    ].compactMap { $0 }
    return parts.isEmpty ? "none" : parts.joined(separator: ", ").oneLine
  }
}

extension Reference: CustomStringConvertible {
  /// The target, its zone if it is named, and the action if there is one.
  public var description: String {
    ((zone.map { "\($0)/" } ?? "") + name + (action == .none ? "" : " (\(action))")).oneLine
  }
}

extension Location: CustomStringConvertible {
  /// Degrees north and degrees east.
  public var description: String { "\(latitude), \(longitude)" }
}

extension Asset: CustomStringConvertible {
  /// The size.
  public var description: String { "asset of \(String.count(size, "byte"))" }
}

extension Asset.ServerFile: CustomStringConvertible {
  /// Whether it was uploaded or can be fetched; receipts, keys and addresses are not printed.
  public var description: String {
    "file at the server" + (receipt == nil ? "" : ", uploaded") + (downloadURL == nil ? "" : ", to be fetched")
  }
}

extension ContentHash: CustomStringConvertible {
  /// The bytes in hexadecimal digits.
  public var description: String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}

extension OpaqueValue: CustomStringConvertible {
  /// The type, and the size of the value.
  public var description: String { "\(type), \(String.count(json.count, "byte")) of JSON".oneLine }
}
