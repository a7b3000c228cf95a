// Applies the rules about who changes what to the package, and to planted violations.

import StrandlineHost
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `What a type holds` {
  @Test func `is changed in two files at most`() throws {
    let targets = ["StrandlineModel", "StrandlineSync", "Strandline"]
    let findings = Rules.isChangedInFewFiles(
      try House.swift().filter { targets.contains($0.target) },
      exceptions: [
        "Intake.taken": "the report of an answer: each part is counted where it is decided",
        "Projections.appliedLSN": "events are applied, undone and flushed in files of their own",
        "SyncPlan.cycle": "each phase of a cycle has a part of its state",
        "WriteTransaction.core": "the app's verbs, those on parents and another process's changes append through it",
      ])
    #expect(findings.isEmpty, "\n\(findings.joined(separator: "\n"))")
    func found(_ changes: [String], exceptions: [String: String] = [:]) -> [String] {
      let sources =
        ["struct A {\n  var p = [0]\n  var c: Int { 0 }\n}\n"] + changes.map { "extension A {\n  \($0)\n}\n" }
      return Rules.isChangedInFewFiles(
        sources.enumerated().map { SourceText("Sources/A/\($0.offset).swift", $0.element) }, exceptions: exceptions)
    }
    let changes = [
      "mutating func a() { p[0].x = 1 }", "mutating func b() { self.p += [1] }", "mutating func c() { p.append(2) }",
    ]
    #expect(found(changes) == ["A.p is changed in Sources/A/1.swift, Sources/A/2.swift, Sources/A/3.swift"])
    #expect(found(Array(changes.dropLast())).isEmpty && found(changes, exceptions: ["A.p": "why"]).isEmpty)
    #expect(found([], exceptions: ["A.p": "why"]).count == 1)
    for other in [
      "func d() { _ = p == [1] }", "func d(_ o: inout A) { o.p = [1] }", "func d() { let p = [1] }", "// p = 1",
    ] {
      #expect(found(Array(changes.dropLast()) + [other]).isEmpty, "\(other)")
    }
  }

  @Test func `reaches no higher layer through a protocol of one type`() throws {
    let findings = Rules.protocolsHaveTypes(
      try House.swift(),
      exceptions: [
        "ForwardingFile": "tests forward files too",
        "OptionalPointer": "Optional<Wrapped> has no name without what it wraps",
        "OptionalProperty": "Optional<Wrapped> has no name without what it wraps",
        "ReadableCondition": "each operator of a predicate is a type inside PredicateExpressions",
        "ReadableExpression": "each operator of a predicate is a type inside PredicateExpressions",
        "SyncDriver": "a store begins and ends its sync, and is below it: Architecture says what goes through it",
        "UndecodedFields": "a record decodes a field when it is asked for, and knows no bytes",
        "UnorderedElements": "Set<Element> has no name without its element",
        "UnorderedPairs": "Dictionary<Key, Value> has no name without its key and value",
        "WireKey": "each message has an enumeration of this name",
        "WorldScreen": "ShownRecord<Note> has no name without its type",
      ])
    #expect(findings.isEmpty, "\n\(findings.joined(separator: "\n"))")
    let planted = SourceText(
      "Sources/A/A.swift",
      "protocol P {}\npublic protocol Q {}\nprotocol R: P {}\nstruct S: R {}\nextension S: P {}\nenum T:\n  R {}\n")
    #expect(Rules.protocolsHaveTypes([planted]) == [])
    let one = SourceText("Sources/A/A.swift", "package protocol P {}\nstruct S: P {}\n")
    #expect(Rules.protocolsHaveTypes([one]) == ["Sources/A/A.swift:1: S alone conforms to P"])
    #expect(Rules.protocolsHaveTypes([one], exceptions: ["P": "why"]).isEmpty)
  }
}
