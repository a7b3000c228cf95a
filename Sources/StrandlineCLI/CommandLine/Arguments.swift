// Parses a command line into options and operands. The parser knows no command: each command declares its options and
// operands (CommandLine/Command.swift), and both the parser and the help read this declaration.
//
// `--name VALUE` and `--name=VALUE`; `--` ends options; `-` is an operand; options and operands in any order.

import Strandline

/// A command line that the command does not accept.
package struct UsageError: Error, Equatable {
  package var message: String
}

/// The parsed arguments of a command.
package struct Arguments: Sendable {
  package private(set) var values: [String: [String]] = [:]
  package private(set) var flags: Set<String> = []
  package private(set) var operands: [String] = []

  /// Parses the words after the command's name.
  package init(_ words: [String], for command: Command) throws(UsageError) {
    let options = command.options + [Option.help]
    var rest = words[...]
    while let word = rest.popFirst() {
      if word == "--" {
        operands += rest
        break
      }
      guard word.hasPrefix("-"), word != "-" else {
        operands.append(word)
        continue
      }
      let equals = word.firstIndex(of: "=")
      let name = equals.map { String(word[..<$0]) } ?? word
      guard let option = options.first(where: { $0.name == name || $0.short == name }) else {
        throw UsageError(
          message: "unknown option '\(name)' for \(command.name)"
            + Suggestion.sentence(name, among: options.map(\.name)))
      }
      if option.value == nil {
        guard equals == nil else { throw UsageError(message: "\(option.name) takes no value") }
        guard flags.insert(option.name).inserted || option.name == Option.help.name else {
          throw UsageError(message: "\(option.name) is given twice")
        }
        continue
      }
      let value: String
      if let equals {
        value = String(word[word.index(after: equals)...])
      } else {
        guard let next = rest.popFirst() else {
          throw UsageError(message: "\(option.name) needs a value: \(option.name) \(option.value ?? "")")
        }
        value = next
      }
      if values[option.name] != nil, !option.repeats { throw UsageError(message: "\(option.name) is given twice") }
      if value.isEmpty, Self.paths.contains(option.value ?? "") {
        throw UsageError(message: "the path after \(option.name) is empty")
      }
      values[option.name, default: []].append(value)
    }
    if flags.contains(Option.help.name) { return }
    if operands.count < command.operandsMin {
      let missing = command.operands.dropFirst(operands.count).first ?? "operand"
      throw UsageError(message: "\(command.name) needs \(missing)")
    }
    if let most = command.operandsMax, operands.count > most {
      throw UsageError(message: "\(command.name) does not take '\(operands[most])'")
    }
    for (placeholder, operand) in zip(command.operands, operands)
    where operand.isEmpty && Self.paths.contains(placeholder) {
      throw UsageError(message: "the path \(placeholder) is empty")
    }
  }

  /// The placeholders of operands and values that are paths. An empty one, mostly a shell variable that is not set, would
  /// be reported by the system in words that name no path.
  private static let paths: Set<String> = [
    "STORE", "DIRECTORY", "FILE|-", "FILE|log|store|wire", "FILE", "FILE.svg", "DIR", "NEW",
  ]

  /// Whether a flag was given.
  package func has(_ name: String) -> Bool { flags.contains(name) }

  /// An option's value; nil if it was not given.
  package subscript(_ name: String) -> String? { values[name]?.first }

  /// All values of an option that may be given several times, in their order.
  func all(_ name: String) -> [String] { values[name] ?? [] }

  /// The zone of `--zone`; nil if it was not given.
  func zone() throws(UsageError) -> ZoneID? {
    guard let name = self[Option.zone.name] else { return nil }
    if let defect = Names.defect(zoneName: name) {
      throw UsageError(message: "--zone '\(name.prefix(80))' cannot be a zone's name here: \(defect)")
    }
    return ZoneID(name)
  }

  /// An option's value as a whole number in a range.
  func number<Value: FixedWidthInteger & LosslessStringConvertible>(
    _ name: String, in range: ClosedRange<Value>
  ) throws(UsageError) -> Value? {
    guard let text = self[name] else { return nil }
    guard let value = Value(text), range.contains(value) else {
      throw UsageError(
        message: "\(name) takes a whole number from \(range.lowerBound) to \(range.upperBound), not '\(text)'")
    }
    return value
  }
}

/// "Did you mean …?" for an unknown name.
package enum Suggestion {
  /// A sentence that suggests the name nearest to `word`, or an empty string if none is closer than an edit distance of
  /// four.
  package static func sentence(_ word: String, among names: [String]) -> String {
    let near = names.map { (name: $0, distance: distance(word, $0)) }.filter { $0.distance < 4 }
    // A short word has a small distance to every name, so at least half of its letters must be right.
    guard let best = near.min(by: { $0.distance < $1.distance }), best.distance * 2 <= max(word.count, 4) else {
      return ""
    }
    return "; did you mean '\(best.name)'?"
  }

  /// The Levenshtein distance.
  package static func distance(_ left: String, _ right: String) -> Int {
    let left = Array(left)
    let right = Array(right)
    var row = Array(0...right.count)
    for (i, a) in left.enumerated() {
      var diagonal = row[0]
      row[0] = i + 1
      for (j, b) in right.enumerated() {
        let above = row[j + 1]
        row[j + 1] = a == b ? diagonal : 1 + min(diagonal, above, row[j])
        diagonal = above
      }
    }
    return row[right.count]
  }
}
