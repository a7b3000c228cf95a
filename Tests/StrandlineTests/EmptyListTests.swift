// Goal: CloudKit refuses an empty list as the first value that a field gets. A record with one arrives all the same, and
// types of all devices read it; an empty list in place of a value arrives as one. Method: devices and a server that refuses
// as CloudKit does.

import Strandline
import StrandlineSyncProofs
import Testing

private let none = FieldValue.list(.strings, [])
private let one = FieldValue.list(.strings, ["a"])

private struct Tagged: SyncRecord, Equatable {
  static let recordType = "Note"
  var id: String
  var title: String
  var tags: [String] = []
}

@Suite(.timeLimit(.minutes(30))) struct EmptyListTests {
  @Test func `records with an empty list arrive, whether a field has had a value or not`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for number in 0..<30 { try await a.put("n\(number)", ["tags": none, "title": "t"]) }
    try await exchange(a, b)
    try await a.put("full", ["tags": one, "title": "t"])
    for number in 30..<60 { try await a.put("n\(number)", ["tags": none, "title": "t"]) }
    try await exchange(a, b)
    #expect(try await a.owesNothing)
    for name in ["n0", "n59"] {
      #expect(try await b.value(name, "tags") == nil)
      #expect(try await b.open().fetch(Tagged.self, id: name) == Tagged(id: name, title: "t"))
      #expect(try await a.open().fetch(Tagged.self, id: name) == Tagged(id: name, title: "t"))
    }
    #expect(try await b.value("full", "tags") == one)
    // The next edit of anything brings both to the same.
    try await b.put("n0", ["title": "new"])
    try await exchange(b, a)
    #expect(try await a.value("n0", "tags") == nil)
    #expect(try await a.value("n0") == "new")
  }

  @Test func `an empty list in place of a value is one on all devices`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["tags": one])
    try await exchange(a, b)
    try await b.put("n", ["tags": none])
    try await exchange(b, a)
    #expect(try await a.value("n", "tags") == none)
    try await expectAgreement(a, b)
  }

  @Test func `a list that is emptied, or new in a record, before the server has a value of it, does not travel`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["tags": one])
    try await a.put("n", ["tags": none])
    try await exchange(a, b)
    #expect(try await a.owesNothing)
    #expect(try await b.lives("n"))
    #expect(try await b.value("n", "tags") == nil)
    // A version of the app with another field saves what the server has.
    try await a.put("n", ["more": none, "title": "t"])
    try await exchange(a, b)
    #expect(try await a.owesNothing)
    #expect(try await b.value("n") == "t")
    #expect(try await b.value("n", "more") == nil)
    try await a.put("n", ["more": one])
    try await a.put("n", ["tags": one])
    try await exchange(a, b)
    #expect(try await b.value("n", "more") == one)
    #expect(try await b.value("n", "tags") == one)
    try await expectAgreement(a, b)
  }
}
