// Every changed bit and every cut of a run and of a list: refused, by an error that names the file, and never another
// answer. Bytes whose checksums are right and whose content no writer writes are tried beside the decoder that was
// written from the page, in FormatsTests.

import Strandline
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A damaged run` {
  /// A run of two blocks, with a restart point within a block, tombstones, an empty key and an empty value.
  private static func small(_ bench: RunBench) throws -> (RunModel, RunIdentity) {
    var model: RunModel = [[]: [1], [0x00]: [], [0xFF, 0xFF]: bench.random.bytes(4000)]
    for number in 0..<20 { model[Array("key \(number)".utf8)] = number % 3 == 0 ? .some(nil) : [UInt8(number)] }
    let identity = try bench.write(7, model, properties: [1, 2, 3])
    return (model, identity)
  }

  /// Everything that a run says; an error of the run is fine.
  private func expect(_ bench: RunBench, _ identity: RunIdentity, _ model: RunModel, _ what: String) throws -> Bool {
    do throws(RunError) {
      let run = try bench.open(identity)
      // One in each block, a tombstone among them, and one that is nowhere.
      for key in [[], Array("key 0".utf8), [0xFF, 0xFF], [0x01]] {
        // One block that is damaged does not make the others unreadable.
        do throws(RunError) {
          let answer = try run.answer(key)
          guard answer == model[key] else { throw RunError(.system, what, "another answer") }
        } catch {
          guard error.code != .system else { throw error }
        }
      }
      guard try run.entries() == model.entries(), run.properties == [1, 2, 3] else {
        throw RunError(.system, what, "other entries")
      }
      return false
    } catch {
      #expect(error.code != .system && error.code != .missing && error.file == bench.folder.run(7), "\(what): \(error)")
      return true
    }
  }

  @Test func `never gives another answer, whichever bit was changed`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    let (model, identity) = try Self.small(bench)
    let path = bench.folder.run(7)
    let good = try #require(disk.peek(path))
    #expect(try !expect(bench, identity, model, "undamaged"))
    var harmless: [Int] = []
    for place in good.indices {
      for bit in 0..<8 where Campaign.takes(bit, place, every: 8) {
        var bytes = good
        bytes[place] ^= 1 << UInt8(bit)
        disk.poke(path, bytes)
        if try !expect(bench, identity, model, "bit \(bit) of byte \(place)") { harmless.append(place) }
      }
    }
    // Each byte lies below a checksum.
    #expect(harmless.isEmpty, "\(harmless)")
  }

  @Test func `is refused at every length`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    let (model, identity) = try Self.small(bench)
    let path = bench.folder.run(7)
    let good = try #require(disk.peek(path))
    for length in good.indices {
      disk.poke(path, Array(good[..<length]))
      #expect(try expect(bench, identity, model, "cut at \(length)"))
      // A list that says so too does not help it.
      var believed = identity
      believed.fileBytes = UInt64(length)
      #expect(try expect(bench, believed, model, "cut at \(length) and listed so"))
    }
    disk.poke(path, good + [0])
    #expect(try expect(bench, identity, model, "longer"))
  }

  @Test func `is told from another file that verifies`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    let (_, identity) = try Self.small(bench)
    func code(_ identity: RunIdentity, storeUUID: [UInt8]? = nil) -> RunError.Code? {
      do throws(RunError) {
        _ = try Run(bench.folder, identity, storeUUID: storeUUID ?? bench.storeUUID, cache: BlockCache())
        return nil
      } catch { return error.code }
    }
    #expect(code(identity) == nil)
    #expect(code(identity, storeUUID: [UInt8](repeating: 9, count: 16)) == .foreign)
    let bytes = try #require(disk.peek(bench.folder.run(7)))
    disk.poke(bench.folder.run(8), bytes)
    #expect(code(RunIdentity(runNumber: 8, fileBytes: identity.fileBytes, footerCRC: identity.footerCRC)) == .foreign)
    #expect(code(RunIdentity(runNumber: 9, fileBytes: identity.fileBytes, footerCRC: identity.footerCRC)) == .missing)
    // The same entries under the same number, written again: its salt differs.
    let again = try Self.small(bench).1
    #expect(again.fileBytes == identity.fileBytes && again.footerCRC != identity.footerCRC)
    #expect(code(identity) == .foreign)
    // A block of the one in the place of the other's.
    var mixed = try #require(disk.peek(bench.folder.run(7)))
    mixed.replaceSubrange(RunFormat.runHeaderBytes..<RunFormat.runHeaderBytes + 100, with: bytes[64..<164])
    disk.poke(bench.folder.run(7), mixed)
    let run = try bench.open(again)
    #expect { try run.answer([]) } throws: { ($0 as? RunError)?.code == .damaged }
  }

  @Test func `of a later version is known as such`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    let identity = try bench.write(7, [[1]: [2]])
    let path = bench.folder.run(7)
    let good = try #require(disk.peek(path))
    typealias Field = RunFormat.Header
    for place in [Field.version, Field.reserved, Field.headerLength, Field.incompatibleBits + 5] {
      var bytes = good
      bytes[place] ^= 2
      bytes.patch(u32: CRC32C.checksum(bytes, 0..<Field.crc), at: Field.crc)
      disk.poke(path, bytes)
      #expect { try bench.open(identity) } throws: { ($0 as? RunError)?.code == .fromTheFuture }
    }
    // Features that a reader need not know.
    var bytes = good
    bytes[Field.readOnlyCompatibleBits] = 1
    bytes.patch(u32: CRC32C.checksum(bytes, 0..<Field.crc), at: Field.crc)
    disk.poke(path, bytes)
    #expect(try bench.open(identity).answer([1]) == [2])
  }

  @Test func `that the device cannot read is no damage`() throws {
    let injector = FaultInjector(SimulatedDisk())
    let bench = try RunBench(injector)
    let identity = try bench.write(7, [[1]: [2]])
    for call in 1...5 {
      injector.clear()
      injector.resetCounts()
      injector.plan(DiskFault([], ordinal: call, error: .device("", "")))
      #expect { try bench.open(identity) } throws: { error in
        (error as? RunError)?.code == .system && (error as? RunError)?.cause != nil
      }
    }
    injector.clear()
    let run = try bench.open(identity)
    injector.plan(DiskFault([.read], error: .device("", "")))
    #expect { try run.answer([1]) } throws: { ($0 as? RunError)?.code == .system }
    // The next try may succeed: nothing of the failure is kept.
    #expect(try run.answer([1]) == [2])
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A list of runs` {
  private static func sample() -> RunList {
    var list = RunList(storeUUID: (1...16).map { $0 }, nextRunNumber: 9)
    list.entries = [
      .init(RunIdentity(runNumber: 8, fileBytes: 1000, footerCRC: 1)),
      .init(RunIdentity(runNumber: 2, fileBytes: 1 << 40, footerCRC: 0xFFFF_FFFF)),
    ]
    list.binding = [5, 6, 7]
    return list
  }

  @Test func `is read as it was written`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    #expect(try RunList.load(bench.folder, storeUUID: bench.storeUUID) == nil)
    for list in [RunList(storeUUID: bench.storeUUID), Self.sample()] {
      try list.replace(bench.folder)
      #expect(try RunList.load(bench.folder, storeUUID: bench.storeUUID) == list)
      #expect(disk.paths == [bench.folder.list])
    }
    #expect {
      try RunList.load(bench.folder, storeUUID: [UInt8](repeating: 0, count: 16))
    } throws: { ($0 as? RunError)?.code == .foreign }
  }

  @Test func `is refused with any bit changed, and at every length`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    let good = Self.sample().encoded()
    func isRefused(_ bytes: [UInt8], _ what: String) -> Bool {
      disk.poke(bench.folder.list, bytes)
      do throws(RunError) {
        _ = try RunList.load(bench.folder, storeUUID: bench.storeUUID)
        return false
      } catch {
        #expect(error.code != .system && error.file == bench.folder.list, "\(what): \(error)")
        return true
      }
    }
    #expect(!isRefused(good, "undamaged"))
    for place in good.indices {
      for bit in 0..<8 {
        var bytes = good
        bytes[place] ^= 1 << UInt8(bit)
        #expect(isRefused(bytes, "bit \(bit) of byte \(place)"))
      }
      #expect(isRefused(Array(good[..<place]), "cut at \(place)"))
    }
    #expect(isRefused(good + [0], "longer"))
  }

  @Test func `that contradicts itself is damaged, and its counts reserve no memory`() throws {
    let good = Self.sample().encoded()
    typealias Field = RunFormat.ListHeader
    func code(_ change: (inout [UInt8]) -> Void) -> RunError.Code? {
      var bytes = good
      change(&bytes)
      bytes.patch(u32: CRC32C.checksum(bytes, 0..<Field.crc), at: Field.crc)
      bytes.patch(u32: CRC32C.checksum(bytes, 0..<bytes.count - 4), at: bytes.count - 4)
      do throws(RunError) {
        _ = try RunList.decode(bytes, storeUUID: Self.sample().storeUUID, file: "RUNS")
        return nil
      } catch { return error.code }
    }
    let first = RunFormat.listHeaderBytes
    #expect(code { _ in } == nil)
    #expect(code { $0.patch(u32: .max, at: Field.runCount) } == .damaged)
    #expect(code { $0.patch(u32: .max, at: Field.bindingBytes) } == .damaged)
    #expect(code { $0.patch(u64: 8, at: Field.nextRunNumber) } == .damaged)
    #expect(code { $0.patch(u64: 0, at: Field.nextRunNumber) } == .damaged)
    #expect(code { $0.patch(u64: .max, at: Field.nextRunNumber) } == .damaged)
    #expect(code { $0.patch(u64: 2, at: first) } == .damaged)
    #expect(code { $0.patch(u64: 0, at: first) } == .damaged)
    #expect(code { $0[RunFormat.Header.incompatibleBits] = 1 } == .fromTheFuture)
    #expect(code { $0[RunFormat.Header.version] = 2 } == .fromTheFuture)
  }

  @Test func `names what stays when leftovers go, and other files stay too`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    var list = RunList(storeUUID: bench.storeUUID, nextRunNumber: 4)
    list.entries = [.init(try bench.write(2, [[1]: [1]]))]
    try list.replace(bench.folder)
    for number in [1, 3] as [UInt64] { try bench.write(number, [:]) }
    let ours = ["0000000000000009.tmp", "INDEXES.tmp", "RUNS.tmp", "ffffffffffffffff.run"]
    let others = ["notes.txt", "2.run", "000000000000000A.run", "0000000000000002.run.old", "INDEXES", "RUNS.bak"]
    for name in ours + others { disk.poke("/runs/\(name)", [1]) }
    let removed = try bench.folder.removeLeftovers(keeping: list.runNumbers, ofFiles: ["INDEXES"])
    #expect(removed == (ours + ["0000000000000001.run", "0000000000000003.run"]).sorted())
    #expect(disk.paths == (others + ["0000000000000002.run", "RUNS"]).map { "/runs/\($0)" }.sorted())
    #expect(try bench.folder.removeLeftovers(keeping: list.runNumbers).isEmpty)
  }
}
