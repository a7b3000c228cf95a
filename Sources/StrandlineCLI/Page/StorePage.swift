// What the page of a store shows: what the verbs say of it, the place that its files take, and that something new is durable.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineServer
import StrandlineSystem

/// The source of a store's page.
struct StorePage: PageSource {
  let verbs: PageVerbs
  private let reader: SharedReader
  private let allowsChanges: Bool
  /// Takes a line on each change that a page has asked for: the page may be closed before the answer comes.
  private let tell: @Sendable (String) -> Void

  /// How often the store is looked at while a page is open. A writer publishes at once what is durable.
  private static let pollMilliseconds: Int64 = 100
  /// After so many looks without news something is sent all the same.
  private static let quietLooks = 100

  init(
    _ path: String, allowsChanges: Bool, _ environment: SystemEnvironment,
    tell: @escaping @Sendable (String) -> Void = { _ in }
  ) {
    reader = SharedReader(path, environment)
    verbs = PageVerbs(path: path, environment: environment, reader: reader)
    self.allowsChanges = allowsChanges
    self.tell = tell
  }

  /// Opens the store, so that a wrong path is said before a page is.
  func check() throws { _ = try reader.store() }

  var facts: [String: JSONValue] {
    ["kind": .string("store"), "path": .string(verbs.path)]
  }

  var changeRefusal: String? {
    allowsChanges ? nil : "this page only shows; strandline open --allow-changes lets it change something"
  }

  var reads: [String: (PageQuery) -> HTTPResponse] {
    ["run": { verbs.run($0, among: PageVerb.reading) }, "space": { _ in said { try space() } }]
  }

  var looks: [String: (PageQuery, [UInt8]) -> HTTPResponse] { [:] }

  var changes: [String: (PageQuery) -> HTTPResponse] {
    ["run": { verbs.run($0, among: PageVerb.changing, tell: tell) }]
  }

  private func said(_ body: () throws -> JSONValue) -> HTTPResponse {
    do { return PageService.json(try body()) } catch {
      return PageService.refusal(500, Failure(error, store: verbs.path).message)
    }
  }

  // MARK: Events

  func follow(_ stream: HTTPStream) {
    var last: JSONValue?
    var quiet = 0
    repeat {
      let now = moment()
      quiet += 1
      guard now != last || quiet > Self.quietLooks else { continue }
      (last, quiet) = (now, 0)
      guard stream.send(PageService.event("moment", now)) else { return }
    } while stream.pause(Self.pollMilliseconds)
  }

  /// The newest event, and whether a process writes the store. Or why it cannot be read.
  private func moment() -> JSONValue {
    do {
      let store = try reader.store()
      return .object([
        "lsn": .integer(Int64(clamping: store.durableLSN.rawValue)), "isWritten": .bool(try isWritten(store)),
      ])
    } catch { return .object(["error": .string(Failure(error, store: verbs.path).message)]) }
  }

  private func isWritten(_ store: RecordStore) throws -> Bool {
    if case .reader(let reader) = store.source { return try reader.isHeldByWriter }
    return true
  }

  // MARK: Space

  /// The files of the store: the segments of the log, with the events in them if the log can be read, the sorted tables, and
  /// others.
  private func space() throws -> JSONValue {
    let folder = try LogReader.folder(of: verbs.path, environment: verbs.environment)
    // A log that cannot be read has files all the same, and `verify` says what is wrong with them.
    let store = try? reader.store()
    var events: [String: ClosedRange<UInt64>] = [:]
    if case .reader(let log)? = store?.source {
      for segment in log.segments { events[SegmentName.name(segment.id)] = segment.lsns }
    }
    let found = try files(folder, ".")
    let segments = found.filter { SegmentName.segmentID(of: $0.name) != nil }.map { file in
      JSONValue.object([
        "name": .string(file.name), "bytes": .integer(Int64(clamping: file.bytes)),
        "first": events[file.name].map { .integer(Int64(clamping: $0.lowerBound)) } ?? .null,
        "last": events[file.name].map { .integer(Int64(clamping: $0.upperBound)) } ?? .null,
      ])
    }
    return .object([
      "segments": .array(segments),
      "tables": .array(try files(folder, StoreIndex.folderName).map(Self.json)),
      "contents": .array(try files(folder, LogFormat.contentFolderName).map(Self.json)),
      "others": .array(found.filter { SegmentName.segmentID(of: $0.name) == nil }.map(Self.json)),
      "compacted": try store.map { .integer(Int64(clamping: try $0.source.compactedLSN().rawValue)) } ?? .null,
    ])
  }

  private func files(_ folder: any Folder, _ name: String) throws -> [(name: String, bytes: UInt64)] {
    guard try folder.kind(of: name) == .directory else { return [] }
    let names = try folder.list(name).sorted { $0.precedesByUTF8($1) }
    let sizes = try folder.sizes(of: names.map { name == "." ? $0 : "\(name)/\($0)" })
    // One that is gone meanwhile takes no space.
    return zip(names, sizes).compactMap { found, bytes in bytes.map { (found, $0) } }.filter { $0.bytes > 0 }
  }

  private static func json(_ file: (name: String, bytes: UInt64)) -> JSONValue {
    .object(["name": .string(file.name), "bytes": .integer(Int64(clamping: file.bytes))])
  }
}
