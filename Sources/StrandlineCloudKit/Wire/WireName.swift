// The names of types and fields that a server shows. CloudKit's are ASCII, and so are all that this store writes; a foreign
// server may show others. Swift would take two of them for one where Unicode calls them equivalent, and even one of them for
// an ASCII name (K and the sign of the unit kelvin). So no such name comes into the model: it stands there in ASCII, with
// each byte that is not as % and two hexadecimal digits, as in an address, and goes back as it came. No app can write one: CloudKit's
// names have no %.

private import StrandlineSystem

/// Types and fields between the wire and the model.
package enum WireName {
  private static let percent = UInt8(ascii: "%")
  private static let kept = ASCIISet(0x00...0x24, 0x26...0x7F)

  /// The model's name for one of the wire.
  package static func model(_ name: String) -> String {
    if name.consists(of: kept) { return name }
    let digits = Array("0123456789ABCDEF".utf8)
    var bytes: [UInt8] = []
    for byte in name.utf8 {
      if kept.contains(byte) {
        bytes.append(byte)
      } else {
        bytes += [percent, digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// The wire's name for one of the model; one that `model` cannot have made stays.
  package static func wire(_ name: String) -> String {
    if name.consists(of: kept) { return name }
    var bytes: [UInt8] = []
    var rest = Array(name.utf8)[...]
    while let byte = rest.popFirst() {
      guard byte == percent else {
        bytes.append(byte)
        continue
      }
      guard rest.count >= 2, let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) else {
        return name
      }
      bytes.append(value)
      rest = rest.dropFirst(2)
    }
    guard let wire = String(validating: bytes, as: UTF8.self), model(wire).equalsUTF8(name) else { return name }
    return wire
  }
}
