// Whether what a transaction wrote in an atomic zone reaches the server as a whole. Each request of a device is judged when it
// has ended, by what the app was told, by what the store owes and by the server's journal. The engine's sets are not asked.

internal import Strandline
internal import StrandlineServer
internal import Synchronization

/// The transactions of apps in the atomic zone, and the requests that were to carry them.
final class WorldTogether: Sendable {
  /// The last mutation of each record that an app's transaction changed.
  private typealias Transaction = [RecordID: LSN]

  private struct State {
    /// Of several records each, by device.
    var transactions: [Int: [Transaction]] = [:]
    var broken: [String] = []
    /// The server's events up to here are of earlier requests.
    var upTo: UInt64 = 0
  }
  private let state = Mutex(State())
  private let server: CloudServer

  init(_ server: CloudServer) { self.server = server }

  // MARK: What apps were told

  func remember(_ lsns: ClosedRange<LSN>, on device: Int, in store: RecordStore) throws {
    // The app under test may have policies of its own.
    guard store.core.withLock({ !$0.declared.atomicZones.isDisjoint(with: WorldNames.atomicZones) }) else { return }
    var transaction: Transaction = [:]
    for number in lsns.lowerBound.rawValue...lsns.upperBound.rawValue {
      let lsn = LSN(rawValue: number)
      switch try store.source.event(at: lsn) {
      case .saved(let event): transaction[event.id] = lsn
      case .deleted(let event): transaction[event.id] = lsn
      default: break
      }
    }
    let together = transaction.filter { WorldNames.atomicZones.contains($0.key.zone) }
    if together.count > 1 { state.withLock { $0.transactions[device, default: []].append(together) } }
  }

  /// A device's disk was put back: it has forgotten what was written after an event.
  func forfeit(_ device: Int, after lsn: LSN) {
    state.withLock { $0.transactions[device]?.removeAll { $0.values.contains { $0 > lsn } } }
  }

  /// A device begins with a copy of another one's disk.
  func copy(_ device: Int, to copy: Int) {
    state.withLock { $0.transactions[copy] = $0.transactions[device] }
  }

  // MARK: Requests

  /// What was wrong with the requests since this was asked last.
  func takeBroken() -> [String] {
    state.withLock { state in
      defer { state.broken = [] }
      return state.broken
    }
  }

  /// Sends a request of a device's engine, and judges what the server has done with it.
  ///
  /// - Parameter store: the device's store; nil if it is being opened.
  func judging<Answer: Sendable>(
    _ operations: [CloudOperation], in zone: ZoneID, of device: Int, _ store: RecordStore?,
    _ send: () async throws -> Answer
  ) async throws -> Answer {
    guard WorldNames.atomicZones.contains(zone), let store else { return try await send() }
    let transactions = state.withLock { $0.transactions[device] ?? [] }
    // The power may be cut: then nothing can be read any more, and nothing is sent.
    guard let owed = try? transactions.map({ try Self.owed($0, in: store) }).filter({ $0.count > 1 }), !owed.isEmpty
    else { return try await send() }
    _ = applied()
    let deleted = (try? Self.deletions(operations, in: zone, store)) ?? []
    let answer: Result<Answer, any Error>
    do { answer = .success(try await send()) } catch { answer = .failure(error) }
    let applied = applied()
    let carried = operations.filter { applied.names.contains($0.name) }.map { (CloudName($0.name), $0.kind == .delete) }
    for changes in owed {
      // A dead life that another tool has brought back is deleted before the save of the new one.
      let there = changes.filter { change in carried.contains { $0 == (change.key.key, change.value) } }
      if there.isEmpty { continue }
      // The app's deletion of another record, which this request has carried, may have taken one along that the transaction deletes
      // as well.
      let missing = changes.filter { change in
        there[change.key] == nil && !(change.value && applied.cascaded[change.key.key].map(deleted.contains) == true)
      }.keys.sorted()
      if missing.isEmpty { continue }
      let words = "\(Self.words(there.keys.sorted())) of a transaction and not \(Self.words(missing))"
      state.withLock { $0.broken.append("the server applied \(words)") }
    }
    return try answer.get()
  }

  /// The records of a transaction of which the store still owes what it wrote, each with whether a deletion is owed.
  private static func owed(_ transaction: Transaction, in store: RecordStore) throws -> [RecordID: Bool] {
    var owed: [RecordID: Bool] = [:]
    for (id, lsn) in transaction {
      guard let pending = try store.projections.entry(id)?.pending, pending.first <= lsn, lsn <= pending.newest else {
        continue
      }
      owed[id] = pending.isDeletion
    }
    return owed
  }

  /// The records that a request deletes because an app has deleted them.
  private static func deletions(
    _ operations: [CloudOperation], in zone: ZoneID, _ store: RecordStore
  ) throws -> Set<CloudName> {
    var names: Set<CloudName> = []
    for operation in operations where operation.kind == .delete {
      let pending = try store.projections.entry(RecordID(operation.name, zone: zone))?.pending
      if pending?.isDeletion == true { names.insert(CloudName(operation.name)) }
    }
    return names
  }

  /// The names of the records that the server has changed since this was asked last, each by an operation of its own; and of those
  /// that it has deleted along with another one, each with that one's name.
  private func applied() -> (names: Set<CloudName>, cascaded: [CloudName: CloudName]) {
    state.withLock { state in
      var (names, cascaded): (Set<CloudName>, [CloudName: CloudName]) = ([], [:])
      // What one operation deletes follows the record that it names.
      var named: (name: CloudName, cause: JournalCause)?
      do {
        state.upTo = try server.forEachEvent(after: state.upTo) { _, event in
          switch event {
          case .recordSaved(let record): names.insert(CloudName(record.name))
          case .recordDeleted(_, let name, let cause) where !cause.isCascade:
            names.insert(CloudName(name))
            named = (CloudName(name), cause)
          case .recordDeleted(_, let name, let cause):
            guard let named, named.cause.requestUUID == cause.requestUUID, named.cause.operation == cause.operation
            else { return }
            cascaded[CloudName(name)] = named.name
          default: break
          }
        }
      } catch { state.broken.append("the server's journal cannot be read: \(error)") }
      return (names, cascaded)
    }
  }

  private static func words(_ ids: [RecordID]) -> String { ids.map(\.description).joined(separator: ", ") }
}
