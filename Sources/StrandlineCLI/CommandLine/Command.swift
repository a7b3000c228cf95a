// What a command is, and the list of them. The list exists once: the parser, the help and the documentation's tests
// read it here.

/// An option that a command takes.
package struct Option: Sendable {
  /// With its dashes.
  package var name: String
  /// What stands for its value in the help; nil for a flag.
  var value: String?
  var help: String
  var short: String?

  /// An option with a value.
  init(_ name: String, _ value: String, _ help: String) {
    self.name = name
    self.value = value
    self.help = help
  }

  /// A flag.
  init(_ name: String, short: String? = nil, _ help: String) {
    self.name = name
    self.short = short
    self.help = help
  }

  static let help = Option("--help", short: "-h", "Show this screen.")
  static let zone = Option("--zone", "ZONE", "The zone of records; Main if it is not said.")
  static let json = Option("--json", "One JSON object a line; keys in Formats/cli-json.md.")
}

/// A line to paste, and what it does.
package struct Example: Sendable {
  var comment: String
  var line: String

  init(_ comment: String, _ line: String) {
    self.comment = comment
    self.line = line
  }
}

/// A verb of the command line.
package struct Command: Sendable {
  package var name: String
  /// One line of the list.
  package var summary: String
  /// The operands as the usage line shows them, in order.
  var operands: [String]
  var operandsMin: Int
  /// nil for any number.
  var operandsMax: Int?
  /// What one has to know, in lines.
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
    demo, importing, export, get, put, delete, sync, status, logDump, verify, repair, compact, serve, bench, crashTest,
  ]

  package static func named(_ name: String) -> Command? { all.first { $0.name == name } }
}
