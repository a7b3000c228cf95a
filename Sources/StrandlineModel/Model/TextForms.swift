// The text of positions and identities: what an app keeps in a file, a link or a notification and reads back later. Each
// value has one text, and a text that was changed on its way is refused with the reason.

import StrandlineSystem

extension LSN: Codable {
  /// Reads the number in decimal, as `description` writes it.
  ///
  /// - Throws: `StrandlineError.invalidValue` for any other text.
  public init(text: String) throws {
    guard let number = UInt64(text), String(number) == text else {
      throw StrandlineError(notTheText: text, of: "an event's number", "it is a number in decimal")
    }
    self.init(rawValue: number)
  }
}

extension LogPosition: Codable, CustomStringConvertible {
  /// The tenure in 16 hexadecimal digits, a colon, and the LSN in decimal.
  public var description: String {
    let digits = String(tenure, radix: 16)
    return String(repeating: "0", count: 16 - digits.utf8.count) + digits + ":\(lsn)"
  }

  /// Reads a position as `description` writes it.
  ///
  /// ```swift
  /// let saved = receipt.position.description  // kept in a file, and read after a relaunch
  /// let receipt = try store.receipt(at: LogPosition(text: saved))
  /// ```
  ///
  /// - Throws: `StrandlineError.invalidValue` for any other text.
  public init(text: String) throws {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count == 2, let tenure = UInt64(parts[0], radix: 16), let lsn = UInt64(parts[1]) else {
      throw StrandlineError(notTheText: text, of: "a position", Self.form)
    }
    self.init(tenure: tenure, lsn: LSN(rawValue: lsn))
    guard description == text else {
      throw StrandlineError(notTheText: text, of: "a position", Self.form)
    }
  }

  private static var form: String { "it is 16 lower-case hexadecimal digits, a colon and a number in decimal" }

  /// Reads the text.
  public init(from decoder: any Decoder) throws { self = try decoder.text { try LogPosition(text: $0) } }
  /// Writes the text.
  public func encode(to encoder: any Encoder) throws { try encoder.encode(text: description) }
}

extension ZoneID: Codable {
  /// Reads a zone as `description` writes it.
  ///
  /// - Throws: `StrandlineError.invalidValue` for any other text.
  public init(text: String) throws {
    guard let parts = IdentityText.parts(text), let zone = Self(parts[...]), zone.description == text else {
      throw StrandlineError(
        notTheText: text, of: "a zone", "it is zone, scope/zone or scope/owner/zone; \(IdentityText.rule)")
    }
    self = zone
  }

  /// The zone of one, two or three parts; nil if there are more or fewer, or one is no scope or empty.
  fileprivate init?(_ parts: ArraySlice<String>) {
    guard let name = parts.last, !parts.contains("") else { return nil }
    self.init(name)
    guard let first = parts.first, parts.count > 1 else { return }
    guard parts.count <= 3, let scope = DatabaseScope.allCases.first(where: { "\($0)" == first }) else { return nil }
    self.scope = scope
    if parts.count == 3 { owner = parts[parts.startIndex + 1] }
  }

  /// Reads the text.
  public init(from decoder: any Decoder) throws { self = try decoder.text { try ZoneID(text: $0) } }
  /// Writes the text.
  public func encode(to encoder: any Encoder) throws { try encoder.encode(text: description) }
}

extension RecordID: Codable {
  /// Reads an identity as `description` writes it.
  ///
  /// ```swift
  /// let id = try RecordID(text: "Main/tide")
  /// ```
  ///
  /// - Throws: `StrandlineError.invalidValue` for any other text.
  public init(text: String) throws {
    guard let parts = IdentityText.parts(text), let name = parts.last, !name.isEmpty,
      let zone = ZoneID(parts.dropLast()), RecordID(name, zone: zone).description == text
    else {
      throw StrandlineError(
        notTheText: text, of: "a record's ID",
        "it is zone/name, scope/zone/name or scope/owner/zone/name; \(IdentityText.rule)")
    }
    self.init(name, zone: zone)
  }

  /// Reads the text.
  public init(from decoder: any Decoder) throws { self = try decoder.text { try RecordID(text: $0) } }
  /// Writes the text.
  public func encode(to encoder: any Encoder) throws { try encoder.encode(text: description) }
}

/// The text of zones and records: parts joined by slashes.
enum IdentityText {
  static let rule = "a slash, a percent sign and control characters in a part are % and two capital hexadecimal digits"

  /// A part of a text.
  static func escaped(_ part: String) -> String {
    guard part.utf8.contains(where: isEscaped) else { return part }
    let digits = Array("0123456789ABCDEF".utf8)
    var bytes: [UInt8] = []
    for byte in part.utf8 {
      if isEscaped(byte) {
        bytes += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func isEscaped(_ byte: UInt8) -> Bool {
    byte < 0x20 || byte == 0x7F || byte == UInt8(ascii: "/") || byte == UInt8(ascii: "%")
  }

  /// The parts of a text; nil if an escape in it is cut or is not hexadecimal, or gives bytes that are not UTF-8.
  static func parts(_ text: String) -> [String]? {
    var result: [String] = []
    for part in text.split(separator: "/", omittingEmptySubsequences: false) {
      var bytes: [UInt8] = []
      var rest = Array(part.utf8)[...]
      while let byte = rest.popFirst() {
        if byte != UInt8(ascii: "%") {
          bytes.append(byte)
          continue
        }
        guard rest.count >= 2, let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) else {
          return nil
        }
        bytes.append(value)
        rest = rest.dropFirst(2)
      }
      guard let part = String(validating: bytes, as: UTF8.self) else { return nil }
      result.append(part)
    }
    return result
  }
}

extension StrandlineError {
  fileprivate init(notTheText text: String, of what: String, _ form: String) {
    self.init(.invalidValue, "'\(text.prefix(80))' is not \(what): \(form)")
  }
}

extension Decoder {
  fileprivate func text<Value>(_ read: (String) throws -> Value) throws -> Value {
    let container = try singleValueContainer()
    let text = try container.decode(String.self)
    do { return try read(text) } catch let error as StrandlineError {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: error.message)
    }
  }
}

extension Encoder {
  fileprivate func encode(text: String) throws {
    var container = singleValueContainer()
    try container.encode(text)
  }
}
