// Screens in a simulated world: values that an app read some steps ago and saves now, with their versions. What the person changed
// on the screen is a write like any other to the judge of lost writes; that the save writes nothing else is judged here.

internal import Strandline
internal import StrandlineSystem

/// The type of the records of a screen.
private protocol WorldScreenType: Sendable {
  static var type: String { get }
}
private enum Note: WorldScreenType {
  static var type: String { WorldPlan.types[0] }
}
private enum Task: WorldScreenType {
  static var type: String { WorldPlan.types[1] }
}

/// The zone of the records of a screen.
private protocol WorldScreenZone: Sendable {
  static var zone: ZoneID { get }
}
private enum UsualFirst: WorldScreenZone {
  static var zone: ZoneID { WorldNames.usual.zones[0] }
}
private enum UsualSecond: WorldScreenZone {
  static var zone: ZoneID { WorldNames.usual.zones[1] }
}
private enum EqualFirst: WorldScreenZone {
  static var zone: ZoneID { WorldNames.equal.zones[0] }
}
private enum EqualSecond: WorldScreenZone {
  static var zone: ZoneID { WorldNames.equal.zones[1] }
}

/// A record as a screen shows it.
private struct ShownRecord<Zone: WorldScreenZone, Kind: WorldScreenType>: SyncRecord {
  static var recordType: String { Kind.type }
  static var zone: ZoneID { Zone.zone }
  var id: String
  var version: RecordVersion?
  var title: FieldValue?
  var body: FieldValue?
  var count: FieldValue?
}

/// A value that a screen holds.
protocol WorldScreen: Sendable {
  /// Writes a field of the value.
  mutating func set(_ field: Int, _ value: FieldValue?)
  /// Saves the value that the screen holds.
  ///
  /// - Parameter goesOn: whether it becomes what the store has then; else it stays as it is.
  mutating func save(in transaction: inout WriteTransaction, goesOn: Bool) throws
}

extension ShownRecord: WorldScreen {
  mutating func set(_ field: Int, _ value: FieldValue?) {
    switch WorldPlan.fields[field] {
    case "title": title = value
    case "body": body = value
    default: count = value
    }
  }
  mutating func save(in transaction: inout WriteTransaction, goesOn: Bool) throws {
    if goesOn { try transaction.save(&self) } else { try transaction.save(self) }
  }
}

/// The screens of all devices.
struct WorldScreens {
  private var held: [Int: [Int: any WorldScreen]] = [:]

  /// What a device's screen shows of a record.
  subscript(device: Int, record: Int) -> (any WorldScreen)? {
    get { held[device]?[record] }
    set { held[device, default: [:]][record] = newValue }
  }

  /// Reads a record; nil if it does not live, or is of another type than its name says.
  static func read(_ record: Int, _ names: WorldNames, in store: RecordStore) throws -> (any WorldScreen)? {
    let id = names.records[record]
    guard let found = try store.record(id), found.type == WorldPlan.types[WorldPlan.type(of: record)] else {
      return nil
    }
    switch WorldNames.each.flatMap(\.zones).firstIndex(of: id.zone) {
    case 0: return try shown(UsualFirst.self, record, id, store)
    case 1: return try shown(UsualSecond.self, record, id, store)
    case 2: return try shown(EqualFirst.self, record, id, store)
    default: return try shown(EqualSecond.self, record, id, store)
    }
  }

  private static func shown<Zone: WorldScreenZone>(
    _ zone: Zone.Type, _ record: Int, _ id: RecordID, _ store: RecordStore
  ) throws -> (any WorldScreen)? {
    WorldPlan.type(of: record) == 0
      ? try store.fetch(ShownRecord<Zone, Note>.self, id: id.name)
      : try store.fetch(ShownRecord<Zone, Task>.self, id: id.name)
  }
}

extension WorldRun {
  /// A person looks at a record: its screen shows what the store has.
  mutating func show(_ record: Int, on device: WorldDevice) async throws {
    let store = try await device.open()
    screens[device.number, record] = try WorldScreens.read(record, plan.names, in: store)
    let id = plan.names.records[record]
    say("\(device.name) shows \(id)")
  }

  /// A person changes fields on a screen, however old it is, and the app saves it.
  mutating func editScreen(_ record: Int, _ fields: [Int], keeps: Bool, on device: WorldDevice) async throws {
    guard var screen = screens[device.number, record] else { return }
    let store = try await device.open()
    let id = plan.names.records[record]
    for field in fields { screen.set(field, Self.value(field, "\(device.name).\(step)", Int64(step))) }
    arm(device)
    do {
      let receipt = try store.writeBlocking { try screen.save(in: &$0, goesOn: keeps) }
      say("\(device.name) saves the screen of \(id): \(receipt.lsns.map { "\($0)" } ?? "unchanged")")
      tally[.screenSave] += 1
      screens[device.number, record] = screen
      try judge(receipt, fields, of: id, on: device, in: store)
      let changes = fields.map { WorldChange.set(record: record, field: $0, isNil: false, revives: false) }
      try remember(receipt, changes, [:], on: device, in: store)
    } catch let error as StrandlineError {
      if isMoved(device, error) {
        say("\(device.name) cannot save the screen of \(id): the store was moved")
        screens[device.number, record] = nil
      } else if device.disk.isOff {
        tally[.powerCutInWrite] += 1
        screens[device.number, record] = nil
      } else if [.recordWasDeleted, .noSuchRecord, .typeMismatch].contains(error.code) {
        say("\(device.name) cannot save the screen of \(id): \(error.code.rawValue)")
        screens[device.number, record] = nil
      } else if isFull(device, error) {
        // The person tries again later with what the screen shows.
        say("\(device.name) cannot save the screen of \(id): the disk is full")
        screens[device.number, record] = nil
      } else {
        throw WorldBroken(.honest, "\(device.name) cannot save the screen of \(id): \(error)")
      }
    }
    try await endPlanned(device)
  }

  /// A save wrote only what the person changed.
  private func judge(
    _ receipt: Receipt, _ fields: [Int], of id: RecordID, on device: WorldDevice, in store: RecordStore
  ) throws {
    guard let lsns = receipt.lsns else { return }
    for number in lsns.lowerBound.rawValue...lsns.upperBound.rawValue {
      let lsn = LSN(rawValue: number)
      guard let loaded = try LoadedVersion(store.source.event(at: lsn), at: lsn) else { continue }
      let written = Set(loaded.dirty.filter { $0.value == lsn }.keys)
      let others = written.subtracting(fields.map { WorldPlan.fields[$0] }).sorted { $0.precedesByUTF8($1) }
      if !others.isEmpty {
        let names = others.joined(separator: ", ")
        throw WorldBroken(
          .noLostWrite, "\(device.name): the save of an old value of \(id) has written \(names), which nobody touched")
      }
    }
  }
}
