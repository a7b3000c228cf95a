// The arguments of the process, with those found that are not valid UTF-8.
//
// `CommandLine.arguments` replaces invalid UTF-8, so that two different paths could become the same one.

/// The arguments after the command's name.
package enum CommandWords {
  /// Returns the arguments in their order, with nil for each one that is not valid UTF-8.
  package static func given() -> [String?] {
    (0..<Int(CommandLine.argc)).dropFirst().map { index in
      guard let word = unsafe CommandLine.unsafeArgv[index] else { return nil }
      return unsafe String(validatingCString: word)
    }
  }
}
