// Names that a person takes for one, and a server for two. They are here because stores, servers and transports each have tests of them.

/// Two names that Swift's `==` of texts does not tell apart.
package struct NamePair: Sendable, CustomStringConvertible {
  package let one: String
  package let other: String
  package var description: String { one.unicodeScalars.map { String($0.value, radix: 16) }.joined(separator: " ") }

  package static let all = [
    NamePair(one: "caf\u{E9}", other: "cafe\u{301}"),
    NamePair(one: "K", other: "\u{212A}"),
    NamePair(one: "\u{C5}", other: "\u{212B}"),
  ]
}
