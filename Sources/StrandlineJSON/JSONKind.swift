// The parts of a text that a reader names: the kind of a value, and a value that was passed over and is read later.

/// The kind of a JSON value.
package enum JSONKind: Sendable {
  case object
  case array
  case string
  case number
  case bool
  case null

  /// The kind for people.
  var words: String {
    switch self {
    case .object: "an object"
    case .array: "a list"
    case .string: "a string"
    case .number: "a number"
    case .bool: "true or false"
    case .null: "null"
    }
  }
}

/// A value that a reader has passed over and checked. It belongs to the bytes of that reader.
package struct JSONToken: Sendable {
  package let kind: JSONKind
  /// Where the value is in the reader's `bytes`, with its quotes or brackets.
  package let range: Range<Int>
  /// For a string: whether it has escapes.
  let hasEscapes: Bool

  /// For a string: where its characters are.
  var characters: Range<Int> { range.lowerBound + 1..<range.upperBound - 1 }
}

/// How much a reader takes.
package struct JSONLimits: Sendable {
  /// The longest text, in bytes.
  package var bytesMax: Int
  /// The most lists and objects in each other.
  package var depthMax: Int

  package init(bytesMax: Int, depthMax: Int) {
    precondition(depthMax > 0)
    // Places of keys are kept in 32 bits.
    self.bytesMax = min(bytesMax, Int(Int32.max))
    self.depthMax = depthMax
  }
}
