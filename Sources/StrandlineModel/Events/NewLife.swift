// The save that begins a life, which is most of an import: its event in bytes, without the sets and lists in between.
//
// The bytes are those that the description of `Saved` makes, and a test compares them. What is known here and not there:
// there is one birth, one stamp, which every field has, and every field is dirty. Birth and stamp are of the event's time and
// of this writer; those of a default are of nobody.

package import StrandlineSystem

/// A field of a new life.
package struct NewField: Sendable {
  package var name: String
  /// Nil is an explicit null.
  package var value: FieldValue?
  /// Orders most names without a look at the text.
  fileprivate let prefix: UInt64

  package init(name: String, value: FieldValue?) {
    self.name = name
    self.value = value
    prefix = name.utf8Prefix
  }

  fileprivate static func precedes(_ left: NewField, _ right: NewField) -> Bool {
    left.prefix == right.prefix ? left.name.precedesByUTF8(right.name) : left.prefix < right.prefix
  }
}

extension [NewField] {
  /// Sets a field; the last value of one counts. It is here, and not where values are encoded, so that no field is copied to be
  /// compared: another module sees neither the names' beginnings nor the layout of a value.
  package mutating func set(_ name: String, _ value: FieldValue?) {
    let field = NewField(name: name, value: value)
    for place in indices where self[place].prefix == field.prefix && self[place].name == name {
      self[place] = field
      return
    }
    append(field)
  }
}

/// A `saved` with which a life begins.
package struct NewLife: ~Copyable {
  package let id: RecordID
  package let type: String
  /// When the event was written.
  package let time: HybridTime
  private let birth: Birth
  /// That of every field.
  private let stamp: FieldStamp
  private let tenure: UInt64
  private let base: LSN
  private let seen: [WriterID: Seen]
  /// In the order of their names.
  private let fields: [NewField]

  /// - Parameters:
  ///   - birth: the life's; nil: it begins with this event.
  ///   - stamp: of its fields; nil: they are written with this event.
  ///   - base: as `Saved.base`.
  ///   - seen: what the version includes of each writer.
  ///   - fields: in any order, no name twice.
  package init(
    id: RecordID, type: String, time: HybridTime, writer: WriterID, tenure: UInt64, birth: Birth? = nil,
    stamp: FieldStamp? = nil, base: LSN, seen: [WriterID: Seen], fields: consuming [NewField]
  ) {
    self.id = id
    self.type = type
    self.time = time
    self.birth = birth ?? Birth(time: time, writer: writer)
    self.stamp = stamp ?? FieldStamp(time: time, writer: writer)
    self.tenure = tenure
    self.base = base
    self.seen = seen
    Self.sort(&fields)
    self.fields = fields
  }

  /// So few fields are put in their order one by one.
  private static let fewMax = 24

  private static func sort(_ fields: inout [NewField]) {
    guard fields.count <= fewMax else { return fields.sort(by: NewField.precedes) }
    for place in fields.indices.dropFirst() {
      var place = place
      while place > 0, NewField.precedes(fields[place], fields[place - 1]) {
        fields.swapAt(place, place - 1)
        place -= 1
      }
    }
  }

  /// The contents of files that it names by their hash.
  package var namedContents: [NamedContent] {
    var found: [NamedContent] = []
    for field in fields { if let value = field.value { found += value.namedContents } }
    return found
  }

  /// Appends the body of the event's frame.
  ///
  /// - Returns: how many bytes of it are the record's content.
  package borrowing func encode(into writer: inout ByteWriter) -> Int {
    EventCodec.encodeHeader(.saved, into: &writer)
    writer.u8(id.zone.scope.rawValue)
    writer.string(id.zone.owner)
    writer.string(id.zone.name)
    writer.string(id.name)
    writer.string(type)
    // One birth.
    writer.varint(1)
    writer.u64(birth.time.rawValue)
    writer.u64(birth.writer)
    writer.varint(base.rawValue)
    writer.u64(time.rawValue)
    // The first save of this life.
    writer.varint(1)
    writer.u64(tenure)
    // It is a creation.
    writer.u8(1)
    let start = writer.count
    encodeContent(into: &writer)
    return writer.count - start
  }

  private borrowing func encodeContent(into writer: inout ByteWriter) {
    if fields.isEmpty {
      writer.varint(0)
    } else {
      writer.varint(1)
      writer.u64(stamp.time.rawValue)
      writer.u64(stamp.writer)
    }
    writer.varint(UInt64(fields.count))
    for field in fields {
      writer.string(field.name)
      // The place of its stamp.
      writer.varint(1)
      FieldCodec.encode(field.value, into: &writer)
    }
    SeenType().write(seen, to: &writer)
    // No unknown parts of a stamp.
    writer.varint(0)
    writer.varint(UInt64(fields.count))
    for place in fields.indices {
      writer.varint(UInt64(place))
      // This event.
      writer.varint(0)
    }
  }
}
