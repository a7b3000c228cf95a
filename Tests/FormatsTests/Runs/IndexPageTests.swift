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
        case .records: try add("recordEntry", PlacedEntry.self, value)
        case .deletions: try add("deletionEntry", DeletionEntry.self, value)
        case .indexes: #expect(value.range.isEmpty)
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
        if !["bound", "held", "joined", "blocked", "pace", "databaseTokenAdvanced"].contains(table) {
          #expect(bytesMin == members.reduce(0) { $0 + $1.bytesMin }, "\(table)")
        }
        add(table, members)
      default: break
      }
    }
    for row in try Self.rows() { add(row.heading, row.fields) }
    let (index, events) = (Self.tables(try Page("index.md")), Self.tables(try Page("events.md")))
    for (heading, rows) in described { #expect((index[heading] ?? events[heading]) == rows, "\(heading)") }
    for heading in index.keys where !Self.ofDefinitions.contains(heading) {
      #expect(described[heading] != nil, "no code has a table '\(heading)'")
    }
    let tables = try Page("index.md").table(columns: "table", "row", "tombstone").column("table")
    #expect(tables == RunTable.allCases.map { "\($0.rawValue) \($0)" })
  }

  /// Tables of parts that no description gives: a file's, which a walk of its own checks.
  private static let ofDefinitions: Set<String> = ["declaredIndex", "declaredField"]

  @Test func `places the fields of the binding and of the file of indexes where the code does`() throws {
    let page = try Page("index.md")
    var binding = try page.table("What binds it to the log", "offset", "bytes", "name")
    let numbers = binding.rows.removeLast()
    #expect(numbers[0] == "\(RunBinding.fixedBytes)" && numbers[2] == "numbers")
    #expect(numbers[3].hasPrefix("a u32 and a u64 each"))
    #expect(RunBinding.numberBytes == 4 + 8)
    let bindingLayout = try FieldLayout(binding)
    let names = ["lsn", "chain", "nextIndexNumber"]
    #expect(bindingLayout.places.map(\.name) == names)
    #expect(try bindingLayout.range("nextIndexNumber") == RunBinding.bytes..<RunBinding.fixedBytes)
    let common = try FieldLayout(Page("runs.md").table("Header", "offset", "bytes", "name"))
    let header = try FieldLayout(page.table("INDEXES", "offset", "bytes", "name"), common: common)
    #expect(header.count == IndexDefinitions.headerBytes)

    // The bytes that the code writes, by the places of the page.
    let file = try #require(IndexVector.make()["\(StoreIndex.folderName)/\(IndexDefinitions.fileName)"])
    let storeUUID = Array(file[try header.range("storeUUID")])
    let definitions = try IndexDefinitions.decode(file, storeUUID: storeUUID, file: IndexDefinitions.fileName)
    #expect(definitions.encoded(storeUUID: storeUUID) == file)
    #expect(Array(file[try header.range("magic")]) == IndexDefinitions.magic)
    #expect(file.u32(at: try header.range("nextNumber").lowerBound) == definitions.nextNumber)
    #expect(file.u32(at: try header.range("indexCount").lowerBound) == UInt32(definitions.indexes.count))
    let bodyBytes = Int(file.u32(at: try header.range("bodyBytes").lowerBound))
    #expect(IndexDefinitions.headerBytes + bodyBytes + 4 == file.count)
    let crc = try header.range("crc")
    #expect(file.u32(at: crc.lowerBound) == CRC32C.checksum(file, 0..<crc.lowerBound))
    #expect(file.u32(at: file.count - 4) == CRC32C.checksum(file, 0..<file.count - 4))
    var walk = TableWalk(Array(file[header.count..<file.count - 4]), [page])
    for _ in definitions.indexes { try walk.walk(table: "declaredIndex") }
    #expect(walk.isAtEnd && walk.used == Self.ofDefinitions)
  }

  @Test func `says the tags and the constants of the rows of declared indexes`() throws {
    let page = try Page("index.md")
    let tags = try page.table("Encoded values", "tag", "name", "then")
    let expected = IndexValue.Tag.allCases
    #expect(try tags.column("tag").map(number) == expected.map { Int($0.rawValue) })
    #expect(try tags.column("name") == expected.map { "\($0)" })
    let bytes = try zip(expected, tags.column("then"))
    for (tag, words) in bytes {
      #expect(words.contains("escaped") == IndexValue.hasText(tag), "\(tag)")
      // What has a length of its own has it in its row.
      guard !IndexValue.hasText(tag), tag != .item else { continue }
      let key: [UInt8] = [tag.rawValue] + [UInt8](repeating: 1, count: 8)
      let end = IndexValue.end(key, from: 0, isInverted: false)
      #expect(end == (words.hasPrefix("8 bytes") ? 9 : words == "nothing" ? 1 : nil), "\(tag)")
    }
    let key = try page.table("Rows of declared indexes", "bytes", "name", "meaning")
    #expect(try key.column("name") == ["table", "number", "value", "record"])
    let prefix = StoredIndex(number: 0x0102_0304, index: IndexVector.dropped).prefix
    #expect(prefix == [RunTable.indexes.rawValue, 1, 2, 3, 4])
    #expect(try key.column("bytes").prefix(2).map(number).reduce(0, +) == prefix.count)
    let text = page.sentences
    let magic = IndexDefinitions.magic.map { hex([$0]).uppercased() }.joined(separator: " ")
    for words in [
      "the first \(IndexValue.textBytesMax) bytes at most", "behind them `00 0\(IndexValue.wholeEnd)` if those are all",
      "or `00 0\(IndexValue.cutEnd)` if more were cut off",
      "magic \(magic), headerLength \(IndexDefinitions.headerBytes)",
      "header is \(IndexDefinitions.headerBytes) bytes", "of more than \(IndexDefinitions.bytesMax) bytes",
      "write `\(IndexDefinitions.fileName).tmp`",
      "has \(RunBinding.bytes) bytes if the store never had a declared index, else \(RunBinding.fixedBytes) and "
        + "\(RunBinding.numberBytes) for each",
    ] { #expect(text.contains(words), "index.md does not say: \(words)") }
  }

  @Test func `describes every byte of every row`() throws {
    // Kinds of events stand in the page of events under their numbers; sets of LSNs have no table.
    let names = ["bound": 2, "held": 13, "joined": 27, "blocked": 12, "pace": 22, "databaseTokenAdvanced": 25]
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
    #expect(used.union(Self.ofDefinitions).isSuperset(of: Self.tables(try Page("index.md")).keys))
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
    let store = try RecordStore.openReadOnlyBlocking(at: Repository.path(IndexVector.folder))
    #expect(store.projections.withLock { $0.runs?.list.entries.count } == 5)
    #expect(store.projections.unstoredCount == 0)
    #expect(try store.record(RecordID("a"))?["title"] == "Third")
    #expect(try store.record(RecordID("b"))?["title"] == "Anew")
    #expect(try store.record(RecordID("c")) == nil)
    let statuses = try store.indexes()
    #expect(statuses.map(\.index) == IndexVector.declared && statuses.allSatisfy(\.isReady))
    try store.closeBlocking()
  }

  @Test func `has the rows of every record that it has, and no other rows of its indexes`() throws {
    let path = Repository.path(IndexVector.folder)
    let store = try RecordStore.openReadOnlyBlocking(at: path)
    let runs = try #require(store.projections.withLock { $0.runs })
    // Of several runs the newest that has a key counts.
    var rows: [[UInt8]: Bool] = [:]
    for run in runs.runs {
      var cursor = try run.cursor()
      while try cursor.advance() {
        let key = cursor.key
        if key[0] == RunTable.indexes.rawValue, rows[key] == nil { rows[key] = cursor.value != nil }
      }
    }
    let records = try store.query(RecordQuery("Note")).records
    #expect(records.map(\.id.name) == ["a", "b", "d", "f", "g", "nul\0in"])
    let definitions = try IndexVector.definitions(path, storeUUID: runs.list.storeUUID)
    #expect(definitions.indexes.map(\.index) == IndexVector.declared)
    for stored in definitions.indexes {
      let found = Set(rows.filter { $0.value && StoredIndex.number($0.key) == stored.number }.keys)
      #expect(found == records.reduce(into: []) { $0.formUnion(stored.rows($1)) }, "\(stored.index)")
    }
    // Every tag stands in some row of some run.
    let mark = try #require(definitions.indexes.last)
    let tags = rows.keys.filter { StoredIndex.number($0) == mark.number }.compactMap { mark.value($0).first }
    #expect(Set(tags.map(~)) == Set(IndexValue.Tag.allCases.map(\.rawValue)))
    try store.closeBlocking()
  }
}
