// Formats/index.md against the code: the rows of its tables are those that the descriptions give, each byte of a row is one
// that a table describes, and the decoder that was written from the page reads the golden index as the code does.

import Strandline
import StrandlineLog
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The page of the index` {
  /// Every row of the golden store's runs, with its table.
  private static func rows() throws -> [(heading: String, fields: [ListedField], bytes: [UInt8])] {
    let stage = Stage(seed: 11)
    let store = try IndexVector.store(stage)
    var result: [(heading: String, fields: [ListedField], bytes: [UInt8])] = []
    func add<Row: FieldDescribed>(_ heading: String, _ type: Row.Type, _ value: RunValue) throws {
      let row = try Row(row: value.bytes, value.range)
      #expect(row.row == Array(value.bytes[value.range]), "\(heading)")
      result.append((heading, row.listedFields, row.row))
    }
    for run in store.projections.withLock({ $0.runs?.runs ?? [] }) {
      var cursor = try run.cursor()
      while try cursor.advance() {
        guard let value = cursor.value else { continue }
        switch RunTable(rawValue: cursor.key[0]) {
        case .state: try add("state", StoredState.self, value)
        case .records: try add("recordEntry", RecordEntry.self, value)
        case .deletions: try add("deletionEntry", DeletionEntry.self, value)
        default: Issue.record("a key of no table")
        }
      }
    }
    try store.closeBlocking()
    return result
  }

  /// The tables of bytes of a page, by their headings; those of kinds also by the kind's name alone.
  private static func tables(_ page: Page) -> [String: [[String]]] {
    var result: [String: [[String]]] = [:]
    for table in page.tables where table.columns.prefix(2) == ["type", "name"] {
      let rows = table.rows.map { Array($0.prefix(2)) }
      result[table.heading] = rows
      let words = table.heading.split(separator: " ")
      if words.count == 2, Int(words[0]) != nil { result[String(words[1])] = rows }
    }
    return result
  }

  @Test func `has the rows that the descriptions give`() throws {
    var described: [String: [[String]]] = [:]
    func add(_ heading: String, _ fields: [ListedField]) {
      described[heading] = fields.map { [$0.type, $0.name] }
      for field in fields { add(field.content) }
    }
    func add(_ content: FieldContent) {
      switch content {
      case .list(let items): for item in items { add(item) }
      case .group(let table, let bytesMin, let members):
        if !["bound", "held", "blocked", "pace", "databaseTokenAdvanced"].contains(table) {
          #expect(bytesMin == members.reduce(0) { $0 + $1.bytesMin }, "\(table)")
        }
        add(table, members)
      default: break
      }
    }
    for row in try Self.rows() { add(row.heading, row.fields) }
    let (index, events) = (Self.tables(try Page("index.md")), Self.tables(try Page("events.md")))
    for (heading, rows) in described { #expect((index[heading] ?? events[heading]) == rows, "\(heading)") }
    for heading in index.keys { #expect(described[heading] != nil, "no code has a table '\(heading)'") }
    let tables = try Page("index.md").table(columns: "table", "row", "tombstone").column("table")
    #expect(tables == RunTable.allCases.filter { $0.rawValue < 3 }.map { "\($0.rawValue) \($0)" })
    let binding = try Page("index.md").table("What binds it to the log", "offset", "bytes", "name")
    #expect(try binding.column("bytes").map(number).reduce(0, +) == RunBinding.bytes)
  }

  @Test func `describes every byte of every row`() throws {
    // Kinds of events stand in the page of events under their numbers; sets of LSNs have no table.
    let names = ["bound": 2, "held": 13, "blocked": 12, "pace": 22, "databaseTokenAdvanced": 25]
    var text = try Repository.text("Formats/index.md")
    for (name, number) in names { text = text.replacing("| `\(name)*` |", with: "| `\(number) \(name)*` |") }
    text = text.replacing("| `lsnSet` |", with: "| `chunk*` |")
    let chunk = "### `chunk`\n\n| type | name |\n|---|---|\n| varint | step |\n| u64 | mask |\n| u64 | word |\n"
    let pages = [Page("index.md", text), Page("chunk", chunk), try Page("events.md")]
    var used: Set<String> = []
    for row in try Self.rows() {
      var walk = TableWalk(row.bytes, pages)
      do { try walk.walk(table: row.heading) } catch {
        Issue.record("\(row.heading) at \(walk.reader.offset): \(error)")
      }
      #expect(walk.isAtEnd, "\(row.heading) goes on behind what its table describes")
      used.formUnion(walk.used)
    }
    #expect(used.isSuperset(of: Self.tables(try Page("index.md")).keys))
  }
}

@Suite(.serialized, .timeLimit(.minutes(30)))
struct `The golden index` {
  private static let isWriting = ProcessEnvironment.value(of: "STRANDLINE_WRITE_VECTORS") == "1"

  @Test func `is what the code makes today, and what it understands`() throws {
    let files = try IndexVector.make()
    #expect(try IndexVector.make() == files, "made twice, and not the same")
    if Self.isWriting {
      for (name, bytes) in files { try Repository.write(bytes, "\(IndexVector.folder)/\(name)") }
      try Repository.write(Array(IndexVector.about.utf8), "\(IndexVector.folder)/about.txt")
    }
    let manifest = try Repository.bytes("\(IndexVector.folder)/\(LogFormat.manifestName)")
    let storeUUID = try Manifest.decode(manifest, file: "MANIFEST").storeUUID
    let lines = try IndexVector.dump(Repository.path(IndexVector.folder), storeUUID: storeUUID)
    let dump = lines.map(\.line).joined(separator: "\n") + "\n"
    if Self.isWriting { try Repository.write(Array(dump.utf8), "\(IndexVector.folder)/dump.jsonl") }
    for (name, bytes) in files { #expect(try Repository.bytes("\(IndexVector.folder)/\(name)") == bytes, "\(name)") }
    let names = Set(files.keys.map { String($0.split(separator: "/")[0]) }).union(["about.txt", "dump.jsonl"])
    #expect(try Repository.names(IndexVector.folder) == names.sorted())
    #expect(try Repository.text("\(IndexVector.folder)/about.txt") == IndexVector.about)
    #expect(try Repository.text("\(IndexVector.folder)/dump.jsonl") == dump)
  }

  @Test func `is printed by the decoder as the code understands it`() throws {
    let text = try Decoder.output("index.py", [Repository.path(IndexVector.folder)])
    #expect(text == (try Repository.text("\(IndexVector.folder)/dump.jsonl")))
  }

  @Test func `is believed by a reader`() throws {
    let store = try RecordStore.openReadOnly(at: Repository.path(IndexVector.folder))
    #expect(store.projections.withLock { $0.runs?.list.entries.count } == 2)
    #expect(store.projections.unstoredCount == 0)
    #expect(try store.record(RecordID("a"))?["title"] == "Third")
    #expect(try store.record(RecordID("b"))?["title"] == "Anew")
    #expect(try store.record(RecordID("c")) == nil)
    try store.closeBlocking()
  }
}
