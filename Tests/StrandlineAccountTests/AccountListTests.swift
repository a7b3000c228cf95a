// The list of accounts: its bytes as Formats/accounts.md has them, damage, and a power cut at each call that changes the disk.

import Strandline
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30))) struct `The list of accounts` {
  private func folder(_ disk: SimulatedDisk) throws -> any Folder {
    if try disk.kind(of: "/accounts") == .absent {
      try disk.makeDirectory("/accounts")
      try disk.folder("/").sync()
    }
    return try disk.folder("/accounts")
  }

  /// The list of the page.
  private var example: AccountList {
    var list = AccountList()
    for user in ["_alice", "_bob", "_carol"] { _ = list.add(Array(user.utf8)) }
    list.set(.archive, of: 3)
    list.shownNumber = 2
    list.signIn = .yes
    return list
  }

  @Test func `has the bytes of its page`() throws {
    let page = #"""
      strandline accounts 1
      next 4
      shown 2
      signed-in yes
      account 1 kept 5f616c696365
      account 2 kept 5f626f62
      account 3 archive 5f6361726f6c
      crc32c 2100652923

      """#
    #expect(String(decoding: example.bytes, as: UTF8.self) == page)
    let disk = SimulatedDisk()
    try example.save(to: try folder(disk))
    #expect(try AccountList.load(from: try folder(disk)) == example)
  }

  @Test func `is damaged with any bit changed and at any length, and of the future with another version`() throws {
    let disk = SimulatedDisk()
    let folder = try folder(disk)
    let bytes = example.bytes
    func code(_ bytes: [UInt8]) -> StrandlineError.Code? {
      disk.poke("/accounts/accounts", bytes)
      do { _ = try AccountList.load(from: folder) } catch let error as StrandlineError { return error.code } catch {}
      return nil
    }
    for index in bytes.indices {
      for bit in 0..<8 {
        var changed = bytes
        changed[index] ^= 1 << UInt8(bit)
        let code = code(changed)
        #expect(code == .damaged || code == .fromTheFuture, "bit \(bit) of byte \(index)")
      }
      #expect([.damaged, .fromTheFuture].contains(code(Array(bytes[..<index]))), "\(index) bytes")
    }
    #expect(code(bytes) == nil)
    let future = String(decoding: bytes, as: UTF8.self).replacing("accounts 1", with: "accounts 2")
    #expect(code(Array(future.utf8)) == .fromTheFuture)
    disk.pokeRemove("/accounts/accounts")
    try folder.makeFolder("1")
    let error = #expect(throws: StrandlineError.self) { try AccountList.load(from: folder) }
    #expect(error?.code == .damaged)
  }

  @Test func `is after a power cut at any call what it was before or after a change`() throws {
    var lists = [AccountList()]
    var list = AccountList()
    for step in 0..<4 {
      let entry = list.add(step == 0 ? nil : Array("user \(step)".utf8))
      if step == 2 { list.set(.removed, of: 1) }
      if step == 3 { list.drop(1) }
      list.shownNumber = entry.number
      lists.append(list)
    }
    let whole = SimulatedDisk()
    var known: [Int] = []
    for list in lists.dropFirst() {
      try list.save(to: try folder(whole))
      known.append(whole.callCount)
    }
    for call in 1...whole.callCount {
      for isTearing in [false, true] {
        let disk = SimulatedDisk()
        disk.crashAtCall = call
        disk.isTearing = isTearing
        do { for list in lists.dropFirst() { try list.save(to: try folder(disk)) } } catch {}
        let done = known.count { $0 < call }
        for loss in disk.crashLosses() {
          let image = disk.imageAfterCrash(loss)
          guard try image.kind(of: "/accounts") == .directory else {
            #expect(done == 0)
            continue
          }
          let found = try AccountList.load(from: try folder(image))
          #expect(found == lists[done] || found == lists[min(done + 1, lists.count - 1)], "call \(call), \(loss)")
        }
      }
    }
  }
}
