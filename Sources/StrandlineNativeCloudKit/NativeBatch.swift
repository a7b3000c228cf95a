// The operations of one request to CloudKit's framework, and what became of each.

#if canImport(CloudKit)
  internal import CloudKit
  internal import Strandline
  internal import StrandlineCloudKit
  internal import StrandlineSystem

  /// Operations on records of a zone on their way to the server.
  struct NativeBatch {
    private let zone: ZoneID
    private let zoneID: CKRecordZone.ID
    private let user: String?
    private var operations: [CloudOperation] = []
    private var drafts: [CloudName: NativeDraft] = [:]
    /// The operations that need a look at the server first.
    private var asking: [CloudOperation] = []
    /// What is decided.
    private(set) var results: [CloudName: CloudResult] = [:]

    /// - Parameter user: who is signed in, if it is known.
    init(zone: ZoneID, user: String?) {
      (self.zone, self.user) = (zone, user)
      zoneID = CKRecordZone.ID(zone)
    }

    private func id(_ operation: CloudOperation) -> CKRecord.ID {
      CKRecord.ID(recordName: operation.name, zoneID: zoneID)
    }

    // MARK: Before the request

    /// Takes operations on different records.
    mutating func add(_ new: [CloudOperation]) throws(CloudError) {
      guard new.count <= NativeCloudDatabase.itemsMax else {
        throw CloudError(
          .badRequest,
          reason: "\(new.count) operations in one request; the limit is \(NativeCloudDatabase.itemsMax)")
      }
      var names: Set<CloudName> = []
      for operation in new where !names.insert(CloudName(operation.name)).inserted {
        throw CloudError(.badRequest, reason: "two operations on '\(operation.name)' in one request")
      }
      operations = new
      for operation in new {
        switch operation.kind {
        case .create: draft(NativeDraft(type: operation.type, id: id(operation)), operation)
        case .update:
          // Whether the framework sends the nil of a field that the record in its hands has no value of is not known: it gets one
          // that has them.
          let clears = operation.fields.values.contains { $0 == nil }
          if !clears, let base = NativeDraft(operation.archive, id: id(operation), changeTag: operation.changeTag) {
            draft(base, operation)
          } else {
            asking.append(operation)
          }
        case .replace, .delete: asking.append(operation)
        case .forceDelete: break
        case .forceUpdate, .forceReplace:
          throw CloudError(
            .unsupported, reason: "a save without a change tag ('\(operation.name)') through CloudKit's framework")
        }
      }
    }

    private mutating func draft(_ base: NativeDraft, _ operation: CloudOperation) {
      var draft = base
      do throws(UnsendableValue) {
        try draft.write(operation)
        drafts[operation.name] = draft
      } catch { fail(operation, CloudError(.badRequest, reason: error.words)) }
    }

    private mutating func fail(_ operation: CloudOperation, _ error: CloudError, _ current: ServerRecord? = nil) {
      results[operation.name] = .failed(error, serverRecord: current)
    }

    /// What the server must be asked first; nil for nothing. A deletion alone needs no fields.
    var question: (names: [String], desiredKeys: [String]?)? {
      guard !asking.isEmpty else { return nil }
      return (asking.map(\.name), asking.allSatisfy { $0.kind == .delete } ? [] : nil)
    }

    /// Takes the answer.
    mutating func take(_ found: [CloudName: Result<CKRecord, CloudError>]) {
      let hasFields = question?.desiredKeys == nil
      for operation in asking {
        switch found[operation.name] {
        case .success(let record)?:
          guard record.recordChangeTag.equalsUTF8(operation.changeTag) else {
            let current = hasFields ? ServerRecord(record, in: zone, user: user) : nil
            fail(operation, CloudError(.conflict, reason: "the server has another version"), current)
            continue
          }
          if operation.kind != .delete { draft(NativeDraft(record), operation) }
        case .failure(let error)?: fail(operation, error)
        case nil: fail(operation, Self.unanswered)
        }
      }
    }

    private static let unanswered = CloudError(
      .unexpectedServerResponse, reason: "the answer has no result for this record")

    // MARK: The request

    /// Whether an operation was refused before the request.
    var hasFailed: Bool { !results.isEmpty }

    /// The results of an atomic request of which one operation was refused.
    func refusedTogether() -> [CloudName: CloudResult] {
      var results = results
      for operation in operations where results[operation.name] == nil {
        results[operation.name] = .failed(CloudError(.atomicError), serverRecord: nil)
      }
      return results
    }

    private var sent: [CloudOperation] { operations.filter { results[$0.name] == nil } }
    /// Whether nothing is left to send.
    var isEmpty: Bool { sent.isEmpty }
    /// The records to save, in the order of the operations.
    var saves: [CKRecord] { sent.compactMap { drafts[$0.name]?.record } }
    /// The records to delete, in the order of the operations.
    var deletions: [CKRecord.ID] { sent.filter { drafts[$0.name] == nil }.map { id($0) } }

    // MARK: After the request

    /// Takes the results of the request.
    mutating func take(
      _ saved: [CKRecord.ID: Result<CKRecord, any Error>], _ deleted: [CKRecord.ID: Result<Void, any Error>]
    ) {
      // By their names: the framework may spell the owner of their zone in another way.
      let saved = Dictionary(saved.map { (CloudName($0.key.recordName), $0.value) }) { first, _ in first }
      let deleted = Dictionary(deleted.map { (CloudName($0.key.recordName), $0.value) }) { first, _ in first }
      for operation in sent {
        guard let draft = drafts[operation.name] else {
          switch deleted[operation.name] {
          case .success?: results[operation.name] = .deleted
          case .failure(let error)?: fail(operation, by: error)
          case nil: fail(operation, Self.unanswered)
          }
          continue
        }
        switch saved[operation.name] {
        case .success(let record)?:
          results[operation.name] = .record(ServerRecord(saved: record, of: draft, user: user))
        case .failure(let error)?: fail(operation, by: error)
        case nil: fail(operation, Self.unanswered)
        }
      }
    }

    /// Takes the errors of a request that failed in parts.
    mutating func take(_ errors: [CloudName: any Error], isAtomic: Bool) {
      for operation in sent {
        if let error = errors[operation.name] {
          fail(operation, by: error)
        } else {
          // Nothing of an atomic request was done; of another one it is not said.
          fail(operation, isAtomic ? CloudError(.atomicError) : Self.unanswered)
        }
      }
    }

    /// A save that was refused because of its tag brings the server's version.
    private mutating func fail(_ operation: CloudOperation, by error: any Error) {
      let current = (error as? CKError)?.serverRecord.map { ServerRecord($0, in: zone, user: user) }
      results[operation.name] = .failed(CloudError(native: error), serverRecord: current)
    }
  }
#endif
