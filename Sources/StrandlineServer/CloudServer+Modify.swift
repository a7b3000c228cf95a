// records/modify: applies the seven kinds of operations to the records of a zone, one request at a time.
//
// What needs no state is done before the lock is taken: the operations are checked, and their values encoded. Under the
// lock the operations are applied in order to a draft over the zone. References are checked at the end of the request, so
// that records which refer to each other can be created and deleted in one. An operation that fails the check is
// removed and the rest is applied again without it, until no operation fails. Only then are events written: the whole
// request is one transaction of the journal. The answer is written from the events' bytes when they are durable.

internal import Strandline
package import StrandlineCloudKit
internal import StrandlineJSON
internal import StrandlineSystem
internal import Synchronization

extension CloudServer {
  /// What `modifyAnswer` writes.
  ///
  /// For tests: they ask without HTTP.
  package func modify(_ message: ModifyRequest, in key: DatabaseKey) throws(ServerRefusal) -> RecordsReply {
    var memory = RequestMemory(large)
    return try decoded(try modifyAnswer(WireJSON.encode(message), in: key, &memory))
  }

  /// Applies the operations of a request. What the answer says is durable.
  ///
  /// - Parameters:
  ///   - body: a `ModifyRequest`.
  ///   - showsToken: whether the answer has the zone's change token too.
  func modifyAnswer(
    _ body: [UInt8], in key: DatabaseKey, showsToken: Bool = false, _ memory: inout RequestMemory
  ) throws(ServerRefusal) -> [UInt8] {
    let faults = self.faults
    var reader: ModifyReader
    do throws(JSONError) { reader = try ModifyReader(body, bytesMax: limits.bodyBytesMax) } catch {
      throw ServerRefusal(unreadable: error)
    }
    let message = reader.request
    let zoneName = try zoneName(message.zoneID, in: key)
    if showsToken { try checkHasToken(zoneName) }
    let own = ZoneID(zoneName, owner: key.user, scope: key.scope)
    let prepared = try prepare(&reader, own)
    // A deletion needs no space.
    if faults.quotaExceeded, prepared.contains(where: { $0.kind != .delete && $0.kind != .forceDelete }) {
      throw ServerRefusal(413, WireError(.quotaExceeded, "Quota exceeded"))
    }
    let form = AnswerForm(wireZone(zoneName, key), own: own, links: contentLinks())
    while true {
      switch try apply(prepared, message, zoneName, key, form, faults, showsToken, hasPlace: memory.hasPlace) {
      case .done(let done):
        if done.plan.applied > 0 {
          front.withLock { $0.statistics.appliedOperations += done.plan.applied }
          push(zoneName, in: key)
        }
        if let early = done.early { return early }
        return try answer(prepared, done.plan, message, form, token: done.token)
      case .needsPlace(let bytes):
        // Others change the zone meanwhile, so that all of it is planned anew.
        memory.hold(bytes)
      }
    }
  }

  /// What a request has changed.
  private struct Done {
    var plan: Plan
    /// The answer, if it was written before the events were.
    var early: [UInt8]?
    var token: String?
  }

  private enum Attempt {
    case done(Done)
    /// Nothing was changed: what the request changes has so many bytes.
    case needsPlace(bytes: Int)
  }

  /// Changes what a request asks for, and waits until that is durable.
  private func apply(
    _ prepared: [Prepared], _ message: ModifyRequest, _ zoneName: String, _ key: DatabaseKey, _ form: AnswerForm,
    _ faults: ServerFaults, _ showsToken: Bool, hasPlace: Bool
  ) throws(ServerRefusal) -> Attempt {
    try look { core throws(ServerRefusal) -> (Attempt, UInt64) in
      // The plan must not hold the zone's tables: with a second owner, each write would copy them.
      let plan = try self.plan(prepared, message, zoneName, key, faults, core)
      front.withLock { $0.lookedReferences += plan.looked }
      let bytes = plan.events.reduce(0) { $0 + $1.body.count }
      let shown = form.jsonBytesMax(of: plan.shownBytes)
      guard hasPlace || bytes <= RequestMemory.smallBytes && shown <= limits.answerBytesMax else {
        return (.needsPlace(bytes: max(bytes, shown, RequestMemory.smallBytes + 1)), 0)
      }
      // An answer that may exceed the limit is written before the events are, because then it can still be refused. What is
      // shown of records beside their fields is bounded by their number.
      var early: [UInt8]?
      if shown > limits.answerBytesMax {
        let answer = try answer(prepared, plan, message, form, token: nil)
        guard answer.count <= limits.answerBytesMax else {
          throw ServerRefusal(
            413,
            WireError(
              .limitExceeded,
              "the records after the change have more than \(limits.answerBytesMax) bytes; change fewer at a time, or ask "
                + "for fewer fields with desiredKeys"))
        }
        if !showsToken { early = answer }
      }
      try write(plan.events, &core)
      var seen: UInt64 = 0
      var token: String?
      if let zone = core.state.zone(zoneName, in: key) {
        // Also if nothing was written: a refusal says something of a record, and a deletion of a deleted one that it is.
        seen = zone.lastLSN
        if showsToken { token = self.token(zone, zone.lastLSN, core) }
        if core.staleRecords != nil {
          for event in plan.events {
            guard case .recordDeleted(let life, let name) = event.change else { continue }
            scheduleStalePage(afterDeletionOf: name, zone: life, at: zone.lastLSN, &core)
          }
        }
      }
      return (.done(Done(plan: plan, early: early, token: token)), seen)
    }
  }

  private func answer(
    _ prepared: [Prepared], _ plan: Plan, _ message: ModifyRequest, _ form: AnswerForm, token: String?
  ) throws(ServerRefusal) -> [UInt8] {
    var json = JSONWriter(capacity: 512 * (prepared.count + 1))
    let desired = DesiredFields(message.desiredKeys)
    json.beginObject()
    json.key("records")
    json.beginArray()
    for (index, operation) in prepared.enumerated() {
      if let error = plan.failures[index] {
        WireRecord(recordName: operation.name, error: error).write(into: &json)
      } else if let event = plan.saved[index] {
        do throws(ByteReaderError) {
          try form.write(
            try RecordBytes(plan.events[event].body), desired: operation.desired ?? desired,
            numbersAsStrings: operation.numbersAsStrings ?? message.numbersAsStrings ?? false, to: &json)
        } catch {
          throw ServerRefusal(500, WireError(.internalError, "the record '\(operation.name)': \(error)"))
        }
      } else {
        json.beginObject()
        json.key("deleted")
        json.bool(true)
        json.key("recordName")
        json.string(operation.name)
        json.endObject()
      }
    }
    json.endArray()
    if let token {
      json.key("syncToken")
      json.string(token)
    }
    json.endObject()
    return json.finish()
  }

  /// The result of a request: the events to write, and each operation's record or refusal.
  private struct Plan {
    var events: [NewEvent] = []
    /// The place in `events` of the record that each operation saved, by the operation's index.
    var saved: [Int: Int] = [:]
    var failures: [Int: WireError] = [:]
    /// How many operations changed a record.
    var applied = 0
    /// The bytes of the records whose fields the answer shows.
    var shownBytes = 0
    /// How many references were looked at.
    var looked = 0

    /// - Parameter showsNone: whether the answer shows no fields of records whose operations do not ask for some.
    mutating func take(_ draft: Draft, _ prepared: [Prepared], showsNone: Bool) {
      let offset = events.count
      events += draft.events
      saved = draft.saved.mapValues { $0 + offset }
      applied = draft.applied
      for (index, event) in saved where !(prepared[index].desired?.isEmpty ?? showsNone) {
        shownBytes += events[event].body.count
      }
    }
  }

  private func plan(
    _ prepared: [Prepared], _ message: ModifyRequest, _ zoneName: String, _ key: DatabaseKey, _ faults: ServerFaults,
    _ core: borrowing Core
  ) throws(ServerRefusal) -> Plan {
    let isDefault = zoneName == Names.defaultZone
    var plan = Plan()
    let zone: ZoneState
    if let existing = core.state.zone(zoneName, in: key) {
      zone = existing
    } else if isDefault, key.scope != .shared {
      // The default zone always exists; the journal has an event of it from its first record on.
      let life = environment.random.next()
      plan.events.append(NewEvent(.zoneCreated(life: life, key, name: zoneName)))
      zone = ZoneState(life: life, key: key, name: zoneName, createdLSN: 0)
    } else {
      throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
    }
    // The documented default is true. The default zone is never atomic.
    let isAtomic = (message.atomic ?? true) && !isDefault
    let touch = ServerTimestamp(
      milliseconds: wallMilliseconds,
      user: key.user.isEmpty ? CloudServer.defaultUser : key.user, device: "1")
    let base = Draft(
      server: self, zone: zone, requestUUID: environment.random.bytes(16), touch: touch,
      createConflicts: faults.createConflictInsteadOfExists,
      schema: limits.fixesFieldTypes ? core.state.schemas[Schema.Key(key)] ?? Schema() : nil)
    var built = [Draft.Built?](repeating: nil, count: prepared.count)
    // By a reference. Whatever else is refused may have been because of one of these, and is tried again without them.
    var unbound: [Int: WireError] = [:]
    var repeated = 0
    while true {
      var draft = base
      plan.failures = unbound
      for (index, operation) in prepared.enumerated() where plan.failures[index] == nil {
        plan.failures[index] =
          if let defect = operation.defect { defect } else { try draft.apply(operation, index, &built[index]) }
      }
      let broken = draft.brokenReferences()
      unbound.merge(broken) { first, _ in first }
      plan.failures.merge(broken) { first, _ in first }
      plan.looked += draft.looked
      // Each round removes at least one operation, so the loop ends. Where one refusal follows from another, that makes as
      // many rounds as operations, each of them under the lock.
      guard broken.isEmpty else {
        repeated += draft.looked + draft.events.count
        guard repeated <= limits.modifyRepeatsMax else { throw Self.refusalOfRepeats }
        continue
      }
      if isAtomic, !plan.failures.isEmpty {
        for index in prepared.indices where plan.failures[index] == nil {
          plan.failures[index] = WireError(.atomicError, "Another operation of this atomic batch failed")
        }
        plan.events = []
        return plan
      }
      guard !draft.events.isEmpty else {
        plan.events = []
        return plan
      }
      plan.take(draft, prepared, showsNone: message.desiredKeys?.isEmpty == true)
      return plan
    }
  }

  private static let refusalOfRepeats = ServerRefusal(
    413,
    WireError(
      .limitExceeded,
      "references of one record to the next make so many refusals follow from others that they are not looked for; "
        + "change fewer records at a time"))

  // MARK: Before the lock

  /// An operation after the checks that need no state, with its values encoded.
  struct Prepared: Sendable {
    /// A field that the operation gives a value, or null.
    struct Field: Sendable {
      var name: String
      /// Where its bytes lie in `encoded`; nil: null.
      var place: Range<Int>?
      /// Which of the operation's links are its own.
      var links = 0..<0
      var kind: FieldKind?
      var isEmptyList = false
    }
    var kind: CloudOperation.Kind
    var name: String
    var type: String?
    var changeTag: String?
    var parent: String?
    /// In ascending order of their names.
    var fields: [Field] = []
    /// The bytes of the fields that have a value, as an event has them.
    var encoded: [UInt8] = []
    /// The references among them that bind records.
    var links: [RecordLink] = []
    var desired: DesiredFields?
    var numbersAsStrings: Bool?
    var defect: WireError?
  }

  private func prepare(_ reader: inout ModifyReader, _ own: ZoneID) throws(ServerRefusal) -> [Prepared] {
    func next() throws(ServerRefusal) -> ModifyRequest.Operation? {
      do throws(JSONError) { return try reader.next() } catch { throw ServerRefusal(unreadable: error) }
    }
    var names: Set<CloudName> = []
    var result: [Prepared] = []
    var count = 0
    while let operation = try next() {
      count += 1
      guard count <= limits.operationsMax else { continue }
      guard let kind = CloudOperation.Kind(rawValue: operation.operationType) else {
        throw ServerRefusal(
          400, WireError(.badRequest, "unknown operationType '\(operation.operationType.prefix(40))'"))
      }
      var record = operation.record
      let name =
        record.recordName ?? RecordName.random(high: environment.random.next(), low: environment.random.next())
      guard names.insert(CloudName(name)).inserted else {
        throw ServerRefusal(400, WireError(.badRequest, "more than one operation for the record '\(name)'"))
      }
      var prepared = Prepared(
        kind: kind, name: name, type: record.recordType, changeTag: record.recordChangeTag, parent: record.parent)
      prepared.desired = (operation.desiredKeys ?? record.desiredKeys).map { DesiredFields($0) }
      prepared.numbersAsStrings = operation.numbersAsStrings
      prepared.defect = defect(of: record, kind, name)
      if prepared.defect == nil { prepared.defect = receive(&record, name) }
      if prepared.defect == nil { prepared.encode(record, own) }
      result.append(prepared)
    }
    guard count <= limits.operationsMax else {
      throw ServerRefusal(
        400, WireError(.badRequest, "\(count) operations in one request; the limit is \(limits.operationsMax)"))
    }
    return result
  }

  /// Why an operation is refused whatever the state of its record; nil if it is not.
  private func defect(of record: WireRecord, _ kind: CloudOperation.Kind, _ name: String) -> WireError? {
    func bad(_ words: String) -> WireError { WireError(.badRequest, words) }
    if name.isEmpty || name.unicodeScalars.count > limits.nameCharactersMax {
      return bad("a record's name has 1 to \(limits.nameCharactersMax) characters")
    }
    if let defect = record.defect { return bad("Invalid value, \(defect)") }
    if let key = Self.unsupportedKey(of: record) {
      return bad("the key '\(key)': this server has no short GUIDs and no sharing")
    }
    switch kind {
    case .create, .forceUpdate, .forceReplace:
      guard let type = record.recordType else { return bad("missing required field 'recordType'") }
      if let defect = Names.defect(schemaName: type) { return bad("recordType '\(type.prefix(40))': \(defect)") }
    case .update, .replace, .delete:
      if record.recordChangeTag == nil { return bad("missing required field 'recordChangeTag'") }
    case .forceDelete: break
    }
    return nil
  }

  /// A key of a record that asks for something that this server cannot do; nil if there is none.
  ///
  /// Keys that CloudKit has not are passed over, as the live service was seen to do with a `zoneID` in a record.
  private static func unsupportedKey(of record: WireRecord) -> String? {
    guard !record.unknown.isEmpty else { return nil }
    do throws(JSONError) {
      var json = try JSONReader(
        record.unknown, limits: JSONLimits(bytesMax: record.unknown.count, depthMax: WireJSON.depthMax))
      try json.beginObject()
      while let key = try json.nextKey() {
        switch key {
        case "createShortGUID":
          guard try json.kind() == .bool, try !json.bool() else { return key }
        case "forRecord", "publicPermission", "participants":
          guard try json.skipValue().kind == .null else { return key }
        default: try json.skipValue()
        }
      }
      return nil
    } catch {
      // The keys were read before.
      return "\(error)"
    }
  }

  // MARK: Under the lock

  /// The zone as a request would leave it. Nothing of it is written yet.
  struct Draft {
    /// A record that an operation makes of the one that is there.
    struct Built: Sendable {
      /// The version that it was made of; 0 for none.
      var base: UInt64
      var event: NewEvent
      var type: String
      var tag: String
      var links: [RecordLink]
    }

    let server: CloudServer
    let zone: ZoneState
    let requestUUID: [UInt8]
    let touch: ServerTimestamp
    let createConflicts: Bool
    /// The kinds that fields have, with those that this request gives them; nil: fields have no kinds.
    private var schema: Schema?

    /// The events to write, in order.
    private(set) var events: [NewEvent] = []
    /// The place of each operation's record in `events`, by the operation's index.
    private(set) var saved: [Int: Int] = [:]
    /// How many operations changed a record.
    private(set) var applied = 0
    /// The bytes of the events that save records, and the references that bind records in them.
    private var cost = (bytes: 0, links: 0)
    /// The changed records by name, each with the index of its last operation.
    private var changed: [CloudName: (entry: RecordEntry, operation: Int)] = [:]
    private var links: LinkDraft
    /// How many references it has looked at.
    var looked: Int { links.looked }

    init(
      server: CloudServer, zone: ZoneState, requestUUID: [UInt8], touch: ServerTimestamp, createConflicts: Bool,
      schema: Schema?
    ) {
      self.server = server
      self.zone = zone
      self.requestUUID = requestUUID
      self.touch = touch
      self.createConflicts = createConflicts
      self.schema = schema
      links = LinkDraft(zone.links)
    }

    /// A record in the draft; nil if it is deleted or was never there.
    private func living(_ name: CloudName) -> RecordEntry? {
      guard let entry = changed[name]?.entry ?? zone.entries[name], !entry.isDeleted else { return nil }
      return entry
    }

    /// Applies one operation. Returns the refusal, or nil.
    ///
    /// - Parameter built: what an earlier round built for it.
    mutating func apply(
      _ operation: Prepared, _ index: Int, _ built: inout Built?
    ) throws(ServerRefusal) -> WireError? {
      let name = CloudName(operation.name)
      let current = living(name)
      let isDeletion = operation.kind == .delete || operation.kind == .forceDelete
      switch operation.kind {
      case .create:
        if current != nil {
          return WireError(createConflicts ? .conflict : .exists, "record to insert already exists")
        }
      case .update, .replace, .delete:
        guard let current else {
          // What it refers to was deleted before it, and has taken it along.
          if operation.kind == .delete, let taken = zone.entries[name], !taken.isDeleted,
            operation.changeTag.equalsUTF8(taken.tag)
          {
            return nil
          }
          return WireError(
            .notFound,
            isDeletion ? "Record not found" : "recordChangeTag specified, but record not found")
        }
        guard operation.changeTag.equalsUTF8(current.tag) else {
          return WireError(.conflict, "client oplock error updating record")
        }
      case .forceUpdate, .forceReplace: break
      case .forceDelete: if current == nil { return nil }
      }
      if isDeletion {
        delete(name, index)
        applied += 1
        return nil
      }
      return try save(operation, current, index, &built)
    }

    private mutating func save(
      _ operation: Prepared, _ current: RecordEntry?, _ index: Int, _ built: inout Built?
    ) throws(ServerRefusal) -> WireError? {
      let base = current?.lsn ?? 0
      let name = CloudName(operation.name)
      let record: Built
      if let built, built.base == base {
        record = built
      } else {
        switch try build(operation, base, index) {
        case .success(let new): record = new
        case .failure(let refusal): return refusal.error
        }
        built = record
      }
      if let error = checkKinds(of: operation, record.type) { return error }
      if let target = links.change(
        name, from: current?.links ?? [], to: record.links, limit: server.limits.deleteSelfSourcesMax)
      {
        return WireError(
          .badRequest,
          "'\(target)' has \(server.limits.deleteSelfSourcesMax) records that refer to it with DELETE_SELF, and may have "
            + "no more")
      }
      try count(record)
      if schema != nil {
        for field in operation.fields {
          if let kind = field.kind { schema?.learn([(field.name, kind)], in: record.type) }
        }
      }
      changed[name] = (RecordEntry(lsn: 0, isDeleted: false, tag: record.tag, links: record.links), index)
      saved[index] = events.count
      events.append(record.event)
      applied += 1
      return nil
    }

    /// Counts what a saved record costs.
    ///
    /// - Throws: a refusal of the request if it is too much.
    private mutating func count(_ record: Built) throws(ServerRefusal) {
      func refused(_ words: String) -> ServerRefusal {
        ServerRefusal(413, WireError(.limitExceeded, "the records after the change have more than \(words) at a time"))
      }
      cost.bytes += record.event.body.count
      guard cost.bytes <= server.limits.modifyBytesMax else {
        throw refused("\(server.limits.modifyBytesMax) bytes; change fewer")
      }
      cost.links += record.links.count
      guard cost.links <= server.limits.modifyLinksMax else {
        throw refused(
          "\(server.limits.modifyLinksMax) references with DELETE_SELF or VALIDATE; change fewer")
      }
    }

    /// The refusal of a value of another kind than its field has.
    private func checkKinds(of operation: Prepared, _ type: String) -> WireError? {
      guard let schema else { return nil }
      for field in operation.fields {
        guard let kind = field.kind else { continue }
        guard let known = schema.kind(of: field.name, in: type) else {
          guard field.isEmptyList else { continue }
          return WireError(
            .badRequest,
            "Invalid value, cannot use an empty list to initialize a new field: '\(field.name)' of \(type) has no "
              + "type yet")
        }
        guard !known.takes(kind) else { continue }
        return WireError(
          .badRequest,
          "Invalid value, \(field.name) type \(kind.words). The field is of type \(known.words) in records of the type "
            + "\(type) since its first value.")
      }
      return nil
    }

    /// The record that an operation makes of the one that is there, as the body of its event.
    private func build(
      _ operation: Prepared, _ base: UInt64, _ index: Int
    ) throws(ServerRefusal) -> Result<Built, ServerRefusal> {
      func refused(_ words: String) -> Result<Built, ServerRefusal> {
        .failure(ServerRefusal(400, WireError(.badRequest, words)))
      }
      let old: RecordBytes? = base == 0 ? nil : try server.read(base)
      let type = old.map { $0.text($0.type) } ?? operation.type ?? ""
      if old != nil, let asked = operation.type, !asked.utf8.elementsEqual(type.utf8) {
        return refused("the record has the type '\(type)', which cannot become '\(asked.prefix(40))'")
      }
      let keepsRest = operation.kind == .update || operation.kind == .forceUpdate
      let tag = server.newTag()
      var writer = ByteWriter(capacity: 192 + operation.encoded.count + (keepsRest ? old?.body.count ?? 0 : 0))
      _ = PayloadHeader(
        PayloadHeader(kind: JournalEventKind.recordSaved.rawValue, version: JournalEvent.version, flags: 0), &writer)
      writer.u64(zone.life)
      writer.string(operation.name)
      writer.string(type)
      if let parent = operation.parent {
        writer.u8(1)
        writer.string(parent)
      } else if keepsRest, let old, let parent = old.parent {
        writer.u8(1)
        writer.string(old.text(parent))
      } else {
        writer.u8(0)
      }
      writer.string(tag)
      if let old { writer.raw(old.body[old.created]) } else { _ = ServerTimestamp(touch, &writer) }
      _ = ServerTimestamp(touch, &writer)
      _ = JournalCause(
        JournalCause(requestUUID: requestUUID, operation: UInt16(clamping: index), isCascade: false), &writer)
      let size: Int
      var links = operation.links
      do throws(ByteReaderError) {
        if keepsRest, let old, !old.fields.isEmpty {
          (size, links) = try merge(operation, into: old, &writer)
        } else {
          writer.varint(UInt64(operation.fields.count { $0.place != nil }))
          writer.raw(operation.encoded)
          size = operation.encoded.count
        }
      } catch {
        throw ServerRefusal(500, WireError(.internalError, "event \(base) of the journal: \(error)"))
      }
      guard size <= server.limits.recordBytesMax else {
        return refused("record too large: \(size) bytes; the limit is \(server.limits.recordBytesMax)")
      }
      let change = StateChange.recordSaved(
        zone: zone.life, name: operation.name, type: type, tag: tag, modified: touch.milliseconds, links: links,
        kinds: operation.fields.compactMap { field in field.kind.map { (field.name, $0) } })
      return .success(
        Built(base: base, event: NewEvent(body: writer.bytes, change: change), type: type, tag: tag, links: links))
    }

    /// Writes the fields of the old record with those of the operation over them. Both are in the order of their names.
    ///
    /// - Returns: the bytes of the fields, and the references among them that bind records.
    private func merge(
      _ operation: Prepared, into old: RecordBytes, _ writer: inout ByteWriter
    ) throws(ByteReaderError) -> (size: Int, links: [RecordLink]) {
      var count = 0
      var fields = ByteWriter(capacity: old.body.count + operation.encoded.count)
      var links: [RecordLink] = []
      var (left, right) = (0, 0)
      while left < old.fields.count || right < operation.fields.count {
        let order =
          left == old.fields.count
          ? 1
          : right == operation.fields.count
            ? -1 : old.body.order(old.fields[left].name, of: operation.fields[right].name)
        if order < 0 {
          let field = old.fields[left]
          fields.raw(old.body[field.all])
          RecordLink.append(try old.references(field), of: old.text(field.name), to: &links)
          count += 1
        } else {
          let field = operation.fields[right]
          if let place = field.place {
            fields.raw(operation.encoded[place])
            links += operation.links[field.links]
            count += 1
          }
          right += 1
        }
        if order <= 0 { left += 1 }
      }
      writer.varint(UInt64(count))
      writer.raw(fields.bytes)
      return (fields.count, links)
    }

    /// Deletes a record and the records that refer to it with DELETE_SELF, and so on.
    private mutating func delete(_ name: CloudName, _ operation: Int) {
      var pending = [(name: name, isCascade: false)]
      while let next = pending.popLast() {
        guard let entry = living(next.name) else { continue }
        let sources = links.sources(of: next.name, .deleteSelf)
        _ = links.change(next.name, from: entry.links, to: [])
        changed[next.name] = (RecordEntry(lsn: 0, isDeleted: true, tag: "", links: []), operation)
        events.append(
          NewEvent(
            .recordDeleted(
              zone: zone.life, name: next.name.text,
              JournalCause(
                requestUUID: requestUUID, operation: UInt16(clamping: operation), isCascade: next.isCascade))))
        for source in sources.reversed() { pending.append((source, true)) }
      }
    }

    /// The refusals, by operation, of those that leave a VALIDATE reference without its target.
    mutating func brokenReferences() -> [Int: WireError] {
      var broken: [Int: WireError] = [:]
      let changed = changed
      for (name, change) in changed.sorted(by: { $0.key < $1.key }) {
        if change.entry.isDeleted {
          // Of those that this request saves the save is refused, below, and not the deletion.
          guard let source = links.firstSource(of: name, .validate, butNot: { changed[$0] != nil }),
            let link = living(source)?.links.first(where: { $0.target == name && $0.action == .validate })
          else { continue }
          broken[change.operation] = WireError(
            .validatingReferenceError,
            "Field=\(link.field), recordID=\(source), title=Record delete would violate validating reference, "
              + "rejecting update")
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

extension CloudServer.Prepared {
  /// Encodes the values of an operation's record, or finds what is wrong with them.
  fileprivate mutating func encode(_ record: WireRecord, _ own: ZoneID) {
    func bad(_ words: String) -> WireError { WireError(.badRequest, words) }
    let values = record.fields ?? [:]
    var sorted: [(name: String, value: FieldValue?)] = values.map { ($0.key, $0.value) }
    for name in record.nulls where values[name] == nil { sorted.append((name, nil)) }
    sorted.sort { $0.name.precedesByUTF8($1.name) }
    var writer = ByteWriter(capacity: 64 * sorted.count)
    fields.reserveCapacity(sorted.count)
    for (name, value) in sorted {
      if let words = Names.defect(schemaName: name) {
        defect = bad("field '\(name.prefix(40))': \(words)")
        return
      }
      guard var value else {
        fields.append(Field(name: name))
        continue
      }
      if let words = value.defect {
        defect = bad("Invalid value, field '\(name)' holds \(words)")
        return
      }
      if value.namesZone { value = value.relative(to: own) }
      let references = value.references
      if references.contains(where: { $0.action != .none && $0.zone != nil }) {
        defect = bad("field '\(name)': DELETE_SELF and VALIDATE bind records of one zone only")
        return
      }
      let first = links.count
      RecordLink.append(references, of: name, to: &links)
      let start = writer.count
      writer.string(name)
      let place = writer.count
      FieldCodec.encode(value, into: &writer)
      let kind = FieldKind(writer.bytes, at: place)
      fields.append(
        Field(
          name: name, place: start..<writer.count, links: first..<links.count, kind: kind,
          isEmptyList: value.isEmptyList))
    }
    encoded = writer.bytes
  }
}
