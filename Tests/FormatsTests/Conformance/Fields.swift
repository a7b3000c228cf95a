// A structure of the log as bytes with named fields, laid out as the tables of Formats/log.md say: so the conformance set
// is made from the page, and not from the code that it judges.

/// Where the fields of a structure lie.
struct FieldLayout: Sendable {
  private(set) var places: [(name: String, range: Range<Int>)] = []
  var count: Int { places.last?.range.upperBound ?? 0 }

  /// The fields of one table of the page.
  ///
  /// - Parameter common: the fields that take the place of the row `(common)`.
  init(_ table: Page.Table, common: FieldLayout? = nil) throws {
    let offsets = try table.column("offset").map(number)
    let sizes = try table.column("bytes").map(number)
    for (index, name) in try table.column("name").enumerated() {
      if name == "(common)" {
        guard let common else { throw PageError("below '\(table.heading)' stands (common), and no fields are") }
        places += common.places
        continue
      }
      // Two stretches of reserved bytes in one structure: the second has a name of its own.
      let isTaken = places.contains { $0.name == name }
      places.append((isTaken ? "\(name)2" : name, offsets[index]..<offsets[index] + sizes[index]))
    }
  }

  func has(_ name: String) -> Bool { places.contains { $0.name == name } }

  func range(_ name: String) throws -> Range<Int> {
    guard let place = places.first(where: { $0.name == name }) else { throw PageError("no field '\(name)'") }
    return place.range
  }
}

/// The bytes of one structure.
struct Fields: Sendable {
  let layout: FieldLayout
  private(set) var bytes: [UInt8]

  init(_ layout: FieldLayout) {
    self.layout = layout
    bytes = [UInt8](repeating: 0, count: layout.count)
  }

  func get(_ name: String) throws -> UInt64 {
    bytes[try layout.range(name)].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// Sets a field of at most eight bytes; what does not fit is cut.
  mutating func set(_ name: String, _ value: UInt64) throws {
    for (index, place) in try layout.range(name).enumerated() {
      bytes[place] = index < 8 ? UInt8(truncatingIfNeeded: value >> (8 * UInt64(index))) : 0
    }
  }

  mutating func set(_ name: String, bytes new: [UInt8]) throws {
    let range = try layout.range(name)
    guard new.count == range.count else { throw PageError("'\(name)' has \(range.count) bytes") }
    bytes.replaceSubrange(range, with: new)
  }

  /// Sets one byte of a field; for long ones.
  mutating func set(_ name: String, byte index: Int, _ value: UInt8) throws {
    bytes[try layout.range(name).lowerBound + index] = value
  }
}

/// The layouts of the page.
struct LogLayouts: Sendable {
  let segment: FieldLayout
  let manifest: FieldLayout
  let entry: FieldLayout
  let slot: FieldLayout
  let frame: FieldLayout
  let opening: FieldLayout
  let seal: FieldLayout

  init() throws {
    let page = try Page("log.md")
    func layout(_ heading: String, _ common: FieldLayout? = nil) throws -> FieldLayout {
      try FieldLayout(page.table(heading, "offset", "bytes", "name"), common: common)
    }
    let common = try layout("Header")
    segment = try layout("Segment header", common)
    manifest = try layout("MANIFEST", common)
    entry = try layout("Entry")
    slot = try layout("CONTROL")
    frame = try layout("Frame")
    opening = try layout("Opening")
    seal = try layout("Seal")
  }
}
