// records/modify: applies the seven kinds of operations to the records of a zone, one request at a time.
//
// The operations are applied in order to a draft over the zone. References are checked at the end of the request, so
// that records which refer to each other can be created and deleted in one. An operation that fails the check is
// removed and the rest is applied again without it, until no operation fails. Only then are events written: the whole
// request is one transaction of the journal.

internal import Strandline
package import StrandlineCloudKit
internal import StrandlineSystem

extension CloudServer {
  /// Applies the operations of a request. What the reply says is durable.
  package func modify(_ message: ModifyRequest, in key: DatabaseKey) throws(ServerRefusal) -> RecordsReply {
    try runAlone { core throws(ServerRefusal) in
      if core.faults.quotaExceeded { throw ServerRefusal(413, WireError(.quotaExceeded, "Quota exceeded")) }
      let prepared = try prepare(message, core.limits)
      let zoneName = try zoneName(message.zoneID, in: key)
      // The plan must not hold the zone's tables: with a second owner, each write would copy them.
      let plan = try plan(prepared, message, zoneName, key, core)
      try write(plan.events, &core)
      for event in plan.events {
        switch event {
        case .recordSaved: core.statistics.appliedOperations += 1
        case .recordDeleted(let life, let name, let cause):
          scheduleStalePage(
            afterDeletionOf: name, zone: life, at: core.state.zone(zoneName, in: key)?.lastLSN ?? 0, &core)
          if !cause.isCascade { core.statistics.appliedOperations += 1 }
        case .opened, .zoneCreated, .zoneDeleted: break
        }
      }
      let keys = message.desiredKeys.map(Set.init)
      return RecordsReply(
        records: prepared.enumerated().map { index, operation in
          if let error = plan.failures[index] { return WireRecord(recordName: operation.name, error: error) }
          if let record = plan.saved[index] { return wire(record, keys: keys, key, zoneName: zoneName) }
          var deleted = WireRecord(recordName: operation.name)
          deleted.deleted = true
          return deleted
        })
    }
  }

  /// The result of a request: the events to write, and each operation's record or refusal.
  private struct Plan {
    var events: [JournalEvent] = []
    var saved: [Int: JournalRecord] = [:]
    var failures: [Int: WireError] = [:]
  }

  private func plan(
    _ prepared: [Prepared], _ message: ModifyRequest, _ zoneName: String, _ key: DatabaseKey, _ core: borrowing Core
  ) throws(ServerRefusal) -> Plan {
    let isDefault = zoneName == Names.defaultZone
    var plan = Plan()
    let zone: ZoneState
    if let existing = core.state.zone(zoneName, in: key) {
      zone = existing
    } else if isDefault, key.scope != .shared {
      // The default zone always exists; the journal has an event of it from its first record on.
      let life = environment.random.next()
      plan.events.append(.zoneCreated(life: life, key, name: zoneName))
      zone = ZoneState(life: life, key: key, name: zoneName, createdLSN: 0)
    } else {
      throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
    }
    // The documented default is true. The default zone is never atomic.
    let isAtomic = (message.atomic ?? true) && !isDefault
    let requestUUID = environment.random.bytes(16)
    let now = environment.clock.wallMilliseconds()
    while true {
      var draft = Draft(
        server: self, zone: zone, requestUUID: requestUUID, now: now,
        user: key.user.isEmpty ? CloudServer.defaultUser : key.user, limits: core.limits,
        createConflicts: core.faults.createConflictInsteadOfExists)
      for (index, operation) in prepared.enumerated() where plan.failures[index] == nil {
        plan.failures[index] = if let defect = operation.defect { defect } else { try draft.apply(operation, index) }
      }
      let broken = draft.brokenReferences()
      plan.failures.merge(broken) { first, _ in first }
      if isAtomic, !plan.failures.isEmpty {
        for index in prepared.indices where plan.failures[index] == nil {
          plan.failures[index] = WireError(.atomicError, "Another operation of this atomic batch failed")
        }
        plan.events = []
        return plan
      }
      // Each round removes at least one operation, so the loop ends.
      if broken.isEmpty {
        plan.events = draft.events.isEmpty ? [] : plan.events + draft.events
        plan.saved = draft.saved
        return plan
      }
    }
  }

  /// An operation after the checks that need no state.
  struct Prepared {
    var kind: CloudOperation.Kind
    var name: String
    var record: WireRecord
    var defect: WireError?
  }

  private func prepare(_ message: ModifyRequest, _ limits: ServerLimits) throws(ServerRefusal) -> [Prepared] {
    guard message.operations.count <= limits.operationsMax else {
      throw ServerRefusal(
        400,
        WireError(
          .badRequest, "\(message.operations.count) operations in one request; the limit is \(limits.operationsMax)"))
    }
    var names: Set<String> = []
    var result: [Prepared] = []
    for operation in message.operations {
      guard let kind = CloudOperation.Kind(rawValue: operation.operationType) else {
        throw ServerRefusal(
          400, WireError(.badRequest, "unknown operationType '\(operation.operationType.prefix(40))'"))
      }
      let name =
        operation.record.recordName
        ?? RecordName.random(high: environment.random.next(), low: environment.random.next())
      guard names.insert(name).inserted else {
        throw ServerRefusal(400, WireError(.badRequest, "more than one operation for the record '\(name)'"))
      }
      var prepared = Prepared(kind: kind, name: name, record: operation.record)
      prepared.defect = defect(of: prepared, limits)
      result.append(prepared)
    }
    return result
  }

  /// Why an operation is refused whatever the state of its record; nil if it is not.
  private func defect(of operation: Prepared, _ limits: ServerLimits) -> WireError? {
    func bad(_ words: String) -> WireError { WireError(.badRequest, words) }
    if operation.name.isEmpty || operation.name.unicodeScalars.count > limits.nameCharactersMax {
      return bad("a record's name has 1 to \(limits.nameCharactersMax) characters")
    }
    if let defect = operation.record.defect { return bad("Invalid value, \(defect)") }
    switch operation.kind {
    case .create, .forceUpdate, .forceReplace:
      guard let type = operation.record.recordType else { return bad("missing required field 'recordType'") }
      if let defect = Names.defect(schemaName: type) { return bad("recordType '\(type.prefix(40))': \(defect)") }
    case .update, .replace, .delete:
      if operation.record.recordChangeTag == nil { return bad("missing required field 'recordChangeTag'") }
    case .forceDelete: break
    }
    let fields = operation.record.fields ?? [:]
    for field in (fields.keys + operation.record.nulls).sorted(by: { $0.precedesByUTF8($1) }) {
      if let defect = Names.defect(schemaName: field) { return bad("field '\(field.prefix(40))': \(defect)") }
      if let defect = fields[field]?.defect { return bad("Invalid value, field '\(field)' holds \(defect)") }
    }
    return nil
  }

  /// A record's size for the limit: the canonical bytes of its fields' names and values.
  static func size(of record: JournalRecord) -> Int {
    var writer = ByteWriter()
    for (name, value) in record.fields {
      writer.string(name)
      FieldCodec.encode(value, into: &writer)
    }
    return writer.count
  }

  /// The zone as a request would leave it. Nothing of it is written yet.
  struct Draft {
    let server: CloudServer
    let zone: ZoneState
    let requestUUID: [UInt8]
    let now: Int64
    let user: String
    let limits: ServerLimits
    let createConflicts: Bool

    /// The events to write, in order.
    var events: [JournalEvent] = []
    /// The record that each operation saved, by the operation's index.
    var saved: [Int: JournalRecord] = [:]
    /// The changed records by name, each with the index of its last operation.
    private var changed: [String: (entry: RecordEntry, operation: Int)] = [:]
    /// By target: the records that this request made refer to it.
    private var addedSources: [String: Set<String>] = [:]

    init(
      server: CloudServer, zone: ZoneState, requestUUID: [UInt8], now: Int64, user: String, limits: ServerLimits,
      createConflicts: Bool
    ) {
      self.server = server
      self.zone = zone
      self.requestUUID = requestUUID
      self.now = now
      self.user = user
      self.limits = limits
      self.createConflicts = createConflicts
    }

    /// A record in the draft; nil if it is deleted or was never there.
    private func living(_ name: String) -> RecordEntry? {
      guard let entry = changed[name]?.entry ?? zone.entries[name], !entry.isDeleted else { return nil }
      return entry
    }

    /// The undeleted records that refer to a target with an action.
    private func sources(of target: String, _ action: Reference.Action) -> [String] {
      let candidates = (zone.sources[target] ?? []).union(addedSources[target] ?? [])
      return candidates.filter { name in
        living(name)?.links.contains { $0.target == target && $0.action == action } ?? false
      }.sorted { $0.precedesByUTF8($1) }
    }

    /// Applies one operation. Returns the refusal, or nil.
    mutating func apply(_ operation: Prepared, _ index: Int) throws(ServerRefusal) -> WireError? {
      let current = living(operation.name)
      let isDeletion = operation.kind == .delete || operation.kind == .forceDelete
      switch operation.kind {
      case .create:
        if current != nil {
          return WireError(createConflicts ? .conflict : .exists, "record to insert already exists")
        }
      case .update, .replace, .delete:
        guard let current else {
          return WireError(
            .notFound,
            isDeletion ? "Record not found" : "recordChangeTag specified, but record not found")
        }
        guard current.tag == operation.record.recordChangeTag else {
          return WireError(.conflict, "client oplock error updating record")
        }
      case .forceUpdate, .forceReplace: break
      case .forceDelete: if current == nil { return nil }
      }
      if isDeletion {
        delete(operation.name, index, isCascade: false)
        return nil
      }
      return try save(operation, current, index)
    }

    private mutating func save(
      _ operation: Prepared, _ current: RecordEntry?, _ index: Int
    ) throws(ServerRefusal) -> WireError? {
      let touch = Touch(milliseconds: now, user: user, device: "1")
      let old: JournalRecord? = if let current { try server.read(current.lsn) } else { nil }
      if let old, let type = operation.record.recordType, type != old.type {
        return WireError(.badRequest, "the record is a '\(old.type)'; its type cannot become '\(type)'")
      }
      let keepsRest = operation.kind == .update || operation.kind == .forceUpdate
      var record = JournalRecord(
        zone: zone.life, name: operation.name, type: old?.type ?? operation.record.recordType ?? "",
        parent: operation.record.parent ?? (keepsRest ? old?.parent : nil), tag: server.newTag(),
        created: old?.created ?? touch, modified: touch,
        cause: JournalCause(requestUUID: requestUUID, operation: UInt16(clamping: index), isCascade: false),
        fields: keepsRest ? old?.fields ?? [:] : [:])
      let own = ZoneID(zone.name, owner: zone.key.user, scope: zone.key.scope)
      for (field, value) in operation.record.fields ?? [:] { record.fields[field] = value.relative(to: own) }
      for field in operation.record.nulls { record.fields[field] = nil }
      for (field, value) in record.fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
        if value.references.contains(where: { $0.action != .none && $0.zone != nil }) {
          return WireError(.badRequest, "field '\(field)': DELETE_SELF and VALIDATE bind records of one zone only")
        }
      }
      let size = CloudServer.size(of: record)
      guard size <= limits.recordBytesMax else {
        return WireError(.badRequest, "record too large: \(size) bytes; the limit is \(limits.recordBytesMax)")
      }
      let links = ServerState.links(of: record)
      for target in Set(links.filter { $0.action == .deleteSelf }.map(\.target)) {
        let others = sources(of: target, .deleteSelf).count { $0 != operation.name }
        if others >= limits.deleteSelfSourcesMax {
          return WireError(
            .badRequest,
            "'\(target)' has \(others) records that refer to it with DELETE_SELF; the limit is "
              + "\(limits.deleteSelfSourcesMax)")
        }
      }
      changed[operation.name] = (RecordEntry(lsn: 0, isDeleted: false, tag: record.tag, links: links), index)
      for link in links { addedSources[link.target, default: []].insert(operation.name) }
      events.append(.recordSaved(record))
      saved[index] = record
      return nil
    }

    /// Deletes a record and the records that refer to it with DELETE_SELF, and so on.
    private mutating func delete(_ name: String, _ operation: Int, isCascade: Bool) {
      var pending = [(name: name, isCascade: isCascade)]
      while let next = pending.popLast() {
        guard living(next.name) != nil else { continue }
        changed[next.name] = (RecordEntry(lsn: 0, isDeleted: true, tag: "", links: []), operation)
        events.append(
          .recordDeleted(
            zone: zone.life, name: next.name,
            JournalCause(
              requestUUID: requestUUID, operation: UInt16(clamping: operation), isCascade: next.isCascade)))
        for source in sources(of: next.name, .deleteSelf).reversed() { pending.append((source, true)) }
      }
    }

    /// The refusals, by operation, of those that leave a VALIDATE reference without its target.
    func brokenReferences() -> [Int: WireError] {
      var broken: [Int: WireError] = [:]
      for (name, change) in changed.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
        if change.entry.isDeleted {
          for source in sources(of: name, .validate) {
            guard let link = living(source)?.links.first(where: { $0.target == name && $0.action == .validate })
            else { continue }
            // Saved by this request: then the save is refused, below, and not the deletion.
            guard changed[source] == nil else { continue }
            broken[change.operation] = WireError(
              .validatingReferenceError,
              "Field=\(link.field), recordID=\(source), title=Record delete would violate validating reference, "
                + "rejecting update")
          }
        } else {
          for link in change.entry.links where link.action == .validate && living(link.target) == nil {
            broken[change.operation] = WireError(
              .validatingReferenceError,
              "Field=\(link.field), recordID=\(link.target), title=Validating reference to a record that does not "
                + "exist, rejecting update")
          }
        }
      }
      return broken
    }
  }

  /// A change tag: opaque, short, and never the same for two versions of a record (41 random bits).
  func newTag() -> String { String(environment.random.next() >> 23, radix: 36) }
}
