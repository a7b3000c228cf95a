// What `write` promises besides durability: the closure's value, the limit of a transaction, one spelling of a zone, one
// type under a name, and a receipt that any later process can take up again.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting
import Synchronization
import Testing

private let id = RecordID("n")

private func note(_ id: RecordID = id, _ fields: [String: FieldValue] = ["title": "x"], type: String = "Note") -> Record
{
  Record(type: type, id: id, fields: fields)
}

private func code(_ body: () async throws -> Void) async -> StrandlineError.Code? {
  do {
    try await body()
    return nil
  } catch { return (error as? StrandlineError)?.code }
}

private func agree(_ devices: Device...) async throws {
  for _ in 0..<3 {
    for device in devices {
      try await device.sync()
      let broken = try await device.brokenInvariant()
      #expect(broken == nil)
    }
  }
  let first = try await devices[0].dump()
  for device in devices {
    #expect(try await device.dump() == first)
    #expect(try await device.open().status().unsettled == 0)
    #expect(try await device.open().status().openBlocks == 0)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A write` {
  // MARK: Its value

  @Test func `returns what its closure returns beside the receipt`() async throws {
    let store = try await Fleet().device("a").open()
    let (title, receipt) = try await store.write { tx in
      try tx.save(note())
      return try tx.record(id)?["title"]
    }
    #expect(title == "x")
    #expect(receipt.lsns == LSN(1)...LSN(2), "the tenure's first event, and the save")
    #expect(try store.writeBlocking { tx in try tx.delete(id) }.value)
    // Ignored, as where there is no value.
    try await store.write { tx in try tx.delete(id) }
    try store.writeBlocking { tx in try tx.delete(id) }
    let nothing = try await store.write { tx in try tx.create(note()) }
    #expect(nothing.lsns == LSN(4)...LSN(4))
  }

  @Test func `may return a value that cannot be sent`() async throws {
    final class Box { var count = 0 }
    let store = try await Fleet().device("a").open()
    let box = try await store.write { tx -> Box in
      let box = Box()
      box.count = try tx.record(id) == nil ? 0 : 1
      return box
    }.value
    #expect(box.count == 0)
  }

  // MARK: Its limit

  @Test func `above the limit is refused at the save that passes it, and writes nothing`() async throws {
    #expect(LogOptions().transactionBytesMax == 64 << 20)
    var options = Device.options
    options.log.transactionBytesMax = 100_000
    let store = try await RecordStore.open(
      at: "/s", options: options, environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.write { try $0.save(note(RecordID("before"))) }
    let before = store.durableLSN
    var saved = 0
    // Without the refusal in `save` this would not end.
    let refused = await code {
      try await store.write { tx in
        while true {
          try tx.save(note(RecordID("n\(saved)")))
          saved += 1
        }
      }
    }
    #expect(refused == .tooLarge)
    #expect(saved > 100 && saved < 100_000)
    // A closure that ignores the refusal gets nothing of it written either.
    let swallowed = await code {
      try await store.write { tx in for number in 0..<10_000 { try? tx.save(note(RecordID("n\(number)"))) } }
    }
    #expect(swallowed == .tooLarge)
    #expect(store.durableLSN == before)
    #expect(store.recordIDs() == [RecordID("before")])
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    try await store.write { tx in for number in 0..<saved { try tx.save(note(RecordID("n\(number)"))) } }
    #expect(store.recordCount == saved + 1)
    try await store.close()
  }

  // MARK: Its receipt after relaunches

  @Test func `has a position that later processes take up, again and again`() async throws {
    let device = try Fleet().device("a")
    let empty = try await device.open().write { _ in }
    let receipt = try await device.open().write { try $0.save(note()) }
    var position = receipt.position
    for number in 0..<3 {
      try await device.close()
      let store = try await device.open()
      let looking = try await store.write { tx in _ = try tx.record(id) }
      let again = try store.receipt(at: position)
      #expect(again.lsns == receipt.lsns)
      #expect(again.position == receipt.position)
      position = again.position
      // Of a transaction that changed nothing: it is the position of what it saw, of whichever tenure.
      _ = try store.receipt(at: looking.position)
      #expect(try store.receipt(at: empty.position).lsns == nil)
      // The next process is of another tenure, and has written under it.
      try await store.write { try $0.save(note(RecordID("m\(number)"))) }
    }
    try await device.sync()
    #expect(try await device.open().receipt(at: position).outcome() == [id: .saved])
    // Of a log that a restored backup has replaced.
    let stranger = LogPosition(tenure: position.tenure ^ 1, lsn: position.lsn)
    let store = try await device.open()
    #expect(await code { _ = try store.receipt(at: stranger) } == .noSuchRecord)
  }
}
