// Goal: what a save writes that begins a life is what the description of `Saved` says. Method: random records, both ways.

import Strandline
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A new life` {
  /// Names that differ early, late, in length only, and not in ASCII.
  private static let names = [
    "a", "ab", "abcdefgh", "abcdefghi", "abcdefgh_", "Abcdefgh", "z9", "zone", "äther", "ä", "name", "text", "rank",
    "___parent", "z\u{0}", "z",
  ]

  private func value(_ random: SeededRandom) -> FieldValue? {
    switch random.below(6) {
    case 0: nil
    case 1: .int64(Int64(bitPattern: random.next()))
    case 2: .double(Double(random.below(1000)) / 8)
    case 3: .list(.strings, (0..<random.below(3)).map { .string("item \($0)") })
    case 4: .reference(Reference("target", zone: random.below(2) == 0 ? nil : ZoneID("Other")))
    default: .string(String(repeating: "t", count: Int(random.below(300))))
    }
  }

  @Test(arguments: 1...200)
  func `has the bytes of the save that it is`(_ seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    var names = Array(Self.names.shuffled(random).prefix(Int(random.below(UInt64(Self.names.count + 1)))))
    // Also more than are put in their order one by one.
    if seed % 20 == 0 { names += (0..<60).map { "n\(random.below(1_000_000))_\($0)" } }
    let values = names.map { ($0, value(random)) }
    let zone = [ZoneID.main, ZoneID("Side"), ZoneID("Main", owner: "_owner", scope: .shared)][Int(random.below(3))]
    let id = RecordID("record-\(random.below(1000))", zone: zone)
    let time = HybridTime(milliseconds: Int64(random.below(1 << 40)), count: 3)
    let (writer, tenure, base) = (random.next(), random.next(), LSN(random.below(3) * 1000))
    var seen: [WriterID: Seen] = [:]
    for _ in 0..<random.below(3) {
      seen[random.next()] = Seen(lsn: LSN(random.below(500)), tenure: random.next(), time: time)
    }

    let isDefault = random.below(3) == 0
    var version = Version(type: "Note")
    version.stamp.births = [isDefault ? .ofDefaults : Birth(time: time, writer: writer)]
    version.stamp.seen = seen
    for (name, value) in values {
      version.fields[name] = value
      version.stamp.fields[name] = isDefault ? .ofDefaults : FieldStamp(time: time, writer: writer)
    }
    #expect(version.stamp.isOfUneditedDefault == isDefault)
    let content = EncodedContent(version, dirty: Dictionary(uniqueKeysWithValues: names.map { ($0, LSN.zero) }))
    let saved = Saved(
      id: id, type: "Note", births: version.stamp.births, base: base, time: time, editCount: 1, tenure: tenure,
      isCreation: true, content: content)

    let life = NewLife(
      id: id, type: "Note", time: time, writer: writer, tenure: tenure, birth: isDefault ? .ofDefaults : nil,
      stamp: isDefault ? .ofDefaults : nil, base: base, seen: seen,
      fields: values.map { NewField(name: $0.0, value: $0.1) })
    var bytes = ByteWriter()
    let contentBytes = life.encode(into: &bytes)
    #expect(bytes.bytes == EventCodec.encode(.saved(saved)), "seed \(seed)")
    #expect(contentBytes == content.byteCount, "seed \(seed)")
  }
}

extension Array {
  fileprivate func shuffled(_ random: SeededRandom) -> [Element] {
    var result = self
    for place in result.indices.dropFirst() { result.swapAt(place, Int(random.below(UInt64(place + 1)))) }
    return result
  }
}
