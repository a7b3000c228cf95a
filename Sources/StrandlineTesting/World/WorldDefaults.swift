// What the apps of a simulated world begin with: records of which every device saves a default, whenever it is launched.
//
// They have names of their own, so that no creation and no other tool explains what becomes of them. A default gives way to
// whatever a person has written or deleted, and none is lost. The judge of lost writes and that of records that come back
// know these records like the others: an edit that a default beat would be a lost write.

internal import Strandline
internal import StrandlineSystem

/// The values of defaults.
enum WorldDefaults {
  private static let mark = "default of "

  /// What a default has: no two are alike, as those of two versions of an app.
  static func fields(_ mark: String, _ number: Int64) -> [String: FieldValue] {
    [WorldPlan.fields[0]: .string(Self.mark + mark), WorldPlan.fields[2]: .int64(-number)]
  }

  /// Whether a field's value is that of a default.
  static func isDefault(_ value: FieldValue?) -> Bool {
    switch value {
    case .string(let text)?: text.hasPrefix(mark)
    case .int64(let number)?: number < 0
    default: false
    }
  }
}

extension WorldRun {
  /// A default that was just saved has no device's stamp.
  func judgeDefault(_ id: RecordID, at lsn: LSN, on device: WorldDevice, in store: RecordStore) throws {
    guard let stamp = try LoadedVersion(store.source.event(at: lsn), at: lsn)?.version.stamp else {
      throw WorldBroken(.honest, "\(device.name) \(lsn): the default of \(id) is not what was written last")
    }
    if !stamp.isOfUneditedDefault {
      throw WorldBroken(.noLostWrite, "\(device.name) \(lsn): the default of \(id) has the stamps of an edit")
    }
  }

  /// Fails if an app is told that a default has lost: a default is no person's edit.
  func judgeDefault(_ event: Conflicted, _ lsn: LSN, _ device: WorldDevice) throws {
    guard let store = device.store, event.local <= store.durableLSN,
      let local = try store.source.eventIfKept(at: event.local),
      try LoadedVersion(local, at: event.local)?.version.stamp.isOfUneditedDefault == true
    else { return }
    throw WorldBroken(.noSilence, "\(device.name) \(lsn): a conflict of \(event.id) is told, which has only a default")
  }

  /// At rest the server has each default that no device has deleted, and its unedited fields have the default's values.
  func judgeDefaults() async throws {
    let store = try await devices[0].open()
    for id in plan.names.defaults where !history.lostZones.contains(id.zone) {
      guard let version = try store.core.withLock({ core in try core.view(id)?.version }) else {
        if memory.hasDefault(of: id), !isDeleted(id) {
          throw WorldBroken(.noLostWrite, "the default of \(id) is lost, and nobody has deleted it")
        }
        continue
      }
      for field in WorldPlan.fields where WorldDefaults.isDefault(version.fields[field]) {
        guard let stamp = version.stamp.fields[field], stamp != .ofDefaults else { continue }
        throw WorldBroken(.noLostWrite, "\(id).\(field) has the value of a default, and the stamp \(stamp)")
      }
    }
  }

  /// Whether an app has deleted a record, or may have.
  private func isDeleted(_ id: RecordID) -> Bool {
    !memory.mayBeDead(id).isEmpty || devices.contains { $0.reading.deleted[id]?.isEmpty == false }
  }
}
