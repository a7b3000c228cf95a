// The rule about names: those of records, zones and owners, and the server's tags, are compared by their bytes, so none is a text
// that is the key of a table, and none is compared by Swift's `==`, to which "café" in two spellings is one.

extension Rules {
  /// The targets that hold names of records, or the paths of stores as keys.
  private static let namingTargets: Set<String> = [
    "StrandlineSystem", "StrandlineHost", "StrandlineLog", "StrandlineModel", "StrandlineSync", "Strandline",
    "StrandlineCloudKit", "StrandlineNativeCloudKit",
    "StrandlineServer", "StrandlineTesting", "StrandlineSyncProofs", "StrandlineCLI",
  ]

  /// What is kept by the name of a field or type, and so by ASCII: `WireName` lets no other name in.
  private static let keptByField = [
    "FieldValue", "FieldStamp", "(FieldStamp", "FieldRule", "FieldKind", "TypeSchema", "TypeRules",
  ]

  /// Files of Sources whose tables have texts as keys that are no names of records, zones and owners.
  static let textKeys: [String: String] = [
    "StrandlineSyncProofs/ReplacedStores.swift": "paths of files, and the campaign's own names, which are ASCII",
    "Strandline/Store/Queries/IndexPlan.swift": "fields",
    "StrandlineSystem/Network/TLS.swift": "names of symbols",
    "StrandlineModel/Events/EncodedFields.swift": "fields",
    "StrandlineModel/Events/LoggedVersion.swift": "fields",
    "StrandlineModel/Events/Version.swift": "fields",
    "StrandlineModel/Model/Stamp.swift": "fields",
    "StrandlineModel/Events/CloudEvents.swift": "fields",
    "StrandlineModel/Model/RecordText.swift": "fields",
    "StrandlineModel/Model/Record.swift": "fields",
    "StrandlineModel/Model/SortedJSON.swift": "the keys of an app's own JSON",
    "Strandline/Store/ChildFinder.swift": "types",
    "Strandline/Store/StoreView.swift": "types",
    "Strandline/Store/Queries/Typed/PropertyProbe.swift": "fields",
    "Strandline/Store/SchemaRule.swift": "types and fields",
    "StrandlineCLI/Commands/TypesCommand.swift": "types and fields",
    "StrandlineTesting/World/WorldDevice.swift": "fields",
    "Strandline/Store/EditMerge.swift": "fields",
    "Strandline/Store/WriteTransaction+Typed.swift": "fields",
    "Strandline/Store/WriteTransaction.swift": "fields",
    "Strandline/Store/MutationOutcome.swift": "fields",
    "StrandlineSync/Merge/IntakeDecision.swift": "fields",
    "StrandlineSync/Merge/OwnMutations.swift": "fields",
    "StrandlineSync/Merge/ConflictMerge.swift": "fields",
    "Strandline/Sync/Intake/Intake.swift": "fields",
    "StrandlineSync/Merge/Join.swift": "fields",
    "StrandlineSync/Plan/SyncPlan+Uploading.swift": "fields",
    "Strandline/Sync/Engine/SyncEngine.swift": "words of a table in the code",
    "StrandlineSync/Plan/SyncPlan.swift": "words of a table in the code",
    "Strandline/Projections/Projections+Invariants.swift": "types",
    "Strandline/Projections/LivingCounts.swift": "types",
    "Strandline/Projections/DurableChanges.swift": "types",
    "StrandlineCloudKit/HTTP/HTTPRequestWriter.swift": "headers",
    "StrandlineNativeCloudKit/NativeRecords.swift": "fields",
    "StrandlineServer/ServerAnswer.swift": "API tokens, ASCII",
    "StrandlineServer/LocalServer.swift": "API tokens, ASCII",
    "StrandlineServer/QueryConditions.swift": "words of a search",
    "StrandlineServer/ServerState.swift": "types and fields, which the server takes in ASCII alone",
    "StrandlineServer/CloudServer.swift": "API tokens, and the paths of requests",
    "StrandlineServer/HTTP/HTTPAccess.swift": "hosts",
    "StrandlineCLI/Bench/WireBench+Foundation.swift": "fields",
    "StrandlineCLI/Bench/WireBench+Store.swift": "rows of a benchmark",
    "StrandlineCLI/Bench/StoreBench.swift": "rows of a benchmark",
    "StrandlineCLI/Bench/WireBench.swift": "rows of a benchmark",
    "StrandlineCLI/Bench/SyncBench.swift": "rows of a benchmark",
    "StrandlineCLI/Bench/ServerBench.swift": "rows of a benchmark",
    "StrandlineCLI/Records/EventView.swift": "the keys of a line",
    "StrandlineCLI/Records/JSONValue.swift": "the keys of a line",
    "StrandlineCLI/Proofs/KillLoop.swift": "words of a table in the code",
    "StrandlineCLI/Proofs/LocalRecords.swift": "the keys of a file of the system",
    "StrandlineCLI/Commands/LogDumpCommand.swift": "kinds of events",
    "StrandlineCLI/Commands/PendingCommand.swift": "the keys of a line",
    "StrandlineCLI/Commands/WhyCommand.swift": "the keys of a line",
    "StrandlineCLI/Commands/SimulateCommand.swift": "the keys of a line",
    "StrandlineCLI/Commands/WatchCommand.swift": "the keys of a line",
    "StrandlineCLI/Commands/HistoryCommand.swift": "the keys of a line",
    "StrandlineCLI/Commands/ServeCommand.swift": "API tokens, ASCII",
    "StrandlineCLI/Commands/BenchCommand.swift": "options",
    "StrandlineCLI/Commands/QueryCommand.swift": "signs of comparison",
    "StrandlineCLI/Commands/DemoCommand.swift": "the keys of a line, and fields",
    "StrandlineCLI/CommandLine/Arguments.swift": "options",
    "StrandlineCLI/Page/PageService.swift": "the keys of a line",
    "StrandlineCLI/Page/PageVerbs.swift": "options and verbs",
    "StrandlineCLI/Page/ServerPage.swift": "the keys of a line",
    "StrandlineCLI/Page/StorePage.swift": "the keys of a line, and files",
    "StrandlineServer/CloudServer+Looking.swift": "types",
  ]

  /// Files of Sources that compare by `==`, or look for, what is called a name, an owner or a tag and is none of these, or is looked
  /// for in a set of `CloudName`.
  static let comparedTexts: [String: String] = [
    "StrandlineModel/Events/NewLife.swift": "fields",
    "Strandline/Store/WriteTransaction.swift": "fields",
    "Strandline/Store/MutationOutcome.swift": "fields",
    "Strandline/Store/Queries/Typed/PropertyProbe.swift": "fields, and names that are made up",
    "Strandline/Runs/BlockCache.swift": "numbers",
    "StrandlineLog/Reading/SegmentScanner.swift": "numbers",
    "StrandlineTesting/World/WorldFaults.swift": "groups of faults",
    "StrandlineTesting/World/WorldCascades.swift": "sets of CloudName",
    "StrandlineTesting/World/WorldTogether.swift": "a set of CloudName",
    "StrandlineTesting/World/WorldRun+Rest.swift": "a set of CloudName",
    "StrandlineCLI/Commands/ZonesCommand.swift": "verbs",
    "StrandlineCLI/Commands/SimulateCommand+Fleet.swift": "curves of a plot",
    "StrandlineCLI/CommandLine/Arguments.swift": "options",
    "StrandlineCLI/CommandLine/Command.swift": "verbs",
    "StrandlineCLI/CommandLine/ExitCode.swift": "verbs",
    "StrandlineCLI/Page/PageAccess.swift": "parameters of a request",
    "StrandlineCLI/Page/PageVerbs.swift": "verbs",
  ]

  /// Tables with texts as keys.
  static func namesAreNoTextKeys(_ source: SourceText) -> [String] {
    guard isAsked(source), textKeys[inSources(source)] == nil else { return [] }
    return source.findings("a text as a key: make it a CloudName, or say in `textKeys` what it is", where: hasTextKey)
  }

  /// Comparisons of names by `==`.
  static func namesAreComparedByBytes(_ source: SourceText) -> [String] {
    guard isAsked(source), comparedTexts[inSources(source)] == nil else { return [] }
    return source.findings(
      "a name compared by Unicode: use equalsUTF8 or CloudName, or say in `comparedTexts` what it is",
      where: comparesAName)
  }

  /// Rows of the two tables that nothing needs any more.
  static func unneededExceptions(_ sources: [SourceText]) -> [String] {
    func unneeded(_ table: [String: String], _ isNeeded: (Substring) -> Bool) -> [String] {
      table.keys.sorted().filter { path in
        !sources.contains { inSources($0) == path && $0.codeLines.contains(where: isNeeded) }
      }
    }
    return unneeded(textKeys, hasTextKey) + unneeded(comparedTexts, comparesAName)
  }

  private static func isAsked(_ source: SourceText) -> Bool {
    source.path.hasPrefix("Sources/") && namingTargets.contains(source.target)
  }

  private static func inSources(_ source: SourceText) -> String { String(source.path.dropFirst("Sources/".count)) }

  private static func hasTextKey(_ line: Substring) -> Bool {
    if line.contains("Set<String>") || line.contains("Dictionary<String") { return true }
    return line.split(separator: "[String: ", omittingEmptySubsequences: false).dropFirst().contains { value in
      !keptByField.contains { value.hasPrefix($0) }
    } || line.contains("[String:[")
  }

  private static func comparesAName(_ line: Substring) -> Bool {
    let names: Set<Substring> = [
      "name", "owner", "zoneName", "recordName", "ownerRecordName", "changeTag", "tag", "parent", "user",
    ]
    // A list of texts looks for one by `==` as well.
    for search in [".contains(", ".firstIndex(of: ", ".lastIndex(of: "] {
      for rest in line.split(separator: search, omittingEmptySubsequences: false).dropFirst() {
        let sought = rest.prefix { $0 != ")" }
        if !sought.contains("("), isMember(sought, names) { return true }
      }
    }
    let words = line.split(separator: " ")
    for (place, word) in words.enumerated() where (word == "==" || word == "!=") && place > 0 && place + 1 < words.count
    {
      let (left, right) = (words[place - 1], words[place + 1])
      // A constant of the code, nil, a case, or a literal, of which nothing is left.
      guard let first = right.first, first.isLetter || first == "$" || first == "(", !first.isUppercase,
        !right.hasPrefix("nil")
      else { continue }
      if left.contains("CloudName(") || left.contains("Key(") { continue }
      if isMember(left, names) || isMember(right, names) { return true }
    }
    return false
  }

  /// Whether an expression ends with one of these members, `x.name`. A name alone may be anything, and so may the result of a
  /// call or a subscript.
  private static func isMember(_ side: Substring, _ names: Set<Substring>) -> Bool {
    guard side.contains("."), let last = side.split(separator: ".").last, !last.contains("("), !last.contains("[")
    else {
      return false
    }
    return last.words.last.map(names.contains) == true
  }
}
