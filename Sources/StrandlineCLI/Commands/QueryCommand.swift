// `query`: prints the records of a type that meet conditions, in an order, page by page. Takes no lock.

import Strandline
import StrandlineCloudKit
import StrandlineHost

extension Command {
  static let query = Command(
    "query", "Find records of a type.", operands: ["STORE", "TYPE"],
    details: [
      "A CONDITION is FIELD COMPARATOR VALUE, and all of them must hold. The comparators are = != < <= > >= and the words",
      "of CloudKit: BEGINS_WITH, IN, NOT_IN, LIST_CONTAINS, LIST_CONTAINS_ANY, LIST_CONTAINS_ALL, LIST_MEMBER_BEGINS_WITH,",
      "and NOT_ before each of them. VALUE is JSON as in a line of export, or else text; for a field that holds times also",
      "a date such as 2026-01-31 or 2026-01-31T18:00:00Z. parent is the name of the record that a record hangs below.",
      "Prints lines as export does. If more follow than --limit allows, standard error says how to go on; it names each",
      "record that may belong to the answer and is damaged, and the exit code is then 65.",
    ],
    options: [
      Option("--zone", "ZONE", "Only the records of this zone; the lines then do not name it."),
      Option("--where", "CONDITION", "Only records that meet it; may be given several times.", repeats: true),
      Option(
        "--sort", "FIELD", "Order by a field; FIELD:desc for the reverse; may be given several times.",
        repeats: true),
      Option("--limit", "N", "At most so many records."),
      Option("--after", "CURSOR", "Go on where an earlier query with the same words ended."),
      Option("--explain", "Print how the store would answer, and which index would help, instead of an answer."),
      Option("--count", "Print how many there are, and none of them."),
      Option("--json", "End with a line that says where to go on, and which records are damaged."),
    ],
    examples: [
      Example("Equality", "strandline query STORE Note --where 'title = Low tide'"),
      Example("The ten newest", "strandline query STORE Note --sort made:desc --limit 10"),
      Example("Which index would help", "strandline query STORE Note --sort made:desc --limit 10 --explain"),
      Example("Range and list", "strandline query STORE Note --where 'size >= 10' --where 'tags LIST_CONTAINS sea'"),
    ],
    run: { arguments, console in
      var query = RecordQuery(arguments.operands[1], in: try arguments.zone())
      query.filters = try arguments.all("--where").map(condition)
      query.sorts = try arguments.all("--sort").map(order)
      query.limit = try arguments.number("--limit", in: 1...Int.max)
      let cursor = try arguments["--after"].map { text throws(UsageError) in
        do { return try QueryCursor(text: text) } catch {
          throw UsageError(
            message: "'\(text.prefix(80))' after --after is not a cursor; copy it whole, or leave it out")
        }
      }
      let view = try readOnly(arguments.operands[0], console).view()
      query.filters = try view.parented(view.dated(query.filters, of: query), of: query)
      if arguments.has("--explain") {
        try console.print(printable(view.explain(query).description))
        return .done
      }
      if arguments.has("--count") {
        let count = try view.count(query)
        if count == 0 { try view.noteMisspelt(query, console) }
        try console.print(String(count))
        return .done
      }
      let page = try view.query(query, after: cursor)
      for record in page.records { try console.write(record.line(zone: query.zone == nil) + [UInt8(ascii: "\n")]) }
      if page.records.isEmpty, cursor == nil { try view.noteMisspelt(query, console) }
      if let next = page.cursor { console.say("note: more follow; go on with --after \(next.text)") }
      if arguments.has(Option.json.name) {
        try console.write(page.json.canonicalBytes + [UInt8(ascii: "\n")])
      }
      for record in page.unreadable.dropLast() { console.say("error: \(printable(record.error.message))") }
      if let last = page.unreadable.last { throw last.error }
      return .done
    })

  private static let signs: [String: RecordFilter.Comparator] = [
    "=": .equals, "!=": .notEquals, "<": .lessThan, "<=": .lessThanOrEquals, ">": .greaterThan,
    ">=": .greaterThanOrEquals,
  ]

  /// A condition of `--where`.
  static func condition(_ text: String) throws(UsageError) -> RecordFilter {
    let words = text.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: true)
    guard words.count >= 2 else {
      throw UsageError(message: "'\(text.prefix(80))' is no condition; write --where 'FIELD COMPARATOR VALUE'")
    }
    let word = String(words[1])
    guard let comparator = signs[word] ?? RecordFilter.Comparator(rawValue: word.uppercased()) else {
      let known = signs.keys.sorted() + RecordFilter.Comparator.allCases.map(\.rawValue)
      throw UsageError(message: "unknown comparator '\(word.prefix(80))'" + Suggestion.sentence(word, among: known))
    }
    let value = value(words.count == 3 ? String(words[2]) : "")
    if comparator.takesList {
      guard case .list(_, let items) = value else {
        throw UsageError(message: "\(comparator.rawValue) takes a list in JSON, such as [\"a\", \"b\"]")
      }
      return RecordFilter(String(words[0]), comparator, anyOf: items)
    }
    let filter = RecordFilter(String(words[0]), comparator, value)
    if let defect = filter.defect { throw UsageError(message: "the condition '\(text.prefix(80))': \(defect)") }
    return filter
  }

  /// JSON, or text as it stands.
  private static func value(_ text: String) -> FieldValue {
    do {
      if let value = try LineValue.decode(text) { return value }
    } catch {
      // Text without quotes is no JSON, and is meant as it stands.
    }
    return .string(text)
  }

  static func order(_ text: String) throws(UsageError) -> RecordSort {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count <= 2, let field = parts.first, !field.isEmpty,
      parts.count == 1 || ["asc", "desc"].contains(parts[1])
    else {
      throw UsageError(message: "a field's order is FIELD, FIELD:asc or FIELD:desc, not '\(text.prefix(80))'")
    }
    return RecordSort(String(field), ascending: parts.count == 1 || parts[1] == "asc")
  }
}

extension QueryPage {
  /// The line that `query --json` ends with.
  fileprivate var json: JSONValue {
    .object([
      "cursor": cursor.map { .string($0.text) } ?? .null,
      "unreadable": .array(
        unreadable.map { record in
          .object([
            "zoneName": .string(record.id.zone.name), "recordName": .string(record.id.name),
            "message": .string(record.error.message),
          ])
        }),
    ])
  }
}

extension StoreView {
  /// Says what the words of a question without an answer may have misspelt.
  fileprivate func noteMisspelt(_ query: RecordQuery, _ console: Console) throws {
    let fields = query.filters.map(\.field) + query.sorts.map(\.field)
    let named = fields.filter { $0 != Version.parentField }
    for sentence in try misspelt(type: query.recordType, fields: named, in: query.zone) {
      console.say("note: \(printable(sentence))")
    }
  }

  /// Conditions on the parent, where no field has that name: its name is a text, and the record has a reference.
  fileprivate func parented(_ filters: [RecordFilter], of query: RecordQuery) throws -> [RecordFilter] {
    guard filters.contains(where: { $0.field == Self.parentWord }),
      try fieldKinds(ofType: query.recordType, in: query.zone)[Self.parentWord] == nil
    else { return filters }
    return filters.map { filter in
      guard filter.field == Self.parentWord else { return filter }
      var filter = filter
      filter.field = Version.parentField
      filter.values = filter.values.map { value in
        if case .string(let name) = value { .reference(Reference(name)) } else { value }
      }
      return filter
    }
  }

  private static var parentWord: String { "parent" }

  /// Conditions that compare a field that holds times with a date: the time of the date.
  fileprivate func dated(_ filters: [RecordFilter], of query: RecordQuery) throws -> [RecordFilter] {
    func isDate(_ filter: RecordFilter) -> Bool {
      filter.values.contains { if case .string(let text) = $0 { ISODate.milliseconds(text) != nil } else { false } }
    }
    guard filters.contains(where: isDate) else { return filters }
    let kinds = try fieldKinds(ofType: query.recordType, in: query.zone)
    return filters.map { filter in
      guard kinds[filter.field]?.contains(FieldValue.date(milliseconds: 0).typeName) == true else { return filter }
      var filter = filter
      filter.values = filter.values.map { value in
        guard case .string(let text) = value, let time = ISODate.milliseconds(text) else { return value }
        return .date(milliseconds: time)
      }
      return filter
    }
  }
}
