// The names of a world's zones and records. In half of the worlds (`WorldFaults.names`) they are names that Unicode calls
// equal: only their bytes tell them apart, as the server does. Most of these no app can write, and another tool has made them.

internal import Strandline
internal import StrandlineSystem

/// Zones and records by their numbers.
struct WorldNames: Sendable {
  let zones: [ZoneID]
  /// All records that there can be, by zone; then `tallies`; then `defaults`; then `crowd`.
  let records: [RecordID]
  /// The records that several devices change alike: every app can begin them.
  let tallies: [RecordID]
  /// The records that every app begins with: every app can begin them.
  let defaults: [RecordID]

  /// Records of the first zone that another tool makes all at once: more than any limit that the engine asks a person beyond.
  let crowd: [RecordID]
  static let crowdMax = 130
  /// Whether apps write references with VALIDATE.
  var linksValidate = true

  /// Those that steps change by themselves.
  var single: ArraySlice<RecordID> { records.dropLast(crowd.count) }

  private init(_ names: [(zone: ZoneID, records: [String])], tallies: [RecordID]) {
    zones = names.map(\.zone)
    let crowd = (0..<Self.crowdMax).map { RecordID("m\($0)", zone: names[0].zone) }
    // Beside the tallies: the zones of those are such as an app can name.
    let defaults = tallies.map { RecordID("default-\($0.name)", zone: $0.zone) }
    records = names.flatMap { zone, records in records.map { RecordID($0, zone: zone) } } + tallies + defaults + crowd
    (self.tallies, self.defaults, self.crowd) = (tallies, defaults, crowd)
  }

  static let usual = WorldNames(
    WorldPlan.zones.map { zone in (zone, (0..<WorldPlan.namesPerZone).map { "r\($0)" }) },
    tallies: WorldPlan.zones.map { RecordID("tally", zone: $0) })
  /// K and the sign of the unit kelvin, é and Å in all their forms.
  static let equal = WorldNames(
    [
      (ZoneID("K"), ["K", "\u{212A}", "caf\u{E9}", "cafe\u{301}"]),
      (ZoneID("\u{212A}"), ["\u{C5}", "\u{212B}", "A\u{30A}", "r3"]),
    ], tallies: [RecordID("tally", zone: ZoneID("K")), RecordID("tally2", zone: ZoneID("K"))])
  /// No name is of both.
  static let each = [usual, equal]
  /// The zones in which a transaction is uploaded as it was written: the second of a world.
  static let atomicZones: Set<ZoneID> = Set(each.map { $0.zones[1] })

  /// Those that no app can begin: a name of theirs is not ASCII.
  var foreign: [RecordID] {
    records.filter { id in (id.name + id.zone.name).utf8.contains { $0 >= 0x80 } }
  }
}
