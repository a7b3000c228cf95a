// A typed value with a version and a field under each rule: what the tests of edits and of screens read, change and save.

import Strandline

struct Item: SyncRecord, Hashable {
  var id = "n"
  var version = RecordVersion()
  var title = ""
  var body: String?
  var tags: Set<String> = []
  var opens = 0
  var best = 0
  var fixed = ""
  var parent: Parent<Item>?

  static let rules: TypeRules = {
    var rules = TypeRules()
    rules.fields = ["tags": .union, "opens": .counter, "best": .greatest, "fixed": .serverWins]
    return rules
  }()
}
