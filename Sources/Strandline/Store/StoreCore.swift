// What a store knows, behind its one lock: projections, the bodies of events that are not durable yet, the clock.
//
// Closures of `write` and the engine's transactions run one at a time on it, against everything appended. Readers ask
// it where a value lay when the last durable event was written, and read outside the lock.

package import StrandlineLog
package import StrandlineSystem

/// The state behind the lock. There is one of it: it is moved into a transaction and back, never copied.
package struct StoreCore: ~Copyable, Sendable {
  package let projections: SharedProjections
  package var clock: HybridClock
  package private(set) var source: EventSource
  package let environment: SystemEnvironment
  /// The ID under which this store writes; a new one is drawn when the store finds that it was cloned.
  package private(set) var writer: WriterID
  /// The database that the store's engine syncs, and which zones of it; nil without an engine.
  package var synced: SyncedDatabase?
  /// What the app declares of its records.
  package var declared = Declarations()
  /// No transaction begins: the store is suspended, or about to be.
  package private(set) var isSuspended = false
  /// Whether `opened` stands in the log under this tenure and name.
  private var hasOpened = false
  /// The bodies of events that are appended and not known to be durable.
  private var inFlight = BodiesInFlight()
  /// The versions of values that were read from events which may not be durable yet.
  let versions = VersionsInFlight()
  /// What the records that lie in memory hang below.
  var parentNames = ParentNames()
  private var openTransaction: (first: LSN, log: LogTransaction, inbox: InboxWrite?)?
  /// Where an event is encoded: its memory is used again for the next one.
  private var body = ByteWriter(capacity: 1024)

  package init(projections: SharedProjections, source: EventSource, environment: SystemEnvironment) {
    self.projections = projections
    self.source = source
    self.environment = environment
    let sync = projections.sync
    self.writer = sync.writer ?? max(1, environment.random.next())
    self.clock = HybridClock()
    learnClock(from: sync)
  }

  /// Whether the store's engine leaves a zone out.
  func leavesOut(_ zone: ZoneID) -> Bool {
    synced?.leavesOut(zone, projections.sync) ?? false
  }

  /// Whose store this is.
  package var account: Account { Account(projections.sync, engine: synced?.scope) }

  /// The log that transactions go to; nil in a store that is suspended or was opened for reading only.
  package var log: Log? { if case .writer(let log) = source { log } else { nil } }

  package var tenure: UInt64 {
    if case .writer(let log) = source { return log.tenure }
    return projections.sync.tenures.last?.tenure ?? 0
  }

  /// The next hybrid time.
  package mutating func tick() -> HybridTime { clock.tick(environment.clock) }

  /// The time of a field that is written at `time` and was written before. As long as it is not known what the server's clock
  /// shows, the time of before counts though it lies ahead: this device's clock may have been set back since, and a disk of before
  /// may not know that the server has it.
  package func time(_ time: HybridTime, after before: FieldStamp?) -> HybridTime {
    guard let before, before.time >= time, knownServerMilliseconds == nil else { return time }
    return before.time.next
  }

  /// The same of what another process has written through the inbox: the time at which it wrote, unless the field was written
  /// later and the change counts all the same.
  func inboxTime(_ time: HybridTime, after before: FieldStamp?) -> HybridTime {
    guard let written = inboxWrite?.time, before.map({ $0.time < written }) ?? true else {
      return self.time(time, after: before)
    }
    return written
  }

  /// The same as `serverMilliseconds`; nil if only times before which it cannot be are known.
  package var knownServerMilliseconds: Int64? { clock.known(environment.clock) }

  /// The server's time, as far as it is known, in milliseconds since 1970.
  package var serverMilliseconds: Int64 { clock.now(environment.clock) }

  /// Learns what the server said of its clock.
  ///
  /// - Parameter isNow: whether it is the server's time now, and not only one that has passed there.
  package mutating func learn(serverMilliseconds: Int64, isNow: Bool) {
    clock.learn(serverMilliseconds: serverMilliseconds, isNow: isNow, environment.clock)
  }

  /// The same, where the transport names the offset of the server's clock.
  package mutating func learn(serverOffset: Int64) {
    learn(serverMilliseconds: environment.clock.wallMilliseconds() &+ serverOffset, isNow: true)
  }

  /// From this difference on to what the log says, the offset of the server's clock is appended.
  private static let offsetMillisecondsMin: UInt64 = 5_000

  /// Appends the offset of the server's clock if it has moved, so that it outlasts the process. A wait that is not over
  /// stays.
  package mutating func appendServerOffset() throws(StrandlineError) {
    guard let scope = synced?.scope, clock.sample?.isHeard == true else { return }
    let known = projections.sync.paces[scope]
    let wall = environment.clock.wallMilliseconds()
    let moved = (serverMilliseconds &- wall) &- (known?.serverOffsetMilliseconds ?? 0)
    guard moved.magnitude >= Self.offsetMillisecondsMin else { return }
    try append(
      .pace(
        Pace(
          scope: scope, durationMilliseconds: known?.remaining(wall: wall) ?? 0, wallMilliseconds: wall,
          batchSize: known?.batchSize ?? 0, isServers: known?.isServers ?? false, reason: known?.reason ?? "")))
  }

  private mutating func learnClock(from sync: SyncState) {
    clock.learn(sync.latest)
    guard let pace = sync.paces.values.max(by: { $0.wallMilliseconds < $1.wallMilliseconds }) else { return }
    let offset = pace.serverOffsetMilliseconds
    if offset == 0 { return }
    clock.learn(logged: pace.wallMilliseconds &+ offset, at: pace.wallMilliseconds, environment.clock)
  }

  /// Draws a new writer ID: a clone of this store writes under the old one.
  package mutating func renameWriter() {
    writer = max(1, environment.random.next())
    hasOpened = false
  }

  /// Whether the writer has a new ID that no event names yet.
  package var hasNewName: Bool { !hasOpened && projections.sync.writer.map { $0 != writer } == true }

  // MARK: Transactions

  /// Runs `body`; what it appended is one transaction in the log's queue when this returns, and nothing of it is
  /// anywhere if `body` throws. Returns the LSNs, nil if nothing was appended.
  package mutating func transact<Value>(
    _ body: (inout StoreCore) throws -> Value
  ) throws -> (value: Value, lsns: ClosedRange<LSN>?) {
    if isSuspended { throw StrandlineError.suspended }
    guard case .writer(let log) = source else {
      throw StrandlineError(.readOnly, "the store was opened for reading only")
    }
    try reconcile(log)
    let before = projections.appliedLSN
    let opened = hasOpened
    let name = writer
    openTransaction = (before.advanced(by: 1), LogTransaction(), nil)
    defer { openTransaction = nil }
    do {
      let value = try body(&self)
      guard let transaction = openTransaction?.log, !transaction.isEmpty else { return (value, nil) }
      let lsns = try log.append(transaction)
      precondition(
        lsns.lowerBound == before.rawValue + 1 && lsns.upperBound == projections.appliedLSN.rawValue,
        "the log gave \(lsns) to events \(before.rawValue + 1)...\(projections.appliedLSN)")
      return (value, LSN(lsns.lowerBound)...LSN(lsns.upperBound))
    } catch {
      projections.withLock { $0.undo(to: before) }
      inFlight.removeLast(after: before)
      versions.undo(after: before)
      hasOpened = opened
      writer = name
      throw error
    }
  }

  /// Does what other processes have left in the inbox, and then `body` as one more of their transactions: in memory alone. The
  /// store of this core is of no use afterwards, but for the versions of values.
  ///
  /// - Parameter earlier: the transactions that the store has not read yet.
  /// - Returns: what `body` has changed.
  mutating func rehearse(
    after earlier: [[InboxChange]], _ body: (inout StoreCore) throws -> Void
  ) throws -> [InboxChange] {
    clock.learn(projections.sync.latest)
    defer { openTransaction = nil }
    for changes in earlier {
      let before = projections.appliedLSN
      openTransaction = (before.advanced(by: 1), LogTransaction(), nil)
      do { try takeIn(changes) } catch let error as StrandlineError where error.isOfInboxChange {
        projections.withLock { $0.undo(to: before) }
        inFlight.removeLast(after: before)
      }
      for change in changes { clock.learn(change.time) }
    }
    // Of these no version is taken back.
    versions.settle(through: projections.appliedLSN)
    openTransaction = (
      projections.appliedLSN.advanced(by: 1), LogTransaction(), InboxWrite(time: tick(), changes: [])
    )
    try body(&self)
    return inboxWrite?.changes ?? []
  }

  /// What the open transaction is of a process that writes through the store's inbox; nil where it is of none.
  var inboxWrite: InboxWrite? {
    get { openTransaction?.inbox }
    set { openTransaction?.inbox = newValue }
  }

  /// Whether the changes of such a process are noted.
  var isNotingForInbox: Bool { openTransaction?.inbox?.changes != nil }

  /// Notes a change that the open transaction makes for such a process, if it is one of those.
  mutating func noteForInbox(_ change: InboxChange) { openTransaction?.inbox?.changes?.append(change) }

  /// The LSN of the open transaction's first event.
  var transactionStart: LSN { openTransaction?.first ?? .zero }

  /// Appends an event to the open transaction. The projections take it in at once.
  ///
  /// - Parameter known: what is known of the event's record, if the caller has looked in this transaction and nothing was
  ///   appended since.
  /// - Throws: what looking for the event's record throws; the transaction must not go on then.
  @discardableResult
  package mutating func append(_ event: Event, known: KnownRecord? = nil) throws(StrandlineError) -> LSN {
    precondition(openTransaction != nil, "append outside a transaction")
    try appendOpened()
    return try add(event, known: known)
  }

  /// Appends the save that begins a life.
  ///
  /// - Parameters:
  ///   - known: what is known of the record.
  ///   - check: gets the bytes of the record's content, and refuses it; then nothing was appended.
  package mutating func append(
    _ life: borrowing NewLife, known: KnownRecord, check: (_ contentBytes: Int) throws -> Void
  ) throws {
    precondition(openTransaction != nil, "append outside a transaction")
    beginBody()
    try check(life.encode(into: &body))
    if !hasOpened {
      // It is encoded in the same place.
      try appendOpened()
      beginBody()
      _ = life.encode(into: &body)
    }
    let (id, type, time, contents) = (life.id, life.type, life.time, life.namedContents)
    let lsn = projections.withLock { state in
      let lsn = state.appliedLSN.advanced(by: 1)
      state.applySaved(id, type: type, time: time, known: known, contents: contents, at: lsn, isDurable: false)
      return lsn
    }
    addBody(at: lsn)
    clock.learn(time)
  }

  /// Whether the open transaction has more bytes than the log takes: it can only fail.
  package var isTransactionTooLarge: Bool { (openTransaction?.log.frameBytes ?? 0) > transactionBytesMax }

  /// The most bytes of frames in one transaction.
  package var transactionBytesMax: Int {
    if case .writer(let log) = source { return log.transactionBytesMax }
    return LogOptions().transactionBytesMax
  }

  /// Appends `opened`, which names the writer of what follows, unless this store has done so. `append` does it before its
  /// first event; a repair does it alone, and the first sync of a copy.
  package mutating func appendOpened() throws(StrandlineError) {
    precondition(openTransaction != nil, "append outside a transaction")
    if !hasOpened {
      hasOpened = true
      var uuid: [UInt8] = Array(repeating: 0, count: 16)
      if case .writer(let log) = source { uuid = log.storeUUID }
      try add(.opened(Opened(writer: writer, storeUUID: uuid, tenure: tenure)))
    }
  }

  @discardableResult
  private mutating func add(_ given: Event, known: KnownRecord? = nil) throws(StrandlineError) -> LSN {
    var event = given
    if case .pace(var pace) = event {
      // A time that has only passed there says nothing of how far the server's clock is ahead.
      let isKnown = clock.sample.map { $0.isHeard || $0.isNow } == true
      pace.serverOffsetMilliseconds = isKnown ? serverMilliseconds &- environment.clock.wallMilliseconds() : 0
      event = .pace(pace)
    }
    let lsn = try projections.withLock { (state) throws(StrandlineError) in
      let lsn = state.appliedLSN.advanced(by: 1)
      try state.apply(event, at: lsn, isDurable: false, known: known)
      return lsn
    }
    beginBody()
    EventCodec.encode(event, into: &body)
    addBody(at: lsn)
    // All other times in events are this clock's own.
    if case .fetchedSave(let fetched) = event { clock.learn(fetched.latest) }
    return lsn
  }

  /// The memory for a body of so many bytes is kept for the next one.
  private static let bodyBytesKept = 64 << 10

  private mutating func beginBody() {
    if body.count > Self.bodyBytesKept { body = ByteWriter(capacity: 1024) }
    body.bytes.removeAll(keepingCapacity: true)
  }

  private mutating func addBody(at lsn: LSN) {
    openTransaction?.log.add(schema: EventCodec.schema, body: body.bytes)
    inFlight.append(body.bytes, at: lsn)
  }

  /// Updates the projections with what became of the log's last groups: settles durable ones, undoes failed ones.
  package mutating func reconcile(_ log: Log) throws {
    // In this order: once the log takes nothing, the durable LSN stays what it is.
    let state = log.state
    let durable = LSN(log.durableLSN)
    switch state {
    case .open: settle(durable)
    case .rejecting:
      undo(to: durable)
      log.resume()
    case .poisoned(let error):
      undo(to: durable)
      throw error
    case .closed: throw isSuspended ? .suspended : StrandlineError(.closed, "the store is closed")
    }
  }

  private mutating func settle(_ durable: LSN) {
    projections.withLock { $0.trim(upTo: durable) }
    inFlight.removeFirst(through: durable)
    versions.settle(through: durable)
  }

  private mutating func undo(to durable: LSN) {
    let last = projections.withLock { state in
      state.undo(to: durable)
      state.trim(upTo: durable)
      return state.sync.tenures.last
    }
    inFlight.removeLast(after: durable)
    versions.undo(after: durable)
    hasOpened = last?.tenure == tenure && last?.writer == writer
  }

  // MARK: Suspending

  /// Begins no transaction any more. When this returns, none is open: what was appended lies in the log's queue.
  package mutating func beginSuspension() { isSuspended = true }

  /// Goes on without the log, which is closed: what did not become durable in it is undone.
  package mutating func suspend(readingFrom reader: EventSource, durable: LSN) {
    undo(to: durable)
    source = reader
  }

  /// Goes on with a log that was opened again, whose events the projections have taken in: a new tenure begins with the
  /// next transaction.
  package mutating func resume(with log: Log) {
    source = .writer(log)
    isSuspended = false
    hasOpened = false
    // If the log was replaced, its LSNs are those of other events.
    parentNames = ParentNames()
    let sync = projections.sync
    writer = sync.writer ?? writer
    learnClock(from: sync)
  }

  // MARK: Reading what is appended

  /// An event, durable or not.
  package func event(at lsn: LSN) throws(StrandlineError) -> Event {
    if let found = appended(lsn) { return try found.decoded() }
    return try source.event(at: lsn)
  }

  /// The same; nil if compaction removed it.
  func eventIfKept(at lsn: LSN) throws(StrandlineError) -> Event? {
    if let found = appended(lsn) { return try found.decoded() }
    return try source.eventIfKept(at: lsn)
  }

  /// An event that is not known to be durable; nil if it is none of those.
  private func appended(_ lsn: LSN) -> LogEvent? {
    inFlight[lsn].map { body in
      LogEvent(
        lsn: lsn.rawValue, schema: EventCodec.schema, body: body, indexInTransaction: 0, isFirst: true, isLast: true,
        segmentID: 0, offset: 0)
    }
  }

  /// An event of a record.
  ///
  /// - Throws: an error of a lying index if it is another record's.
  private func event(at lsn: LSN, of id: RecordID) throws(StrandlineError) -> Event {
    let event = try event(at: lsn)
    try event.checkIsOf(id, at: lsn)
    return event
  }

  /// The version of a record that an event holds.
  package func load(_ lsn: LSN, of id: RecordID) throws(StrandlineError) -> LoadedVersion {
    guard let loaded = try LoadedVersion(event(at: lsn, of: id), at: lsn) else {
      throw StrandlineError(lyingIndex: "event \(lsn) should hold a version of '\(id)' and does not", lsns: lsn...lsn)
    }
    return loaded
  }

  /// What is known of a record, and what the app sees of it.
  func look(_ id: RecordID) throws(StrandlineError) -> (known: KnownRecord, current: LoadedVersion?) {
    try projections.rebuilding { () throws(StrandlineError) in
      let known = try projections.look(id)
      guard let entry = known.entry else { return (known, nil) }
      return (known, try view(id, entry))
    }
  }

  /// What the app sees of a record, without stamps, and its entry; nil if it sees none.
  func shown(_ id: RecordID) throws(StrandlineError) -> (entry: RecordEntry, version: ShownVersion)? {
    try projections.rebuilding { () throws(StrandlineError) in
      guard let entry = try projections.entry(id), let shown = try shown(id, entry) else { return nil }
      return (entry, shown)
    }
  }

  /// The same, by the record's entry.
  func shown(_ id: RecordID, _ entry: RecordEntry) throws(StrandlineError) -> ShownVersion? {
    guard let lsn = entry.view else { return nil }
    let shown: ShownVersion?
    if let found = appended(lsn) {
      shown = try ShownVersion(found, of: id)
    } else {
      shown = try source.version(at: lsn, of: id)
    }
    guard let shown else {
      throw StrandlineError(lyingIndex: "event \(lsn) should hold a version of '\(id)' and does not", lsns: lsn...lsn)
    }
    return shown
  }

  /// What the app sees of a record, with everything that is appended; nil if it sees none.
  package func view(_ id: RecordID) throws(StrandlineError) -> LoadedVersion? { try look(id).current }

  /// The same, by the record's entry.
  private func view(_ id: RecordID, _ entry: RecordEntry) throws(StrandlineError) -> LoadedVersion? {
    guard let lsn = entry.view else { return nil }
    if entry.pending == nil { return try base(of: id, entry) }
    return try load(lsn, of: id)
  }

  /// The base of a record as other devices know it.
  package func base(of id: RecordID, _ entry: RecordEntry) throws(StrandlineError) -> LoadedVersion? {
    guard let base = entry.base else { return nil }
    return try load(base.content, of: id).asAcknowledged(base, projections.sync)
  }

  /// The lives that a record of the app's view continues.
  package func births(_ lsn: LSN, of id: RecordID) throws(StrandlineError) -> Set<Birth> {
    switch try event(at: lsn, of: id) {
    case .saved(let event): event.births
    case .merged(let event): event.births
    case .fetchedSave(let event): event.births
    case .deleted(let event): event.births
    default: []
    }
  }
}
