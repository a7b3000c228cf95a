// The contents that go up before their records: which have to, and what the server has said of those that did.
//
// A content goes to another server than its record, and its size is no measure of a request. So it has a lane of its own: a record that
// names a content which the server does not have waits (`UploadWait.content`), all that is ready is sent first, and one content goes
// up after the other. The receipt of an upload counts for a while. It is in memory alone: after a relaunch a content whose record was
// not sent goes up again.

import StrandlineSystem

/// A content that a change names and that the server does not have.
package struct ContentUpload: Sendable {
  /// The change.
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

/// The contents to be uploaded, in order, and those that were.
struct ContentLane: Sendable {
  /// How long a receipt is used. The server's own limit is not documented; the addresses of uploads count for 15 minutes.
  static let receiptMilliseconds: Int64 = 10 * 60 * 1_000
  /// So many records go up together, or as many as there are after a minute.
  private static let togetherMax = 20
  private static let togetherMilliseconds: Int64 = 60_000
  /// The most uploaded contents that are remembered.
  private static let uploadedMax = 1_000

  private struct Key: Hashable {
    var place: ContentPlace
    var hash: ContentHash
  }

  private struct Uploaded: Sendable {
    var asset: Asset
    /// Until then its receipt is used, by the monotonic clock.
    var end: UInt64
  }

  private(set) var due: [ContentUpload] = []
  private var uploaded: [Key: Uploaded] = [:]
  /// Records whose contents are all there, which wait for a few others; and until when, by the monotonic clock.
  private var ready: (ids: [RecordID], end: UInt64) = ([], 0)

  init() {}

  /// For tests: whether the upload of a content will end the wait of a record.
  func ends(waitOf id: RecordID) -> Bool { due.contains { $0.item.id == id } || ready.ids.contains(id) }

  /// Adds contents, unless they are due already.
  mutating func add(_ uploads: [ContentUpload]) {
    for upload in uploads {
      due.removeAll { $0.place == upload.place && $0.content == upload.content }
      due.append(upload)
    }
  }

  /// A content of a record is not uploaded, and so none of its others.
  mutating func remove(_ id: RecordID) { due.removeAll { $0.item.id == id } }

  /// The server has a content.
  ///
  /// - Returns: the records to send now, of which it has all.
  mutating func uploaded(_ upload: ContentUpload, as asset: Asset, at now: Moment) -> [RecordID] {
    due.removeAll { $0.place == upload.place && $0.content == upload.content }
    if uploaded.count >= Self.uploadedMax, let oldest = uploaded.min(by: { $0.value.end < $1.value.end })?.key {
      uploaded[oldest] = nil
    }
    uploaded[Key(place: upload.place, hash: upload.content.hash)] = Uploaded(
      asset: asset.with(upload.content.hash), end: now.after(milliseconds: Self.receiptMilliseconds))
    if !due.contains(where: { $0.item.id == upload.item.id }) {
      if ready.ids.isEmpty { ready.end = now.after(milliseconds: Self.togetherMilliseconds) }
      ready.ids.append(upload.item.id)
    }
    let isTime = due.isEmpty || ready.ids.count >= Self.togetherMax || now.nanoseconds >= ready.end
    return isTime ? takeReady() : []
  }

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
    for (name, value) in version.fields where !value.namedContents.isEmpty {
      let place = ContentPlace(record: item.id, type: version.type, field: name)
      let isSent = isSent(name)
      result.fields[name] = value.replacingAssets { asset in
        guard let hash = asset.contentHash else { return asset }
        if asset.state != .local {
          guard isSent, there[name]?.assets.contains(where: { $0.isSameFile(as: asset) }) != true else { return asset }
        }
        files.isAny = true
        let known = uploaded[Key(place: place, hash: hash)]
        if let known, !isSent || known.end > now.nanoseconds { return known.asset }
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
    guard !contents.lacking.isEmpty else { return false }
    records.contents.add(contents.lacking)
    queue.wait(id, for: .content)
    return true
  }

  /// The content that goes up next; nil if there is none.
  func contentToUpload(_ facts: some SyncFacts) -> ContentUpload? {
    guard cycle.sends, !records.contents.due.isEmpty else { return nil }
    let (only, frozen) = (cycle.options.zone, frozenZones(facts))
    return records.contents.due.first { upload in
      (only == nil || only == upload.item.id.zone) && !frozen.contains(upload.item.id.zone)
    }
  }

  /// A content goes up, unless its record has changed since.
  mutating func choose(_ upload: ContentUpload, _ facts: some SyncFacts) throws -> Choice {
    let id = upload.item.id
    guard queue.wait(of: id) == .content, try facts.entry(id)?.pending?.newest == upload.item.lsn else {
      records.contents.remove(id)
      if queue.wait(of: id) == .content { queue.wake(id) }
      return .again
    }
    return .next(.ask(.uploadContent(upload)))
  }

  /// A content was uploaded or refused. A refusal is of that record alone.
  mutating func apply(
    _ result: Result<SyncAnswer, CloudError>, to upload: ContentUpload, _ facts: some SyncFacts
  ) throws {
    let id = upload.item.id
    switch result {
    case .success(.content(let asset)):
      for id in records.contents.uploaded(upload, as: asset, at: facts.now) { queue.wake(id) }
    case .success: preconditionFailure("the answer to the upload of a content of another kind")
    case .failure(let error):
      sendUploaded()
      switch error.meaning.request {
      case .retry: failed(.content, error, doing: SyncRequest.uploadContent(upload).words, facts)
      case .zoneMissing:
        records.contents.remove(id)
        queue.wake(id)
        confirmLoss(of: id.zone, error, kind: .content, facts)
      case _ where error.endsCycle: throw error
      default:
        records.contents.remove(id)
        hold([upload.item], because: error, facts)
      }
    }
  }

  /// The records whose contents are there are sent next, and do not wait for others.
  mutating func sendUploaded() { for id in records.contents.takeReady() { queue.wake(id) } }
}
