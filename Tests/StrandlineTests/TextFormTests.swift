// Positions, identities, values and records as text and as Codable: what is written is read back as it was, each value
// has one text, and a text that was changed on its way is refused with words.

import Foundation
import Strandline
import StrandlineSystem
import Testing

/// Random values of the model.
private struct Source {
  let random: SeededRandom
  func below(_ count: Int) -> Int { Int(random.next() % UInt64(count)) }
  func text(_ least: Int = 0) -> String {
    let letters = Array("ab/%:.\" \\\u{0}\u{7F}\n2Fé\u{1F41A}_-") + ["e\u{301}"]
    return String((0..<(least + below(6))).map { _ in letters[below(letters.count)] })
  }
  func zone() -> ZoneID {
    ZoneID(text(1), owner: below(3) == 0 ? text(1) : "", scope: DatabaseScope.allCases[below(3)])
  }
  func record() -> RecordID { RecordID(text(1), zone: zone()) }
  func position() -> LogPosition { LogPosition(tenure: random.next() >> below(64), lsn: LSN(rawValue: random.next())) }

  func item(_ kind: FieldValue.ListKind) -> FieldValue {
    switch kind {
    case .strings, .unknown: .string(text())
    case .int64s: .int64(Int64(bitPattern: random.next() >> below(64)))
    case .doubles: .double(Double(bitPattern: random.next() & ~(1 << 62)))
    case .dates: .date(milliseconds: Int64(bitPattern: random.next() >> below(64)))
    case .bytes: .bytes((0..<below(5)).map { _ in UInt8(below(256)) })
    case .references:
      .reference(Reference(text(), zone: below(2) == 0 ? zone() : nil, action: Reference.Action.allCases[below(3)]))
    case .locations: .location(Location(latitude: Double(below(90)) + 0.1, longitude: 1e-7, timestamp: 5))
    case .assets: .asset(Asset(fileChecksum: text(), size: 9, downloadURL: below(2) == 0 ? text() : nil))
    }
  }
  func value() -> FieldValue {
    let kind = FieldValue.ListKind.allCases[below(9)]
    let value: FieldValue =
      switch below(3) {
      case 0: .list(kind, kind == .unknown ? [] : (0..<below(4)).map { _ in item(kind) })
      default: item(kind)
      }
    switch value {
    // CloudKit encrypts neither.
    case .reference, .asset, .list(.references, _), .list(.assets, _): return value
    default: return below(5) == 0 ? .encrypted(value) : value
    }
  }
}

private func refusal(_ body: () throws -> Void) -> StrandlineError? {
  do {
    try body()
    return nil
  } catch { return error as? StrandlineError }
}

@Suite(.timeLimit(.minutes(30))) struct TextFormTests {
  private func throughJSON<Value: Codable>(_ value: Value) throws -> Value {
    try JSONDecoder().decode([Value].self, from: JSONEncoder().encode([value]))[0]
  }
  private func throughPropertyList<Value: Codable>(_ value: Value) throws -> Value {
    let encoder = PropertyListEncoder()
    encoder.outputFormat = .binary
    return try PropertyListDecoder().decode([Value].self, from: encoder.encode([value]))[0]
  }

  @Test func `texts are those of the documentation`() throws {
    #expect(LSN(rawValue: 57).description == "57")
    #expect(LogPosition(tenure: 0xABC, lsn: LSN(rawValue: 57)).description == "0000000000000abc:57")
    #expect(RecordID("tide").description == "Main/tide")
    #expect(RecordID("a/b%", zone: ZoneID("c\n")).description == "c%0A/a%2Fb%25")
    #expect(ZoneID("Main", scope: .shared).description == "shared/Main")
    #expect(ZoneID("Main", owner: "_me").description == "private/_me/Main")
    #expect(try FieldValue.int64(7).text() == #"{"type":"INT64","value":7}"#)
    #expect(try FieldValue.list(.dates, []).text() == #"{"type":"TIMESTAMP_LIST","value":[]}"#)
    #expect(
      try FieldValue.encrypted(.bytes([0, 255])).text() == #"{"isEncrypted":true,"type":"BYTES","value":"AP8="}"#)
    let opaque = FieldValue.encrypted(.opaque(OpaqueValue(type: "ODD", json: Array(#"{"a":1}"#.utf8))))
    #expect(try opaque.text() == #"{"isEncrypted":true,"json":"{\"a\":1}","type":"ODD"}"#)
    #expect(try FieldValue(text: opaque.text()) == opaque)
    let record = Record(type: "Note", id: RecordID("tide"), fields: ["b": "x", "a": 1.5], parent: "moon")
    #expect(
      try record.text()
        == #"{"fields":{"a":{"type":"DOUBLE","value":1.5},"b":{"type":"STRING","value":"x"}},"id":"Main/tide","#
        + #""parent":"moon","type":"Note"}"#)
    #expect(try Record(text: record.text()) == record)
  }

  @Test func `random values come back from their text and through coders as they were`() throws {
    let seed = ProcessEnvironment.value(of: "STRANDLINE_SEED").flatMap { UInt64($0) } ?? 1
    print("text forms: STRANDLINE_SEED=\(seed)")
    let source = Source(random: SeededRandom(seed: seed))
    for _ in 0..<2_000 {
      let (id, position, value) = (source.record(), source.position(), source.value())
      // Compared byte by byte: two texts that Unicode calls equivalent are two names.
      let sameID = try RecordID(text: id.description)
      #expect(sameID.name.utf8.elementsEqual(id.name.utf8) && sameID == id)
      #expect(try ZoneID(text: id.zone.description) == id.zone)
      #expect(try LogPosition(text: position.description) == position)
      #expect(try LSN(text: position.lsn.description) == position.lsn)
      #expect(try FieldValue(text: value.text()) == value)
      var record = Record(type: "T", id: id, fields: ["a": value], parent: source.text())
      record[source.text()] = source.value()
      record.nulls = ["b", "c"]
      let same = try Record(text: record.text())
      #expect(same == record && same.nulls == record.nulls)
      #expect(try throughJSON(record) == record)
      // A binary property list holds one of two texts that Unicode calls equivalent, in both places.
      if !(try record.text().unicodeScalars.contains("\u{301}")) { #expect(try throughPropertyList(record) == record) }
      #expect(try throughJSON([id: position]) == [id: position])
      #expect(try throughJSON(position.lsn) == position.lsn)
    }
  }

  @Test func `a mangled text is refused with words`() throws {
    for text in ["", " 1", "+1", "01", "-1", "18446744073709551616", "1x"] {
      #expect(refusal { _ = try LSN(text: text) }?.code == .invalidValue, "\(text)")
    }
    for text in [
      "", ":", "57", "abc:57", "0000000000000ABC:57", "0000000000000abc:057", "0000000000000abc:", "g000000000000abc:5",
      "0000000000000abc:57:1", "00000000000000abc:57",
    ] { #expect(refusal { _ = try LogPosition(text: text) }?.code == .invalidValue, "\(text)") }
    for text in [
      "", "tide", "Main/", "/tide", "Main//tide", "nowhere/Main/tide", "private/Main/tide", "a/b/c/d/e", "Main/%2",
      "Main/%2f",
      "Main/%FF", "Main/%41", "Main/a\nb", "private/x/Main", "private//Main/tide",
    ] { #expect(refusal { _ = try RecordID(text: text) }?.code == .invalidValue, "\(text)") }
    for text in ["", "/", "private/Main", "a/b/c/d", "Private/x/Main"] {
      #expect(refusal { _ = try ZoneID(text: text) }?.code == .invalidValue, "\(text)")
    }
    for text in [
      "", "7", "{", #"{"type":"INT64"}"#, #"{"type":"INT64","value":1.5}"#, #"{"type":"INT","value":1}"#,
      #"{"type":"BYTES","value":"*"}"#, #"{"type":"UNKNOWN_LIST","value":[1]}"#, #"{"type":"STRING_LIST","value":[1]}"#,
      #"{"type":"REFERENCE","value":{"name":"a","action":9}}"#, String(repeating: "[", count: 1_000_000),
    ] { #expect(refusal { _ = try FieldValue(text: text) }?.code == .invalidValue, "\(text.prefix(60))") }
    let error = refusal { _ = try Record(text: #"{"id":"tide","type":"Note","fields":{}}"#) }
    #expect(
      error?.message.contains("'id': 'tide' is not a record's ID: it is zone/name") == true, "\(error?.message ?? "")")
    // What no record can hold has no text.
    #expect(refusal { _ = try FieldValue.double(.nan).text() }?.code == .invalidValue)
    #expect(refusal { _ = try FieldValue.list(.strings, [1]).text() }?.code == .invalidValue)
    #expect(refusal { _ = try FieldValue.encrypted(.encrypted("x")).text() }?.code == .invalidValue)
  }

  @Test func `every change of one byte of a record's text is read as another record or refused`() throws {
    let record = Record(
      type: "Note", id: RecordID("tide"), fields: ["a": .list(.dates, [.date(milliseconds: 5)]), "b": "x"])
    let text = Array(try record.text().utf8)
    for index in text.indices {
      for byte in [UInt8(ascii: "0"), UInt8(ascii: "\""), UInt8(ascii: "}"), 0xFF] where byte != text[index] {
        var mangled = text
        mangled[index] = byte
        guard let string = String(validating: mangled, as: UTF8.self) else { continue }
        do { _ = try Record(text: string) } catch {
          #expect((error as? StrandlineError)?.code == .invalidValue)
        }
      }
    }
  }

  @Test func `dates and data are read and set without a Swift type`() throws {
    var record = Record(type: "Note", id: RecordID("tide"))
    let date = Date(timeIntervalSince1970: 1_767_225_600.5)
    record[date: "due"] = date
    record[data: "drawing"] = Data([1, 2])
    #expect(record["due"] == .date(milliseconds: 1_767_225_600_500))
    #expect(record["drawing"] == .bytes([1, 2]))
    #expect(record[date: "due"] == date)
    #expect(record[data: "drawing"] == Data([1, 2]))
    #expect(record[date: "drawing"] == nil && record[data: "due"] == nil && record[date: "none"] == nil)
    record[date: "due"] = nil
    #expect(record["due"] == nil)
    #expect(FieldValue.date(.distantFuture.addingTimeInterval(1e20)) == .date(milliseconds: .max))
    #expect(FieldValue.date(.distantPast.addingTimeInterval(-1e20)) == .date(milliseconds: .min))
    #expect(FieldValue.data(Data()).dataValue == Data())
  }
}
