// Goal: refusals of several records have one answer, wherever they come from: each record is wrong, or nothing of the kind is accepted.
// Method: a table.

import Testing

@testable import Strandline
@testable import StrandlineSync

@Suite(.timeLimit(.minutes(30))) struct `The cause of refusals` {
  private static func refused(_ words: String..., code: CloudError.Code = .accessDenied, needs: [CloudName] = [])
    -> [RefusedSave]
  { words.map { RefusedSave(needs: needs, error: CloudError(code, reason: $0)) } }

  @Test func `of saves is the type, if at least three say the same, and no record that all need is named`() {
    let halted = CloudError(.accessDenied, reason: "no")
    let rows: [(why: String, saves: [RefusedSave], halted: CloudError?, cause: RefusalCause)] = [
      ("three say the same", Self.refused("no", "no", "no"), nil, .all),
      ("two say the same", Self.refused("no", "no"), nil, .records),
      ("one says other words", Self.refused("no", "no", "no", "not that one"), nil, .records),
      (
        "one has another code", Self.refused("no", "no") + Self.refused("no", code: .uniqueFieldError), nil, .records
      ),
      ("the type is halted for it", Self.refused("no"), halted, .all),
      ("the type is halted for other words", Self.refused("yes", "yes", "yes"), halted, .records),
      ("all need what is named", Self.refused("of 'p'", "of 'p'", "of 'p'", needs: ["p"]), nil, .records),
      (
        "one does not need what is named",
        Self.refused("of 'p'", "of 'p'", needs: ["p"]) + Self.refused("of 'p'", needs: ["q"]), nil, .all
      ),
      ("they need a record that is not named", Self.refused("no", "no", "no", needs: ["p"]), nil, .all),
      ("none was refused", [], nil, .records),
      ("none was refused of a halted type", [], halted, .records),
    ]
    for row in rows {
      #expect(RefusalCause.ofSaves(row.saves, halted: row.halted) == row.cause, "\(row.why)")
    }
  }

  @Test func `of lookups is the zone, if at least eight have the same code, whatever they say`() {
    func errors(_ count: Int, _ code: CloudError.Code = .badRequest) -> [CloudError] {
      (0..<count).map { CloudError(code, reason: "refused \($0)") }
    }
    #expect(RefusalCause.ofLookups(errors(8)) == .all)
    #expect(RefusalCause.ofLookups(errors(7)) == .records)
    #expect(RefusalCause.ofLookups(errors(8) + errors(1, .accessDenied)) == .records)
    #expect(RefusalCause.ofLookups([]) == .records)
  }
}
