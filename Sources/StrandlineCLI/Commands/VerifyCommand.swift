// `verify`: checks every byte of a log, then every event, then the state that follows from the events. Changes nothing,
// takes no lock, and also works on the copy of a directory whose writer was killed.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLog
import StrandlineServer
import StrandlineSystem

extension Command {
  static let verify = Command(
    "verify", "Check every byte of a store or journal, or compare it with a server.",
    operands: ["STORE"],
    details: [
      "Without --against: changes nothing. Exit code 0: sound; 1: a torn tail, which the next open sets aside and which",
      "holds no event that the log shows to be acknowledged, or sorted tables that disagree with a sound log, which",
      "'index STORE rebuild' makes again; 65: acknowledged events are damaged.",
      "With --against: fetches what is new, reads all that the server lists of a zone, and compares. What is missing or",
      "wrong here is fetched again, and what the server does not have is removed here; nothing is sent. Where both agree,",
      "nothing is written. Exit code 0: equal, also after what was mended; 1: something is left that needs a person; 75,",
      "69, 77 as sync. Two devices with the same records show the same digest.",
    ],
    options: [
      .json, Option("--against", "URL", "Compare with this server."), SyncTarget.container, SyncTarget.environment,
      Option("--zone", "ZONE", "Only this zone. Default: every one that was synced."), SyncTarget.apiToken,
      SyncTarget.sessionToken,
    ],
    examples: [
      Example("After a crash", "strandline verify STORE"),
      Example(
        "Whether a device has what the server has",
        "strandline verify --against http://127.0.0.1:8080 --container iCloud.example STORE"),
      Example("A backup on a read-only volume", "strandline verify --json /mnt/backup/notes.strand"),
    ],
    run: { arguments, console in
      if arguments["--against"] != nil { return try await ServerComparison(arguments, console).run() }
      for option in ["--container", "--environment", "--zone", "--api-token-file", "--session-token-file"] {
        guard arguments[option] == nil else { throw UsageError(message: "\(option) goes with --against URL") }
      }
      let result = try Verification(arguments.operands[0], console.environment)
      try result.show(console, json: arguments.has("--json"))
      return result.code
    })
}

/// The result of a verification: of the log's bytes, and of the contents of its events.
struct Verification {
  /// An event whose checksum is right and whose contents are not valid.
  struct Defect {
    var lsn: UInt64
    var words: String
  }
  let path: String
  let report: VerificationReport
  private(set) var defects: [Defect] = []
  /// Where the sorted tables disagree with the log; nil if they do not.
  private(set) var tables: String?
  /// What is wrong with the contents of assets; nil of a journal and of a log whose events cannot be read.
  private(set) var contents: ContentCheck?
  private(set) var role: LogRole?
  /// That of the store's inbox; empty if it has none.
  private(set) var inbox: [Verification] = []
  private let isInbox: Bool
  /// The store of which this is the inbox; nil if it is not known, or if this is none.
  private let storeUUID: [UInt8]?

  /// The most defects that are listed, because one cause may have thousands.
  private static let defectsMax = 20

  init(
    _ path: String, _ environment: SystemEnvironment, isInbox: Bool = false, inboxOf storeUUID: [UInt8]? = nil
  ) throws {
    self.path = path
    self.isInbox = isInbox
    self.storeUUID = storeUUID
    report = try LogVerifier.verify(at: path, environment: environment)
    // The events of a damaged log cannot be read from beginning to end.
    let reader = report.isDamaged ? nil : try LogReader.open(at: path, environment: environment)
    if !isInbox { try checkInbox(in: reader?.folder ?? environment.fileSystem.folder(path), reader, environment) }
    if let reader { try checkMeaning(reader, environment) }
  }

  /// The inbox is a log of its own, which is opened by its path: of a store that was moved meanwhile, that may be another one's.
  private mutating func checkInbox(
    in folder: any Folder, _ reader: LogReader?, _ environment: SystemEnvironment
  ) throws {
    let name = RecordStore.inboxFolderName
    guard try folder.kind(of: name) == .directory else { return }
    let inboxPath = folder.path(of: name)
    inbox = [try Verification(inboxPath, environment, isInbox: true, inboxOf: reader?.storeUUID)]
    guard try folder.has(environment.fileSystem.folder(inboxPath), under: name) else {
      throw StrandlineError(
        .storeReplaced,
        "another store came to '\(folder.path)' while it was verified; nothing was changed; verify it again",
        file: folder.path)
    }
  }

  var isDamaged: Bool { isDamagedItself || inbox.contains(where: \.isDamaged) }
  var code: ExitCode {
    if isDamaged { return .dataDamaged }
    return codeOfItself == .done && inbox.allSatisfy { $0.code == .done } ? .done : .recoverable
  }

  // Without its inbox.

  private var isDamagedItself: Bool {
    report.isDamaged || !defects.isEmpty || contents?.findings.isEmpty == false
  }
  private var codeOfItself: ExitCode {
    isDamagedItself ? .dataDamaged : report.isSound && tables == nil ? .done : .recoverable
  }

  private mutating func checkMeaning(_ reader: LogReader, _ environment: SystemEnvironment) throws {
    role = reader.role
    var projections = Projections()
    // nil after an event that it refuses: no server reads on from there.
    var journal: JournalCheck? = JournalCheck()
    var superseded = LSNSet()
    var found: [Defect] = []
    // As of the moment at which they were read: another process may be writing.
    var compared = role == .store ? try IndexComparison(at: path, environment: environment) : nil
    func compare() throws {
      guard let comparison = compared, found.isEmpty else { return }
      compared = nil
      tables = try comparison.contradiction(of: projections)
    }
    try reader.poll { event in
      guard found.count < Self.defectsMax else { return }
      if let comparison = compared, event.lsn > comparison.end.rawValue { try compare() }
      do {
        switch reader.role {
        case .server:
          try journal?.apply(event)
          // Opening a journal reads of a record what the server's tables hold; this decodes the values too.
          _ = try JournalEvent.decode(event.body)
        case .inbox:
          switch try event.decoded() {
          case .inboxChange(let change):
            guard storeUUID == nil || change.storeUUID == storeUUID else {
              throw Failure(.dataDamaged, "it was left for another store")
            }
          case .inboxRead, .unknown: break
          case let other: throw Failure(.dataDamaged, "a '\(other.kindName)', which no process leaves in an inbox")
          }
        case .store:
          let decoded = try event.decoded()
          // Opening a store decodes the event's head only; this decodes the field values too.
          _ = try LoadedVersion(decoded, at: LSN(event.lsn))
          try projections.apply(decoded, at: LSN(event.lsn), isDurable: true)
          if case .superseded = decoded { superseded.insert(LSN(event.lsn)) }
        }
      } catch let error as StrandlineError where error.code == .fromTheFuture {
        // What this version does not know it cannot judge.
        throw error
      } catch let error as JournalEventError where error.isFromNewerVersion {
        throw error.publicError(in: path, at: LSN(event.lsn))
      } catch {
        journal = nil
        found.append(Defect(lsn: event.lsn, words: "\(error)"))
      }
    }
    try compare()
    if found.isEmpty, let broken = projections.brokenInvariant() ?? projections.shownSuperseded(superseded) {
      found.append(Defect(lsn: reader.lastLSN, words: "the events contradict each other: \(broken)"))
    }
    defects = found
    if reader.role == .store, found.isEmpty { contents = try ContentCheck(of: projections.contents, in: reader.folder) }
  }

  // MARK: Screens

  func show(_ console: Console, json: Bool) throws {
    for inbox in inbox { try inbox.show(console, json: json) }
    for finding in report.findings {
      if json {
        try console.write(finding.json.canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        try console.print("\(finding.file):\(finding.offset)  \(finding.word)  \(printable(finding.message))")
      }
    }
    for defect in defects {
      if json {
        let line = JSONValue.object([
          "finding": .string("meaning"), "lsn": .integer(Int64(clamping: defect.lsn)), "message": .string(defect.words),
        ])
        try console.write(line.canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        try console.print("event \(defect.lsn)  damage  \(printable(defect.words))")
      }
    }
    for finding in contents?.findings ?? [] {
      if json {
        let line = JSONValue.object([
          "finding": .string("content"), "file": .string(finding.file), "message": .string(finding.words),
        ])
        try console.write(line.canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        try console.print("\(printable(finding.file))  content  \(printable(finding.words))")
      }
    }
    if let tables {
      if json {
        let line = JSONValue.object(["finding": .string("tables"), "message": .string(tables)])
        try console.write(line.canonicalBytes + [UInt8(ascii: "\n")])
      } else {
        try console.print("\(StoreIndex.folderName)  tables  \(printable(tables))")
      }
    }
    if json {
      try console.write(summaryJSON.canonicalBytes + [UInt8(ascii: "\n")])
    } else {
      for line in report.quarantine.map({ $0.line(in: path) }) { try console.print(line) }
      try console.print((isInbox ? "inbox: " : "") + summary)
    }
  }

  private var verdict: String {
    isDamagedItself ? "damaged" : !report.isSound ? "tornTail" : tables != nil ? "tablesDisagree" : "sound"
  }

  var summary: String {
    let words =
      switch codeOfItself {
      case .done: "sound"
      case .recoverable where report.isSound:
        "the log is sound; its sorted tables disagree with it: make them again with 'strandline index "
          + "\(ShellWord.quote(path)) rebuild'"
      case .recoverable:
        "torn tail: the next open sets it aside; it holds no event that the log shows to be acknowledged"
      default:
        "damaged: " + Words.plural(report.findings.count + defects.count + (contents?.findings.count ?? 0), "finding")
      }
    return "\(words); \(Words.plural(report.segments, "segment")), \(Words.plural(report.frames, "frame")), "
      + "\(Words.plural(report.events, "event")), \(Words.bytes(report.bytes)), "
      + Words.seconds(nanoseconds: report.nanoseconds) + contentWords
      + (report.isControlTorn ? "; one of the two slots of CONTROL does not verify, the other one does" : "")
      + (report.isHeldByWriter ? "; another process is writing, so the end of the log was not checked" : "")
  }

  private var contentWords: String {
    guard let contents, contents.count > 0 || contents.unnamed > 0 else { return "" }
    let unnamed = contents.unnamed > 0 ? ", and \(contents.unnamed) that no event names" : ""
    let bytes = Words.bytes(UInt64(max(0, contents.bytes)))
    return "; \(Words.plural(contents.count, "content")) of assets, \(bytes)\(unnamed)"
  }

  private var summaryJSON: JSONValue {
    .object([
      "contents": .integer(Int64(contents?.count ?? 0)), "contentBytes": .integer(contents?.bytes ?? 0),
      "contentsUnnamed": .integer(Int64(contents?.unnamed ?? 0)),
      "result": .string(verdict), "role": role.map { .string("\($0)") } ?? .null,
      "segments": .integer(Int64(report.segments)), "frames": .integer(Int64(clamping: report.frames)),
      "events": .integer(Int64(clamping: report.events)), "bytes": .integer(Int64(clamping: report.bytes)),
      "lastLSN": .integer(Int64(clamping: report.lastLSN)), "isHeldByWriter": .bool(report.isHeldByWriter),
      "isControlTorn": .bool(report.isControlTorn), "quarantine": .array(report.quarantine.map(\.json)),
    ])
  }
}

extension VerificationFinding {
  fileprivate var word: String {
    switch kind {
    case .tornTail: "torn"
    case .stray: "stray"
    case .damage: "damage"
    }
  }

  fileprivate var json: JSONValue {
    .object([
      "finding": .string(kind.rawValue), "code": .string(code.rawValue), "file": .string(file),
      "offset": .integer(Int64(clamping: offset)), "end": .integer(Int64(clamping: end)),
      "firstLSN": lsns.map { .integer(Int64(clamping: $0.lowerBound)) } ?? .null,
      "lastLSN": lsns.map { .integer(Int64(clamping: $0.upperBound)) } ?? .null, "message": .string(message),
    ])
  }
}
