// The help screens: the list of verbs, the options of one verb, the exit codes. All are made from the declarations of
// the commands and of the exit codes.

/// Help screens, as lines.
enum Help {
  private static let column = 26
  private static let width = 100

  /// The list of verbs.
  static var overview: [String] {
    var lines = [
      "OVERVIEW: An event-sourced sync engine for records: local store, CloudKit client and server, crash tests.", "",
      "USAGE: strandline VERB [options] STORE …", "", "VERBS:",
    ]
    for command in Command.all { lines += entry(command.name, command.summary) }
    lines += entry("help [VERB]", "Show this screen, or the help of a verb.")
    lines += entry("help exit-codes", "Show the exit codes and their meanings.")
    lines += entry("--version", "Show the version.")
    lines += ["", "EXAMPLES:"]
    lines += examples([
      Example("Two devices, a server, a crash and a conflict, in under a minute", "strandline demo"),
      Example("The contents of a store and its events", "strandline status STORE && strandline log-dump STORE"),
    ])
    return lines
  }

  /// The help screen of one verb.
  static func screen(_ command: Command) -> [String] {
    var lines = ["OVERVIEW: \(command.summary)", ""]
    if !command.details.isEmpty { lines += command.details + [""] }
    lines.append("USAGE: \(usage(command))")
    lines += ["", "OPTIONS:"]
    for option in command.options + [Option.help] {
      let short = option.short.map { "\($0), " } ?? ""
      lines += entry(short + option.name + (option.value.map { " \($0)" } ?? ""), option.help)
    }
    lines += ["", "EXAMPLES:"]
    lines += examples(command.examples)
    return lines
  }

  /// The usage line.
  static func usage(_ command: Command) -> String {
    (["strandline", command.name] + (command.options.isEmpty ? [] : ["[options]"]) + command.operands)
      .joined(separator: " ")
  }

  /// The table of exit codes.
  static var exitCodes: [String] {
    ["EXIT CODES:"] + ExitCode.allCases.flatMap { entry(String($0.rawValue), $0.meaning) }
  }

  private static func examples(_ examples: [Example]) -> [String] {
    examples.flatMap { ["  # \($0.comment)", "  $ \($0.line)"] }
  }

  /// An entry of a list: the name in the left column, the text wrapped in the right one.
  private static func entry(_ name: String, _ text: String) -> [String] {
    var lines: [String] = []
    var line = "  " + name
    if line.count + 2 > column {
      lines.append(line)
      line = ""
    }
    line += String(repeating: " ", count: column - line.count)
    var isFirst = true
    for word in text.split(separator: " ") {
      if !isFirst, line.count + 1 + word.count > width {
        lines.append(line)
        line = String(repeating: " ", count: column)
        isFirst = true
      }
      line += (isFirst ? "" : " ") + word
      isFirst = false
    }
    return lines + [line]
  }
}
