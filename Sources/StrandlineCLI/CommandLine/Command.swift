// The declaration of a command, and the list of all commands. The parser, the help and the documentation's tests read
// this one list.

/// An option that a command takes.
package struct Option: Sendable {
  /// The name with its dashes.
  package var name: String
  /// The placeholder of its value in the help; nil for a flag.
  var value: String?
  var help: String
  var short: String?
  /// Whether it may be given several times.
  var repeats = false

  /// An option with a value.
  init(_ name: String, _ value: String, _ help: String, repeats: Bool = false) {
    self.name = name
    self.value = value
    self.help = help
    self.repeats = repeats
  }

  /// A flag.
  init(_ name: String, short: String? = nil, _ help: String) {
    self.name = name
    self.short = short
    self.help = help
  }

  static let help = Option("--help", short: "-h", "Show this screen.")
  static let zone = Option("--zone", "ZONE", "The zone of the records; default: Main.")
  static let json = Option("--json", "Print one JSON object on each line; Formats/cli-json.md lists the keys.")
}

/// An example: a command line to copy, and what it does.
package struct Example: Sendable {
  var comment: String
  var line: String

  init(_ comment: String, _ line: String) {
    self.comment = comment
    self.line = line
  }
}

/// A verb of the command line tool.
package struct Command: Sendable {
  package var name: String
  /// The description in the list of verbs: one line.
  package var summary: String
  /// The operands in order, as the usage line shows them.
  var operands: [String]
  var operandsMin: Int
  /// nil for any number.
  var operandsMax: Int?
  /// The description on the verb's own help screen, as lines.
  var details: [String]
  package var options: [Option]
  package var examples: [Example]
  var run: @Sendable (Arguments, Console) async throws -> ExitCode

  init(
    _ name: String, _ summary: String, operands: [String], operandsMin: Int? = nil, operandsMax: Int?? = .none,
    details: [String] = [], options: [Option] = [], examples: [Example],
    run: @escaping @Sendable (Arguments, Console) async throws -> ExitCode
  ) {
    self.name = name
    self.summary = summary
    self.operands = operands
    self.operandsMin = operandsMin ?? operands.count
    self.operandsMax = operandsMax ?? operands.count
    self.details = details
    self.options = options
    self.examples = examples
    self.run = run
  }
}

extension Command {
  /// Every verb, in the order of the help.
  package static let all: [Command] = [
    demo, importing, export, open, get, query, types, index, history, why, watch, put, delete, restore, sync, status,
    pending,
    held,
    zones, logDump, verify, repair, compact, backup, serve, bench, crashTest, simulate,
  ]

  package static func named(_ name: String) -> Command? { all.first { $0.name == name } }
}
