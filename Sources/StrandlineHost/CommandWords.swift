// The words of the command line, as they were given.
//
// The standard library mends what is not UTF-8, and a path that was mended is another path: two stores would become one.

/// The words behind the command's name.
package enum CommandWords {
  /// In their order; nil for one that is not UTF-8.
  package static func given() -> [String?] {
    (0..<Int(CommandLine.argc)).dropFirst().map { index in
      guard let word = unsafe CommandLine.unsafeArgv[index] else { return nil }
      return unsafe String(validatingCString: word)
    }
  }
}
