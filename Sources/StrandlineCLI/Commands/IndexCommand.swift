// `index`: lists, adds and drops the indexes of a store. An index that is added is built before the command ends.

import Strandline
import StrandlineCloudKit
import StrandlineHost

extension Command {
  static let index = Command(
    "index", "List, add or drop indexes, or make them again.",
    operands: ["STORE", "list|add|drop|rebuild", "TYPE", "FIELD"], operandsMin: 1,
    details: [
      "An index makes queries faster and changes no answer; query --explain says which one would help.",
      "FIELD is a field's name; FIELD:desc is for queries that sort by it in the reverse order. Without FIELD the index has",
      "all records of the type. add returns when the index is built. Lines of list are an index and ready or building.",
      "An app that declares its indexes when it opens the store drops others.",
      "rebuild makes all sorted tables of the store from its log, where verify says that they disagree with it.",
    ],
    options: [.json],
    examples: [
      Example("What there is", "strandline index STORE list"),
      Example("Makes queries by title fast", "strandline index STORE add Note title"),
      Example("The newest first", "strandline index STORE add Note made:desc"),
      Example("Gives its space back", "strandline index STORE drop Note title"),
      Example("After verify has found a table that is wrong", "strandline index STORE rebuild"),
    ],
    run: { arguments, console in
      let path = arguments.operands[0]
      let verb = arguments.operands.count > 1 ? arguments.operands[1] : "list"
      switch verb {
      case "list":
        guard arguments.operands.count <= 2 else { throw UsageError(message: "index list takes no type") }
        for status in try readOnly(path, console).indexes() {
          try console.print(
            arguments.has("--json") ? String(decoding: status.json.canonicalBytes, as: UTF8.self) : status.line)
        }
        return .done
      case "add", "drop":
        let index = try index(arguments)
        return try withStore(path, console, create: false) { store in
          if verb == "drop" {
            guard try store.indexes().contains(where: { $0.index == index }) else {
              throw Failure(
                .noSuchStore, "there is no index \(printable(index.description)) to drop; nothing has changed",
                try: "strandline index \(ShellWord.quote(path)) list")
            }
            try store.dropIndex(index)
          } else {
            try store.addIndex(index)
            try store.buildIndexesBlocking()
            let fields = index.fields.map(\.field)
            for sentence in try store.view().misspelt(type: index.recordType, fields: fields, in: nil) {
              console.say("note: \(printable(sentence)); the index is there all the same")
            }
          }
          return .done
        }
      case "rebuild":
        guard arguments.operands.count <= 2 else { throw UsageError(message: "index rebuild takes no type") }
        try RecordStore.makeTablesAnew(at: path, environment: StoreEnvironment(console.environment))
        return .done
      default:
        throw UsageError(
          message: "index takes list, add, drop or rebuild, not '\(verb.prefix(80))'"
            + Suggestion.sentence(verb, among: ["list", "add", "drop", "rebuild"]))
      }
    })

  private static func index(_ arguments: Arguments) throws(UsageError) -> RecordIndex {
    guard arguments.operands.count > 2 else { throw UsageError(message: "index \(arguments.operands[1]) needs TYPE") }
    let type = arguments.operands[2]
    guard arguments.operands.count > 3 else { return RecordIndex(type) }
    let sort = try order(arguments.operands[3])
    return RecordIndex(type, sort.field, ascending: sort.ascending)
  }
}

extension RecordIndexStatus {
  fileprivate var line: String {
    let field = index.fields.first.map { " \($0.field)\($0.ascending ? "" : ":desc")" } ?? ""
    return "\(printable(index.recordType))\(printable(field)) \(isReady ? "ready" : "building")"
  }

  fileprivate var json: JSONValue {
    .object([
      "type": .string(index.recordType), "field": index.fields.first.map { .string($0.field) } ?? .null,
      "ascending": .bool(index.fields.first?.ascending ?? true), "ready": .bool(isReady),
    ])
  }
}
