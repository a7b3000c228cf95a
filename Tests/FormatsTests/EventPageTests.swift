// Formats/events.md, journal.md and stamp.md against the code.
//
// The rows of their tables (type and name, in order) must be those that the descriptions of events give. And the types
// must mean what the pages say: a walk over golden events, field by field as the tables say, by readers of its own for
// each type, must end exactly where the event ends.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSystem
import Testing

/// A reader of bytes that knows only the notation of the pages.
struct TableWalk {
  let pages: [Page]
  private(set) var reader: ByteReader
  /// Which tables were used.
  private(set) var used: Set<String> = []

  init(_ bytes: [UInt8], _ pages: [Page]) {
    self.pages = pages
    reader = ByteReader(bytes)
  }

  var isAtEnd: Bool { reader.isAtEnd }

  /// Walks over one value of a type as a page names it.
  mutating func walk(_ type: String) throws {
    if type.hasSuffix("?") {
      guard try flag() else { return }
      return try walk(String(type.dropLast()))
    }
    if type.hasSuffix("*") {
      for _ in 0..<(try reader.varint()) { try walk(String(type.dropLast())) }
      return
    }
    switch type {
    case "u8": _ = try reader.u8()
    case "u16": _ = try reader.u16()
    case "u32": _ = try reader.u32()
    case "u64", "f64": _ = try reader.u64()
    case "varint": _ = try reader.varint()
    case "zigzag": _ = try reader.zigzag()
    case "flag": _ = try flag()
    case "text": _ = try reader.string()
    case "bytes": _ = try reader.blob()
    case "raw16": _ = try reader.raw(16)
    case "raw32": _ = try reader.raw(32)
    case "rest": reader.skipToEnd()
    case "value": _ = try FieldCodec.decode(from: &reader)
    default: try walk(table: type)
    }
  }

  /// Walks over the parts that the table below a heading names.
  mutating func walk(table heading: String) throws {
    used.insert(heading)
    let table = pages.lazy.compactMap { page in
      page.tables.first { $0.heading == heading && $0.columns.prefix(2) == ["type", "name"] }
    }.first
    guard let table else { throw PageError("no page has a table of the bytes of '\(heading)'") }
    for type in try table.column("type") { try walk(type) }
  }

  private mutating func flag() throws -> Bool {
    switch try reader.u8() {
    case 0: return false
    case 1: return true
    case let other: throw PageError("a flag of \(other): the page places it wrongly")
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The pages of events` {
  private static func numbers<Kind: RawRepresentable & CaseIterable>(
    _ kinds: Kind.Type
  ) -> [String: Int] where Kind.RawValue: BinaryInteger {
    Dictionary(uniqueKeysWithValues: kinds.allCases.map { ("\($0)", Int($0.rawValue)) })
  }

  private func expect(_ table: Page.Table, _ column: String, _ expected: [String: Int]) throws {
    let found = Dictionary(
      try zip(table.column("name"), table.column(column).map(number)), uniquingKeysWith: { first, _ in first })
    #expect(found == expected, "\(table.heading)")
    #expect(table.rows.count == expected.count)
  }

  @Test func `number kinds, values and choices as the code does`() throws {
    let page = try Page("events.md")
    try expect(page.table("Payload header", "kind", "name"), "kind", Self.numbers(EventKind.self))
    try expect(page.table("Values", "tag", "name"), "tag", Self.numbers(ValueTag.self))
    try expect(page.table("Values", "kind", "items"), "kind", Self.numbers(FieldValue.ListKind.self))
    try expect(page.table("6 settled", "outcome"), "outcome", Self.numbers(Outcome.self))
    try expect(page.table("9 fetchedDelete", "reason"), "reason", Self.numbers(FetchedDelete.Reason.self))
    try expect(page.table("17 zoneChanged", "change"), "change", Self.numbers(ZoneChanged.Change.self))
    let journal = try Page("journal.md")
    try expect(journal.table(columns: "kind", "name"), "kind", Self.numbers(JournalEventKind.self))
    // Choices that a page lists in the words of one cell.
    func cell(_ heading: String, _ name: String) throws -> String {
      let table = try page.table(heading, "type", "name", "meaning")
      let row = try #require(table.rows.first { $0[1] == name })
      return row[2]
    }
    func words<Kind: RawRepresentable & CaseIterable>(_ kinds: Kind.Type) -> String where Kind.RawValue == UInt8 {
      kinds.allCases.map { "\($0.rawValue) \($0)" }.joined(separator: ", ")
    }
    try expect(page.table("17 zoneChanged", "reason"), "reason", Self.numbers(ZoneLoss.self))
    #expect(try cell("zone", "scope") == words(DatabaseScope.self))
    #expect(try cell("8 fetchedSave", "source") == words(FetchedSave.Source.self))
    #expect(try cell("12 blocked", "subject") == words(Blocked.Subject.self))
    #expect(try cell("12 blocked", "consequence") == words(Blocked.Consequence.self))
    #expect(try cell("13 held", "direction") == words(Held.Direction.self))
    let reference = try page.table("Values", "tag").rows[6]
    #expect(reference[2].contains("Actions: " + words(Reference.Action.self)))
    let list = try page.table("Payload header", "kind", "bit 0")
    for (name, bit) in zip(try list.column("name"), try list.column("bit 0")) {
      let kind = try #require(EventKind.allCases.first { $0.name == name })
      #expect(bit == (kind.isSkippable ? "1" : "0"), "\(name)")
    }
    #expect(PayloadHeader.bytes == 4)
    #expect((EventCodec.schema, EventCodec.payloadVersion) == (1, 1))
    #expect((JournalEvent.schema, JournalEvent.version) == (2, 1))
    #expect((StampCodec.version, Stamp.writersMax) == (1, 64))
  }

  // MARK: The tables and the descriptions

  /// Every table of bytes that follows from some fields: its heading, and its rows of type and name.
  private static func tables(_ heading: String, _ fields: [ListedField]) throws -> [String: [[String]]] {
    var result = [heading: fields.map { [$0.type, $0.name] }]
    func add(_ content: FieldContent) throws {
      switch content {
      case .list(let items): for item in items { try add(item) }
      case .group(let table, _, let members): try result.merge(tables(table, members)) { first, _ in first }
      case .version(let encoded): try result.merge(tables("content", encoded.listedFields())) { first, _ in first }
      default: break
      }
    }
    for field in fields { try add(field.content) }
    return result
  }

  private static func kindTables() throws -> [String: [[String]]] {
    var result: [String: [[String]]] = [:]
    for event in try EventSamples.all() {
      guard let payload = event.payload else { continue }
      let kind = type(of: payload).kind
      try result.merge(tables("\(kind.rawValue) \(kind.name)", payload.listedFields)) { first, _ in first }
    }
    let header = PayloadHeader(kind: 1, version: 1, flags: 0).listedFields
    return try result.merging(tables("Payload header", header)) { first, _ in first }
  }

  private func expect(_ page: Page, describes tables: [String: [[String]]]) {
    let found = Dictionary(
      page.tables.filter { $0.columns.prefix(2) == ["type", "name"] }
        .map { ($0.heading, $0.rows.map { Array($0.prefix(2)) }) },
      uniquingKeysWith: { first, _ in first })
    for (heading, rows) in tables { #expect(found[heading] == rows, "\(page.name): \(heading)") }
    for heading in found.keys { #expect(tables[heading] != nil, "\(page.name): no code has a table '\(heading)'") }
  }

  @Test func `have the rows that the descriptions of events give`() throws {
    let tables = try Self.kindTables()
    #expect(EventKind.allCases.allSatisfy { tables["\($0.rawValue) \($0.name)"] != nil })
    expect(try Page("events.md"), describes: tables)
  }

  @Test func `have the rows that the descriptions of the server's events give`() throws {
    var tables: [String: [[String]]] = [:]
    for event in JournalSamples.transactions(tenure: 5).joined() {
      try tables.merge(Self.tables("\(event.kind.rawValue) \(event.kind)", event.listedFields)) { first, _ in first }
    }
    #expect(tables.count >= JournalEventKind.allCases.count)
    // A token is no event; the walk below checks its table.
    let page = try Page("journal.md")
    tables["token"] = try page.table("token", "type", "name").rows.map { Array($0.prefix(2)) }
    let shared = try Self.kindTables()
    expect(page, describes: tables.filter { shared[$0.key] == nil || page.tables.map(\.heading).contains($0.key) })
  }

  @Test func `have the rows that the description of a stamp gives`() throws {
    let wire = try StampCodec.decode(StampCodec.encode(EventSamples.version(["title": "Hi"])))
    let shared = try Self.kindTables()
    let tables = try Self.tables("stamp", StampCodec.listedFields(wire))
    expect(try Page("stamp.md"), describes: tables.filter { shared[$0.key] == nil })
  }

  /// A list is refused when its items cannot fit, so no item may claim more bytes than its fields need.
  @Test func `say of no group that it needs more bytes than its fields`() throws {
    func check(_ content: FieldContent) {
      switch content {
      case .list(let items): for item in items { check(item) }
      case .group(let table, let bytesMin, let members):
        #expect(bytesMin == members.reduce(0) { $0 + $1.bytesMin }, "\(table)")
        for member in members { check(member.content) }
      default: break
      }
    }
    for event in try EventSamples.all() { for field in event.payload?.listedFields ?? [] { check(field.content) } }
    for event in JournalSamples.transactions(tenure: 5).joined() {
      for field in event.listedFields { check(field.content) }
    }
  }

  // MARK: The notation: what the types in the tables mean

  @Test func `describe every byte of every event of a store`() throws {
    let pages = [try Page("events.md")]
    var used: Set<String> = []
    var kinds: Set<EventKind> = []
    for event in try EventSamples.all() {
      guard let payload = event.payload else { continue }
      let kind = type(of: payload).kind
      kinds.insert(kind)
      var walk = TableWalk(EventCodec.encode(event), pages)
      try walk.walk(table: "Payload header")
      #expect(walk.reader.offset == PayloadHeader.bytes)
      do { try walk.walk(table: "\(kind.rawValue) \(kind.name)") } catch {
        Issue.record("\(kind.name) at \(walk.reader.offset): \(error)")
      }
      #expect(walk.isAtEnd, "\(kind.name) goes on behind what its table describes")
      used.formUnion(walk.used)
    }
    #expect(kinds.count == EventKind.allCases.count)
    // And no table of bytes on the page that no event has.
    let described = pages[0].tables.filter { $0.columns.prefix(2) == ["type", "name"] }.map(\.heading)
    #expect(Set(described).subtracting(used).isEmpty)
  }

  @Test func `describe every byte of every event of the server, and of its tokens`() throws {
    let pages = [try Page("journal.md"), try Page("events.md")]
    for event in JournalSamples.transactions(tenure: 5).joined() {
      var walk = TableWalk(event.encoded(), pages)
      try walk.walk(table: "Payload header")
      try walk.walk(table: "\(event.kind.rawValue) \(event.kind)")
      #expect(walk.isAtEnd, "\(event.kind) goes on behind what its table describes")
    }
    var token = TableWalk([UInt8](repeating: 1, count: 49), pages)
    try token.walk(table: "token")
    #expect(token.isAtEnd, "a token has 49 bytes")
  }

  @Test func `describe every byte of a stamp`() throws {
    let pages = [try Page("stamp.md"), try Page("events.md")]
    let version = EventSamples.version(["title": "Hi", "count": 7])
    var walk = TableWalk(StampCodec.encode(version), pages)
    try walk.walk(table: "stamp")
    #expect(walk.isAtEnd)
    var known = version
    known.stamp.unknown = []
    walk = TableWalk(StampCodec.encode(known), pages)
    try walk.walk(table: "stamp")
    #expect(walk.isAtEnd, "without unknown parts nothing is left for 'rest'")
  }

  /// A walk that cannot fail would prove nothing.
  @Test func `would be caught with a part missing or of another type`() throws {
    let text = try Repository.text("Formats/events.md")
    let event = EventCodec.encode(.discarded(Discarded(id: EventSamples.id, lsn: LSN(300))))
    func isCaught(_ text: String) throws -> Bool {
      var walk = TableWalk(event, [Page("planted", text)])
      try walk.walk(table: "Payload header")
      do { try walk.walk(table: "15 discarded") } catch { return true }
      return !walk.isAtEnd
    }
    #expect(try !isCaught(text))
    let row = "| `varint` | lsn | everything unsettled"
    #expect(text.contains(row))
    #expect(try isCaught(text.replacing(row, with: "| `u8` | lsn | everything unsettled")))
    #expect(try isCaught(text.replacing(row, with: "| `u64` | lsn | everything unsettled")))
    #expect(try isCaught(text.replacing("| `text` | name | the record's name |\n", with: "")))
  }

  @Test func `show the bytes of their examples`() throws {
    let golden = Repository.path("Formats/vectors/three-events")
    let reader = try LogReader.open(at: golden, environment: .real)
    try reader.poll { _ in }
    let body = try reader.read(2).body
    let rows = try Page("events.md").hexRows("event 2")
    #expect(rows.flatMap(\.bytes) == body)
    #expect(rows.map(\.offset) == rows.indices.map { rows[..<$0].reduce(0) { $0 + $1.bytes.count } })

    guard case .opened(let opened) = try EventCodec.decode(try reader.read(1).body),
      case .saved(let saved) = try EventCodec.decode(body)
    else { throw PageError("the example is another history") }
    var (version, _) = try saved.content.decoded(type: saved.type, births: saved.births, this: LSN(2))
    version.stamp.joinSeen([opened.writer: Seen(lsn: LSN(2), tenure: saved.tenure, time: saved.time)])
    #expect(try Page("stamp.md").hexRows("stamp").flatMap(\.bytes) == StampCodec.encode(version))
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The page of the wire` {
  @Test func `says what follows from each error as the code does`() throws {
    let table = try Page("remote.md").table(columns: "code", "of one item", "of a whole request")
    let codes = try table.column("code")
    for row in table.rows {
      let error = CloudError(CloudError.Code(rawValue: row[0]))
      #expect("\(error.meaning.item)" == row[1], "\(row[0])")
      #expect("\(error.meaning.request)" == row[2], "\(row[0])")
    }
    // Every code that the library names stands in the table.
    let source = try Repository.text("Sources/StrandlineModel/Remote/CloudError.swift")
    let named = source.split(separator: "Code(\"").dropFirst().compactMap { $0.split(separator: "\"").first }
    #expect(named.count >= 21)
    for code in named { #expect(codes.contains(String(code)), "remote.md does not say what follows from \(code)") }
    #expect(codes.last == "any other")
  }

  @Test func `gives each error of the CloudKit framework the code that the library gives it`() throws {
    let table = try Page("remote.md").table(columns: "CKError", "name", "code here")
    let known = CloudError.Code.byCKErrorCode
    try #require(table.rows.count == known.count)
    for (place, row) in table.rows.enumerated() {
      #expect(row[0] == "\(place + 1)" && row[1] == known[place].name && row[2] == known[place].code.rawValue, "\(row)")
      #expect(CloudError.Code(ckErrorCode: place + 1) == known[place].code)
    }
    for number in [Int.min, -1, 0, known.count + 1, .max] { #expect(CloudError.Code(ckErrorCode: number) == nil) }
    // What leaves open whether a request was applied, or may pass, is no record's fault.
    for name in ["serverResponseLost", "operationCancelled", "networkFailure", "partialFailure", "requestRateLimited"] {
      let code = try #require(known.first { $0.name == name }).code
      #expect(CloudError(code).meaning.item == .retry, "\(name)")
    }
    for name in ["notAuthenticated", "managedAccountRestricted", "accountTemporarilyUnavailable"] {
      let code = try #require(known.first { $0.name == name }).code
      #expect(CloudError(code).meaning.request == .signIn, "\(name)")
    }
  }
}
