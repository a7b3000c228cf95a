// Checks in the symbols of the built objects that an app which links the product Strandline links nothing that only the
// command, its proofs or its benchmarks use.
//
// A library of this package is not a file: SwiftPM passes the objects of its targets to the app's linker. These objects
// were also linked into this test, and the app's linker sees the symbols that they define and reference.

import StrandlineHost
import StrandlineSystem
import Testing

/// The symbols of a module's objects.
private struct ModuleSymbols {
  private(set) var defined: Set<Substring> = []
  private(set) var undefined: Set<Substring> = []

  /// - Parameter listing: The output of `nm -P -g`: a name, a letter for its kind, and numbers if it is defined.
  init(_ listing: String) {
    for line in listing.split(separator: "\n") {
      let parts = line.split(separator: " ")
      guard parts.count > 1, parts[1].utf8.count == 1 else { continue }
      // On Apple's systems the symbols of C functions begin with an underscore.
      #if canImport(Darwin)
        let name = parts[0].hasPrefix("_") ? parts[0].dropFirst() : parts[0]
      #else
        let name = parts[0]
      #endif
      if ["U", "w", "v"].contains(parts[1]) { undefined.insert(name) } else { defined.insert(name) }
    }
  }

  init(objects: [String]) throws {
    let lister = try ChildProcess("/usr/bin/env", ["nm", "-P", "-g"] + objects, output: .pipe, errorOutput: .null)
    let listing = String(decoding: try lister.output?.readAll() ?? [], as: UTF8.self)
    #expect(try lister.wait() == .exited(0), "nm: one of the toolchain's or of the system's has to be in PATH")
    self.init(listing)
    #expect(!defined.isEmpty)
  }
}

/// The modules of the package and their symbols.
private struct LinkedModules {
  private(set) var modules: [Substring: ModuleSymbols] = [:]

  /// The modules that are linked into the running test.
  init() throws {
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
      .joined(separator: "/")
    let list = try House.disk.open("\(built)/StrandlinePackageTests.product/Objects.LinkFileList", .read)
    defer { list.close() }
    let text = String(decoding: try list.read(at: 0, count: Int(try list.size())), as: UTF8.self)
    // The directory may still have objects of removed files; the list names those that are linked.
    var objects: [Substring: [String]] = [:]
    for line in text.split(separator: "\n") {
      let path = line.filter { $0 != "'" && $0 != "\"" }
      guard let folder = path.split(separator: "/").dropLast().last(where: { $0.hasSuffix(".build") }) else { continue }
      objects[folder.dropLast(".build".count), default: []].append(path)
    }
    // Below Tests too: the stand-ins for Apple's modules are there, and nobody but the tests links one.
    for name in try House.disk.list("\(House.root)/Sources") + House.disk.list("\(House.root)/Tests") {
      if let paths = objects[name[...]] { modules[name[...]] = try ModuleSymbols(objects: paths) }
    }
  }

  /// The modules that a linker pulls in for these.
  func closure(of names: Set<Substring>) -> Set<Substring> {
    var result = names
    while true {
      let parts = result.compactMap { modules[$0] }
      let missing = parts.reduce(into: Set()) { $0.formUnion($1.undefined) }
        .subtracting(parts.reduce(into: Set()) { $0.formUnion($1.defined) })
      let needed = modules.filter { !$0.value.defined.isDisjoint(with: missing) }.keys
      if result.isSuperset(of: needed) { return result }
      result.formUnion(needed)
    }
  }

  /// Calls that no app needs and that these modules make: for processes, signals, the terminal, libraries loaded at run
  /// time, measurements of the process, and SQLite.
  func strangeCalls(_ names: Set<Substring>) -> [Substring] {
    let beginnings = [
      "posix_spawn", "fork", "vfork", "exec", "wait", "kill", "raise", "system", "popen", "sig", "tcget", "tcset",
      "ioctl", "isatty", "dlopen", "dlsym", "sqlite3", "getrusage", "getloadavg", "environ",
    ]
    let asked = names.compactMap { modules[$0] }.reduce(into: Set()) { $0.formUnion($1.undefined) }
    return Set(asked.map(Self.systemName)).filter { name in beginnings.contains { name.hasPrefix($0) } }.sorted()
  }

  /// The C function that a symbol of Swift's Glibc module calls: `$s5Glibc5ioctl…` is ioctl.
  private static func systemName(_ symbol: Substring) -> Substring {
    for module in ["$s5Glibc", "$s4Musl", "$s6Darwin"] where symbol.hasPrefix(module) {
      let rest = symbol.dropFirst(module.count)
      let count = rest.prefix { $0.isNumber }
      return rest.dropFirst(count.count).prefix(Int(count) ?? 0)
    }
    return symbol
  }
}

#if os(Linux)
  struct `An app that links Strandline` {
    private static let library: Set<Substring> = [
      "CStrandline", "StrandlineSystem", "StrandlineJSON", "StrandlineLog", "StrandlineModel", "StrandlineSync",
      "Strandline", "StrandlineCloudKit",
    ]

    @Test func `links only the modules below it, and no call that only the command makes`() throws {
      let linked = try LinkedModules()
      #expect(linked.closure(of: ["Strandline", "StrandlineCloudKit"]) == Self.library)
      #expect(linked.strangeCalls(Self.library.subtracting(["CStrandline"])) == [])
      // The library for TLS is found when the first request to an `https:` address needs it, and by nothing else.
      #expect(linked.strangeCalls(["CStrandline"]) == ["dlopen", "dlsym"])
      // The same calls are found in the modules that make them.
      let ofTheCommand = linked.strangeCalls(["StrandlineHost", "CStrandlineHost"])
      for name in ["posix_spawn", "wait4", "kill", "sigaction", "ioctl", "isatty", "dlopen", "dlsym", "getloadavg"] {
        #expect(ofTheCommand.contains(name[...]), "\(name)")
      }
    }

    @Test func `links no campaign with the server or with the simulations for its tests`() throws {
      let linked = try LinkedModules()
      #expect(linked.closure(of: ["StrandlineServer"]) == Self.library.union(["StrandlineServer"]))
      let testing: Set<Substring> = ["StrandlineServer", "StrandlineSimulation", "StrandlineTesting"]
      #expect(linked.closure(of: ["StrandlineTesting"]) == Self.library.union(testing))
      // The log's campaigns do not depend on the store, so that both can be built at the same time.
      let campaigns = linked.closure(of: ["StrandlineLogProofs"])
      #expect(
        campaigns == [
          "CStrandline", "StrandlineSystem", "StrandlineLog", "StrandlineSimulation", "StrandlineLogProofs",
        ])
    }

    @Test func `resolves symbols as a linker does`() {
      let symbols = ModuleSymbols("/a/b.o:\n_begin T 0 10\nlocal t 0 4\nposix_spawn U         \nweak w\n")
      #expect(symbols.undefined == ["posix_spawn", "weak"])
      #expect(symbols.defined.contains("_begin"))
    }
  }
#endif
