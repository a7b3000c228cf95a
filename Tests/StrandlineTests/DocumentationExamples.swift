// The examples of Strandline.docc, compiled and run: HouseTests finds each of them here, in ReadmeExampleTests or in
// AppTests, letter by letter.

import Foundation
import Observation
import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

func keepTwoNotes(at folder: String) async throws -> [String] {
  let store = try await RecordStore.open(at: folder)
  try await store.write { tx in
    try tx.save(Note(id: "moon", title: "New moon on Friday"))
    try tx.save(Note(id: "tide", title: "Low tide at six"))
  }
  let titles = try store.fetch(Note.self).map(\.title)  // in the order of zone and name
  try await store.close()
  return titles
}

func saveShared(_ title: String, at folder: String) throws {
  let inbox = try RecordStore.inbox(at: folder, types: [Note.self])
  try inbox.write { tx in
    try tx.save(Note(id: RecordName.random(), title: title))
    if try tx.fetch(Note.self, id: "start") != nil {
      try tx.update(Note.self, id: "start") { $0.title = "Last shared: \(title)" }
    }
  }
}

func takeInShared(_ store: RecordStore) async throws -> [RecordID] {
  try store.refresh()  // as soon as the extension has sent its Darwin notification
  var kept: [RecordID] = []
  for refusal in try store.inboxRefusals() {
    kept += refusal.changes.map(\.id)
    try await store.write { tx in
      for case .save(let record) in refusal.changes where try tx.record(record.id) == nil { try tx.create(record) }
      try tx.end(refusal)  // the app has decided; nothing else is kept of it
    }
  }
  return kept
}

func rename(_ id: String, to title: String, in store: RecordStore) async throws {
  do {
    try await store.update(Note.self, id: id) { $0.title = title }  // that field alone
  } catch StrandlineError.Code.recordWasDeleted {
    // Another device deleted it. To have it all the same is a decision of the app, and a new life of the name.
    try await store.write { try $0.create(Note(id: id, title: title)) }
  }
}

func deleteAndThinkAgain(_ id: String, in store: RecordStore) async throws -> [Undone.Kept] {
  let receipt = try await store.write { try $0.delete(Note.self, id: id) }
  let undone = try await store.undo(receipt)  // the note is back, with what was deleted because of it
  return undone.kept  // fields that were changed since; they stay as they are
}

func recentNames(since day: Date, in store: RecordStore) throws -> [String] {
  let query = RecordQuery(
    "Note", where: [RecordFilter("made", .greaterThan, .date(day))], sortedBy: [RecordSort("made", ascending: false)])
  return try store.query(query).records.map(\.id.name)
}

@MainActor final class Badge {
  private let untitled: Live<Int>

  init(_ store: RecordStore) { untitled = store.liveCount(Note.self, where: #Predicate { $0.title.isEmpty }) }

  var text: String { untitled.value.map { "\($0) without a title" } ?? "" }
}

func waitForNotes(_ count: Int, in store: RecordStore) async throws {
  for try await found in store.observeCount(Note.self) where found >= count { return }
}

@MainActor final class SyncBanner {
  private let status: Live<SyncStatus>?

  init(_ store: RecordStore) { status = store.syncEngine?.liveStatus() }  // a store that does not sync has no engine

  var text: String { status?.value?.sentence ?? "" }
  var needsHelp: Bool { status?.value?.needsAttention.isEmpty == false }
}

func askAgain(about zone: ZoneID, in store: RecordStore) async throws {
  try await store.syncEngine?.resumeZone(zone)
  try await store.sync()
}

struct Picture: SyncRecord {
  var id = RecordName.random()
  var title: String
  var photo: Asset?
}

func addPicture(_ title: String, from path: String, to store: RecordStore) async throws -> Picture {
  let photo = try await store.stage(contentsOf: path)
  let picture = Picture(title: title, photo: photo.asset)
  try await store.write { try $0.save(picture) }
  return picture
}

func path(of picture: Picture, in store: RecordStore) async throws -> AssetContent? {
  guard let photo = picture.photo else { return nil }
  return try await store.contents(of: photo, in: RecordID(picture.id))
}

struct Draft: SyncRecord, Equatable {
  var id = RecordName.random()
  var version = RecordVersion()  // filled by each read
  var title: String
  var tags: Set<String> = []
}

func save(_ shown: inout Draft, in store: RecordStore) async throws {
  try await store.write { try $0.save(&shown) }  // what was changed in it since it was read or saved
}

struct Disc: SyncRecord {
  var id: String
  var title: String
}

struct Song: SyncRecord {
  static var schema: [SchemaRule<Song>] {
    [
      .parent(\.disc, whenDeleted: .delete),  // a deleted disc takes its songs along
      .merge(\.tags, .union), .merge(\.plays, .counter),
      .deletion(.deletionWins),  // over an edit of another device, which is told
      .index(\.title),
    ]
  }

  var id: String
  var title: String
  var disc: TypedReference<Disc>
  var tags: Set<String> = []
  var plays = 0
}

func openMusic(at folder: String) async throws -> RecordStore {
  try await RecordStore.open(at: folder, types: [Disc.self, Song.self])
}

struct Swell: SyncRecord {
  /// A text of which this version knows some. One that a later version adds is read, and kept by every edit.
  struct Kind: RawRepresentable, Hashable, Codable {
    var rawValue: String
    static let wind = Kind(rawValue: "wind")
    static let ground = Kind(rawValue: "ground")
  }

  struct Period: JSONField {
    var seconds: Double
    var spread: Double?  // added in version 2, so it is optional: a value of version 1 lacks it
  }

  var id: String
  var kind = Kind.wind
  var period: Period?
}

struct Member: SyncRecord {
  static func migrate(_ record: inout Record) {
    // Version 1 of the app had one name.
    guard case .string(let name)? = record["name"] else { return }
    let parts = name.split(separator: " ", maxSplits: 1).map(String.init)
    record["first"] = .string(parts.first ?? "")
    record["last"] = .string(parts.dropFirst().first ?? "")
    record["name"] = nil
  }

  enum CodingKeys: String, CodingKey {
    case id, first, last
    case city = "town"  // the property has another name, the field has not
  }

  var id: String
  var first: String
  var last: String
  var city: String?
}

func migrateMembers(in store: RecordStore) async throws -> [String] {
  let report = try await store.migrateAll(Member.self) { print("\($0.migrated) of \($0.examined)") }
  return report.failed.map { "\($0.id): \($0.error)" }  // those stay as they are
}

func bringBack(_ id: RecordID, in store: RecordStore) async throws {
  try await store.restore(id).uploaded()
}

func renameNote(_ old: String, to new: String, in store: RecordStore) async throws {
  try await store.write { tx in
    guard var note = try tx.fetch(Note.self, id: old) else { return }
    try tx.delete(note)
    note.id = new
    try tx.save(note)
  }
}

func newestTitles(in store: RecordStore) throws -> (titles: [String], of: Int) {
  try store.read { view in
    let newest = try view.fetch(Note.self, sortedBy: .descending(\.title), limit: 3)
    return (newest.map(\.title), try view.count(Note.self))
  }
}

func addUntitled(to store: RecordStore) async throws -> Bool {
  try await store.write { tx in
    if try tx.exists(Note.self, where: #Predicate { $0.title == "Untitled" }) { return false }
    try tx.save(Note(title: "Untitled"))
    return true
  }.value
}

func firstTitle(after title: String, in store: RecordStore) throws -> String? {
  try store.first(Note.self, where: .where(\.title, .greater, title), sortedBy: .ascending(\.title))?.title
}

func titlesAsPeopleSortThem(with word: String, in store: RecordStore) throws -> [String] {
  let titles = try store.fetch(Note.self).map(\.title).filter { $0.localizedStandardContains(word) }
  return titles.sorted { $0.localizedStandardCompare($1) == .orderedAscending }
}

func renameAll(_ old: String, to new: String, in store: RecordStore) async throws -> Int {
  try await store.update(Note.self, where: #Predicate { $0.title == old }) { $0.title = new }.count
}

@MainActor final class NoteScreen {
  private let note: Live<Note?>

  init(_ id: Note.ID, _ store: RecordStore) { note = store.live(Note.self, id: id) }

  /// Nil while the note does not live.
  var title: String? { note.value??.title }
}

func showBookmarks(_ names: [String], in store: RecordStore) throws -> [String] {
  let notes = try store.fetch(Note.self, ids: names)
  for record in notes.unreadable { print(record.error) }  // of a newer version of the app, say
  return notes.map(\.title)
}

func titles(of ids: [Note.ID], asOf position: LogPosition, in store: RecordStore) throws -> [String]? {
  do {
    return try store.view(asOf: position).fetch(Note.self, ids: ids).map(\.title)
  } catch StrandlineError.Code.positionExpired {
    return nil  // compaction has removed what the store held then
  }
}

func allTitles(beginningWith prefix: String, in store: RecordStore) throws -> [String] {
  let begins = #Predicate<Note> { $0.title.starts(with: prefix) }
  var titles: [String] = []
  var cursor: QueryCursor?
  repeat {
    let page = try store.fetch(Note.self, where: begins, sortedBy: .ascending(\.title), limit: 100, after: cursor)
    titles += page.map(\.title)
    cursor = page.cursor
  } while cursor != nil
  return titles
}

func openWithIndexes(at folder: String) async throws -> RecordStore {
  var options = StoreOptions()
  options.indexes = [RecordIndex("Note", "title"), RecordIndex("Note", "made", ascending: false)]
  let store = try await RecordStore.open(at: folder, options: options)
  print(try store.explain(Note.self, where: #Predicate { $0.title.starts(with: "Low") }))
  // uses the index Note(title) for a condition
  return store
}

func showTitle(of id: String, in store: RecordStore, on screen: @Sendable (String) -> Void) async throws {
  for try await note in store.observe(Note.self, id: id) {
    guard let note else { return }  // deleted: nothing more to show
    screen(note.title)
  }
}

func openKeepingAYear(at folder: String) async throws -> RecordStore {
  var options = StoreOptions()
  options.compaction.history = .since(.seconds(365 * 86_400))
  return try await RecordStore.open(at: folder, options: options)
}

func forgetThePast(of store: RecordStore) async throws -> String {
  let done = try await store.compact(keeping: .latest)  // what was removed is gone from the disk now
  return "\(done.bytesBefore) bytes to \(done.bytesAfter)"
}

func followCount(of store: RecordStore, _ show: (Int) -> Void) async throws {
  for try await _ in store.refreshes(every: .seconds(1)) { show(store.recordCount) }
}

@MainActor final class NoteList {
  private let notes: Live<TypedValues<Note>>

  init(_ store: RecordStore) { notes = store.live(Note.self, sortedBy: .ascending(\.title)) }

  /// A view that reads this is drawn again whenever a note has changed.
  var titles: [String] { notes.value?.map(\.title) ?? [] }
}

func lastTitles(of id: RecordID, in store: RecordStore) throws -> [String] {
  var titles: [String] = []
  var next: LSN? = .zero
  while let after = next {
    let page = try store.history(of: id, after: after)  // the oldest changes first
    for change in page.changes {
      guard let title = try change.record?.value(as: Note.self).title else { continue }
      if titles.last != title { titles.append(title) }
    }
    next = page.next
  }
  return titles
}

struct TitleIndex {
  var titles: [RecordID: String] = [:]
  var position: LogPosition?  // kept with the titles, as text, over relaunches

  mutating func update(from store: RecordStore) throws {
    do {
      guard var position else { return try begin(with: store.view()) }
      var page: ChangePage
      repeat {
        page = try store.changes(since: position)
        for change in page.changes { show(try store.record(change.id), change.id) }
        position = page.position
      } while page.hasMore
      self.position = position
    } catch StrandlineError.Code.positionExpired {
      // Compaction has removed events that were not read yet: begin with what the store holds now.
      try begin(with: store.view())
    }
  }

  private mutating func begin(with view: StoreView) throws {
    titles = [:]
    try view.forEachRecord { show($0, $0.id) }
    position = view.position
  }

  private mutating func show(_ record: Record?, _ id: RecordID) {
    if case .string(let title)? = record?["title"] { titles[id] = title } else { titles[id] = nil }
  }
}

func logUploads(of store: RecordStore, since start: LogPosition, print: @Sendable (String) -> Void) async throws {
  for try await change in store.observeChanges(since: start) where change.kind == .settled {
    print("\(change.id) \(change.outcome.map { "\($0)" } ?? "")")
  }
}

actor TitleCounts: Projection {
  nonisolated let name = "title counts"
  private var titles: [RecordID: String] = [:]  // in an app: tables of its own database,
  private var position: LogPosition?  // and this beside them

  func appliedPosition() -> LogPosition? { position }

  func apply(_ batch: ProjectionBatch) {
    if batch.beginsAnew { titles = [:] }
    for id in batch.deleted { titles[id] = nil }
    for record in batch.saved {
      if case .string(let title)? = record["title"] { titles[record.id] = title } else { titles[record.id] = nil }
    }
    position = batch.position  // in the same transaction as the titles
  }

  func count(of title: String) -> Int { titles.values.count { $0 == title } }
}

func notesTitled(_ title: String, in store: RecordStore, by counts: TitleCounts) async throws -> Int {
  try await store.bringUpToDate(counts)
  return await counts.count(of: title)
}

func keepInStep(_ counts: TitleCounts, with store: RecordStore) -> Task<Void, any Error> {
  Task { try await store.project(into: counts) }  // ends with the store, or with its cancellation
}

func sleep(_ store: RecordStore) async throws {
  try await store.suspend()  // what was written is durable, and the lock is given back
}

func wake(_ store: RecordStore) async throws -> Bool {
  do {
    try await store.resume()  // what an extension has written meanwhile is here now
    return true
  } catch StrandlineError.Code.storeHeld {
    return false  // the extension is writing still: readable as before, and resumed at the next try
  }
}

func syncSuspended(_ store: RecordStore) async throws -> Bool {
  do { try await store.resume() } catch StrandlineError.Code.storeHeld { return true }  // the extension has the store
  let outcome: Result<SyncReport, any Error>
  do { outcome = .success(try await store.sync(deadline: .seconds(25))) } catch { outcome = .failure(error) }
  try await store.suspend()
  return try !outcome.get().isUnfinished
}

func openWhileLocked(at folder: String, isUnlocked: @escaping @Sendable () -> Bool) async throws -> RecordStore? {
  do {
    return try await RecordStore.open(at: folder, environment: .real(isProtectedDataAvailable: isUnlocked))
  } catch StrandlineError.Code.temporarilyUnavailable {
    return nil  // again when the device is unlocked
  }
}

func keepCopy(of store: RecordStore, in folder: String) async throws -> LSN {
  let backup = try await store.backup(to: folder)  // checked, and on the disk
  return backup.lsn
}

struct PageVisits: SyncRecord {
  var id: String
  var visits = 0
}

func countVisit(of page: String, in store: RecordStore) async throws -> (visits: Int, position: LogPosition) {
  let (visits, receipt) = try await store.write { tx in
    if try tx.fetch(PageVisits.self, id: page) == nil { try tx.save(PageVisits(id: page)) }
    let counted = try tx.update(PageVisits.self, id: page) { $0.visits += 1 }
    return counted.visits
  }
  return (visits, receipt.position)  // a later process asks `receipt(at:)` whether the server has it
}

func upload(_ note: Note, from store: RecordStore) async throws -> MutationOutcome? {
  let receipt = try await store.write { tx in try tx.create(note) }  // durable here
  let outcomes = try await receipt.outcome()  // waits until the server has answered
  return outcomes[note.recordID]
}

func confirmUpload(_ receipt: Receipt) async throws -> String {
  do {
    try await receipt.uploaded(within: .seconds(30))
    return "at the server"
  } catch let error as StrandlineError where error.code == .notUploaded {
    return error.message  // held, rejected, given up, deleted at the server, or not in time: which one, and what helps
  }
}

func syncNow(_ store: RecordStore) async throws -> Int {
  do {
    let report = try await store.sync()
    return report.uploaded + report.fetchedSaves + report.fetchedDeletes
  } catch StrandlineError.Code.throttled {
    return 0  // nothing is lost; by itself, the engine goes on when the server's wait is over
  }
}

func keepMine(of id: RecordID, in store: RecordStore) async throws {
  guard let conflict = try store.conflicts(of: id).last, let mine = conflict.local else { return }
  try await store.write { tx in
    guard var record = try tx.record(id) else { return try tx.create(mine) }  // a deletion has won
    for field in conflict.fields where field.loser.isHere {
      if field.name == "___parent" { record.parent = mine.parent } else { record[field.name] = mine[field.name] }
    }
    try tx.save(record)
  }
}

func followSync(_ store: RecordStore, show: (String, Double?) -> Void) async throws -> String {
  guard let engine = store.syncEngine else { return "This store does not sync" }
  for await status in engine.statuses {
    show(status.sentence, status.upload.map { Double($0.done) / Double(max(1, $0.total)) })
    if status.phase == .needsPerson { break }
  }
  return try store.diagnostics()
}

func openForSyncWithLog(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  var configuration = SyncConfiguration(cloud)
  configuration.log = SyncLog(from: .notice) { level, line in print("sync \(level): \(line)") }
  return try await RecordStore.open(at: folder, syncing: configuration)
}

func openWithNewestFirst(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  var configuration = SyncConfiguration(cloud)
  configuration.firstFetch = .recentFirst(types: ["Note"], count: 50)
  return try await RecordStore.open(at: folder, syncing: configuration)
}

func openForRareSync(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  let configuration = SyncConfiguration(cloud)
  let store = try await RecordStore.open(at: folder, syncing: configuration)
  store.syncEngine?.isConstrained = true  // the device is short of power: cycles by itself are ten times rarer
  return store
}

func pendingLines(of store: RecordStore) throws -> [String] {
  var lines: [String] = []
  var next: LSN? = .zero
  while let after = next {
    let page = try store.pendingChanges(after: after)
    lines += page.changes.map { "\($0.id): \($0.obstacle.map { "\($0)" } ?? "is sent next")" }
    next = page.next
  }
  return lines
}

func whyNotUploaded(_ receipt: Receipt) throws -> [String] {
  try receipt.pendingChanges().map { "\($0.id): \($0.obstacle.map { "\($0)" } ?? "is sent next")" }
}

func openForSyncByHand(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  var configuration = SyncConfiguration(cloud)
  configuration.isAutomatic = false  // only `sync()` runs a cycle
  return try await RecordStore.open(at: folder, syncing: configuration)
}

func openWithPolicies(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  var configuration = SyncConfiguration(cloud)
  configuration.zoneLosses[.purged] = .removeHere  // the user had the app's data removed from iCloud
  configuration.zoneLosses[.encryptedDataReset] = .uploadAgain
  configuration.zoneLosses.remadeFollowedMax = 20  // a small zone that was emptied, or made again: take it as it is now
  return try await RecordStore.open(at: folder, syncing: configuration)
}

func openBesideCoreData(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  var configuration = SyncConfiguration(cloud)
  configuration.zones = .allBut([ZoneID("com.apple.coredata.cloudkit.zone")])
  return try await RecordStore.open(at: folder, syncing: configuration)
}

func openLedger(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  var options = StoreOptions()
  options.atomicZones = [ZoneID("Ledger")]
  return try await RecordStore.open(at: folder, syncing: SyncConfiguration(cloud), options: options)
}

func openWithRules(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  var options = StoreOptions()
  options.conflicts["Song"].fields = ["tags": .union, "plays": .counter]
  options.conflicts["Draft"].record = .resolver { conflict in
    var draft = conflict.server
    if case .string(let ours)? = conflict.local["text"], case .string(let theirs)? = draft["text"] {
      draft["text"] = .string(theirs + "\n" + ours)
    }
    return draft
  }
  return try await RecordStore.open(at: folder, syncing: SyncConfiguration(cloud), options: options)
}

func openWithFolders(at folder: String) async throws -> RecordStore {
  var options = StoreOptions()
  options.schema["Task"].parent = ParentSchema("list", whenDeleted: .delete)
  return try await RecordStore.open(at: folder, options: options)
}

func deleteList(_ name: String, in store: RecordStore) async throws -> Int {
  let deleted = try await store.write { tx in try tx.delete(RecordID(name)) }.value
  return deleted.count - 1  // the tasks; `restore` of the list brings them back with it
}

func openWithSchema(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  var options = StoreOptions()
  options.schema["Task"].parent = ParentSchema("list", whenDeleted: .move(to: "inbox"))
  options.schema["Comment"].parent = ParentSchema("task", whenDeleted: .delete)
  options.schema["Task"].version = SchemaVersion(2, whenNewer: .reject)
  return try await RecordStore.open(at: folder, syncing: SyncConfiguration(cloud), options: options)
}

func markPlace(of name: String, on map: Data, in store: RecordStore) async throws {
  try await store.write { tx in
    guard var record = try tx.record(RecordID(name)) else { return }
    record.fields["place"] = .location(Location(latitude: 53.9, longitude: 8.5))
    record.fields["map"] = .data(map)
    record.fields["tags"] = .list(.strings, ["shore", "north"])
    record.fields["draft"] = nil  // the field has no value from now on
    try tx.save(record)
  }
}

func sendOneAgain(in store: RecordStore) async throws {
  let held = try store.heldRecords()
  for one in held { print(one.id, one.code, one.reason) }
  // Send the first of them again with the next sync, and give the others up.
  try await store.releaseHolds(of: held.prefix(1).map(\.id))
  try await store.discardChanges(of: held.dropFirst().map(\.id))
  store.syncEngine?.wake(.foreground)
}

func syncing(with database: any CloudDatabase, appVersion: String) -> SyncConfiguration {
  var configuration = SyncConfiguration(database)
  configuration.appVersion = appVersion
  return configuration
}

func decide(about zone: ZoneID, in store: RecordStore, keepingMine: Bool) async throws {
  // From the server: records that it does not have are removed here, with their unsent edits, each of which is reported.
  // From here: they are uploaded again, and the zone is created if needed.
  try await store.syncEngine?.resync(zone, from: keepingMine ? .here : .server)
  try await store.sync()
}

func seed(_ store: RecordStore) async throws {
  try await store.write { tx in
    for title in ["Tides", "Weather", "Harbours"] { try tx.saveDefault(Note(id: title.lowercased(), title: title)) }
  }
}

func openFirst(at folder: String, cloud: any CloudDatabase) async throws -> RecordStore {
  let store = try await RecordStore.open(at: folder, syncing: SyncConfiguration(cloud))
  try await store.syncEngine?.fetched()  // at every later launch it returns at once
  return store
}

func syncInBackground(_ store: RecordStore) async throws -> Bool {
  // The system gives 30 seconds. Cancel the task where it takes them back.
  let report = try await store.sync(deadline: .seconds(25))
  return !report.isUnfinished  // if something is left, ask the system for another turn
}

func whatDiffers(in zone: ZoneID, of engine: SyncEngine) async throws -> [String] {
  let found = try await engine.verify(zone)
  print(found)  // Main: 1203 of 1204 records equal, 1 different, 2 mended
  return found.missingHere + found.missingThere + found.different + found.unreadable
}

func endZone(_ zone: ZoneID, in store: RecordStore) async throws {
  // Durable when it returns; the next cycle deletes the zone at the server, again after a crash until the server confirms it.
  try await store.syncEngine?.eraseZone(zone)
  try await store.sync()
  // Its records are still readable here, and `resync(zone, from: .here)` would create it again. Remove them here too:
  try await store.syncEngine?.resync(zone, from: .server)
  try await store.sync()
}

struct DiaryPage: SyncRecord {
  var id: String
  var text: FieldValue = .encrypted(.string(""))

  var words: String {
    get {
      guard case .encrypted(.string(let words)) = text else { return "" }
      return words
    }
    set { text = .encrypted(.string(newValue)) }
  }
}

struct Buoy: SyncRecord {
  var id: Int  // the record's name is the number in decimal
  var name: String
}

struct Reading: SyncRecord {
  // A field that a record lacks has the value of this property here.
  static var prototype: Reading? { Reading(buoy: TypedReference(id: 0), taken: Date(timeIntervalSince1970: 0)) }

  var id = UUID()
  var buoy: TypedReference<Buoy>
  var taken: Date
  var waves: [Double] = []
  var wind = Wind(knots: 0)  // added in version 2 of the app: a reading of version 1 has none

  struct Wind: JSONField {
    var knots: Int
    var direction: String?
  }
}

func highestWaves(in store: RecordStore) throws -> [String] {
  let readings = try store.fetch(Reading.self)
  for record in readings.unreadable { print("not shown: \(record.error)") }
  return try readings.map { reading in
    let buoy = try store.fetch(Buoy.self, id: reading.buoy.id)
    return "\(buoy?.name ?? "unknown buoy"): \(reading.waves.max() ?? 0) m"
  }
}

func receipt(of saved: String, in store: RecordStore) throws -> Receipt {
  try store.receipt(at: LogPosition(text: saved))  // `saved` was receipt.position.description, before a relaunch
}

func summary(of store: RecordStore) throws -> String {
  let status = try store.status()
  let held = status.held.map { "\($0.id): \($0.reason)" }.joined(separator: "; ")
  return "\(status.records) records, \(status.unsettled) to upload, held: [\(held)]"
}

struct CountingDatabase: ForwardingDatabase {
  let base: any CloudDatabase
  let count: @Sendable (_ request: String) -> Void

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    count("lookup")
    return try await base.lookup(names, in: zone)
  }
  func modify(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] {
    count("modify")
    return try await base.modify(operations, in: zone, atomic: atomic)
  }
  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    count("zoneChanges")
    return try await base.zoneChanges(of: queries)
  }
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    count("databaseChanges")
    return try await base.databaseChanges(since: token, limit: limit)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The examples of the documentation` {
  @Test func `keep two notes on a real disk`() async throws {
    let folder = try TemporaryFolder()
    #expect(try await keepTwoNotes(at: folder("notes")) == ["New moon on Friday", "Low tide at six"])
  }

  @Test func `add a picture with its photo`() async throws {
    let folder = try TemporaryFolder()
    let store = try await RecordStore.open(at: folder("pictures"))
    let picture = try await addPicture("The pier", from: #filePath, to: store)
    #expect(try store.fetch(Picture.self, id: picture.id)?.photo == picture.photo)
    try await store.close()
  }

  @Test func `sleep while an extension writes, and wake`() async throws {
    let folder = try TemporaryFolder()
    let store = try await RecordStore.open(at: folder("notes"))
    try await sleep(store)
    let other = try await RecordStore.open(at: folder("notes"))
    try await other.write { try $0.save(Note(id: "tide", title: "Low tide at six")) }
    #expect(try await !wake(store))
    try await other.close()
    #expect(try await wake(store))
    #expect(try await keepCopy(of: store, in: folder("copy")) == store.durableLSN)
    #expect(try await openWhileLocked(at: folder("other")) { true }?.close() != nil)
    #expect(try store.fetch(Note.self, id: "tide")?.title == "Low tide at six")
    try await store.close()
  }

  @Test func `share a note while the app has the store open`() async throws {
    let folder = try TemporaryFolder()
    let store = try await RecordStore.open(at: folder("notes"), types: [Note.self])
    try await store.write { try $0.save(Note(id: "start", title: "Start")) }
    try saveShared("Low tide", at: folder("notes"))
    #expect(try await takeInShared(store) == [])
    #expect(try store.fetch(Note.self, id: "start")?.title == "Last shared: Low tide" && store.recordCount == 2)
    let inbox = try RecordStore.inbox(at: folder("notes"), types: [Note.self])
    try inbox.write { try $0.save(Note(id: "ebb", title: "Ebb")) }
    try await store.write { tx in
      try tx.save(Note(id: "ebb", title: "Gone"))
      try tx.delete(Note.self, id: "ebb")
    }
    #expect(try await takeInShared(store) == [RecordID("ebb")])
    #expect(try store.fetch(Note.self, id: "ebb")?.title == "Ebb" && store.inboxRefusals().isEmpty)
    try await store.close()
  }

  @Test @MainActor func `ask by terms, sort as people do, and edit all that is found`() async throws {
    let store = try await RecordStore.open(at: "/notes", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.write { tx in
      for title in ["tide 10", "Tide 9", "Ebb"] { try tx.save(Note(id: title, title: title)) }
    }
    #expect(try firstTitle(after: "F", in: store) == "Tide 9")
    #expect(try titlesAsPeopleSortThem(with: "TIDE", in: store) == ["Tide 9", "tide 10"])
    let screen = NoteScreen("Ebb", store)
    #expect(try await renameAll("Ebb", to: "Flood", in: store) == 1)
    while screen.title != "Flood" { await Task.yield() }
    // Every form of a term, and what reads several records by their kind.
    let titles = ["Flood", "Ebb"]
    let found = try store.fetch(
      Note.self, where: .where(\.title, isIn: titles), .where(\.title, .equal, "Flood"),
      .where(\.title, .contains, "oo"))
    #expect(found.count == 1)
    #expect(try !store.exists(Draft.self, where: .where(\.tags, contains: "shore")))
    #expect(try store.records([RecordID("Ebb")]).count == 1)
    var names: [String] = []
    for record in try store.records(ofType: "Note") { names.append(record.id.name) }
    #expect(names.count == 3)
    // What was edited on a form since it was shown is an edit against what was shown.
    let shown = try #require(try store.fetch(Note.self, id: "tide 10"))
    var edited = shown
    edited.title = "tide 11"
    try await store.write { [edited] in try $0.save(edited, from: shown) }
    #expect(try store.fetch(Note.self, id: "tide 10")?.title == "tide 11")
    #expect(try store.indexes().isEmpty)
    try await store.close()
  }

  private struct Pressing: SyncRecord {
    static var schema: [SchemaRule<Pressing>] { [.version(SchemaVersion(2))] }
    var id: String
  }

  @Test func `copy a store that is closed, stage pieces, and name a version`() async throws {
    let folder = try TemporaryFolder()
    let store = try await RecordStore.open(at: folder("notes"), types: [Pressing.self])
    try await store.write { try $0.save(Pressing(id: "first")) }
    let pieces = AsyncStream<[UInt8]> { stream in
      for byte in UInt8(0)..<3 { stream.yield([byte]) }
      stream.finish()
    }
    #expect(try await store.stage(pieces: pieces).asset.size == 3)
    try await store.close()
    try await RecordStore.backup(at: folder("notes"), to: folder("copy"))
    let copy = try await RecordStore.open(at: folder("copy"))
    #expect(copy.recordCount == 1)
    try await copy.close()
  }

  @Test func `rename, mark and count notes`() async throws {
    let store = try await RecordStore.open(at: "/notes", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let note = Note(id: "tide", title: "Low tide at six")
    try await store.write { try $0.save(note) }
    try await rename(note.id, to: "Low tide at seven", in: store)
    try await renameNote("tide", to: "ebb", in: store)
    #expect(try store.fetch(Note.self, id: "tide") == nil)
    #expect(try store.fetch(Note.self, id: "ebb")?.title == "Low tide at seven")
    #expect(try showBookmarks(["none", "ebb"], in: store) == ["Low tide at seven"])
    let first = try #require(try store.changes(since: .start).changes.first).position
    #expect(try titles(of: [note.id], asOf: first, in: store) == ["Low tide at six"])

    try await rename(note.id, to: "A new life", in: store)
    #expect(try store.fetch(Note.self, id: "tide")?.title == "A new life")

    try await store.write { try $0.save(Draft(id: "d", title: "a")) }
    var shown = try #require(try store.fetch(Draft.self, id: "d"))
    try await store.update(Draft.self, id: "d") { $0.tags = ["shore"] }
    shown.title = "b"
    try await save(&shown, in: store)
    #expect(try shown == Draft(id: "d", title: "b", tags: ["shore"]) && store.fetch(Draft.self, id: "d") == shown)
    try await store.write { try $0.delete(Draft.self, id: "d") }

    _ = try await countVisit(of: "shore", in: store)
    let second = try await countVisit(of: "shore", in: store)
    #expect(second.visits == 2)
    #expect(try store.receipt(at: second.position).lsns?.upperBound == second.position.lsn)
    #expect(try await store.write { try $0.delete(RecordID("shore")) }.value == [RecordID("shore")])

    for _ in 0..<2 { try await seed(store) }
    try await store.write { tx in for title in ["tides", "weather", "harbours"] { try tx.delete(RecordID(title)) } }
    try await seed(store)
    #expect(try store.fetch(Note.self, id: "tides") == nil)

    try await markPlace(of: "ebb", on: Data([1, 2]), in: store)
    #expect(try store.record(RecordID("ebb"))?.fields["tags"] == .list(.strings, ["shore", "north"]))
    #expect(try summary(of: store).hasPrefix("2 records, "))
    try await store.close()
  }

  @Test func `read and edit what an earlier version wrote, and migrate all of it`() async throws {
    let store = try await RecordStore.open(at: "/members", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.write { tx in
      for (id, name) in [("a", "Ada King"), ("b", "Bea Lo"), ("c", "Cleo")] {
        let fields: [String: FieldValue] = ["name": .string(name), "town": "Cuxhaven"]
        try tx.save(Record(type: "Member", id: RecordID(id), fields: fields))
      }
      try tx.save(Record(type: "Member", id: RecordID("nobody")))
    }
    let ada = try await store.update(Member.self, id: "a") { $0.last = "Lovelace" }.value
    #expect(ada.first == "Ada" && ada.last == "Lovelace" && ada.city == "Cuxhaven")
    #expect(try store.record(RecordID("a"))?.fields == ["first": "Ada", "last": "Lovelace", "town": "Cuxhaven"])
    #expect(try await migrateMembers(in: store).map { $0.prefix(12) } == ["Main/nobody:"])
    #expect(try store.record(RecordID("b"))?.fields == ["first": "Bea", "last": "Lo", "town": "Cuxhaven"])
    #expect(try store.fetch(Member.self, id: "c")?.last == "")
    try await store.close()
  }

  @Test func `read what a later version of the app wrote, and keep it`() async throws {
    let store = try await RecordStore.open(at: "/s", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let later: FieldValue = .bytes(Array(#"{"crests":7,"seconds":9,"spread":2}"#.utf8))
    try await store.write { tx in
      try tx.save(Record(type: "Swell", id: RecordID("s"), fields: ["kind": "tsunami", "period": later]))
    }
    let swell = try #require(try store.fetch(Swell.self, id: "s"))
    #expect(swell.kind.rawValue == "tsunami" && swell.period?.spread == 2)
    try await store.update(Swell.self, id: "s") { $0.kind = .ground }
    #expect(try store.record(RecordID("s"))?.fields == ["kind": "ground", "period": later])
    try await store.update(Swell.self, id: "s") { $0.period?.seconds = 8 }
    #expect(try store.fetch(Swell.self, id: "s")?.period?.spread == 2)
    try await store.close()
  }

  @Test func `tell a history, and keep an index in step`() async throws {
    let disk = SimulatedDisk()
    let store = try await RecordStore.open(
      at: "/notes", syncing: .simulated(SimulatedCloud()), environment: .simulated(disk: disk, seed: 1))
    var index = TitleIndex()
    try index.update(from: store)
    let lines = Mutex<[String]>([])
    let (printed, signal) = AsyncStream<Void>.makeStream()
    let logging = Task {
      try await logUploads(of: store, since: .start) { line in
        lines.withLock { $0.append(line) }
        signal.yield()
      }
    }
    for title in ["Low tide at six", "Low tide at six", "Low tide at seven"] {
      try await store.write { try $0.save(Note(id: "tide", title: title)) }
      try await store.write { try $0.save(Record(type: "Page", id: RecordID("shore"), fields: ["title": "Shore"])) }
    }
    #expect(try lastTitles(of: RecordID("tide"), in: store) == ["Low tide at six", "Low tide at seven"])
    try index.update(from: store)
    #expect(index.titles == [RecordID("tide"): "Low tide at seven", RecordID("shore"): "Shore"])
    try await store.write { try $0.delete(RecordID("shore")) }
    _ = try await store.sync()
    for await _ in printed where lines.withLock({ $0.contains("Main/tide saved") }) { break }
    try await store.compact()
    try index.update(from: store)
    #expect(index.titles == [RecordID("tide"): "Low tide at seven"])
    try await store.close()
    try await logging.value
  }

  @Test @MainActor func `show a query in a model that a view observes`() async throws {
    let store = try await RecordStore.open(at: "/notes", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.write { try $0.save(Note(id: "tide", title: "Low tide")) }
    let list = NoteList(store)
    func untilShown(_ titles: [String]) async {
      while list.titles != titles {
        let (changes, signal) = AsyncStream<Void>.makeStream()
        let isShown = withObservationTracking {
          list.titles == titles
        } onChange: {
          signal.yield()
        }
        if isShown { return }
        for await _ in changes { break }
        await Task.yield()
      }
    }
    await untilShown(["Low tide"])
    try await store.write { try $0.save(Note(id: "ebb", title: "Ebb")) }
    await untilShown(["Ebb", "Low tide"])
    try await store.close()
  }

  @Test @MainActor func `count in a view and in a loop, and take a deletion back`() async throws {
    let store = try await RecordStore.open(at: "/notes", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let badge = Badge(store)
    #expect(badge.text.isEmpty)
    try await store.write { try $0.save(Note(id: "tide", title: "")) }
    try await waitForNotes(1, in: store)
    while badge.text != "1 without a title" { await Task.yield() }
    #expect(try await deleteAndThinkAgain("tide", in: store).isEmpty)
    #expect(try store.fetch(Note.self, id: "tide") != nil)
    let (old, day) = (Date(timeIntervalSince1970: 1), Date(timeIntervalSince1970: 2))
    try await store.write { tx in
      for (name, made) in [("old", old), ("new", day.addingTimeInterval(1)), ("newest", day.addingTimeInterval(2))] {
        try tx.save(Record(type: "Note", id: RecordID(name), fields: ["made": .date(made)]))
      }
    }
    #expect(try recentNames(since: day, in: store) == ["newest", "new"])
    try await store.close()
  }

  @Test func `keep a year of history, and then none`() async throws {
    let folder = try TemporaryFolder()
    let store = try await openKeepingAYear(at: folder("notes"))
    for title in ["Low tide", "Ebb", "Flood"] { try await store.write { try $0.save(Note(id: "tide", title: title)) } }
    #expect(try await store.compact().eventsBefore == 0)
    #expect(try store.history(of: RecordID("tide")).changes.count == 3)
    #expect(try await forgetThePast(of: store).contains(" bytes to "))
    #expect(try store.history(of: RecordID("tide")).changes.filter { $0.record != nil }.count == 1)
    try await store.close()
  }

  @Test func `follow another process until the store is closed`() async throws {
    let disk = SimulatedDisk()
    let writer = try await RecordStore.open(at: "/notes", environment: .simulated(disk: disk, seed: 1))
    // On a simulated disk the writer says only when it is asked to what is durable.
    func write(_ name: String) throws {
      try writer.writeBlocking { try $0.save(Note(id: name, title: "Low tide")) }
      if case .writer(let log) = writer.source { try log.raiseControl() }
    }
    try write("tide")
    let reader = try await RecordStore.openReadOnly(at: "/notes", environment: .simulated(disk: disk, seed: 2))
    var counts: [Int] = []
    let failures = Mutex<[any Error]>([])
    try await followCount(of: reader) { count in
      counts.append(count)
      do {
        if counts.count == 3 { return try reader.closeBlocking() }
        try write("n\(counts.count)")
      } catch { failures.withLock { $0.append(error) } }
    }
    #expect(counts == [1, 2, 3] && failures.withLock { $0.isEmpty })
    // One that is cancelled ends at once, also where nothing is new.
    let quiet = try await RecordStore.openReadOnly(at: "/notes", environment: .simulated(disk: disk, seed: 3))
    let task = Task {
      var seen = 0
      for try await _ in quiet.refreshes() { seen += 1 }
      return seen
    }
    task.cancel()
    #expect(try await task.value <= 1)
    try quiet.closeBlocking()
    try await writer.close()
  }

  @Test func `keep a projection in step`() async throws {
    let store = try await RecordStore.open(at: "/notes", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let counts = TitleCounts()
    for name in ["tide", "ebb", "moon"] {
      try await store.write { try $0.save(Note(id: name, title: name == "moon" ? "New moon" : "Low tide")) }
    }
    #expect(try await notesTitled("Low tide", in: store, by: counts) == 2)
    let task = keepInStep(counts, with: store)
    while try store.status().projections.isEmpty { await Task.yield() }
    try await store.write { try $0.delete(RecordID("ebb")) }
    while await counts.count(of: "Low tide") != 1 { await Task.yield() }
    try await store.close()
    try await task.value
  }

  @Test func `read what buoys measure, and a position of before a relaunch`() async throws {
    let disk = SimulatedDisk()
    let store = try await RecordStore.open(at: "/notes", environment: .simulated(disk: disk, seed: 1))
    let receipt = try await store.write { tx in
      try tx.save(Buoy(id: 7, name: "Elbe 1"))
      try tx.save(
        Reading(
          buoy: TypedReference(id: 7), taken: Date(timeIntervalSince1970: 1_767_225_600), waves: [0.5, 2.5],
          wind: Reading.Wind(knots: 12, direction: "NW")))
      // As version 1 of the app wrote them, and one that no version did.
      try tx.save(Record(type: "Reading", id: RecordID(UUID().uuidString)))
      try tx.save(Record(type: "Reading", id: RecordID(UUID().uuidString), fields: ["taken": "noon"]))
    }
    #expect(try Set(highestWaves(in: store)) == ["Elbe 1: 2.5 m", "unknown buoy: 0.0 m"])
    let saved = receipt.position.description
    try await store.close()
    let again = try await RecordStore.open(at: "/notes", environment: .simulated(disk: disk, seed: 1))
    #expect(try StrandlineTests.receipt(of: saved, in: again).lsns == receipt.lsns)
    try await again.close()
  }

  @Test func `sync with a cloud, through a database of the app's own too`() async throws {
    let cloud = SimulatedCloud()
    let requests = Mutex<[String]>([])
    var configuration = SyncConfiguration { folder, environment in
      let base = try SyncConfiguration.simulated(cloud).makeDatabase(folder, environment)
      return CountingDatabase(base: base) { request in requests.withLock { $0.append(request) } }
    }
    configuration.isAutomatic = false
    let phone = try await RecordStore.open(
      at: "/notes", syncing: configuration, environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let note = Note(id: "tide", title: "Low tide at six")
    #expect(try pendingLines(of: phone).isEmpty)
    async let outcome = upload(note, from: phone)
    var synced = 0
    while synced == 0 { synced = try await syncNow(phone) }
    #expect(try await outcome == .saved)
    #expect(requests.withLock { Set($0) }.isSuperset(of: ["modify", "databaseChanges"]))
    try await phone.close()

    let folder = try TemporaryFolder()
    let database = try SyncConfiguration.simulated(cloud).makeDatabase("/other", .real)
    let tablet = try await openForSyncByHand(at: folder("notes"), cloud: database)
    #expect(try await syncNow(tablet) == 1)
    #expect(try tablet.fetch(Note.self, id: "tide")?.title == "Low tide at six")
    try await sendOneAgain(in: tablet)
    var page = DiaryPage(id: "today")
    page.words = "fog"
    try await tablet.write { [page] tx in try tx.save(page) }
    #expect(try tablet.fetch(DiaryPage.self, id: "today")?.words == "fog")
    #expect(try tablet.record(page.recordID)?["text"] == .encrypted(.string("fog")))
    try await tablet.close()
    #expect(syncing(with: database, appVersion: "2").appVersion == "2")

    try await openLedger(at: folder("ledger"), cloud: database).close()
    let music = try await openMusic(at: folder("music"))
    try await music.write { tx in
      try tx.save(Disc(id: "shore", title: "Shore"))
      try tx.save(Song(id: "ebb", title: "Ebb", disc: TypedReference(id: "shore")))
      try tx.delete(Disc.self, id: "shore")
      #expect(try tx.fetch(Song.self, id: "ebb") == nil)
    }
    try await music.close()
    let lists = try await openWithFolders(at: folder("lists"))
    try await lists.write { tx in
      try tx.save(Record(type: "List", id: RecordID("home")))
      try tx.save(Record(type: "Task", id: RecordID("tidy"), fields: ["list": .reference(Reference("home"))]))
    }
    #expect(try await deleteList("home", in: lists) == 1)
    try await lists.restore(RecordID("home"))
    #expect(try lists.record(RecordID("tidy")) != nil)
    try await lists.close()
    try await openWithNewestFirst(at: folder("newest"), cloud: database).close()
    let first = try await openFirst(at: folder("first"), cloud: database)
    #expect(try first.engine.status.sentence == "Synced")
    #expect(try first.engine.status.sentence(in: .gmt) == "Synced")
    try await askAgain(about: .main, in: first)
    await MainActor.run { SyncBanner(first) }.shows("Synced")
    try await first.close()
    let watch = try await openWithRules(at: folder("watch"), cloud: database)
    #expect(try await syncNow(watch) == 1)
    try await watch.close()
  }
}

extension SyncBanner {
  fileprivate func shows(_ text: String) async {
    while self.text != text { await Task.yield() }
    #expect(!needsHelp)
  }
}
