// The rules of the house as functions from files to findings. HouseTests applies them to the package and to planted
// violations, because a rule that cannot fail checks nothing.

/// The rules.
enum Rules {
  // MARK: Dependencies

  /// Modules of the toolchain that every target may import.
  private static let free: Set<String> = ["Synchronization", "Dispatch"]

  /// The modules that each target may import in addition: its dependencies in Package.swift.
  static let imports: [String: Set<String>] = [
    "StrandlineSystem": ["CStrandline", "Glibc", "Musl", "Darwin", "MachO", "CryptoKit"],
    "StrandlineJSON": ["StrandlineSystem"],
    "StrandlineLog": ["StrandlineSystem"],
    // Foundation for the values that apps store in typed records: Date, Data, URL, UUID, and for reading the JSON of an
    // app's own types. Not for files or network.
    "StrandlineModel": [
      "StrandlineLog", "StrandlineJSON", "StrandlineSystem", "Foundation", "FoundationEssentials",
    ],
    "StrandlineSync": ["StrandlineModel", "StrandlineLog", "StrandlineSystem"],
    "Strandline": [
      "StrandlineSync", "StrandlineModel", "StrandlineLog", "StrandlineJSON", "StrandlineSystem", "Foundation",
      "FoundationEssentials", "Observation",
    ],
    "StrandlineUI": ["Strandline", "Foundation", "SwiftUI"],
    "StrandlineCloudKit": [
      // Not FoundationNetworking, which is URLSession on Linux and loads thirty libraries.
      "Strandline", "StrandlineJSON", "StrandlineSystem", "Foundation",
    ],
    "StrandlineNativeCloudKit": [
      "StrandlineCloudKit", "Strandline", "StrandlineSystem", "Foundation", "CloudKit", "CoreLocation",
    ],
    "StrandlineServer": [
      "StrandlineCloudKit", "Strandline", "StrandlineLog", "StrandlineJSON", "StrandlineSystem", "Foundation",
    ],
    "StrandlineSimulation": ["StrandlineSystem"],
    "StrandlineTesting": [
      "StrandlineSimulation", "StrandlineServer", "StrandlineCloudKit", "Strandline", "StrandlineLog",
      "StrandlineSystem",
    ],
    "StrandlineHost": ["CStrandlineHost", "StrandlineSystem", "Glibc", "Musl", "Darwin", "MachO"],
    // The log's proofs and benchmarks do not depend on the store, so that both can be built at the same time.
    "StrandlineLogProofs": ["StrandlineSimulation", "StrandlineLog", "StrandlineSystem"],
    "StrandlineLogBench": ["StrandlineHost", "StrandlineSimulation", "StrandlineLog", "StrandlineSystem"],
    "StrandlineSyncProofs": [
      "StrandlineLogProofs", "StrandlineSimulation", "StrandlineServer", "StrandlineCloudKit", "Strandline",
      "StrandlineLog", "StrandlineSystem",
    ],
    "StrandlinePage": [],
    "StrandlineCLI": [
      "StrandlinePage", "StrandlineTesting", "StrandlineSyncProofs", "StrandlineLogProofs", "StrandlineLogBench",
      "StrandlineHost", "StrandlineSimulation", "StrandlineServer",
      "StrandlineCloudKit", "Strandline", "StrandlineLog", "StrandlineJSON", "StrandlineSystem", "Foundation",
      "FoundationEssentials",
      // For the benchmark of a live value.
      "Observation",
    ],
  ]

  static func importsOnly(_ source: SourceText) -> [String] {
    guard source.path.hasPrefix("Sources/"), !source.target.hasPrefix("CStrandline") else { return [] }
    guard let allowed = imports[source.target] else { return ["\(source.path): the table has no row for this target"] }
    return source.codeLines.enumerated().compactMap { number, line in
      guard let module = imported(line), !allowed.contains(module), !free.contains(module) else { return nil }
      return "\(source.path):\(number + 1): \(source.target) imports \(module)"
    }
  }

  /// The module that a line imports.
  static func imported(_ line: Substring) -> String? {
    var words = line.split(separator: " ")
    let access: Set<Substring> = [
      "public", "package", "internal", "private", "fileprivate", "@preconcurrency", "@_exported",
    ]
    while let first = words.first, access.contains(first) { words.removeFirst() }
    guard words.first == "import", words.count > 1 else { return nil }
    let kinds: Set<Substring> = ["struct", "class", "enum", "protocol", "func", "var", "let", "typealias"]
    let name = words.count > 2 && kinds.contains(words[1]) ? words[2] : words[1]
    return name.split(separator: ".").first.map(String.init)
  }

  /// The layers of StrandlineModel, StrandlineSync and Strandline, lowest first. A layer names no type that a higher one declares.
  static let layers = modelLayers + syncLayers + storeLayers
  static let modelLayers = ["Model", "Events", "Remote"]
  static let syncLayers = ["States", "Merge", "Plan"]
  static let storeLayers = ["Runs", "Projections", "Index", "Compaction", "Store", "Sync", "Accounts"]

  /// What is in no layer: the lines that hand a target on to those above.
  private static let exports: Set<String> = [
    "Sources/StrandlineSync/Exports.swift", "Sources/Strandline/Exports.swift",
  ]

  /// Whether a source is of one of the targets that have layers.
  private static func isLayered(_ source: SourceText) -> Bool {
    source.path.hasPrefix("Sources/") && ["StrandlineModel", "StrandlineSync", "Strandline"].contains(source.target)
  }

  static func namesOnlyLowerLayers(_ sources: [SourceText]) -> [String] {
    func layer(_ source: SourceText) -> Int? {
      let parts = source.path.split(separator: "/")
      guard parts.count > 3, parts[0] == "Sources", isLayered(source) else { return nil }
      return layers.firstIndex(of: String(parts[2]))
    }
    var findings: [String] = []
    var declared: [Substring: Int] = [:]
    for source in sources where isLayered(source) && !exports.contains(source.path) {
      guard let layer = layer(source) else {
        findings.append("\(source.path): is in no layer")
        continue
      }
      for line in source.codeLines {
        if let name = declaredType(line) { declared[name] = min(layer, declared[name] ?? layer) }
      }
    }
    for source in sources {
      guard let own = layer(source) else { continue }
      for (number, line) in source.codeLines.enumerated() {
        for word in line.words {
          guard let theirs = declared[word], theirs > own else { continue }
          findings.append(
            "\(source.path):\(number + 1): \(layers[own]) names \(word), which \(layers[theirs]) declares")
        }
      }
    }
    return findings
  }

  /// What decides about sync only computes: it waits for nothing, takes no lock, and opens no file or log. That it names no type
  /// of the store or of the engine, the compiler holds: StrandlineSync lies below them.
  static func syncOnlyComputes(_ source: SourceText) -> [String] {
    guard source.path.hasPrefix("Sources/StrandlineSync/") else { return [] }
    let acting: Set<Substring> = [
      "async", "await", "Task", "Mutex", "Atomic", "withLock", "AsyncStream", "Synchronization", "Dispatch",
      "DispatchQueue", "BlockingThread", "FileSystem", "Folder", "Log",
    ]
    return source.codeLines.enumerated().flatMap { number, line in
      line.words.filter(acting.contains).map { "\(source.path):\(number + 1): \($0) in what only computes" }
    }
  }

  /// Where else than in the engine's one switch a server is asked: who is signed in decides which store is shown, and a push is
  /// no request of the plan.
  private static let otherCalls: [String: String] = [
    "Sources/Strandline/Accounts/AccountStores.swift": "user",
    "Sources/Strandline/Sync/Engine/RecordStore+AssetContent.swift": "download",
    "Sources/Strandline/Sync/Engine/SyncEngine+Push.swift": "awaitPush",
  ]

  /// The engine sends a request in one place. Of a name that a database's request has, each call that is waited for is one.
  ///
  /// - Parameter requests: the names of the functions of `CloudDatabase` that ask a server.
  static func oneFileAsksServers(_ source: SourceText, _ requests: Set<String>) -> [String] {
    let engine = ["StrandlineSync", "Strandline"]
    guard source.path.hasPrefix("Sources/"), engine.contains(source.target),
      source.path != "Sources/Strandline/Sync/Engine/PerformedRequest.swift"
    else { return [] }
    var isWaited = false
    return source.codeLines.enumerated().compactMap { number, line in
      // A call may begin on the line after its `await`.
      let goesOn = isWaited && line.drop { $0 == " " }.hasPrefix(".")
      isWaited = line.words.contains("await") || goesOn
      guard isWaited, let name = requests.first(where: { calls($0, line) }), otherCalls[source.path] != name
      else { return nil }
      return "\(source.path):\(number + 1): calls \(name) of a database"
    }
  }

  /// Whether a line calls a function of a value. A case of an enum that has the same name follows a bracket or a space.
  private static func calls(_ name: String, _ line: Substring) -> Bool {
    line.drop { $0 == " " }.split(separator: ".\(name)(", omittingEmptySubsequences: false).dropLast().contains {
      before in
      before.isEmpty || !(before.hasSuffix("(") || before.hasSuffix(" "))
    }
  }

  /// The names of the functions of the protocol `CloudDatabase` that ask a server: those that wait.
  static func requests(_ source: SourceText) -> Set<String> {
    let declared = source.code.split(separator: "protocol CloudDatabase").dropFirst().first?.split(separator: "\n}")
      .first
    return Set(
      declared?.split(separator: "  func ").dropFirst().filter { $0.words.contains("async") }
        .map { String($0.prefix { $0 != "(" }) } ?? [])
  }

  /// What follows from an error is a column of the one table: the plan reads columns, and compares no code of a server.
  static func codesAreInOneTable(_ source: SourceText) -> [String] {
    guard source.path.hasPrefix("Sources/StrandlineSync/Plan/"), !source.path.hasSuffix("/ErrorPolicy.swift") else {
      return []
    }
    let marks = [
      "error.code ==", "error.code !=", "switch error.code", ".code == .", ".code != .", ".code ~= ",
      "CloudError.Code.",
    ]
    return source.findings("compares a code outside ErrorMeaning") { line in
      marks.contains { line.contains($0) }
    }
  }

  /// Modules of which there are stand-ins, each with the targets that may ask for it, beside the stand-ins and the tests of these
  /// targets: all modules of a build share one search path, so that any other target would be given a stand-in that was built
  /// before it.
  private static let standIns: [String: Set<String>] = [
    "SwiftUI": ["StrandlineUI"], "CloudKit": ["StrandlineNativeCloudKit"], "CoreLocation": ["StrandlineNativeCloudKit"],
  ]

  static func standInsAreForOneTarget(_ source: SourceText) -> [String] {
    let parts = source.path.split(separator: "/")
    let target = parts.count > 1 ? String(parts[1]) : ""
    guard parts.first == "Sources" || parts.first == "Tests", !standIns.keys.contains(target) else { return [] }
    return source.codeLines.enumerated().flatMap { number, line in
      standIns.compactMap { module, users in
        let asks = line.contains("canImport(\(module))") || imported(line.drop { $0 == " " }) == module
        guard asks, !users.contains(target), !users.contains(where: { target == "\($0)Tests" }) else { return nil }
        return "\(source.path):\(number + 1): \(target) asks for \(module), of which there is a stand-in"
      }
    }
  }

  /// The name of the type that a line declares at the top of a file, unless it is private to it.
  static func declaredType(_ line: Substring) -> Substring? {
    guard let first = line.first, first != " " else { return nil }
    let modifiers: Set<Substring> = ["public", "package", "internal", "final", "indirect", "nonisolated"]
    let kinds: Set<Substring> = ["struct", "class", "enum", "protocol", "actor", "typealias"]
    var words = line.words[...]
    while let word = words.first, modifiers.contains(word) { words.removeFirst() }
    guard let kind = words.first, kinds.contains(kind) else { return nil }
    return words.dropFirst().first
  }

  // MARK: Forbidden code and text

  /// The file in which libFuzzer passes its input by pointer. It is part of no product.
  private static let fuzzerSource = "Tests/Fuzzing/DecoderFuzzer.swift"

  /// Where Objective-C's letter for the type of a number is read, by which alone a whole number is told from another one.
  private static let numberSources: Set<String> = [
    "Sources/StrandlineNativeCloudKit/NumberType.swift", "Tests/CloudKit/Values.swift",
  ]

  /// The targets that call the system: one for the library, one for the command.
  private static let unsafeTargets: Set<String> = ["StrandlineSystem", "StrandlineHost"]

  /// Finds `unsafe`, and the types that need it, in all targets except the two that call the system.
  static func unsafeOnlyInSystemTargets(_ source: SourceText) -> [String] {
    guard !unsafeTargets.contains(source.target), source.path != fuzzerSource, !numberSources.contains(source.path)
    else { return [] }
    return source.findings("unsafe code outside StrandlineSystem and StrandlineHost") { line in
      line.words.contains { word in
        word == "unsafe" || word == "withUnsafeBytes" || (word.hasPrefix("Unsafe") && word.hasSuffix("Pointer"))
      }
    }
  }

  static func noFoundationFiles(_ source: SourceText) -> [String] {
    source.findings("file IO without StrandlineSystem") { line in
      line.words.contains { ["FileManager", "FileHandle", "fopen"].contains($0) }
        || ["Data(contentsOf", "String(contentsOf", "contentsOfFile:", ".write(toFile:"].contains { line.contains($0) }
        || writesAValue(line)
    }
  }

  /// `value.write(to:)` is Foundation's; `Type.write(to:)` is a function of the package.
  private static func writesAValue(_ line: Substring) -> Bool {
    line.split(separator: ".write(to:", omittingEmptySubsequences: false).dropLast().contains { before in
      !(before.words.last?.first?.isUppercase ?? false)
    }
  }

  static func noTraps(_ source: SourceText) -> [String] {
    source.findings("a trap without a reason (force-try, fatal error), or a claim that the compiler cannot check") {
      line in
      line.contains("try!") || line.contains("fatalError(") || line.contains("@unchecked")
        || line.words.contains("assumeIsolated")
    }
  }

  /// Applies to comments too. The words are concatenated here, so that this file does not contain them.
  static func noLeftovers(_ source: SourceText) -> [String] {
    let markers: [Substring] = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]
    let lines = source.text.split(separator: "\n", omittingEmptySubsequences: false)
    return lines.enumerated().compactMap { number, line in
      line.words.contains { markers.contains($0) } ? "\(source.path):\(number + 1): a leftover marker" : nil
    }
  }

  /// A store's files are reached through its folder. A path that is joined to the name of one leads to whatever is there
  /// now; `Folder.path(of:)` makes those that a message names.
  static func filesAreReachedThroughFolders(_ source: SourceText) -> [String] {
    guard folderTargets.contains(source.target) else { return [] }
    let names = [
      "LOCK", "MANIFEST", "CONTROL", "BALLAST", "RUNS", "INDEXES", "runs", "quarantine", "inbox", "assets", "accounts",
    ]
    let constants = [
      "LogFormat.", "RunFormat.", "SegmentName.", "StoreIndex.folderName", "IndexDefinitions.fileName",
      "RecordStore.inboxFolderName", "Self.inboxFolderName", "AccountList.",
    ]
    let joined =
      names.flatMap { [")/\($0)\"", ")/\($0)/", "\"/\($0)"] }
      + constants.flatMap { [")/\\(\($0)", "\"/\" + \($0)", "\"/\\(\($0)"] }
    let lines = source.text.split(separator: "\n", omittingEmptySubsequences: false)
    let messages = messagesOfFiles["\(source.path.dropFirst("Sources/".count))"] ?? []
    return lines.enumerated().compactMap { number, line in
      let isFound =
        joined.contains { line.contains($0) } && !line.drop { $0 == " " }.hasPrefix("//")
        && !messages.contains { line.contains($0) }
      return isFound ? "\(source.path):\(number + 1): a path joined to the name of a store's file" : nil
    }
  }

  /// What the command tells of files, by a part of the line.
  private static let messagesOfFiles = [
    "StrandlineCLI/CommandLine/Stores.swift": ["\"note: removed '", "\"note: moved '", "\"quarantine: '"],
    "StrandlineCLI/Commands/RepairCommand.swift": ["\"copied to "],
  ]

  /// The targets that know what is in a store.
  private static let folderTargets = [
    "StrandlineLog", "StrandlineModel", "StrandlineSync", "Strandline", "StrandlineCloudKit", "StrandlineServer",
    "StrandlineCLI",
  ]

  /// What opens a store in a folder by its path, and looks before and after that whether it is the folder's.
  static let opensByPath = [
    "Strandline/Accounts/StoreOpening.swift", "Strandline/Store/Inbox/InboxLog.swift",
    "StrandlineCLI/Commands/VerifyCommand.swift",
  ]

  /// `Folder.path(of:)` makes paths for messages. One that is opened leads to whatever is there now.
  static func pathsOfFilesAreForMessages(_ source: SourceText) -> [String] {
    guard folderTargets.contains(source.target), !opensByPath.contains(where: { source.path == "Sources/\($0)" }) else {
      return []
    }
    return pathsThatAreOpened(source)
  }

  /// Exceptions that need none.
  static func unneededOpensByPath(_ sources: [SourceText]) -> [String] {
    opensByPath.filter { name in !sources.contains { $0.path == "Sources/\(name)" && !pathsThatAreOpened($0).isEmpty } }
  }

  private static func pathsThatAreOpened(_ source: SourceText) -> [String] {
    let lines = source.text.split(separator: "\n", omittingEmptySubsequences: false).map { line in
      line.drop { $0 == " " }.hasPrefix("//") ? "" : line
    }
    let uses = ["at: ", "folder(", "kind(of: ", "makeDirectory(", "removeDirectory(", "renameFolder("]
    // Names that such a path was given to.
    let names = lines.compactMap { line -> Substring? in
      guard let end = line.firstRange(of: " = "), line[end.upperBound...].contains("path(of: ") else { return nil }
      return line[..<end.lowerBound].prefix { $0 != ":" }.words.last
    }
    return lines.enumerated().compactMap { number, line in
      let isOpened = uses.contains { use in
        line.ranges(of: use).contains { range in
          let argument = line[range.upperBound...].prefix { $0.isLetter || $0.isNumber || $0 == "." || $0 == "_" }
          return argument.hasSuffix("path") && line[argument.endIndex...].hasPrefix("(of: ") || names.contains(argument)
        }
      }
      return isOpened ? "\(source.path):\(number + 1): a path that is for messages is opened" : nil
    }
  }

  static func clocksAreInjected(_ source: SourceText) -> [String] {
    guard source.path.hasPrefix("Sources/"), source.target != "StrandlineSystem" else { return [] }
    return source.findings("a clock or a sleep that no test can replace") { line in
      ["Task.sleep", "Date()", "Date.now", "DispatchTime.now", "DispatchWallTime.now", "Thread.sleep"]
        .contains { line.contains($0) }
        || line.words.contains {
          ["ContinuousClock", "SuspendingClock", "clock_gettime", "gettimeofday", "usleep", "nanosleep"].contains($0)
        }
    }
  }

  /// An equality of strings, or a search in a collection, ends at the first byte that differs: its time tells how many are right.
  static func pageSecretsAreComparedInConstantTime(_ source: SourceText) -> [String] {
    guard source.path.hasPrefix("Sources/StrandlineCLI/Page/") else { return [] }
    let secrets: Set<Substring> = ["token", "launchToken", "launch", "known", "cookie", "changeToken"]
    let shortcuts: Set<Substring> = [
      "contains", "hasPrefix", "hasSuffix", "elementsEqual", "firstIndex", "switch", "case",
    ]
    return source.findings("a secret of a page that is not compared by areEqual") { line in
      let words = Set(line.words)
      let compares = ["==", "!=", "~="].contains { line.contains($0) } || !words.isDisjoint(with: shortcuts)
      return compares && !words.isDisjoint(with: secrets) && !words.contains("areEqual")
    }
  }

  static func opensWithAComment(_ source: SourceText) -> [String] {
    let first = source.text.split(separator: "\n", omittingEmptySubsequences: false).first ?? ""
    guard first.hasPrefix("// "), first.count > 12 else { return ["\(source.path):1: does not say why it exists"] }
    return []
  }

  /// The text mentions nothing but the project: not where or in what order it was made.
  static func speaksOfTheProjectAlone(_ source: SourceText) -> [String] {
    let places = ["/wo" + "rk/", "/tmp/" + "wt/", "/ro" + "ot/", "/ho" + "me/"]
    let numbered: [Substring] = ["issue", "Issue", "ticket", "Ticket", "PR"]
    let lines = source.text.split(separator: "\n", omittingEmptySubsequences: false)
    return lines.enumerated().flatMap { number, line -> [String] in
      var found = places.filter { line.contains($0) }.map { "a path of a workplace: \($0)" }
      let words = line.split(separator: " ")
      for (word, next) in zip(words, words.dropFirst()) where numbered.contains(word) {
        let digits = next.drop { $0 == "#" || $0 == "(" }.prefix { $0.isNumber }
        if !digits.isEmpty { found.append("the number of an issue") }
      }
      return found.map { "\(source.path):\(number + 1): \($0)" }
    }
  }

  // MARK: Tests

  /// Each test has a time limit: its own, or that of an enclosing suite. A suite and its limit may be in another file than
  /// an extension of the suite.
  ///
  /// The limit is half an hour everywhere, because it includes the time in which a test waits for a core: on a busy machine
  /// this may be as long as all other tests take. It is meant for a test that hangs.
  static func testsAreLimited(_ sources: [SourceText]) -> [String] {
    var limited: Set<String> = []
    var findings: [(suite: String?, what: String)] = []
    for source in sources where source.path.hasPrefix("Tests/") {
      for declaration in TopLevelDeclaration.all(in: source) where declaration.hasTest {
        let suite = declaration.name.map { "\(source.target).\($0)" }
        if !declaration.head.contains(".timeLimit(") {
          findings.append((suite, "\(source.path): \(declaration.name ?? "a test") without a time limit"))
        } else if let suite {
          limited.insert(suite)
        }
      }
    }
    return findings.filter { $0.suite.map { !limited.contains($0) } ?? true }.map(\.what)
  }

  // MARK: The package as a whole

  static func topLevel(_ names: [String]) -> [String] {
    let visible = names.filter { !$0.hasPrefix(".") }.sorted()
    let expected = ["Formats", "Package.swift", "README.md", "Sources", "Tests"]
    return visible == expected ? [] : ["the top level has \(visible), not \(expected)"]
  }

  static func hasNoDependencies(_ manifest: SourceText) -> [String] {
    manifest.findings("a dependency on another package") { $0.contains(".package(") || $0.contains(".product(") }
  }

  /// The dependencies in the text of Package.swift: for each target, the targets that it names.
  static func dependencies(_ manifest: String) -> [String: Set<String>] {
    var result: [String: Set<String>] = [:]
    for part in manifest.split(separator: "arget(").dropFirst() {
      let names = part.split(separator: "\"", omittingEmptySubsequences: false)
      guard names.count > 1 else { continue }
      let list = part.split(separator: "dependencies: [", maxSplits: 1).dropFirst().first?
        .split(separator: "]", maxSplits: 1).first
      let targets = list.map { $0.split(separator: "\"", omittingEmptySubsequences: false) } ?? []
      result[String(names[1])] = Set(targets.enumerated().filter { $0.offset % 2 == 1 }.map { String($0.element) })
    }
    return result
  }

  // MARK: README

  /// The lines of code in a page: those within fences, without their prompt.
  static func fenced(_ page: String) -> [String] {
    var isInside = false
    var result: [String] = []
    for line in page.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.hasPrefix("```") {
        isInside.toggle()
      } else if isInside {
        result.append(String(line.hasPrefix("$ ") ? line.dropFirst(2) : line))
      }
    }
    return result
  }

  /// The verbs that a page mentions after the command's name, in code.
  static func verbs(_ page: String) -> Set<String> {
    var spans = fenced(page)
    for line in page.split(separator: "\n") {
      spans += line.split(separator: "`", omittingEmptySubsequences: false).enumerated()
        .filter { $0.offset % 2 == 1 }.map { String($0.element) }
    }
    var result: Set<String> = []
    for span in spans {
      let words = span.split(separator: " ")
      for (word, next) in zip(words, words.dropFirst()) where word == "strandline" {
        let verb = next.prefix { $0.isLetter || $0 == "-" }
        if !verb.isEmpty, !verb.hasPrefix("-"), verb.allSatisfy({ $0 == "-" || $0.isLowercase }) {
          result.insert(String(verb))
        }
      }
    }
    return result
  }

  /// The verbs that the command's sources declare.
  static func declaredVerbs(_ sources: [SourceText]) -> Set<String> {
    var result: Set<String> = []
    for source in sources where source.path.hasPrefix("Sources/StrandlineCLI/") {
      for part in source.text.split(separator: " = Command(").dropFirst() {
        let quoted = part.split(separator: "\"", omittingEmptySubsequences: false)
        guard quoted.count > 1, quoted[0].allSatisfy(\.isWhitespace) else { continue }
        result.insert(String(quoted[1]))
      }
    }
    return result
  }

  /// The links to files of the package that do not exist.
  static func brokenLinks(_ page: SourceText, exists: (String) throws -> Bool) rethrows -> [String] {
    let folder = page.path.split(separator: "/").dropLast().joined(separator: "/")
    var result: [String] = []
    for part in page.text.split(separator: "](").dropFirst() {
      let target = part.prefix { $0 != ")" && $0 != "\n" && $0 != "#" }
      guard !target.isEmpty, !target.contains("://"), !target.contains(" ") else { continue }
      let path = folder.isEmpty ? String(target) : "\(folder)/\(target)"
      if try !exists(path) { result.append("\(page.path): a link to \(target), which does not exist") }
    }
    return result
  }
}
