// The conformance set: its text is what the page and the table of cases make, and all who judge a log agree on it.
//
// It is written only when asked for, as the golden stores are: STRANDLINE_WRITE_VECTORS=1 swift test --filter Conformance.

import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The conformance set` {
  @Test func `is what the table of cases makes`() throws {
    let text = try ConformanceText.make()
    if ProcessEnvironment.value(of: "STRANDLINE_WRITE_VECTORS") == "1" {
      try Repository.write(Array(text.utf8), ConformanceText.path)
    }
    let golden = try Repository.text(ConformanceText.path)
    let first = zip(text.split(separator: "\n"), golden.split(separator: "\n")).first { $0 != $1 }
    #expect(text == golden, "\(first?.0 ?? "its length")")
  }

  @Test func `has enough of each`() throws {
    let cases = ConformanceCase.all
    #expect(Set(cases.map(\.name)).count == cases.count)
    #expect(cases.filter { !$0.demand.isServed }.count >= 160)
    #expect(cases.filter(\.demand.isServed).count >= 40)
    for verdict in Demand.Verdict.allCases {
      #expect(cases.contains { $0.demand.verdict == verdict }, "no case is \(verdict)")
    }
  }

  /// What a stranger gets out of the text is what was put in.
  @Test func `expands to what it was made from`() throws {
    let layouts = try LogLayouts()
    let stores = try ConformanceText.read(try Repository.text(ConformanceText.path))
    #expect(stores.count == ConformanceBase.allCases.count + ConformanceCase.all.count)
    for one in ConformanceCase.all {
      var image = try one.base.make(layouts)
      try one.change(&image)
      let store = try #require(stores.first { $0.name == one.name })
      #expect(store.files == (try image.encoded()), "\(one.name)")
      #expect(store.demand == one.demand.lines, "\(one.name)")
    }
  }

  @Test(arguments: ConformanceJudge.allCases) func `is judged as the page demands`(by judge: ConformanceJudge) throws {
    for store in try ConformanceText.read(try Repository.text(ConformanceText.path)) {
      if let objection = try judge.objection(to: store) { Issue.record("\(store.name): \(objection)") }
    }
  }

  @Test func `is judged as the page demands by a decoder that was written from it`() throws {
    let objections = try Decoder.output("decoder.py", ["--conformance", Repository.path(ConformanceText.path)])
    #expect(objections.isEmpty, "\(objections)")
  }
}
