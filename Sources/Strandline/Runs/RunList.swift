// The runs of a folder that are in use: one small file, replaced whole.
//
// It is written under a temporary name and synced, renamed, and the directory is synced. The rename is the commit of
// every change of the set: the runs that it names were durable before, and a file that it does not name is nothing. The
// caller binds the set to what it was made from with bytes of its own. Layout: Formats/runs.md, "List".

import StrandlineSystem

/// The list of runs.
package struct RunList: Hashable, Sendable {
  package struct Entry: Hashable, Sendable {
    package var run: RunIdentity

    package init(_ run: RunIdentity) { self.run = run }
  }

  package let storeUUID: [UInt8]
  /// Larger than the number of every run that was listed.
  package var nextRunNumber: UInt64
  /// In the caller's order; each run once.
  package var entries: [Entry] = []
  /// At most `RunFormat.bindingBytesMax` bytes of the caller.
  package var binding: [UInt8] = []

  /// A list without runs.
  package init(storeUUID: [UInt8], nextRunNumber: UInt64 = 1) {
    precondition(storeUUID.count == 16)
    self.storeUUID = storeUUID
    self.nextRunNumber = nextRunNumber
  }

  /// The numbers of the runs that are in use.
  package var runNumbers: Set<UInt64> { Set(entries.map(\.run.runNumber)) }

  // MARK: Bytes

  package func encoded() -> [UInt8] {
    precondition(binding.count <= RunFormat.bindingBytesMax && contradiction == nil)
    var writer = ByteWriter(capacity: Self.wholeBytes(entries: entries.count, binding: binding.count))
    RunCommonHeader.encode(
      RunFormat.listMagic, headerBytes: RunFormat.listHeaderBytes, storeUUID: storeUUID, into: &writer)
    writer.u64(nextRunNumber)
    writer.u32(UInt32(entries.count))
    writer.u32(UInt32(binding.count))
    writer.u32(CRC32C.checksum(writer.bytes))
    for entry in entries {
      writer.u64(entry.run.runNumber)
      writer.u64(entry.run.fileBytes)
      writer.u32(entry.run.footerCRC)
    }
    writer.raw(binding)
    writer.u32(CRC32C.checksum(writer.bytes))
    return writer.bytes
  }

  private static func wholeBytes(entries: Int, binding: Int) -> Int {
    RunFormat.listHeaderBytes + entries * RunFormat.listEntryBytes + binding + 4
  }

  /// Decodes the whole file.
  ///
  /// - Throws: `.damaged`, `.fromTheFuture`; `.foreign` if it is another store's.
  package static func decode(_ bytes: [UInt8], storeUUID: [UInt8], file: String) throws(RunError) -> RunList {
    typealias Field = RunFormat.ListHeader
    typealias Entry = RunFormat.ListEntryField
    try RunCommonHeader.decode(
      bytes, RunFormat.listMagic, headerBytes: RunFormat.listHeaderBytes, storeUUID: storeUUID, file: file)
    let (count, bindingCount) = counts(bytes)
    let whole = wholeBytes(entries: count, binding: bindingCount)
    guard bytes.count == whole, bindingCount <= RunFormat.bindingBytesMax else {
      throw RunError(
        .damaged, file, at: UInt64(min(whole, bytes.count)), "it has \(bytes.count) bytes and should have \(whole)")
    }
    guard CRC32C.checksum(bytes, 0..<whole - 4) == bytes.u32(at: whole - 4) else {
      throw RunError(
        .damaged, file, at: UInt64(RunFormat.listHeaderBytes), "the checksum of the list does not match")
    }
    var list = RunList(storeUUID: storeUUID, nextRunNumber: bytes.u64(at: Field.nextRunNumber))
    var place = RunFormat.listHeaderBytes
    for _ in 0..<count {
      let run = RunIdentity(
        runNumber: bytes.u64(at: place + Entry.runNumber), fileBytes: bytes.u64(at: place + Entry.fileBytes),
        footerCRC: bytes.u32(at: place + Entry.footerCRC))
      list.entries.append(RunList.Entry(run))
      place += RunFormat.listEntryBytes
    }
    list.binding = Array(bytes[place..<place + bindingCount])
    if let contradiction = list.contradiction {
      throw RunError(.damaged, file, at: UInt64(Field.nextRunNumber), contradiction)
    }
    return list
  }

  /// How many entries and bytes of the binding there are, by a header that verifies.
  private static func counts(_ bytes: [UInt8]) -> (entries: Int, binding: Int) {
    (Int(bytes.u32(at: RunFormat.ListHeader.runCount)), Int(bytes.u32(at: RunFormat.ListHeader.bindingBytes)))
  }

  /// What no writer writes; nil if there is nothing of it.
  private var contradiction: String? {
    guard 1..<RunFormat.numberMax ~= nextRunNumber else { return "its next run number is \(nextRunNumber)" }
    var seen: Set<UInt64> = []
    for entry in entries {
      let number = entry.run.runNumber
      guard 1..<nextRunNumber ~= number, seen.insert(number).inserted else {
        return "it names run \(number) twice, or above its next run number"
      }
    }
    return nil
  }

  // MARK: The file

  /// Reads the list of a folder.
  ///
  /// - Returns: nil if there is none.
  /// - Throws: `.damaged`, `.fromTheFuture`; `.foreign` if it is another store's; `.system`.
  package static func load(_ folder: RunFolder, storeUUID: [UInt8]) throws(RunError) -> RunList? {
    let path = folder.list
    let bytes: [UInt8]
    do {
      let file = try folder.store.open(folder.listFile, .read)
      defer { file.close() }
      let header = try file.read(at: 0, count: RunFormat.listHeaderBytes)
      // The header's checksum vouches for the counts, and they must be the file's size before so much is read.
      if isWhole(header, size: try file.size()) {
        let (count, binding) = counts(header)
        bytes = try file.read(at: 0, count: wholeBytes(entries: count, binding: binding))
      } else {
        bytes = header
      }
    } catch  where error.isAbsent {
      return nil
    } catch {
      throw RunError(error, file: path)
    }
    return try decode(bytes, storeUUID: storeUUID, file: path)
  }

  private static func isWhole(_ header: [UInt8], size: UInt64) -> Bool {
    let crc = RunFormat.ListHeader.crc
    guard header.count == RunFormat.listHeaderBytes, CRC32C.checksum(header, 0..<crc) == header.u32(at: crc) else {
      return false
    }
    let (count, binding) = counts(header)
    return size == UInt64(wholeBytes(entries: count, binding: binding))
  }

  /// Replaces the list of a folder. When this returns, the new list is on the medium.
  ///
  /// - Throws: `.refused` if the old list still holds, `.unknown` if either may: until one of them was loaded again, the
  ///   runs of both must stay.
  package func replace(_ folder: RunFolder) throws(RunListFailure) {
    let temporary = folder.listFile + RunFormat.temporarySuffix
    do throws(SystemError) {
      let file = try folder.create(temporary)
      defer { file.close() }
      try file.write(encoded(), at: 0)
      try file.sync(.durable)
    } catch {
      // The next attempt replaces what is left of it, and `removeLeftovers` removes it.
      throw .refused(RunError(error, file: folder.path(of: temporary)))
    }
    do throws(SystemError) { try folder.publish(temporary, as: folder.listFile) } catch {
      throw .unknown(RunError(error, file: folder.list))
    }
  }
}

/// A replacement of the list that failed, and what that means for the set of runs.
package enum RunListFailure: Error, Hashable, Sendable {
  /// The old list holds.
  case refused(RunError)
  /// The old list or the new one holds.
  case unknown(RunError)

  /// What failed.
  package var cause: RunError {
    switch self {
    case .refused(let cause), .unknown(let cause): cause
    }
  }
}
