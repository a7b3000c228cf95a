// The contents that go up before their records: which have to, and what the server has said of those that did.
//
// A content goes to another server than its record, and its size is no measure of a request. So it has a lane of its own: a record that
// names a content which the server does not have waits (`UploadWait.content`), all that is ready is sent first, and one content goes
// up after the other. The receipt of an upload counts for a while. It is in memory alone: after a relaunch a content whose record was
// not sent goes up again.

import StrandlineSystem

/// A content that a change names and that the server does not have.
package struct ContentUpload: Sendable {
  /// The pending change that names the content.
  package var item: UploadItem
  /// The field of the record.
  package var place: ContentPlace
  package var content: NamedContent
  /// Where it is read from; set right before it is sent.
  package var source: ContentSource?

  package init(_ item: UploadItem, _ place: ContentPlace, _ content: NamedContent) {
    (self.item, self.place, self.content) = (item, place, content)
  }
}

/// What an operation says of contents of this device.
struct NamedFiles: Sendable {
  /// Those that have to be uploaded first.
  var lacking: [ContentUpload] = []
  /// Whether there are any.
  var isAny = false
  /// Whether the server has one of which this log does not know the server's name: the stamp cannot be written without it.
  var lacksName = false
}

/// A content in the field that names it.
private struct ContentKey: Hashable {
  var place: ContentPlace
  var hash: ContentHash

  init(_ upload: ContentUpload) { (place, hash) = (upload.place, upload.content.hash) }
  init(_ place: ContentPlace, _ hash: ContentHash) { (self.place, self.hash) = (place, hash) }
}

/// The contents to be uploaded, in the order in which they were found.
struct DueContents: Sendable {
  private var uploads: [ContentKey: (number: UInt64, upload: ContentUpload)] = [:]
  /// Those of each record.
  private var keys: [RecordID: Set<ContentKey>] = [:]
  /// Also of some that are due no more: their numbers are not in `uploads`.
  private var order: [(number: UInt64, key: ContentKey)] = []
  private var lastNumber: UInt64 = 0

  var isEmpty: Bool { uploads.isEmpty }
  var count: Int { uploads.count }

  func contains(_ id: RecordID) -> Bool { keys[id] != nil }

  /// The first one that `isMeant` accepts.
  func first(where isMeant: (ContentUpload) -> Bool) -> ContentUpload? {
    for (number, key) in order {
      if let known = uploads[key], known.number == number, isMeant(known.upload) { return known.upload }
    }
    return nil
  }

  /// Adds one. One that is due already keeps its place.
  mutating func add(_ upload: ContentUpload) {
    let key = ContentKey(upload)
    if let known = uploads[key] {
      uploads[key] = (known.number, upload)
      return
    }
    lastNumber += 1
    uploads[key] = (lastNumber, upload)
    keys[upload.item.id, default: []].insert(key)
    order.append((lastNumber, key))
  }

  mutating func drop(_ upload: ContentUpload) { drop(ContentKey(upload), of: upload.item.id) }

  /// Drops those of a record, but for those of one change.
  mutating func drop(of id: RecordID, but lsn: LSN?) {
    for key in keys[id] ?? [] where lsn == nil || uploads[key]?.upload.item.lsn != lsn { drop(key, of: id) }
  }

  private mutating func drop(_ key: ContentKey, of id: RecordID) {
    uploads[key] = nil
    keys[id]?.remove(key)
    if keys[id]?.isEmpty == true { keys[id] = nil }
    if order.count > 2 * uploads.count + 64 { order.removeAll { uploads[$0.key]?.number != $0.number } }
  }
}

/// The contents to be uploaded, in order, and those that were.
struct ContentLane: Sendable {
  /// How long a receipt is used. The server's own limit is not documented; the addresses of uploads count for 15 minutes.
  static let receiptMilliseconds: Int64 = 10 * 60 * 1_000
  /// So many records go up together, or as many as there are after a minute.
  private static let togetherMax = 20
  private static let togetherMilliseconds: Int64 = 60_000
  /// Of so many records that were sent it is remembered what the server calls their contents.
  private static let sentMax = 1_000

  private struct Uploaded: Sendable {
    var asset: Asset
    /// When the server gave its receipt, or when the last upload ended while it counted.
    var begin: Moment

    /// Whether its receipt is used.
    func counts(at now: Moment) -> Bool {
      now.nanoseconds < begin.after(milliseconds: ContentLane.receiptMilliseconds)
    }
  }

  /// What was uploaded for a record.
  private struct Receipts: Sendable {
    var contents: [ContentKey: Uploaded] = [:]
    /// The record was sent: its contents are remembered only for what the server calls them.
    var isSent = false
  }

  private(set) var due = DueContents()
  private var uploaded: [RecordID: Receipts] = [:]
  /// Records that were sent, in order.
  private var sent: [RecordID] = []
  /// Records whose contents are all there, which wait for a few others; and until when, by the monotonic clock.
  private var ready: (ids: [RecordID], end: UInt64) = ([], 0)

  init() {}

  /// Whether records wait for others though their contents are all there.
  var hasReady: Bool { !ready.ids.isEmpty }

  /// For tests: whether the upload of a content will end the wait of a record.
  func ends(waitOf id: RecordID) -> Bool { due.contains(id) || ready.ids.contains(id) }

  /// Adds contents, unless they are due already.
  mutating func add(_ uploads: [ContentUpload]) { for upload in uploads { due.add(upload) } }

  /// No content of a record is uploaded, but for those of one change.
  mutating func drop(of id: RecordID, but lsn: LSN? = nil) { due.drop(of: id, but: lsn) }

  /// Whether it waits for a record to be settled.
  func awaitsEnd(of id: RecordID) -> Bool { due.contains(id) || uploaded[id]?.isSent == false }

  /// A record has no pending change any more.
  mutating func settled(_ id: RecordID) {
    due.drop(of: id, but: nil)
    guard uploaded[id]?.isSent == false else { return }
    uploaded[id]?.isSent = true
    sent.append(id)
    guard sent.count > Self.sentMax else { return }
    let oldest = sent.removeFirst()
    if uploaded[oldest]?.isSent == true { uploaded[oldest] = nil }
  }

  /// The server has a content.
  ///
  /// A record goes when its last content is there, and a set when that of its last record is. The receipts of the others would be too old
  /// by then if they took long, and their contents would go up again and again: so each upload renews the receipts that count.
  ///
  /// - Returns: the records to send now, of which it has all.
  mutating func uploaded(_ upload: ContentUpload, as asset: Asset, at now: Moment) -> [RecordID] {
    due.drop(upload)
    for (id, receipts) in uploaded where !receipts.isSent {
      for (key, known) in receipts.contents where known.counts(at: now) { uploaded[id]?.contents[key]?.begin = now }
    }
    uploaded[upload.item.id, default: Receipts()].isSent = false
    uploaded[upload.item.id]?.contents[ContentKey(upload)] = Uploaded(
      asset: asset.with(upload.content.hash), begin: now)
    if !due.contains(upload.item.id) {
      if ready.ids.isEmpty { ready.end = now.after(milliseconds: Self.togetherMilliseconds) }
      ready.ids.append(upload.item.id)
    }
    let isTime = due.isEmpty || ready.ids.count >= Self.togetherMax || now.nanoseconds >= ready.end
    return isTime ? takeReady() : []
  }

  /// The server has refused a record, perhaps because of its receipts: they are not used again.
  ///
  /// - Returns: whether it had any.
  mutating func forgetReceipts(of id: RecordID) -> Bool { uploaded.removeValue(forKey: id) != nil }

  /// The records whose contents are all there.
  mutating func takeReady() -> [RecordID] {
    defer { ready.ids = [] }
    return ready.ids
  }

  /// A version as the server gets it: with the server's names of the contents that it has.
  ///
  /// - Parameters:
  ///   - item: the change.
  ///   - there: the fields that the server's record has. A file that it does not have in a field, but another record has, goes up once more:
  ///     the server takes a file for the record of its upload.
  ///   - isSent: whether a field is sent. Of another one the server has the content, and only the checksum in the stamp needs its name.
  func naming(
    _ version: Version, of item: UploadItem, over there: [String: FieldValue], at now: Moment, isSent: (String) -> Bool
  ) -> (version: Version, files: NamedFiles) {
    var (result, files) = (version, NamedFiles())
    let naming = version.fields.filter { !$0.value.namedContents.isEmpty }
    for (name, value) in naming.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
      let place = ContentPlace(record: item.id, type: version.type, field: name)
      let isSent = isSent(name)
      result.fields[name] = value.replacingAssets { asset in
        guard let hash = asset.contentHash else { return asset }
        if asset.state != .local {
          guard isSent, there[name]?.assets.contains(where: { $0.isSameFile(as: asset) }) != true else { return asset }
        }
        files.isAny = true
        let known = uploaded[item.id]?.contents[ContentKey(place, hash)]
        if let known, !isSent || known.counts(at: now) { return known.asset }
        if isSent {
          files.lacking.append(ContentUpload(item, place, NamedContent(hash: hash, size: asset.size)))
        } else {
          files.lacksName = true
        }
        return asset
      }
    }
    return (result, files)
  }
}

extension SyncPlan {
  /// Whether a record cannot be sent yet because of the contents that it names. Then it waits for them.
  mutating func waitsForContents(_ upload: Upload, _ facts: some SyncFacts) -> Bool {
    let (id, contents) = (upload.id, upload.contents)
    if contents.lacksName {
      // The answer makes the server's version the base. If it does not, that is as if the record were refused again and again.
      records.countRefusal(
        of: id, CloudError(.unexpectedServerResponse, reason: "the server does not show the content that it has taken"))
      queue.wait(id, for: .lookup)
      lookUp(id)
      return true
    }
    // An older change may have named others.
    records.contents.drop(of: id, but: contents.lacking.isEmpty ? nil : upload.lsn)
    guard !contents.lacking.isEmpty else { return false }
    records.contents.add(contents.lacking)
    queue.wait(id, for: .content(upload.lsn))
    return true
  }

  /// The content that goes up next; nil if there is none. One whose record would not be sent now is not.
  func contentToUpload(_ facts: some SyncFacts) -> ContentUpload? {
    guard cycle.sends, !records.contents.due.isEmpty else { return nil }
    let (only, frozen) = (cycle.options.zone, frozenZones(facts))
    return records.contents.due.first { upload in
      let id = upload.item.id
      guard only == nil || only == id.zone, !frozen.contains(id.zone), queue.wait(of: id) == .content(upload.item.lsn)
      else { return false }
      // What cannot be read now is found out when it is its turn.
      guard queue.halts.isAny, let entry = try? facts.entry(id), let pending = entry.pending else { return true }
      return !queue.halts.contains(id, entry, pending)
    }
  }

  /// A content goes up, unless its record has changed since.
  mutating func choose(_ upload: ContentUpload, _ facts: some SyncFacts) throws -> Choice {
    let (id, lsn) = (upload.item.id, upload.item.lsn)
    if try facts.entry(id)?.pending?.newest == lsn { return .next(.ask(.uploadContent(upload))) }
    records.contents.drop(of: id)
    wakeFromContents([id])
    return .again
  }

  /// A content was uploaded or refused. A refusal is of that record alone.
  mutating func apply(
    _ result: Result<SyncAnswer, CloudError>, to upload: ContentUpload, _ facts: some SyncFacts
  ) throws {
    let id = upload.item.id
    switch result {
    case .success(.content(let asset)):
      wakeFromContents(records.contents.uploaded(upload, as: asset, at: facts.now))
    case .success: preconditionFailure("the answer to the upload of a content of another kind")
    case .failure(let error):
      sendReady()
      switch error.meaning.request {
      case .retry: return failed(.content, error, doing: SyncRequest.uploadContent(upload).words, facts)
      case .zoneMissing:
        records.contents.drop(of: id)
        queue.wake(id)
        return confirmLoss(of: id.zone, error, kind: .content, facts)
      case _ where error.endsCycle: throw error
      default: break
      }
      records.contents.drop(of: id)
      var known = error
      known.reason = "the content of field '\(upload.place.field)': \(error.reason)"
      hold([upload.item], because: known, facts)
      // The storage is full for the other contents too, and for records.
      if error.meaning.request == .stopSaves {
        queue.haltSaves(of: id, because: error, at: facts.now.nanoseconds)
      }
      failedIfNamed(.content, error, doing: SyncRequest.uploadContent(upload).words, facts)
    }
  }

  /// The records whose contents are there are sent next, and do not wait for others.
  mutating func sendReady() { wakeFromContents(records.contents.takeReady()) }

  /// Ends the waits of records for their contents. One that was edited meanwhile may wait for something else.
  private mutating func wakeFromContents(_ ids: [RecordID]) {
    for id in ids { if case .content? = queue.wait(of: id) { queue.wake(id) } }
  }
}
