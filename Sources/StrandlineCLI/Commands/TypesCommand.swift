// `types`: lists the types of a store's records. And the notes by which `query` and `index` tell a misspelt type or field from
// one of which there is nothing.

import Strandline
import StrandlineHost

extension Command {
  static let types = Command(
    "types", "List the types of a store's records.", operands: ["STORE"],
    details: [
      "A line a type, in the order of their names: the type and how many of its records live. --fields adds a line for each",
      "field that one of the first thousand records of the type has, with the kinds of its values.",
    ],
    options: [
      .json, Option("--zone", "ZONE", "Only the records of this zone."),
      Option("--fields", "List the fields of each type too."),
    ],
    examples: [
      Example("What is in it", "strandline types STORE"),
      Example("With what fields", "strandline types STORE --fields"),
    ],
    run: { arguments, console in
      let view = try readOnly(arguments.operands[0], console).view()
      let zone = try arguments.zone()
      for (type, count) in try view.types(in: zone).sorted(by: { $0.key < $1.key }) {
        let fields =
          arguments.has("--fields") ? try view.fieldKinds(ofType: type, in: zone).sorted { $0.key < $1.key } : []
        if arguments.has("--json") {
          var object: [String: JSONValue] = ["type": .string(type), "records": .integer(Int64(count))]
          if arguments.has("--fields") {
            object["fields"] = .object(
              Dictionary(uniqueKeysWithValues: fields.map { ($0.key, .array($0.value.sorted().map { .string($0) })) }))
          }
          try console.write(JSONValue.object(object).canonicalBytes + [UInt8(ascii: "\n")])
          continue
        }
        try console.print("\(printable(type)) \(count)")
        for (field, kinds) in fields {
          try console.print("  \(printable(field)): \(printable(kinds.sorted().joined(separator: ", ")))")
        }
      }
      return .done
    })
}

extension StoreView {
  /// The kinds of the values that the fields of a type's first records have.
  func fieldKinds(ofType type: String, in zone: ZoneID?) throws -> [String: Set<String>] {
    try examples(ofType: type, in: zone).mapValues { Set($0.keys) }
  }

  /// The same, with a value of each kind.
  func examples(ofType type: String, in zone: ZoneID?) throws -> [String: [String: FieldValue]] {
    var examples: [String: [String: FieldValue]] = [:]
    let sample = try query(RecordQuery(type, in: zone, limit: 1_000))
    for record in sample.records {
      for (field, value) in record.fields { examples[field, default: [:]][value.typeName] = value }
    }
    return examples
  }

  /// What a question about a type and its fields may have misspelt: a type of which no record lives, a field that none of the
  /// first records has. A sentence each, without one if all is there.
  func misspelt(type: String, fields: [String], in zone: ZoneID?) throws -> [String] {
    let types = try types(in: zone)
    guard types[type] != nil else {
      if types.isEmpty { return ["no record lives here"] }
      let known = types.keys.sorted()
      let suggestion = Suggestion.sentence(type, among: known)
      return [
        "no record of type '\(type.prefix(80))' lives here" + (suggestion.isEmpty ? ": \(list(known))" : suggestion)
      ]
    }
    let known = try fieldKinds(ofType: type, in: zone)
    return fields.filter { known[$0] == nil }.map { field in
      let suggestion = Suggestion.sentence(field, among: known.keys.sorted())
      return "none of the first records of type '\(type)' has a field '\(field.prefix(80))'"
        + (suggestion.isEmpty ? ": \(list(known.keys.sorted()))" : suggestion)
    }
  }

  private func list(_ names: [String]) -> String {
    "there are " + names.prefix(20).map { "'\($0)'" }.joined(separator: ", ") + (names.count > 20 ? " and others" : "")
  }
}
