// Applies the rules of the house to the whole package. Each test also checks that its rule finds a planted violation.

import StrandlineHost
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The house` {
  private func expectNone(_ findings: [String], _ location: SourceLocation = #_sourceLocation) {
    #expect(findings.isEmpty, "\n\(findings.joined(separator: "\n"))", sourceLocation: location)
  }

  @Test func `has a page in the browser whose script can be read in an hour`() throws {
    let scripts = try House.files("Sources/StrandlinePage").filter { $0.hasSuffix(".js") }
    let files = try scripts.map { path in
      (path, try House.text(path).split(separator: "\n", omittingEmptySubsequences: false).dropLast())
    }
    let lines = files.reduce(0) { $0 + $1.1.count }
    #expect(scripts.count > 3 && (1_000...2_000).contains(lines), "\(scripts): \(lines) lines")
    // No line is saved by a wide one, and no file is more than one subject.
    expectNone(files.flatMap { path, lines in lines.filter { $0.count > 150 }.map { "\(path): \($0)" } })
    expectNone(files.filter { $0.1.count > 500 }.map { "\($0.0) has \($0.1.count) lines" })
  }

  @Test func `imports only what the table allows`() throws {
    expectNone(try House.swift().flatMap(Rules.importsOnly))
    let planted = SourceText(
      "Sources/StrandlineLog/Log.swift", "// x\npackage import Strandline\nimport struct Foundation.Data\n")
    #expect(Rules.importsOnly(planted).count == 2)
    #expect(Rules.importsOnly(SourceText("Sources/Other/A.swift", "import Foundation")).count == 1)
    let networking = SourceText("Sources/StrandlineCloudKit/A.swift", "internal import FoundationNetworking")
    #expect(Rules.importsOnly(networking).count == 1)
    #expect(Rules.importsOnly(SourceText("Sources/StrandlineLog/A.swift", "// import Foundation")).isEmpty)
  }

  @Test func `has one target for each module of which there is a stand-in`() throws {
    expectNone(try House.swift().flatMap(Rules.standInsAreForOneTarget))
    func findings(_ path: String, _ code: String) -> Int {
      Rules.standInsAreForOneTarget(SourceText(path, code)).count
    }
    for bad in ["#if canImport(CloudKit)", "internal import CloudKit", "  #if canImport(CoreLocation)"] {
      #expect(findings("Sources/StrandlineCloudKit/A.swift", bad) == 1, "\(bad)")
      #expect(findings("Tests/StrandlineTests/A.swift", bad) == 1, "\(bad)")
      #expect(findings("Sources/StrandlineNativeCloudKit/A.swift", bad) == 0, "\(bad)")
      #expect(findings("Tests/StrandlineNativeCloudKitTests/A.swift", bad) == 0, "\(bad)")
    }
    #expect(findings("Sources/Strandline/A.swift", "#if canImport(SwiftUI)") == 1)
    #expect(findings("Sources/Strandline/A.swift", "import StrandlineCloudKit") == 0)
  }

  @Test func `has a table of imports that is Package swift's`() throws {
    let manifest = try House.text("Package.swift")
    let dependencies = Rules.dependencies(manifest)
    let targets = Set(Rules.imports.keys).union(["CStrandline", "CStrandlineHost"])
    for (target, allowed) in Rules.imports {
      // The manifest names no other dependency either: an app links what it names, whether a source imports it or not.
      #expect(allowed.intersection(targets) == dependencies[target], "\(target)")
    }
    // A target depends only on targets that precede it in the manifest: they are in the order of the layers.
    var below: Set<String> = []
    for target in [
      "CStrandline", "StrandlineSystem", "StrandlineJSON", "StrandlineLog", "StrandlineModel", "StrandlineSync",
      "Strandline", "StrandlineCloudKit", "StrandlineServer", "StrandlineSimulation", "StrandlineTesting",
      "CStrandlineHost",
      "StrandlineHost", "StrandlineLogProofs", "StrandlineLogBench", "StrandlineSyncProofs", "StrandlinePage",
      "StrandlineCLI",
    ] {
      #expect(dependencies[target]?.isSubset(of: below) == true, "\(target)")
      below.insert(target)
    }
    #expect(Rules.dependencies(".target(name: \"A\", dependencies: [\"B\", \"C\"])") == ["A": ["B", "C"]])
  }

  @Test func `has layers in Strandline that name only lower ones`() throws {
    expectNone(Rules.namesOnlyLowerLayers(try House.swift()))
    let planted = [
      SourceText(
        "Sources/Strandline/Sync/Engine.swift", "// x\npublic final class Engine {}\nprivate struct Record {}\n"),
      SourceText("Sources/StrandlineModel/Model/Record.swift", "// Engine\nstruct Record {\n  let engine: Engine\n}\n"),
      SourceText("Sources/Strandline/Elsewhere/A.swift", "// x\n"),
    ]
    #expect(Rules.namesOnlyLowerLayers(planted).count == 2)
  }

  @Test func `has decisions about sync that only compute`() throws {
    expectNone(try House.swift().flatMap(Rules.syncOnlyComputes))
    func findings(_ code: String) -> [String] {
      Rules.syncOnlyComputes(SourceText("Sources/StrandlineSync/Plan/A.swift", code))
    }
    #expect(findings("// Mutex, await\nimport StrandlineLog\nlet a: LogEvent\n").isEmpty)
    for bad in [
      "import Synchronization", "func f() async {}", "let a = Mutex(1)", "core.withLock { 1 }", "let a: any FileSystem",
      "func f(_ a: Log) {}",
    ] { #expect(findings(bad).count == 1, "\(bad)") }
    #expect(Rules.importsOnly(SourceText("Sources/StrandlineSync/Plan/A.swift", "import Strandline")).count == 1)
  }

  @Test func `asks servers in one place of the engine`() throws {
    let requests = Rules.requests(
      SourceText("a", try House.text("Sources/StrandlineModel/Remote/CloudDatabase.swift")))
    #expect(
      requests == [
        "user", "zones", "createZone", "deleteZone", "modify", "lookup", "zoneChanges", "newestRecords",
        "databaseChanges", "awaitPush", "upload", "download",
      ])
    expectNone(try House.swift().flatMap { Rules.oneFileAsksServers($0, requests) })
    func findings(_ path: String, _ code: String) -> Int {
      Rules.oneFileAsksServers(SourceText("Sources/\(path)", code), requests).count
    }
    for bad in [
      "_ = try await database.zones()", "let a = try await engine.base.lookup(names, in: zone)",
      "let a = try await database\n  .modify(all, in: zone, atomic: true)", "async let a = await database.user()",
    ] {
      #expect(findings("Strandline/Sync/Verify/ZoneAudit.swift", bad) == 1, "\(bad)")
      #expect(findings("Strandline/Sync/Engine/PerformedRequest.swift", bad) == 0, "\(bad)")
      #expect(findings("StrandlineModel/Remote/OneUsersDatabase.swift", bad) == 0, "\(bad)")
    }
    #expect(findings("Strandline/Accounts/AccountStores.swift", "try await database.user()") == 0)
    #expect(findings("Strandline/Accounts/AccountStores.swift", "try await database.zones()") == 1)
    #expect(findings("Strandline/Sync/Engine/RecordStore+AssetContent.swift", "try await database.zones()") == 1)
    #expect(findings("Strandline/Sync/A.swift", "case .modify(let a): break\n.createZone(zone)") == 0)
  }

  @Test func `compares no code of a server outside the table of errors`() throws {
    expectNone(try House.swift().flatMap(Rules.codesAreInOneTable))
    for bad in [
      "if error.code == .conflict {}", "guard error.code != code else { return }", "switch error.code {",
      "where $0.code == .exists", "let full = CloudError.Code.quotaExceeded.rawValue",
    ] {
      let path = "Sources/StrandlineSync/Plan/"
      #expect(Rules.codesAreInOneTable(SourceText(path + "SyncPlan.swift", bad)).count == 1, "\(bad)")
      #expect(Rules.codesAreInOneTable(SourceText(path + "Outgoing/A.swift", bad)).count == 1, "\(bad)")
      #expect(Rules.codesAreInOneTable(SourceText(path + "ErrorPolicy.swift", bad)).isEmpty)
    }
    for good in [
      "// error.code == .conflict", "errors.allSatisfy { $0.code == errors[0].code }", "CloudError(.conflict)",
    ] {
      #expect(Rules.codesAreInOneTable(SourceText("Sources/StrandlineSync/Plan/A.swift", good)).isEmpty, "\(good)")
    }
  }

  @Test func `has unsafe code only in the targets that call the system`() throws {
    expectNone(try House.swift().flatMap(Rules.unsafeOnlyInSystemTargets))
    let text =
      "// unsafe in a comment\nlet a = \"unsafe\"\n@Test func `unsafe`() {}\nlet b = unsafe f()\nvar p: UnsafeRawPointer\n"
    #expect(Rules.unsafeOnlyInSystemTargets(SourceText("Sources/StrandlineLog/A.swift", text)).count == 2)
    #expect(Rules.unsafeOnlyInSystemTargets(SourceText("Sources/StrandlineSystem/A.swift", text)).isEmpty)
    #expect(Rules.unsafeOnlyInSystemTargets(SourceText("Sources/StrandlineHost/A.swift", text)).isEmpty)
    #expect(
      Rules.unsafeOnlyInSystemTargets(SourceText("Sources/StrandlineNativeCloudKit/NumberType.swift", text)).isEmpty)
  }

  @Test func `does no file IO through Foundation`() throws {
    expectNone(try House.swift().flatMap(Rules.noFoundationFiles))
    #expect(Rules.noFoundationFiles(SourceText("Sources/A/A.swift", "try Records.write(to: path, disk)")).isEmpty)
    for bad in [
      "FileManager.default", "try Data(contentsOf: url)", "try String(contentsOfFile: path)", "data.write(to: url)",
      "FileHandle(forReadingAtPath: p)",
    ] { #expect(Rules.noFoundationFiles(SourceText("Sources/Strandline/A.swift", bad)).count == 1, "\(bad)") }
  }

  @Test func `neither traps nor silences a check of the compiler`() throws {
    expectNone(try House.swift().flatMap(Rules.noTraps))
    for bad in ["let a = try! f()", "fatalError(\"x\")", "final class A: @unchecked Sendable {}"] {
      #expect(Rules.noTraps(SourceText("Tests/A/A.swift", bad)).count == 1, "\(bad)")
    }
  }

  @Test func `has no leftover markers`() throws {
    expectNone(try House.everything().flatMap(Rules.noLeftovers))
    #expect(Rules.noLeftovers(SourceText("Sources/A/A.swift", "// TO" + "DO: later")).count == 1)
    #expect(Rules.noLeftovers(SourceText("Sources/A/A.swift", "// todo lists are records")).isEmpty)
  }

  @Test func `reaches no file of a store by a path`() throws {
    expectNone(try House.swift().flatMap(Rules.filesAreReachedThroughFolders))
    for bad in [
      "open(\"\\(path)/\\(LogFormat.controlName)\", .read)", "kind(of: path + \"/LOCK\")",
      "\"\\(store)/runs/\\(name)\"", "list(path + \"/\" + StoreIndex.folderName)",
      "path + \"/\" + RecordStore.inboxFolderName", "kind(of: store + \"/assets\")",
      "\"\\(folder)/assets/\\(hash)\"", "open(path + \"/accounts\", .read)",
      "\"\\(folder)/\\(AccountList.fileName)\"",
    ] {
      for target in ["StrandlineLog", "StrandlineCLI"] {
        let source = SourceText("Sources/\(target)/A.swift", bad)
        #expect(Rules.filesAreReachedThroughFolders(source).count == 1, "\(bad)")
      }
      #expect(Rules.filesAreReachedThroughFolders(SourceText("Tests/A/A.swift", bad)).isEmpty)
    }
    let good = "  // \"\\(path)/LOCK\"\nfolder.open(LogFormat.lockName, .read)\nfolder.path(of: SegmentName.name(id))\n"
    #expect(Rules.filesAreReachedThroughFolders(SourceText("Sources/StrandlineLog/A.swift", good)).isEmpty)
  }

  @Test func `opens no path that is for messages`() throws {
    let sources = try House.swift()
    expectNone(sources.flatMap(Rules.pathsOfFilesAreForMessages))
    expectNone(Rules.unneededOpensByPath(sources))
    for bad in [
      "try Log.open(at: folder.path(of: name), role: .inbox)", "LogReader.open(\n  at: source.folder.path(of: name))",
      "let place = folder.path(of: name)\ntry fileSystem.folder(place)", "path = folder.path(of: name)\nkind(of: path)",
      "try fileSystem.makeDirectory(directory.folder.path(of: name))",
      "let path: String = folder.path(of: name)\nRecordStore.openBlocking(at: path, types: [])",
    ] {
      for target in ["Strandline", "StrandlineCLI"] {
        let found = Rules.pathsOfFilesAreForMessages(SourceText("Sources/\(target)/A.swift", bad))
        #expect(found.count == 1, "\(bad)")
      }
      #expect(Rules.pathsOfFilesAreForMessages(SourceText("Sources/StrandlineSystem/A.swift", bad)).isEmpty)
      for file in Rules.opensByPath {
        #expect(Rules.pathsOfFilesAreForMessages(SourceText("Sources/\(file)", bad)).isEmpty)
        #expect(Rules.unneededOpensByPath([SourceText("Sources/\(file)", bad)]).count == Rules.opensByPath.count - 1)
      }
    }
    let good =
      "throw error(file: folder.path(of: name))\nlet path = folder.path(of: name)\nthrow .damaged(path, at: 0..<1)\n"
    #expect(Rules.pathsOfFilesAreForMessages(SourceText("Sources/Strandline/A.swift", good)).isEmpty)
    #expect(Rules.unneededOpensByPath([]).count == Rules.opensByPath.count)
  }

  @Test func `reads no clock that a test cannot replace`() throws {
    expectNone(try House.swift().flatMap(Rules.clocksAreInjected))
    for bad in ["try await Task.sleep(for: .seconds(1))", "let now = Date()", "ContinuousClock().now"] {
      #expect(Rules.clocksAreInjected(SourceText("Sources/Strandline/Sync/A.swift", bad)).count == 1, "\(bad)")
      #expect(Rules.clocksAreInjected(SourceText("Sources/StrandlineSystem/A.swift", bad)).isEmpty)
    }
  }

  @Test func `compares the secrets of a page in a time that tells nothing`() throws {
    expectNone(try House.swift().flatMap(Rules.pageSecretsAreComparedInConstantTime))
    func findings(_ path: String, _ code: String) -> Int {
      Rules.pageSecretsAreComparedInConstantTime(SourceText(path, code)).count
    }
    for bad in [
      "given == token", "guard cookie == given else { return }", "$0 != changeToken", "isLaunch || (given == known)",
      "values.contains(cookie)", "field == access.changeToken", "given.hasPrefix(token)", "switch token {",
      "launchToken.elementsEqual(given)", "if case launch = given {",
    ] { #expect(findings("Sources/StrandlineCLI/Page/PageAccess.swift", bad) == 1, "\(bad)") }
    for good in [
      "Self.areEqual(given, known)", "given.map { Self.areEqual($0, changeToken) } == true", "launch = nil",
      "guard let known = launch, Self.areEqual(given, known) else { return false }", "parts[0] == name",
    ] { #expect(findings("Sources/StrandlineCLI/Page/PageAccess.swift", good) == 0, "\(good)") }
    #expect(findings("Sources/StrandlineServer/Sessions.swift", "given == token") == 0)
    // The comparison itself looks at every byte, whatever came before it.
    let access = try House.text("Sources/StrandlineCLI/Page/PageAccess.swift")
    #expect(access.contains("zip(left, right).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0"))
  }

  @Test func `runs no test without a time limit`() throws {
    expectNone(Rules.testsAreLimited(try House.swift()))
    for bad in [
      "struct A { @Test func a() {} }", "@Test func a() {}", "@Suite(.serialized)\nstruct A {\n  @Test func a() {}\n}",
      "extension A { @Test func a() {} }", "struct `A` { // .timeLimit(\n  @Test func a() {} }",
    ] { #expect(Rules.testsAreLimited([SourceText("Tests/A/A.swift", bad)]).count == 1, "\(bad)") }
    let limited = "@Suite(.timeLimit(.minutes(30))) struct A { @Test func a() {} }\nstruct B { let b = 1 }\n"
    let elsewhere = SourceText("Tests/A/B.swift", "extension A { @Test func b() {} }")
    #expect(Rules.testsAreLimited([SourceText("Tests/A/A.swift", limited), elsewhere]).isEmpty)
    let closure = "@Test(.enabled { true }, .timeLimit(.minutes(30))) func a() { if true { } }"
    #expect(Rules.testsAreLimited([SourceText("Tests/A/A.swift", closure)]).isEmpty)
  }

  @Test func `compares names by their bytes`() throws {
    let sources = try House.swift()
    expectNone(sources.flatMap(Rules.namesAreNoTextKeys))
    expectNone(sources.flatMap(Rules.namesAreComparedByBytes))
    expectNone(Rules.unneededExceptions(sources))
    for bad in [
      "var found: [String: CloudResult] = [:]", "let names: Set<String> = []", "var all: [ZoneID: [String: Int]]",
      "let known: Dictionary<String, Int>",
    ] { #expect(Rules.namesAreNoTextKeys(SourceText("Sources/Strandline/Sync/A.swift", bad)).count == 1, "\(bad)") }
    for bad in [
      "if id.name == other.name { return }", "guard zone.owner != user else { return }",
      "where base.changeTag == tag {", "entries.first { $0.zoneID?.name == zone.name }",
      "left.parent == right.parent && a", "return names.contains(id.name)", "states.last { $0.version?.tag == known }",
    ] {
      #expect(Rules.namesAreComparedByBytes(SourceText("Sources/StrandlineServer/A.swift", bad)).count == 1, "\(bad)")
    }
    for good in [
      "var fields: [String: FieldValue] = [:]", "let keys: Set<CloudName>", "if id.name == Names.defaultZone {}",
      "if zone.owner == \"\" {}", "guard record.parent != nil else { return }", "left.name.equalsUTF8(right.name)",
    ] {
      let source = SourceText("Sources/Strandline/Sync/A.swift", good)
      #expect((Rules.namesAreNoTextKeys(source) + Rules.namesAreComparedByBytes(source)).isEmpty, "\(good)")
    }
  }

  @Test func `opens every Swift file with why it exists`() throws {
    expectNone(try House.swift().flatMap(Rules.opensWithAComment))
    #expect(Rules.opensWithAComment(SourceText("Sources/A/A.swift", "import Foundation\n")).count == 1)
    #expect(Rules.opensWithAComment(SourceText("Sources/A/A.swift", "// A.swift\n")).count == 1)
  }

  @Test func `mentions nothing but the project`() throws {
    expectNone(try House.everything().flatMap(Rules.speaksOfTheProjectAlone))
    for bad in ["see /wo" + "rk/notes.md", "as issue" + " #12 says", "cd /ro" + "ot/x"] {
      #expect(Rules.speaksOfTheProjectAlone(SourceText("README.md", bad)).count == 1, "\(bad)")
    }
  }

  @Test func `has five names at the top level`() throws {
    expectNone(Rules.topLevel(try House.disk.list(House.root)))
    #expect(
      Rules.topLevel(["Formats", "Package.swift", "README.md", "Sources", "Tests", ".git", "notes.txt"]).count == 1)
    #expect(Rules.topLevel(["Formats", "Package.swift", "Sources", "Tests"]).count == 1)
  }

  @Test func `depends on no package`() throws {
    expectNone(Rules.hasNoDependencies(SourceText("Package.swift", try House.text("Package.swift"))))
    let planted = SourceText("Package.swift", "dependencies: [.package(url: \"x\", from: \"1.0.0\")]")
    #expect(Rules.hasNoDependencies(planted).count == 1)
  }

  @Test func `has functions that fit on a screen`() throws {
    expectNone(
      Rules.functionsAreShort(
        try House.swift(),
        exceptions: [
          "Tests/FormatsTests/HistoryTests.swift: func event",
          "Tests/FormatsTests/EventSamples.swift: func all", "Tests/StrandlineLogTests/DamageTests.swift: func _",
          "Tests/StrandlineTests/RepairTests.swift: func _",
        ]))
    func function(_ lines: Int) -> SourceText {
      let body = repeatElement("    work()\n", count: lines - 2).joined()
      return SourceText("Sources/A/A.swift", "struct A {\n  static func f(\n_ a: Int) {\n\(body)  }\n\n}\n")
    }
    #expect(Rules.functionsAreShort([function(69)]).isEmpty)
    #expect(Rules.functionsAreShort([function(70)]) == ["Sources/A/A.swift:2: func f has 71 lines"])
    #expect(Rules.functionsAreShort([function(70)], exceptions: ["Sources/A/A.swift: func f"]).isEmpty)
    #expect(Rules.functionsAreShort([function(69)], exceptions: ["Sources/A/A.swift: func f"]).count == 1)
  }

  @Test func `declares nothing that is not used`() throws {
    expectNone(
      Rules.everythingIsUsed(
        try House.swift(),
        exceptions: [
          // SwiftUI reads it.
          "Sources/StrandlineUI/Fetch.swift: defaultValue"
        ]))
    let used = SourceText("Sources/A/B.swift", "public let b = A(used: 1).first + hidden\n")
    let tests = SourceText("Tests/A/B.swift", "let c = [A.door, A.tested, A.Kind.second]\n")
    let planted = SourceText(
      "Sources/A/A.swift",
      """
      struct A {
        var used: Int
        var unused: Int { let local = used; return local }
        static let tested = 1
        /// For tests: returns what no caller needs.
        package static let door = 2
        public func shown() {}
        enum Kind { case first, second(Int) }
        enum Code: UInt8 { case third }
        class func made() -> String { "made \\(used) \\(Code())" }
        private let hidden = 1
      }
      """)
    #expect(
      Rules.everythingIsUsed([planted, used, tests]) == [
        "Sources/A/A.swift:3: nothing uses var unused", "Sources/A/A.swift:4: only tests use let tested",
        "Sources/A/A.swift:8: only tests use enum Kind", "Sources/A/A.swift:8: only tests use case second",
        "Sources/A/A.swift:10: nothing uses func made", "Sources/A/A.swift:11: nothing uses let hidden",
      ])
    let excepted = Rules.everythingIsUsed([used], exceptions: ["Sources/A/A.swift: unused"])
    #expect(excepted == ["an unneeded exception: Sources/A/A.swift: unused"])
  }

  /// A signature asks for the calling line where a mistake of the caller is named. The bound may fall, and never rise.
  @Test func `asks for the calling line no more often than it did`() throws {
    let products: Set<String> = ["Strandline", "StrandlineUI", "StrandlineCloudKit", "StrandlineNativeCloudKit"]
    let sources = try House.swift().filter { products.contains($0.target) && $0.path.hasPrefix("Sources/") }
    let count = sources.reduce(0) { $0 + $1.codeLines.count { $0.contains("= #fileID") } }
    #expect(count == 70, "\(count) signatures ask for it; if they are fewer now, lower the bound")
  }

  @Test func `has no type with more state than a reader can keep in mind`() throws {
    expectNone(
      Rules.holdsLittle(
        try House.swift().filter {
          $0.path.hasPrefix("Sources/") && ["StrandlineModel", "StrandlineSync", "Strandline"].contains($0.target)
        },
        plain: [
          "RecordChange": "what an app is told of one change: values, set once",
          "StoreStatus": "what an app is told: values, set once",
          "StoredState": "what a sorted table stores, value by value",
          "SyncReport": "counts",
          "SyncStatus": "what an app is told: values, set once",
          "VersionSituation": "all that a pure decision depends on, each gathered once and never changed",
        ],
        // Each may lose properties and get none.
        toGo: [
          "CompactionPlan": 17, "NamedEvents": 13,
          "Projections": 16, "RecordStore": 17, "RequestPace": 17, "RunCursor": 14,
          "RunWriter": 18, "StoreCore": 15, "StoreIndex": 30, "StoreIndex.State": 17, "SyncEngine": 17,
          "SyncState": 13, "SyncWatch.State": 21,
        ]))
  }

  @Test func `counts what one owner holds, and nothing that is computed`() {
    func findings(_ code: String, plain: [String: String] = [:], toGo: [String: Int] = [:]) -> [String] {
      Rules.holdsLittle([SourceText("Sources/A/A.swift", code)], plain: plain, toGo: toGo)
    }
    func properties(_ count: Int) -> String { (0..<count).map { "  var p\($0): Int\n" }.joined() }
    let large = "struct A {\n\(properties(13))}\n"
    #expect(findings("struct A {\n\(properties(12))}\n") == [])
    #expect(findings(large) == ["Sources/A/A.swift:1: A has 13 stored properties"])
    #expect(findings(large, plain: ["A": "why"]) == [] && findings(large, toGo: ["A": 13]) == [])
    #expect(findings(large, toGo: ["A": 12]).count == 1)
    #expect(findings("", plain: ["A": "why"], toGo: ["B": 13]).count == 2)
    // Ten, and three of each form.
    for three in [
      "let a, b: Int\nlet c = 1", "private(set) var a = { 1 }()\nlazy var b: Int = {\n  2\n}()\nweak var c: A?",
      "@Locked var a: [String:\n  Int] = [:]\n@Locked(1)\npackage let b: Int\nvar c = 0 { didSet { print(c) } }",
      "var a: Int = 1; var b =\n  2\nlet c: (Int, Int)",
    ] {
      let all = "final class A {\n\(properties(10))\(three)\n}\n"
      #expect(findings(all) == ["Sources/A/A.swift:1: A has 13 stored properties"], "\(three)")
    }
    let others = """
      static let a = 1
      var b: Int { 1 }
      var c: Int {
        get { let d = 1; return d }
        set {}
      }
      func e() { let f = 1 }
      enum G { case h; static let i = 1 }
      init() { let j = 1 }
      """
    #expect(findings("actor A {\n\(properties(12))\(others)\n}\nextension A { var k: Int { 1 } }\n") == [])
    // A box is no way around: in a lock, or in an extension; that of another type, and a list of them, count as one.
    let inner = "struct State {\n\(properties(7))}\n"
    for box in ["let state = Mutex(State())", "var state: State", "let state: Mutex<State>", "var state = State()"] {
      let found = findings("class A {\n\(inner)\(box)\n\(properties(6))}\n")
      #expect(found == ["Sources/A/A.swift:1: A has 13 stored properties"], "\(box)")
      #expect(findings("class A {\n\(box)\n\(properties(6))}\nextension A {\n\(inner)}\n").count == 1, "\(box)")
      #expect(findings("\(inner)class A {\n\(box)\n\(properties(6))}\n") == [], "\(box)")
    }
    #expect(findings("class A {\n\(inner)var states: [State]\n\(properties(6))}\n") == [])
  }

  @Test func `removes comments, strings and backticked names from code`() {
    let text = #"""
      let a = "try! \"x\"" // try!
      let b = #"try!"# /* try!
      */ let c = 1
      func `try! it`() { let d = """
        try!
        """ }
      """#
    let code = SourceText.code(text)
    #expect(!code.contains("try!"))
    #expect(code.contains("let c = 1"))
    #expect(code.split(separator: "\n", omittingEmptySubsequences: false).count == 6)
    let interpolated = SourceText.code(##"print("a \(b.map { "c \(d("e"))" }) f", #"g \(h)"#)"##)
    #expect(interpolated[...].words == ["print", "b", "map", "d"])
  }
}
