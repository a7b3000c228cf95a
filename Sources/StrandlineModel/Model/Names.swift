// Which names, types and sizes CloudKit takes. Checked where a record enters by the app's hand: what the server
// sent stays editable, whatever it is called.
//
// Source: CloudKit Web Services Reference (names of at most 255 characters) and the schema language (types and
// fields begin with a letter). "_" at the start of a record name is reserved for the system by convention.

import StrandlineSystem

/// The limits, and the checks.
package enum Names {
  package static let nameCharactersMax = 255
  /// The content of an asset, as CloudKit's web services take it (50 MB by their table of properties; the page on uploads says 15).
  package static let assetBytesMax: Int64 = 50_000_000
  /// A record without its assets, as CloudKit counts (1 MB); ours counts the bytes of names, values and stamps.
  package static let recordBytesMax = 1_000_000
  package static let fieldsMax = 256
  /// The operations of one request.
  package static let operationsMax = 200
  /// The one field that travels with a record for the engine's own use.
  package static let stampField = "strandlineStamp"
  /// CloudKit's default zone.
  package static let defaultZone = "_defaultZone"

  /// What is wrong with a record name, if anything.
  package static func defect(recordName name: String) -> String? {
    if let defect = lengthAndASCII(name) { return defect }
    if name.utf8.first == UInt8(ascii: "_") { return "it begins with '_', which CloudKit reserves for the system" }
    return nil
  }

  /// What is wrong with a zone name, if anything.
  package static func defect(zoneName name: String) -> String? {
    if name == defaultZone {
      return "CloudKit's default zone has no change feed and cannot be synced; use a zone of your own, such as 'Main'"
    }
    if let defect = lengthAndASCII(name) { return defect }
    if name.utf8.first == UInt8(ascii: "_") { return "it begins with '_', which CloudKit reserves for the system" }
    return nil
  }

  /// What is wrong with a record type's or a field's name, if anything.
  package static func defect(schemaName name: String) -> String? {
    guard let first = name.utf8.first else { return "it is empty" }
    guard name.utf8.count <= nameCharactersMax else {
      return "it has \(name.utf8.count) characters; CloudKit takes at most \(nameCharactersMax)"
    }
    guard isLetter(first) else { return "it must begin with an ASCII letter" }
    guard name.consists(of: schemaCharacters) else {
      return "it may hold ASCII letters, digits and '_' only"
    }
    return nil
  }

  /// What is wrong with the type of a new record, if anything.
  package static func defect(newType name: String) -> String? {
    // CloudKit has records of its users under the first; those who tried say that it refuses the second too.
    name == "Users" || name == "User" ? kept : defect(schemaName: name)
  }

  /// What is wrong with the name of a field that an app writes, if anything.
  package static func defect(newField name: String) -> String? { isKept(field: name) ? kept : defect(schemaName: name) }

  private static let kept = "CloudKit keeps this name for itself; choose another one"

  /// Whether CloudKit refuses a field of this name, by those who tried. By length, because each field of a save is asked about.
  private static func isKept(field name: String) -> Bool {
    switch name.utf8.count {
    case 4: name == "etag"
    case 8: name == "recordID"
    case 10: name == "recordType"
    case 12: name == "creationDate"
    case 15: name == "recordChangeTag"
    case 16: name == "modificationDate" || name == "modifiedByDevice"
    case 19: name == "creatorUserRecordID"
    case 24: name == "lastModifiedUserRecordID"
    default: false
    }
  }

  private static func lengthAndASCII(_ name: String) -> String? {
    if name.isEmpty { return "it is empty" }
    // Printable ASCII: a control character would be taken by CloudKit and lost in every log and terminal.
    guard name.consists(of: printable) else {
      return "it holds a character that is not printable ASCII"
    }
    guard name.utf8.count <= nameCharactersMax else {
      return "it has \(name.utf8.count) characters; CloudKit takes at most \(nameCharactersMax)"
    }
    return nil
  }

  private static let schemaCharacters = ASCIISet(0x41...0x5A, 0x61...0x7A, 0x30...0x39, 0x5F...0x5F)
  private static let printable = ASCIISet(0x20...0x7E)

  private static func isLetter(_ byte: UInt8) -> Bool {
    (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
  }
}

/// Names for new records.
public enum RecordName {
  /// A unique name: a random UUID (version 4), in capitals as CloudKit prints them.
  public static func random() -> String {
    var generator = SystemRandomNumberGenerator()
    return random(high: generator.next(), low: generator.next())
  }

  package static func random(high: UInt64, low: UInt64) -> String {
    let high = (high & 0xFFFF_FFFF_FFFF_0FFF) | 0x4000
    let low = (low & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000
    let digits = Array("0123456789ABCDEF".utf8)
    var text: [UInt8] = []
    for (index, word) in [high, low].enumerated() {
      for nibble in 0..<16 {
        let place = index * 16 + nibble
        if place == 8 || place == 12 || place == 16 || place == 20 { text.append(UInt8(ascii: "-")) }
        text.append(digits[Int((word >> UInt64(60 - 4 * nibble)) & 0xF)])
      }
    }
    return String(decoding: text, as: UTF8.self)
  }
}
