// `restore`: brings deleted records back as they were.

import Strandline

extension Command {
  static let restore = Command(
    "restore", "Bring deleted records back as they were.", operands: ["STORE", "NAME…"], operandsMax: .some(nil),
    details: [
      "Creates them anew in one transaction, each with what its last version held, as far as the log still has it, and",
      "no matter on which device it was deleted. What was edited here and lost to another device's deletion is part of it.",
      "What the deletion of a record took along from below it, by a rule of the app's, is restored with it.",
      "If one of them lives, or the log has no version of it any more, none is restored.",
      "Prints nothing when they are restored; the next sync brings them to every device.",
    ],
    options: [.zone],
    examples: [Example("A note that another device deleted", "strandline restore STORE n1")],
    run: { arguments, console in
      let zone = try arguments.zone() ?? .main
      return try withStore(arguments.operands[0], console, create: false) { store in
        try store.restoreBlocking(arguments.operands.dropFirst().map { RecordID($0, zone: zone) })
        return .done
      }
    })
}
