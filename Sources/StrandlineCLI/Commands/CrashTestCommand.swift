// `crash-test`: placeholder for the list.
extension Command {
  static let crashTest = Command("crash-test", "Crash.", operands: [], examples: [], run: { _, _ in .done })
}
