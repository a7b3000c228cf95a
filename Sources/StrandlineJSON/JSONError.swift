// What is wrong with a text of JSON, and where, in words for the person who wrote it or who must find its sender.

/// A text that is no JSON, or JSON that is not what was asked for.
package struct JSONError: Error, Hashable, Sendable, CustomStringConvertible {
  /// What kind of fault it is, for a caller that goes on after some.
  package enum Kind: Hashable, Sendable {
    /// The brackets, commas, colons, quotes and words are not those of JSON: no value behind this place can be found.
    case structure
    /// A string that is no text: bytes that are not UTF-8, a control character, a bad escape, half a surrogate pair.
    case text
    /// A number that JSON does not have.
    case number
    /// A key that an object has twice.
    case repeatedKey
    /// More bytes or deeper nesting than the caller allows.
    case limit
    /// JSON, but not the value that was asked for: of another type, or beyond the range of the type.
    case value
  }

  package var kind: Kind
  /// How many bytes of the text precede the place.
  package var offset: Int
  /// The line, from 1. Lines end with a line feed.
  package var line: Int
  /// The column in that line, from 1, counted in characters of Unicode.
  package var column: Int
  /// What was expected and what was found.
  package var message: String
  /// The keys and places that lead to the value, such as `fields.tags.value[3]`; empty if the caller does not name them.
  package private(set) var path = ""

  package init(kind: Kind, offset: Int, line: Int, column: Int, message: String) {
    self.kind = kind
    self.offset = offset
    self.line = line
    self.column = column
    self.message = message
  }

  /// The error in the value of a key of an object.
  package func inside(_ key: String) -> JSONError {
    var error = self
    error.path = key + (path.isEmpty || path.hasPrefix("[") ? "" : ".") + path
    return error
  }

  /// The error in an item of a list.
  package func inside(item place: Int) -> JSONError { inside("[\(place)]") }

  /// What is wrong, with its path.
  package var words: String { path.isEmpty ? message : "\(path.prefix(200)): \(message)" }

  /// Where and what.
  package var description: String { "line \(line), column \(column): \(words)" }
}
