// Goal: what a type declares of its records by key paths is what the same declarations by names are, and one that cannot be found,
// or that another one contradicts, ends the open. Method: each rule beside its name; each mistake once.

import StrandlineSimulation
import StrandlineTesting
import Testing

@testable import Strandline

@Suite(.timeLimit(.minutes(30)))
struct SchemaRuleTests {
  private struct Shelf: SyncRecord {
    var id: String
    var room = ""
  }

  private struct Book: SyncRecord {
    static var schema: [SchemaRule<Book>] {
      [
        .merge(\.tags, .union), .merge(\.reads, .counter), .merge(\.writer, .greatest),
        .index(\.name), .index(\.reads, ascending: false),
        .parent(\.shelf, whenDeleted: .delete),
        .version(SchemaVersion(3, whenNewer: .reject)),
        .deletion(.editRevives),
      ]
    }
    enum CodingKeys: String, CodingKey {
      case id, tags, reads, shelf, writer
      case name = "title"
    }
    var id: String
    var name = ""
    var writer = ""
    var tags: Set<String> = []
    var reads = 0
    var shelf: TypedReference<Shelf>?
    var isRead: Bool { reads > 0 }
  }

  private struct Page: SyncRecord {
    static var schema: [SchemaRule<Page>] { [.parent(\.book, whenDeleted: .setNil), .record(.serverWins)] }
    var id: String
    var book: Parent<Book>?
  }

  @Test func `rules by key paths are the declarations by names`() throws {
    var options = StoreOptions()
    options.conflicts.standard.record = .clientWins
    let declared = try options.declaring([Shelf.self, Book.self, Page.self])
    let book = declared.conflicts["Book"]
    #expect(book.fields == ["tags": .union, "reads": .counter, "writer": .greatest])
    #expect(book.deletion == .editRevives)
    guard case .clientWins = book.record, case .serverWins = declared.conflicts["Page"].record else {
      return #expect(Bool(false), "\(book.record), \(declared.conflicts["Page"].record)")
    }
    #expect(declared.schema["Book"].parent == ParentSchema("shelf", whenDeleted: .delete))
    #expect(declared.schema["Book"].version == SchemaVersion(3, whenNewer: .reject))
    #expect(declared.schema["Page"].parent == ParentSchema(whenDeleted: .setNil))
    #expect(declared.indexes == [RecordIndex("Book", "title"), RecordIndex("Book", "reads", ascending: false)])
    #expect(declared.conflicts.names == ["Book", "Page"] && declared.schema.names == ["Book", "Page"])
  }

  @Test func `a store that is told of no index keeps those that it has`() throws {
    #expect(try StoreOptions().declaring([Shelf.self]).indexes == nil)
    #expect(try StoreOptions().declaring([]).indexes == nil)
    var options = StoreOptions()
    options.indexes = [RecordIndex("Book", "title"), RecordIndex("Shelf", "room")]
    let declared = try options.declaring([Shelf.self, Book.self])
    #expect(
      declared.indexes
        == [RecordIndex("Book", "title"), RecordIndex("Shelf", "room"), RecordIndex("Book", "reads", ascending: false)])
  }

  @Test func `an open store does what its types say`() async throws {
    let store = try await RecordStore.open(
      at: "/s", types: [Shelf.self, Book.self], environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.write { tx in
      try tx.save(Shelf(id: "s"))
      try tx.save(Book(id: "b", name: "Tides", shelf: TypedReference(id: "s")))
    }
    #expect(try store.record(RecordID("b"))?["schemaVersion"] == .int64(3))
    #expect(try store.indexes().contains { $0.index == RecordIndex("Book", "title") })
    try await store.write { try $0.delete(Shelf.self, id: "s") }
    #expect(try store.fetch(Book.self, id: "b") == nil)
    try await store.close()
  }

  // MARK: Mistakes

  private struct Computed: SyncRecord {
    static var schema: [SchemaRule<Computed>] { [.index(\.half)] }
    var id: String
    var whole = 0
    var half: Int { whole / 2 }
  }
  private struct Named: SyncRecord {
    static var schema: [SchemaRule<Named>] { [.merge(\.id, .greatest)] }
    var id: String
  }
  private struct Twice: SyncRecord {
    static var schema: [SchemaRule<Twice>] { [.merge(\.tags, .union), .merge(\.tags, .serverWins)] }
    var id: String
    var tags: [String] = []
  }
  private struct Parents: SyncRecord {
    static var schema: [SchemaRule<Parents>] { [.parent(\.one), .parent(\.other)] }
    var id: String
    var one: Parent<Shelf>?
    var other: TypedReference<Shelf>?
  }
  private struct OtherShelf: SyncRecord {
    static var recordType: String { "Shelf" }
    var id: String
  }

  @Test func `a rule that cannot hold ends the open`() async throws {
    let mistakes: [(words: String, types: [any SyncRecord.Type], name: String)] = [
      ("no field", [Computed.self], "Computed"), ("no field", [Named.self], "merge"),
      ("the same", [Twice.self], "tags"), ("the same", [Parents.self], "parent"),
      ("two of the types", [Shelf.self, OtherShelf.self], "'Shelf'"),
    ]
    for (words, types, name) in mistakes {
      let error = await #expect(throws: StrandlineError.self) {
        _ = try await RecordStore.open(
          at: "/s", types: types, environment: .simulated(disk: SimulatedDisk(), seed: 1))
      }
      #expect(error?.code == .invalidValue && error?.location?.contains("SchemaRuleTests") == true)
      #expect(error?.message.contains(words) == true && error?.message.contains(name) == true, "\(error as Any)")
    }
  }

  @Test func `an option that a typo keeps from being found ends the open`() throws {
    let mistakes: [(change: (inout StoreOptions) -> Void, words: String)] = [
      ({ $0.conflicts["Bok"].fields = ["tags": .union] }, "'Bok'"),
      ({ $0.conflicts["Shelf"].fields = ["rom": .greatest] }, "'rom' of 'Shelf', whose fields are 'room'"),
      ({ $0.schema["Shelf"].parent = ParentSchema("romm") }, "'romm'"),
      ({ $0.schema["Shelv"].version = SchemaVersion(1) }, "'Shelv'"),
      ({ $0.indexes = [RecordIndex("Shelf", "roam")] }, "'roam'"),
      ({ $0.indexes = [RecordIndex("Sheelf")] }, "'Sheelf', and the types are 'Book', 'Shelf'"),
      ({ $0.conflicts["Book"].deletion = .deletionWins }, "'Book' is declared by its type and by the options"),
    ]
    for (change, words) in mistakes {
      var options = StoreOptions()
      change(&options)
      let error = #expect(throws: StrandlineError.self) { try options.declaring([Shelf.self, Book.self]) }
      #expect(error?.code == .invalidValue && error?.message.contains(words) == true, "\(error as Any)")
      // A store that is told of no types takes every name.
      #expect(throws: Never.self) { try options.declaring([]) }
    }
  }
}
