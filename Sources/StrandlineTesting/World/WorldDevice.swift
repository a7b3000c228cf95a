// A device of a simulated world: a store on a disk that can lose power, with a clock that can be wrong.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineLog
internal import StrandlineServer
internal import StrandlineSimulation
internal import StrandlineSystem
internal import Synchronization

/// Why a device syncs.
struct WorldCause {
  /// 0 both directions, 1 only down, 2 only up.
  var direction = 0
  /// A person wants it. Else the engine syncs by itself.
  var isUserInitiated = true
  /// The server is asked what has changed. Else the engine syncs because the app has written.
  var asksForChanges = true
}

/// A device.
final class WorldDevice: Sendable {
  /// Makes the cloud of a device. The store is open when the cloud is asked for something.
  typealias Database =
    @Sendable (StoreEnvironment, WorldLine, _ store: @escaping @Sendable () -> RecordStore?) -> any CloudDatabase

  let number: Int
  let clock: WorldClock
  let line: WorldLine
  private let seed: UInt64
  private let executor: any TaskExecutor
  private let database: Database
  private let configure: WorldApp.Configure
  private let parts: Mutex<Parts>

  /// What can be put back in place of the disk.
  struct Backup {
    var disk: SimulatedDisk
    /// Where the store's folder is on it.
    var path: String
    var lsn: LSN
    var turnCount: Int
    /// What was listed by then.
    var listed: [LSN: Listed]
  }

  private struct Parts {
    var disk: SimulatedDisk
    var store: RecordStore?
    /// Where the app opens its store, and where it opened the one that is open.
    var path = "/store"
    var openedPath = "/store"
    /// What became of the folder of the store that is open, or was.
    var fate: WorldFate?
    /// In another process.
    var reader: RecordStore?
    /// The last event that the app was told of since the power was cut last.
    var acknowledged: LSN = .zero
    var backup: Backup?
    var reading = WorldReading()
    /// Events that were read and that the judge has not seen.
    var unjudged: [(lsn: LSN, event: Event)] = []
    /// How often the store was opened, so that each process has other random numbers.
    var starts: UInt64 = 0
  }

  init(
    number: Int, seed: UInt64, clock: WorldClock, line: WorldLine, executor: any TaskExecutor,
    database: @escaping Database,
    configure: @escaping WorldApp.Configure
  ) {
    (self.number, self.seed, self.clock, self.line) = (number, seed, clock, line)
    (self.executor, self.database, self.configure) = (executor, database, configure)
    parts = Mutex(Parts(disk: SimulatedDisk()))
  }

  var name: String { "d\(number)" }
  var disk: SimulatedDisk { parts.withLock { $0.disk } }
  var store: RecordStore? { parts.withLock { $0.store } }
  /// What has been read of its log, compactions or not.
  var reading: WorldReading { parts.withLock { $0.reading } }
  var backup: Backup? { parts.withLock { $0.backup } }
  /// Where the app opens its store.
  var path: String { parts.withLock { $0.path } }
  /// Where the app opened the store that is open.
  var openedPath: String { parts.withLock { $0.openedPath } }
  /// Where the folder of the open store is moved to when something else comes in its place.
  static let displacedPath = "/displaced"
  /// Where the open store is.
  private var storePath: String { parts.withLock { $0.fate?.displaces ?? false ? Self.displacedPath : $0.path } }
  /// What became of the folder of the open store; nil if it is where the store was opened.
  var fate: WorldFate? { parts.withLock { $0.store == nil ? nil : $0.fate } }
  /// How often the store was opened.
  var starts: UInt64 { parts.withLock { $0.starts } }

  /// Small segments and runs, so that a short life has many, and merges them.
  private static let options: StoreOptions = {
    var options = LogOptions()
    options.segmentBytesMax = 8 << 10
    var index = IndexOptions()
    index.flushCount = 6
    index.closeCount = 3
    index.mergeWidth = 3
    var result = StoreOptions(log: options, index: index)
    result.compaction.deadRatio = nil
    return result
  }()

  /// The open store.
  func open() async throws -> RecordStore {
    if let store { return store }
    clock.beginsAnew()
    let disk = disk
    let count = parts.withLock { parts in
      parts.starts += 1
      return parts.starts
    }
    let system = SystemEnvironment(
      fileSystem: disk, clock: clock, random: SeededRandom(seed: seed ^ (count &* 0xD1B5_4A32_D192_ED03)),
      taskExecutor: executor)
    let environment = StoreEnvironment(system, isSimulated: true)
    var configuration = SyncConfiguration(database(environment, line) { [weak self] in self?.store })
    configuration.isAutomatic = false
    // Half of the devices list a zone first.
    if seed.isMultiple(of: 2) { configuration.firstFetch = .recentFirst(types: ["Note"], count: 2) }
    var options = Self.options
    // With small pages, children come before what they hang below.
    options.schema["Note"].parent = ParentSchema()
    options.schema["Task"].parent = ParentSchema(WorldPlan.linkField)
    options.atomicZones = WorldNames.atomicZones
    configure(&configuration, &options)
    options.conflicts[WorldPlan.tallyType] = WorldTallyChange.rules
    let path = path
    let store = try await RecordStore.open(
      at: path, syncing: configuration, options: options, environment: environment)
    parts.withLock { ($0.store, $0.openedPath, $0.fate) = (store, path, nil) }
    return store
  }

  // MARK: Other processes

  private func readersEnvironment(_ disk: SimulatedDisk) -> SystemEnvironment {
    SystemEnvironment(
      fileSystem: disk, clock: clock, random: SeededRandom(seed: seed ^ 0x52_45_41_44), taskExecutor: executor)
  }

  /// A reader of its store in another process, opened now.
  ///
  /// - Parameter path: where the store is, if it is not the open one.
  func reader(at path: String? = nil) throws -> RecordStore {
    try RecordStore.openReadOnlyBlocking(
      at: path ?? storePath, environment: StoreEnvironment(readersEnvironment(disk), isSimulated: true))
  }

  /// The reader that another process keeps open; nil if none does.
  var openReader: RecordStore? { parts.withLock { $0.reader } }

  /// The same, opened or brought up to date now.
  func refreshedReader() throws -> RecordStore {
    if let reader = openReader {
      try reader.refresh()
      return reader
    }
    let reader = try reader()
    parts.withLock { $0.reader = reader }
    return reader
  }

  /// The last event that the app was told of since the power was cut last: a reader shows it.
  var acknowledged: LSN { parts.withLock { $0.acknowledged } }
  func acknowledge(_ lsn: LSN) { parts.withLock { $0.acknowledged = lsn } }

  /// The process ends.
  func endReader() { parts.withLock { $0.reader = nil } }

  /// The last event that the store would have after a power cut now that loses everything that was not synced.
  func lastSyncedLSN() throws -> LSN {
    let reader = try LogReader.open(at: storePath, environment: readersEnvironment(image()))
    try reader.poll { _ in }
    return LSN(rawValue: reader.lastLSN)
  }

  // MARK: Its folder

  /// What a person puts at the path in a fate.
  private func files(for fate: WorldFate) throws -> [String: [UInt8]] {
    switch fate {
    case .moved, .removed: [:]
    case .replacedByAnother: try AnotherStore.files.get()
    case .replacedByOlder, .removedForOlder, .emptiedForOlder, .overwrittenByOlder:
      backup.map { $0.disk.files(in: $0.path) } ?? [:]
    }
  }

  /// Lets a person do something with the folder of the open store. When this returns, that is durable.
  func befall(_ fate: WorldFate) throws {
    let (disk, path) = parts.withLock { ($0.disk, $0.path) }
    switch fate {
    case .moved:
      let place = path == "/store" ? "/moved" : "/store"
      try disk.renameFolder(path, to: place)
      parts.withLock { $0.path = place }
    case .replacedByOlder, .replacedByAnother: try disk.renameFolder(path, to: Self.displacedPath)
    case .removed, .removedForOlder: try removeFolder(path)
    case .emptiedForOlder:
      try disk.folder(path).removeContents()
      try disk.folder(path).sync()
      disk.forgetRemovedBytes()
    case .overwrittenByOlder: break
    }
    try disk.folder("/").sync()
    disk.put(try files(for: fate), over: path)
    parts.withLock { $0.fate = fate }
  }

  private func removeFolder(_ path: String) throws {
    try disk.folder(path).removeContents()
    try disk.removeDirectory(path)
    // Or a power cut brings it back.
    try disk.folder("/").sync()
    // Of a torn slot of CONTROL nobody could say which store's it is.
    disk.forgetRemovedBytes()
  }

  /// The names of the files at the path that are not as a person put them there in a fate. What the writer had begun under a
  /// temporary name is its own.
  func changes(since fate: WorldFate) throws -> [String] {
    let (put, found) = (try files(for: fate), disk.files(in: path))
    // A copy that is put over files does not touch files of other names.
    let names = fate == .overwrittenByOlder ? Set(put.keys) : Set(put.keys).union(found.keys)
    return names.filter { put[$0] != found[$0] && !(put[$0] == nil && $0.hasSuffix(LogFormat.temporarySuffix)) }
      .sorted()
  }

  /// A person puts the folder of the store, which was moved away, back to its path, and removes what came in its place.
  func moveBack() throws {
    parts.withLock { ($0.store, $0.reader, $0.fate) = (nil, nil, nil) }
    try removeFolder(path)
    try disk.renameFolder(Self.displacedPath, to: path)
    try disk.folder("/").sync()
  }

  /// The app goes on with the copy of before, which is at its path or comes there now. The store of before is removed.
  func goOnWithBackup(after fate: WorldFate, reading: WorldReading) throws {
    if fate.displaces { try removeFolder(Self.displacedPath) }
    // What a copy was put over is neither store.
    if fate == .overwrittenByOlder { try removeFolder(path) }
    if fate == .overwrittenByOlder || fate == .removed { disk.put(try files(for: .replacedByOlder), over: path) }
    parts.withLock { parts in
      (parts.store, parts.reader, parts.fate, parts.reading) = (nil, nil, nil, reading)
      (parts.unjudged, parts.acknowledged) = ([], .zero)
    }
  }

  /// Syncs once. This is the one place that knows how the engine is driven.
  func syncNow(_ cause: WorldCause) async throws -> SyncReport {
    var options = CycleOptions()
    options.direction = cause.direction == 1 ? .pullOnly : cause.direction == 2 ? .pushOnly : .both
    options.isUserInitiated = cause.isUserInitiated
    options.asksForChanges = cause.asksForChanges
    return try await open().engine.cycle(options)
  }

  // MARK: Disks

  /// The power comes back after a cut.
  func restart(seed: UInt64) async {
    let store = store
    let disk = disk
    disk.cutPower()
    let found = disk.imageAfterCrash(using: SeededRandom(seed: seed))
    parts.withLock { ($0.disk, $0.store, $0.reader, $0.acknowledged) = (found, nil, nil, .zero) }
    // Ends what the process that has died would not have ended; it cannot change the disk any more.
    _ = try? await store?.close()
  }

  /// The power is cut, and does not come back.
  func end() async {
    disk.cutPower()
    let store = store
    parts.withLock { $0.store = nil }
    _ = try? await store?.close()
  }

  /// The app ends as it should and starts again.
  func relaunch() async throws {
    try readOn()
    let store = store
    parts.withLock { $0.store = nil }
    try await store?.close()
    _ = try await open()
  }

  /// Lets the app end a store whose folder was moved, or replaced.
  ///
  /// - Returns: what it is told.
  func closeMoved() async -> (any Error)? {
    let store = store
    parts.withLock { $0.store = nil }
    do { try await store?.close() } catch { return error }
    return nil
  }

  /// The disk as it would be after a power cut now, with nothing that was not synced.
  func image() -> SimulatedDisk { disk.imageAfterCrash(.none) }

  func backUp(at lsn: LSN) throws {
    try readOn()
    let image = image()
    let turnCount = clock.turnCount
    parts.withLock { parts in
      parts.backup = Backup(
        disk: image, path: parts.path, lsn: lsn, turnCount: turnCount, listed: parts.reading.listed)
    }
  }

  /// Puts another disk in place of this one.
  ///
  /// - Parameter path: where the store's folder is on it.
  func replaceDisk(by image: SimulatedDisk, at path: String, reading: WorldReading) async {
    let store = store
    disk.cutPower()
    let new = image.clone()
    new.capacity = nil
    parts.withLock { parts in
      (parts.disk, parts.path, parts.store, parts.reader) = (new, path, nil, nil)
      (parts.reading, parts.unjudged, parts.acknowledged) = (reading, [], .zero)
    }
    _ = try? await store?.close()
  }

  // MARK: The log

  /// Reads the events that the log has more than when this was called last. Called before a compaction takes them.
  ///
  /// - Parameter reader: what reads the log where the app cannot.
  func readOn(by reader: RecordStore? = nil) throws {
    guard let store = reader ?? store else { return }
    try parts.withLock { parts in
      let end = store.durableLSN
      while parts.reading.upTo < end {
        let lsn = parts.reading.upTo.advanced(by: 1)
        // It throws if the power was cut, and is read after the restart then.
        let event = try store.source.eventIfKept(at: lsn)
        parts.reading.upTo = lsn
        if let event {
          parts.reading.apply(event, at: lsn)
          parts.unjudged.append((lsn, event))
        }
      }
    }
  }

  /// The events that were read since this was called last.
  func takeUnjudged() -> [(lsn: LSN, event: Event)] {
    parts.withLock { parts in
      defer { parts.unjudged = [] }
      return parts.unjudged
    }
  }

  /// All records that the app sees, one on each line, ordered by zone and name.
  func dump() async throws -> [String] { try Self.dump(try await open()) }

  /// All records that a store shows.
  static func dump(_ store: RecordStore) throws -> [String] {
    var lines: [String] = []
    try store.forEachRecord { record in
      lines.append(line(record.id, record.type, record.parent, record.fields))
    }
    return lines
  }

  static func line(_ id: RecordID, _ type: String, _ parent: String?, _ fields: [String: FieldValue]) -> String {
    let words = fields.sorted { $0.key.precedesByUTF8($1.key) }.map { "\($0.key)=\($0.value)" }
    return "\(id) \(type) \(parent ?? "-") \(words.joined(separator: " "))"
  }

  /// The first invariant of the projections that does not hold, or how those of a new replay of the log differ.
  func brokenProjection() async throws -> String? {
    let store = try await open()
    if let broken = store.projections.withLock({ $0.brokenInvariant() }) { return broken }
    var replayed = Projections()
    var lsn = LSN(1)
    while lsn <= store.durableLSN {
      if let event = try store.source.eventIfKept(at: lsn) { try replayed.apply(event, at: lsn, isDurable: true) }
      lsn = lsn.advanced(by: 1)
    }
    if let broken = replayed.brokenInvariant() { return "replayed: \(broken)" }
    let difference = try store.projections.withLock { (state) throws(StrandlineError) in
      try replayed.difference(from: state)
    }
    if difference.isEmpty { return nil }
    let (mine, others) = (store.projections.sync, replayed.sync)
    // A transaction that was given up may leave its time behind: the clock only has to be late enough.
    if difference.ids.isEmpty, mine.latest > others.latest, mine.bounds == others.bounds,
      mine.zones == others.zones, mine.databaseTokens == others.databaseTokens, mine.tenures == others.tenures,
      mine.paces == others.paces
    {
      return nil
    }
    return "a replay of the log gives other projections: \(difference.words)"
  }
}

/// What the judge has read in a device's log. Compactions do not take it away.
struct WorldReading: Sendable {
  /// A mutation of this device.
  struct Mutation: Sendable {
    var id: RecordID
    var births: Set<Birth>
    /// Empty for a deletion.
    var type = ""
    var tenure: UInt64
    var isDeletion: Bool
    /// It began a life.
    var isCreation = false
  }
  var upTo: LSN = .zero
  var writer: WriterID = 0
  /// The writer of each mutation: the name may change.
  var writers: [LSN: WriterID] = [:]
  var mutations: [LSN: Mutation] = [:]
  /// The events that hold a version of the server's, with the record.
  var versions: [LSN: RecordID] = [:]
  /// The births of mutations that requests have carried, as far as the log says it.
  private(set) var sent: [RecordID: Set<Birth>] = [:]
  /// The newest mutation of each record that the server has acknowledged.
  private(set) var acknowledged: [RecordID: LSN] = [:]
  /// Of each edit that met something else, the fields in which the app was told that it lost.
  private(set) var told: [LSN: Set<String>] = [:]
  /// The events with which the newest fetch of each zone from its beginning began.
  private(set) var fetchedWhole: [ZoneID: LSN] = [:]
  /// The births that this device has deleted, or has heard to be deleted.
  var deleted: [RecordID: Set<Birth>] = [:]
  /// The births of creations on this device.
  var created: [RecordID: Set<Birth>] = [:]
  /// The births that the device knows to have been on the server.
  var confirmed: [RecordID: Set<Birth>] = [:]
  /// Records that a fetch without a token showed as deleted: it does not show which life was.
  var goneInFullFetch: Set<RecordID> = []
  /// The births of own creations that were merged before they were confirmed.
  var mergedUnconfirmed: [RecordID: Set<Birth>] = [:]
  /// The events that began lives on this device.
  var begun: [Birth: LSN] = [:]
  /// Own creations that were deleted before they were confirmed, with the events of both.
  var deletedUnconfirmed: [(id: RecordID, birth: Birth, begun: LSN, ended: LSN)] = []
  /// Mutations that were given up and not saved: their app can see it.
  var givenUp: [RecordID: Set<Birth>] = [:]
  /// The births of the newest version of the server's.
  var living: [RecordID: Set<Birth>] = [:]
  /// Births whose deletion was given up because the server's version had another one too: their app can see it.
  var spared: [RecordID: Set<Birth>] = [:]
  /// What the device has listed and has still to fetch.
  var listed: [LSN: Listed] = [:]
  /// What it could not decide about and has asked for, with the event that says so.
  private var asked: [RecordID: LSN] = [:]
  /// What it has listed, or asked for, and no longer waits for.
  private var lookedUp: [RecordID: LookUp] = [:]
  /// What a person, or a rule of the app, has decided about zones.
  private var decisions: [ZoneID: [Decision]] = [:]
  /// Deletions that were given up although the server's version had no other birth.
  var wronglySpared: [LSN] = []

  mutating func apply(_ event: Event, at lsn: LSN) {
    switch event {
    case .opened(let event): writer = event.writer
    case .saved(let event):
      add(
        lsn,
        Mutation(
          id: event.id, births: event.births, type: event.type, tenure: event.tenure, isDeletion: false,
          isCreation: event.isCreation))
      if event.isCreation {
        created[event.id, default: []].formUnion(event.births)
        for birth in event.births { begun[birth] = lsn }
      }
    case .deleted(let event):
      add(lsn, Mutation(id: event.id, births: event.births, tenure: event.tenure, isDeletion: true))
      deleted[event.id, default: []].formUnion(event.births)
      for birth in unconfirmed(event.births, of: event.id) {
        deletedUnconfirmed.append((event.id, birth, begun[birth] ?? .zero, lsn))
      }
    // This event also names the births of a creation that the server may have applied before the deletion.
    case .fetchedDelete(let event):
      deleted[event.id, default: []].formUnion(event.births)
      if event.reason == .fullFetch { goneInFullFetch.insert(event.id) }
    case .fetchedSave(let event):
      versions[lsn] = event.id
      confirmed[event.id, default: []].formUnion(event.births)
      living[event.id] = event.births
    case .settled(let event): settle(event, at: lsn)
    case .sent(let event):
      for mutation in event.lsns.compactMap({ mutations[$0] }) {
        sent[mutation.id, default: []].formUnion(mutation.births)
      }
    case .conflicted(let event):
      told[event.local, default: []].formUnion(event.fields.filter(\.loser.isHere).map(\.name))
    case .tokenAdvanced(let event) where event.asked == nil: fetchedWhole[event.zone] = lsn
    case .merged(let event):
      add(
        lsn,
        Mutation(id: event.id, births: event.births, type: event.type, tenure: event.tenure, isDeletion: false))
      mergedUnconfirmed[event.id, default: []].formUnion(unconfirmed(event.births, of: event.id))
      if event.rule == Merged.reviveRule {
        created[event.id, default: []].formUnion(event.births)
        for birth in event.births { begun[birth] = lsn }
      }
    case .listed(let event): listed[lsn] = event
    case .listedEnded(let event):
      for listing in event.lsns {
        let ids = listed.removeValue(forKey: listing)?.items.map { RecordID($0.name, zone: event.zone) } ?? []
        for id in ids { lookedUp[id] = LookUp(begun: listing, ended: lsn) }
      }
    case .zoneChanged(let event) where event.change == .reset:
      listed = listed.filter { $0.value.zone != event.zone }
      let isOpen = decisions[event.zone]?.last?.ended == Decision.open
      if !isOpen, ResyncSource(rawValue: event.policy) != nil {
        decisions[event.zone, default: []].append(Decision(begun: lsn))
      }
    case .zoneChanged(let event) where event.change == .lost: endDecision(on: event.zone, at: lsn)
    case .sweepEnded(let event): endDecision(on: event.zone, at: lsn)
    case .blocked(let event) where event.subject == .version && event.consequence == .none:
      if let begun = asked.removeValue(forKey: event.id) { lookedUp[event.id] = LookUp(begun: begun, ended: lsn) }
    case .blocked(let event) where event.subject == .version: asked[event.id] = lsn
    case .blocked(let event) where event.subject == .mutation:
      givenUp[event.id, default: []].formUnion(mutations[event.lsn]?.births ?? event.births)
    default: break
    }
  }

  /// A look-up: from the event because of which the device asks to the one that says that it does not any more.
  private struct LookUp: Sendable {
    var begun: LSN
    var ended: LSN
  }

  // MARK: Decisions

  /// Which side of a zone counts: from the event that says so to the end of the sweep that carries it out, or the zone's next loss.
  private struct Decision: Sendable {
    var begun: LSN
    var ended = Decision.open
    static let open = LSN(rawValue: .max)
  }

  private mutating func endDecision(on zone: ZoneID, at lsn: LSN) {
    guard let last = decisions[zone]?.indices.last, decisions[zone]?[last].ended == Decision.open else { return }
    decisions[zone]?[last].ended = lsn
  }

  /// The disk was put back: the log has other events under the LSNs after this one. What the device has said and done stays known.
  mutating func forgetEvents(after lsn: LSN) {
    versions = versions.filter { $0.key <= lsn }
    asked = asked.filter { $0.value <= lsn }
    lookedUp = lookedUp.filter { $0.value.ended <= lsn }
    for zone in decisions.keys {
      decisions[zone]?.removeAll { $0.begun > lsn }
      guard let last = decisions[zone]?.indices.last, let ended = decisions[zone]?[last].ended, ended > lsn else {
        continue
      }
      decisions[zone]?[last].ended = Decision.open
    }
  }

  /// Whether an event came while a decision about its zone was carried out.
  func isDecided(_ zone: ZoneID, at lsn: LSN) -> Bool {
    decisions[zone]?.contains { $0.begun < lsn && lsn <= $0.ended } ?? false
  }

  /// Whether what an event says of a record may follow from a decision: it came while that was carried out, or later, and no version
  /// of the server's has come of the record since, and none of these lives of it was begun since.
  func mayFollowDecision(_ id: RecordID, _ births: Set<Birth>, at lsn: LSN) -> Bool {
    decisions[id.zone]?.contains { decision in
      guard decision.begun < lsn else { return false }
      if lsn <= decision.ended { return true }
      let isNew = births.contains { begun[$0] ?? .zero > decision.ended }
      return !isNew && !versions.contains { $0.key > decision.ended && $0.key < lsn && $0.value == id }
    } ?? false
  }

  /// The newest event up to another one that holds a version of the server's of a record; none without one.
  func newestVersion(of id: RecordID, upTo lsn: LSN) -> LSN {
    versions.lazy.filter { $0.value == id && $0.key <= lsn }.map(\.key).max() ?? .zero
  }

  /// Whether a record was written or deleted here between two events.
  func hasWritten(_ id: RecordID, after lsn: LSN, before end: LSN) -> Bool {
    mutations.contains { $0.key > lsn && $0.key < end && $0.value.id == id }
  }

  /// Whether the device has listed a record, or could not decide about it, and then looked it up in vain: it has stored no version of
  /// the record since.
  func hasLookedUp(_ id: RecordID) -> Bool {
    lookedUp[id].map { newestVersion(of: id, upTo: upTo) < $0.begun } ?? false
  }

  /// Whether the device has still to fetch a version, and says so.
  func lists(_ id: RecordID, _ tag: String?) -> Bool {
    listed.values.contains { event in
      event.zone == id.zone && event.items.contains { $0.name.equalsUTF8(id.name) && tag.equalsUTF8($0.changeTag) }
    }
  }

  /// Of some births those of creations on this device that it does not know to have been on the server.
  private func unconfirmed(_ births: Set<Birth>, of id: RecordID) -> Set<Birth> {
    births.intersection(created[id] ?? []).subtracting(confirmed[id] ?? [])
  }

  private mutating func add(_ lsn: LSN, _ mutation: Mutation) {
    mutations[lsn] = mutation
    writers[lsn] = writer
  }

  private mutating func settle(_ event: Settled, at lsn: LSN) {
    let births = mutations[event.lsn]?.births ?? []
    switch event.outcome {
    case .saved:
      versions[lsn] = event.id
      acknowledged[event.id] = event.lsn
      confirmed[event.id, default: []].formUnion(births)
    case .superseded where mutations[event.lsn]?.isDeletion == true:
      givenUp[event.id, default: []].formUnion(births)
      spared[event.id, default: []].formUnion(births)
      if living[event.id]?.isSubset(of: births) ?? true { wronglySpared.append(event.lsn) }
    case .cancelled, .superseded, .deletedOnServer, .rejected, .discarded:
      givenUp[event.id, default: []].formUnion(births)
    case .deleted, .merged, .lost: break
    }
  }
}
