// The rules about what an app can call: each public name earns its place, and each method is shown by an example.

extension Rules {
  /// The targets whose public declarations an app sees.
  private static let appTargets: Set<String> = [
    "StrandlineModel", "StrandlineSync", "Strandline", "StrandlineCloudKit", "StrandlineNativeCloudKit", "StrandlineUI",
    "StrandlineServer", "StrandlineSimulation", "StrandlineTesting",
  ]

  /// Declarations that the standard library, Foundation and SwiftUI call by name.
  private static let calledByOthers: Set<Substring> = [
    "description", "debugDescription", "hash", "next", "makeIterator", "makeAsyncIterator", "encode", "decode",
    "wrappedValue", "projectedValue", "init",
  ]

  /// The public declarations of the products, and the cases of their public enums.
  private static func surface(_ sources: [SourceText]) -> [(source: SourceText, declaration: Declaration)] {
    sources.filter { $0.path.hasPrefix("Sources/") && appTargets.contains($0.target) }.flatMap { source in
      let declarations = CodeStructure(source).declarations
      let enums = Set(declarations.filter { $0.keyword == "enum" && $0.modifiers.contains("public") }.map(\.name))
      return declarations.filter { declaration in
        if calledByOthers.contains(declaration.name) { return false }
        guard declaration.keyword == "case" else { return declaration.modifiers.contains("public") }
        return declaration.container[...].words.dropFirst().first.map(enums.contains) ?? false
      }.map { (source, $0) }
    }
  }

  private static func counts(_ declarations: some Sequence<Declaration>) -> [Substring: Int] {
    Dictionary(declarations.lazy.map { ($0.name, 1) }, uniquingKeysWith: +)
  }

  /// Public names that no source uses and no page names. Matches by name: of two declarations with one name, the use of one counts for
  /// both.
  static func publicNamesWithoutUse(_ sources: [SourceText], pages: [SourceText]) -> [String] {
    let products = sources.filter { $0.path.hasPrefix("Sources/") }
    var used: [Substring: Int] = [:]
    for source in products {
      used.merge(Dictionary(source.code[...].words.lazy.map { ($0, 1) }, uniquingKeysWith: +), uniquingKeysWith: +)
    }
    let declared = counts(products.lazy.flatMap { CodeStructure($0).declarations })
    let shown = Set(pages.lazy.flatMap { $0.text[...].words })
    return surface(sources).filter { _, declaration in
      let name = declaration.name
      return used[name, default: 0] <= declared[name, default: 0] && !shown.contains(name)
    }.map { "\($0.path):\($1.line): neither a source nor a page uses \($1.keyword) \($1.name)" }
  }

  /// Public methods that no example calls with the labels that tell them from others of their name.
  ///
  /// - Parameters:
  ///   - examples: the sources with the examples, which tests compile.
  ///   - containers: types whose methods an app does not call: it implements them, or only the engine calls them.
  static func methodsWithoutExample(
    _ sources: [SourceText], examples: [SourceText], containers: Set<Substring>
  ) -> [String] {
    let calls = Dictionary(grouping: examples.lazy.flatMap { LabelledName.all(in: $0) }, by: \.name)
    let methods = surface(sources).filter { _, declaration in
      declaration.keyword == "func" && containers.isDisjoint(with: declaration.container[...].words)
    }
    var declared: [String: [LabelledName]] = [:]
    for source in Set(methods.map(\.source.path)) {
      declared[source] = methods.first { $0.source.path == source }.map { LabelledName.all(in: $0.source) }
    }
    return methods.compactMap { source, method in
      let parameters = declared[source.path]?.first { $0.name == method.name && $0.line == method.line }
      let labels = parameters?.requiredLabels ?? []
      // The code has a name in backticks as an underscore.
      let quoted = source.text.split(separator: "\n", omittingEmptySubsequences: false)[method.line - 1].split(
        separator: "`")
      let name = method.name == "_" && quoted.count > 2 ? quoted[1] : method.name
      if calls[name]?.contains(where: { labels.isSubset(of: $0.labels) }) == true { return nil }
      let words = labels.sorted().map { "\($0):" }.joined()
      return "\(source.path):\(method.line): no example calls \(name)" + (words.isEmpty ? "" : "(\(words))")
    }
  }
}
