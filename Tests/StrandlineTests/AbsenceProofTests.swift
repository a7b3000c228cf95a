// Goal: an answer to a lookup proves an absence only if it says that the server does not have the very version that is here. Method:
// a table of answers, and what follows from each.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

@Suite struct `The proof of an absence` {
  private let id = RecordID("n")

  private func proof(_ age: ZoneAge, upTo proved: LSN = LSN(rawValue: .max)) -> AbsenceProof {
    let base = Base(
      version: LSN(5), content: LSN(5), changeTag: "a", createdMilliseconds: 50, modifiedMilliseconds: 1_000_000)
    return AbsenceProof(
      living: 10, age: age, provedUpTo: proved, absent: [AbsenceProof.Absent(id, base)])
  }

  private static func failed(_ code: CloudError.Code, raw: [UInt8] = []) -> CloudResult {
    var error = CloudError(code, reason: "no")
    error.raw = raw
    return .failed(error, serverRecord: nil)
  }

  private static let record = CloudResult.record(
    ServerRecord(name: "n", type: "Note", fields: [:], system: SystemFields(changeTag: "a")))

  /// An answer, the version that is here after it was applied, and what follows in the zone that this store has fetched.
  private static let rows: [(answer: CloudResult?, base: LSN?, follows: AbsenceKnowledge.Step)] = [
    (failed(.notFound), LSN(5), .remove), (.deleted, LSN(5), .remove),
    // What is here by now is another version, or the answer has removed it.
    (failed(.notFound), LSN(6), .end), (.deleted, nil, .end),
    (record, LSN(5), .end),
    // The server has it, and it cannot be read.
    (failed(.unexpectedServerResponse, raw: [1]), LSN(5), .end),
    (failed(.accessDenied), LSN(5), .setAside), (failed(.tryAgainLater), LSN(5), .setAside), (nil, LSN(5), .setAside),
  ]

  @Test func `is an answer that does not find the version that is here, and no other one`() {
    for row in Self.rows {
      var proof = proof(.fetched)
      let asked = proof.names(200)
      #expect(proof.knowledge.next() == .lookUp && asked == ["n"])
      let isOfProof = proof.take(row.answer, of: id, created: nil, base: row.base)
      let left = proof.names(200)
      #expect(isOfProof && left == [] && proof.knowledge.next() == row.follows, "\(row)")
      #expect(proof.gone.count == (row.follows == .remove ? 1 : 0), "\(row)")
      #expect((proof.failure != nil) == (row.follows == .setAside), "\(row)")
    }
  }

  @Test func `is of this zone only if it was there before the server had the record last`() {
    func follows(_ proof: AbsenceProof) -> AbsenceKnowledge.Step {
      var proof = proof
      _ = proof.take(Self.failed(.notFound), of: id, created: nil, base: LSN(5))
      return proof.knowledge.next()
    }
    #expect(follows(proof(ZoneAge())) == .lose && follows(proof(ZoneAge(lsn: LSN(6)))) == .lose)
    #expect(follows(proof(.fetched)) == .remove && follows(proof(ZoneAge(lsn: LSN(5)))) == .remove)
    // A record that is shown says it: of what came here before the zone was in doubt always, else by its event or by when it was
    // created.
    let rows: [(proved: LSN, created: Int64?, other: LSN, isSame: Bool)] = [
      (LSN(6), 5_000_000, LSN(6), true), (LSN(4), 5_000_000, LSN(6), false), (LSN(4), 400_000, LSN(6), true),
      (LSN(4), 5_000_000, LSN(5), true), (LSN(6), nil, LSN(6), false),
    ]
    for row in rows {
      let other = RecordID("other")
      let bases = [(id, LSN(5)), (other, row.other)].map { id, version in
        let base = Base(
          version: version, content: version, changeTag: "a", createdMilliseconds: 50, modifiedMilliseconds: 1_000_000)
        return AbsenceProof.Absent(id, base)
      }
      var proof = AbsenceProof(living: 10, age: ZoneAge(), provedUpTo: row.proved, absent: bases)
      _ = proof.take(Self.record, of: other, created: row.created, base: row.other)
      #expect(proof.knowledge.isSameZone == row.isSame, "\(row)")
    }
  }
}
