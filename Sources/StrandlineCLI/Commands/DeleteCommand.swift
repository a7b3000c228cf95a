// `delete`: deletes records by name, all of them or none.

import Strandline

extension Command {
  static let delete = Command(
    "delete", "Delete records.", operands: ["STORE", "NAME…"], operandsMax: .some(nil),
    details: [
      "Deletes them in one transaction. If one of them does not exist, none is deleted.",
      "Prints nothing when they are deleted.",
    ],
    options: [.zone],
    examples: [Example("Two notes", "strandline delete STORE n1 n2")],
    run: { arguments, console in
      let path = arguments.operands[0]
      let zone = try arguments.zone() ?? .main
      let ids = arguments.operands.dropFirst().map { RecordID($0, zone: zone) }
      return try withStore(path, console, create: false) { store in
        try store.writeBlocking { transaction in
          var absent: [RecordID] = []
          for id in ids where try transaction.record(id) == nil { absent.append(id) }
          guard absent.isEmpty else {
            throw Failure(
              .noSuchStore,
              "nothing was deleted: '\(path)' has no record "
                + absent.map { "'\(printable($0.description))'" }.joined(separator: ", "))
          }
          for id in ids { try transaction.delete(id) }
        }
        return .done
      }
    })
}
