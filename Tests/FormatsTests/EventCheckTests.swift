// The table "Checks" of Formats/events.md: for each row bodies of events that meet it, and the row's verdict, from the code
// and from the decoder that knows only the page.

import Strandline
import StrandlineLog
import StrandlineHost
import StrandlineSystem
import StrandlineSimulation
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The checks of an event` {
  @Test func `have the verdicts that the page names`() throws {
    let table = try Page("events.md").table("Checks", "what", "check", "verdict")
    var rows: [String: String] = [:]
    for row in table.rows where row[0] != "frame" { rows["\(row[0]): \(row[1])"] = row[2] }
    #expect(rows.count == table.rows.count - 1)
    let cases = OddBodies.all
    #expect(Set(cases.map(\.row)) == Set(rows.keys))
    var text = ""
    var expected: [String] = []
    for odd in cases {
      let found = Self.judge(odd.body)
      let verdict = rows[odd.row] ?? ""
      #expect(verdict.hasPrefix(found.verdict), "\(odd.row): \(hex(odd.body))")
      text += "\(OddBodies.lsn) \(hex(odd.body))\n"
      expected.append(found.json.line)
    }
    let folder = try TemporaryFolder()
    let file = try Repository.disk.open(folder("bodies"), .create)
    try file.write(Array(text.utf8), at: 0)
    file.close()
    let found = try Decoder.output("events.py", ["--decode", folder("bodies")]).split(separator: "\n").map(String.init)
    #expect(found.count == expected.count)
    for (index, odd) in cases.enumerated() where index < found.count {
      #expect(found[index] == expected[index], "\(odd.row)")
    }
  }

  /// What becomes of a frame of another schema is the log's caller's to say.
  @Test func `refuse another schema as one of a later version`() throws {
    #expect {
      var transaction = LogTransaction()
      transaction.add(schema: 7, body: EventCodec.encode(.pace(Pace.sample(1))))
      let stage = Stage(seed: 1)
      let log = try stage.openLog()
      try log.waitUntilDurableBlocking(try log.append(transaction).upperBound)
      _ = try EventSource.writer(log).event(at: LSN(1))
    } throws: {
      ($0 as? StrandlineError)?.code == .fromTheFuture
    }
  }

  /// What the code makes of a body, in the words of the page.
  private static func judge(_ body: [UInt8]) -> (verdict: String, json: JSON) {
    do {
      let event = try EventCodec.decode(body)
      let json = try JSON.event(event, at: OddBodies.lsn)
      if case .unknown = event { return ("passed over", json) }
      return ("accepted", json)
    } catch EventCodecError.fromNewerVersion {
      return ("from the future", .object(["verdict": .text("fromTheFuture")]))
    } catch {
      return ("damaged", .object(["verdict": .text("damaged")]))
    }
  }
}

/// Bodies that no writer makes, by the row of the page that says what becomes of them.
enum OddBodies {
  static let lsn: UInt64 = 9

  struct Odd {
    var row: String
    var body: [UInt8]
  }

  static let all: [Odd] = header + types + groups + values + packs

  private static func odd(_ row: String, _ bodies: [UInt8]...) -> [Odd] { bodies.map { Odd(row: row, body: $0) } }

  /// The body of an event: the payload header, then `rest`.
  private static func body(_ kind: UInt16, version: UInt8 = 1, flags: UInt8 = 0, _ rest: [UInt8] = []) -> [UInt8] {
    [UInt8(truncatingIfNeeded: kind), UInt8(kind >> 8), version, flags] + rest
  }

  private static let zone: [UInt8] = [2, 0, 1, 0x5A]
  private static let id = zone + [1, 0x6E]
  private static func released(lsn: [UInt8] = [1]) -> [UInt8] { body(14, id + lsn) }
  private static func u64(_ number: UInt8) -> [UInt8] { [number, 0, 0, 0, 0, 0, 0, 0] }
  private static let greatest: [UInt8] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]

  private static let header =
    odd("payload header: fewer than four bytes", [], [14], [14, 0, 1])
    + odd(
      "payload header: kind or version is not known, bit 0 of the flags is set", body(900, flags: 1, [1, 2]),
      body(14, version: 2, flags: 1), body(0, flags: 3))
    + odd(
      "payload header: kind or version is not known, bit 0 is not set", body(900), body(14, version: 2, id + [1]),
      body(14, version: 0), body(0, flags: 2))
    + odd(
      "payload header: kind and version are known, and the flags are not those of the list",
      body(14, flags: 1, id + [1]), body(14, flags: 0xFE, id + [1]))

  private static let types =
    odd("any type: it needs more bytes than are left", body(14, id), body(14, zone + [2, 0x6E]), body(21, [1, 2]))
    + odd("event: bytes behind its last field", released() + [0], saved() + [0])
    + odd(
      "varint: longer than the shortest form (the last byte is 0 and not the only one)", released(lsn: [0x81, 0x00]))
    + odd(
      "varint: above 64 bits", released(lsn: Array(greatest.dropLast()) + [0x02]),
      released(lsn: [UInt8](repeating: 0x80, count: 10) + [1]))
    + odd("flag: neither 0 nor 1", body(21, u64(5) + [2]))
    + odd("text: no UTF-8", body(14, zone + [1, 0xFF, 1]), body(14, zone + [3, 0xED, 0xA0, 0x80, 1]))
    + odd(
      "X*: the least bytes of so many X are more than are left; checked before anything is allocated",
      body(10, zone + greatest), body(10, zone + [3, 0, 0]))
    + odd(
      "a byte with a list of numbers: a number that is not in the list (scope, outcome, reason, …)",
      body(14, [4, 0, 1, 0x5A, 1, 0x6E, 1]), body(9, id + [0, 9]), body(17, zone + [0, 0, 0, 0]),
      body(17, zone + [4, 1, 9, 0, 0]), body(25, [0, 0, 0]))
    + odd("an LSN: not below the event's own, or of no event", released(lsn: greatest), released(lsn: [9]))

  // MARK: Groups

  private static func birth(_ number: UInt8) -> [UInt8] { u64(number) + u64(1) }
  private static func deleted(births: [UInt8]) -> [UInt8] { body(4, id + births + [0] + u64(1) + u64(1) + [0]) }
  private static func seen(_ writer: UInt8, _ lsn: UInt8) -> [UInt8] { u64(writer) + [lsn] + u64(1) + u64(1) }

  private static let oneStamp: [UInt8] = [1] + birth(1)
  private static let oneField: [UInt8] = [1, 1, 0x61, 1, 2, 4]

  private static func saved(
    stamps: [UInt8] = oneStamp, fields: [UInt8] = oneField, seen: [UInt8] = [0], dirty: [UInt8] = [0]
  ) -> [UInt8] {
    body(3, id + [1, 0x54, 0, 0] + u64(1) + [1] + u64(1) + [1] + stamps + fields + seen + [0] + dirty)
  }

  private static let groups =
    odd(
      "birth*: not ascending, or one twice", deleted(births: [2] + birth(2) + birth(1)),
      deleted(births: [2] + birth(1) + birth(1)))
    + odd(
      "seen*: not ascending, more than 64", saved(seen: [2] + seen(2, 1) + seen(1, 1)),
      saved(seen: [65] + (1...65).flatMap { seen($0, 1) }))
    + odd("seen*: one writer twice", saved(seen: [2] + seen(1, 5) + seen(1, 4)))
    + odd(
      "content: stamps not ascending, one twice, or one that no field names",
      saved(stamps: [2] + birth(2) + birth(1)), saved(stamps: [2] + birth(1) + birth(1)))
    + odd(
      "content: fields not strictly ascending by the UTF-8 bytes of their names",
      saved(fields: [2, 1, 0x62, 1, 2, 4, 1, 0x61, 1, 2, 4]), saved(fields: [2, 1, 0x61, 1, 2, 4, 1, 0x61, 1, 2, 4]))
    + odd("content: a field with neither stamp nor value", saved(fields: [1, 1, 0x61, 0, 0], dirty: [1, 0, 3]))
    + odd("field: stampPlace is greater than the number of stamps", saved(fields: [1, 1, 0x61, 2, 2, 4]))
    + odd("dirty: fieldPlace is not below the number of fields", saved(dirty: [1, 1, 0]))
    + odd(
      "dirty*: not ascending", saved(fields: [2, 1, 0x61, 1, 2, 4, 1, 0x62, 1, 2, 4], dirty: [2, 1, 3, 0, 4]))
    + odd("dirty*: one field twice", saved(dirty: [2, 0, 3, 0, 4]))

  // MARK: Values

  private static func value(_ bytes: [UInt8]) -> [UInt8] { saved(fields: [1, 1, 0x61, 1] + bytes) }

  private static let values =
    odd("value: an unknown tag", value([12, 0]))
    + odd(
      "value: a double that is −0, or a NaN of other bits", value([3, 0, 0, 0, 0, 0, 0, 0, 0x80]),
      value([3, 1, 0, 0, 0, 0, 0, 0xF0, 0xFF]), value([7, 0, 1, 0, 0, 0, 0, 0, 0xF0, 0x7F] + u64(0)))
    + odd("value: a reference whose action (without 0x80) is above 2", value([6, 3, 1, 0x6E]))
    + odd(
      "value: bit 6 or 7 of a location, bit 7 of an asset", value([7, 0x40] + u64(0) + u64(0)),
      value([7, 0x80] + u64(0) + u64(0)), value([8, 0x82, 0]), value([8, 0x86, 0, 0]))
    + odd(
      "value: an asset with neither bit 0 nor bit 1, or with one of bits 2 to 6 and without bit 1", value([8, 0, 0]),
      value([8, 0x04, 0, 0]), value([8, 0x21, 0] + [UInt8](repeating: 7, count: 32) + [0]))
    + odd(
      "value: an opaque value whose text is no JSON, or whose type this version knows", value([11, 1, 0x54, 1, 0x7B]),
      value([11, 6, 0x53, 0x54, 0x52, 0x49, 0x4E, 0x47, 2, 0x22, 0x22]))
    + odd(
      "value: an unknown kind of list; items in a list of kind 9", value([9, 0, 0]), value([9, 10, 0]),
      value([9, 9, 1, 0]))
    + odd(
      "value: an encrypted value that is null, encrypted, or of an unknown tag", value([10, 0]), value([10, 10, 2, 4]),
      value([10, 12, 0]))

  // MARK: LSNs in a row, and packs

  private static func sent(_ steps: [UInt8]) -> [UInt8] { body(5, u64(1) + zone + steps) }
  private static func name(_ name: UInt8) -> [UInt8] { zone + [1, name] + [1, 0, 0, 0, 0] }
  private static func deletions(_ names: [UInt8]) -> [UInt8] { body(23, u64(0) + names) }

  private static let packs =
    odd("sent: lsns adds up to more than 64 bits", sent([2] + greatest + [1]))
    + odd(
      "zoneChanged: reason is there and change is neither 2 nor 4, or absent and it is 4",
      body(17, zone + [1, 1, 1, 0, 0, 0]), body(17, zone + [4, 0, 0, 0, 0]))
    + odd("sent: an LSN twice (a difference of 0)", sent([2, 3, 0]))
    + odd(
      "deletions: names not strictly ascending by record", deletions([2] + name(2) + name(1)),
      deletions([2] + name(1) + name(1)))
}
