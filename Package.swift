// swift-tools-version: 6.2
// Strandline is a package without dependencies: it uses the toolchain's libraries and the C library only. A target
// depends only on targets that precede it here; Tests/HouseTests checks this.
//
// An app that links the product Strandline links StrandlineCloudKit and the targets that it depends on. It links none of
// those marked below, which have the processes, signals, terminal, proofs and benchmarks of the command.

import PackageDescription

/// The settings of every Swift target: language mode 6, strict memory safety, warnings as errors.
let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .strictMemorySafety(),
  .treatAllWarnings(as: .error),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
]

#if os(Linux)
  /// What an app links. There is no SwiftUI here, and no CloudKit.
  let appTargets = ["Strandline", "StrandlineCloudKit"]
#else
  let appTargets = ["Strandline", "StrandlineCloudKit", "StrandlineUI", "StrandlineNativeCloudKit"]
#endif

let package = Package(
  name: "Strandline",
  platforms: [.macOS(.v15), .iOS(.v18)],
  products: [
    .library(name: "Strandline", targets: appTargets),
    .library(name: "StrandlineTesting", targets: ["StrandlineTesting"]),
    .library(name: "StrandlineServer", targets: ["StrandlineServer"]),
    .executable(name: "strandline", targets: ["StrandlineCLI"]),
  ],
  targets: [
    .target(name: "CStrandline"),
    .target(
      name: "StrandlineSystem", dependencies: ["CStrandline"], swiftSettings: strict),
    .target(
      name: "StrandlineJSON", dependencies: ["StrandlineSystem"], swiftSettings: strict),
    .target(
      name: "StrandlineLog", dependencies: ["StrandlineSystem"], swiftSettings: strict),
    // Records and their types, the events of the log, what a cloud is. It opens no file. Strandline hands it on to its callers.
    .target(
      name: "StrandlineModel", dependencies: ["StrandlineLog", "StrandlineJSON", "StrandlineSystem"],
      swiftSettings: strict),
    // What is known of records and zones, and what sync decides about them: it only computes. Strandline hands it on too.
    .target(
      name: "StrandlineSync", dependencies: ["StrandlineModel", "StrandlineLog", "StrandlineSystem"],
      swiftSettings: strict),
    .target(
      name: "Strandline",
      dependencies: ["StrandlineSync", "StrandlineModel", "StrandlineLog", "StrandlineJSON", "StrandlineSystem"],
      swiftSettings: strict),
    .target(
      name: "StrandlineCloudKit", dependencies: ["Strandline", "StrandlineJSON", "StrandlineSystem"],
      swiftSettings: strict),
    .target(
      name: "StrandlineServer",
      dependencies: ["StrandlineCloudKit", "Strandline", "StrandlineLog", "StrandlineJSON", "StrandlineSystem"],
      swiftSettings: strict),

    // What an app's tests use: the simulated disk and clock, which need no store, and the environment of a store with them.
    .target(
      name: "StrandlineSimulation", dependencies: ["StrandlineSystem"], swiftSettings: strict),
    .target(
      name: "StrandlineTesting",
      dependencies: [
        "StrandlineSimulation", "StrandlineServer", "StrandlineCloudKit", "Strandline", "StrandlineLog",
        "StrandlineSystem",
      ],
      swiftSettings: strict),

    // Only for the command, the proofs and the benchmarks.
    .target(name: "CStrandlineHost"),
    .target(
      name: "StrandlineHost", dependencies: ["CStrandlineHost", "StrandlineSystem"], swiftSettings: strict),
    .target(
      name: "StrandlineLogProofs", dependencies: ["StrandlineSimulation", "StrandlineLog", "StrandlineSystem"],
      swiftSettings: strict),
    .target(
      name: "StrandlineSyncProofs",
      dependencies: [
        "StrandlineLogProofs", "StrandlineSimulation", "StrandlineServer", "StrandlineCloudKit", "Strandline",
        "StrandlineLog",
        "StrandlineSystem",
      ],
      swiftSettings: strict),
    .target(
      name: "StrandlineLogBench",
      dependencies: ["StrandlineHost", "StrandlineSimulation", "StrandlineLog", "StrandlineSystem"],
      swiftSettings: strict),
    // The page that the command serves to a browser: its files, as part of the program.
    .target(name: "StrandlinePage", resources: [.embedInCode("Page")], swiftSettings: strict),
    .executableTarget(
      name: "StrandlineCLI",
      dependencies: [
        "StrandlinePage", "StrandlineTesting", "StrandlineSyncProofs", "StrandlineLogProofs", "StrandlineLogBench",
        "StrandlineHost",
        "StrandlineSimulation", "StrandlineServer",
        "StrandlineCloudKit", "Strandline", "StrandlineLog", "StrandlineJSON", "StrandlineSystem",
      ],
      swiftSettings: strict),

    .target(
      name: "StrandlineTestSupport", dependencies: ["StrandlineHost", "StrandlineSystem"],
      path: "Tests/StrandlineTestSupport",
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineSystemTests",
      dependencies: ["StrandlineSystem", "StrandlineSimulation", "StrandlineTestSupport", "StrandlineHost"],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineJSONTests", dependencies: ["StrandlineJSON", "StrandlineSystem", "StrandlineTestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineHostTests", dependencies: ["StrandlineHost", "StrandlineSystem", "StrandlineTestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineLogTests",
      dependencies: [
        "StrandlineLog", "StrandlineSystem", "StrandlineSimulation", "StrandlineLogProofs", "StrandlineTestSupport",
        "StrandlineHost",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineTests",
      dependencies: [
        "StrandlineSync", "Strandline", "StrandlineLog", "StrandlineSystem", "StrandlineSimulation",
        "StrandlineTesting", "StrandlineSyncProofs", "StrandlineLogProofs", "StrandlineServer", "StrandlineCloudKit",
        "StrandlineTestSupport", "StrandlineHost",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineContentTests",
      dependencies: ["Strandline", "StrandlineLog", "StrandlineSystem", "StrandlineSimulation", "StrandlineTesting"],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineQueryTests",
      dependencies: [
        "Strandline", "StrandlineLog", "StrandlineSystem", "StrandlineSimulation", "StrandlineTesting",
        "StrandlineTestSupport",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineCloudKitTests",
      dependencies: [
        "StrandlineCloudKit", "Strandline", "StrandlineServer", "StrandlineJSON", "StrandlineSystem",
        "StrandlineSimulation", "StrandlineLogProofs", "StrandlineTestSupport", "StrandlineHost",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineAccountTests",
      dependencies: [
        "StrandlineTesting", "StrandlineLogProofs", "StrandlineServer", "StrandlineCloudKit", "Strandline",
        "StrandlineSystem", "StrandlineSimulation", "StrandlineTestSupport",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineServerTests",
      dependencies: [
        "StrandlineServer", "StrandlineCloudKit", "Strandline", "StrandlineLog", "StrandlineSystem",
        "StrandlineSimulation", "StrandlineLogProofs", "StrandlineTestSupport", "StrandlineHost",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineTestingTests",
      dependencies: [
        "StrandlineTesting", "StrandlineServer", "Strandline", "StrandlineSystem", "StrandlineSimulation",
        "StrandlineTestSupport", "StrandlineHost",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineCLITests",
      dependencies: [
        "StrandlineCLI", "Strandline", "StrandlineLog", "StrandlineServer", "StrandlineSystem", "StrandlineSimulation",
        "StrandlineHost", "StrandlineTestSupport",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "FormatsTests",
      dependencies: [
        "Strandline", "StrandlineLog", "StrandlineSystem", "StrandlineSimulation", "StrandlineServer",
        "StrandlineHost", "StrandlineTestSupport", "StrandlineSyncProofs",
      ],
      exclude: ["decoder.py", "events.py", "index.py", "log.py", "runs.py"], swiftSettings: strict),
    .testTarget(
      name: "HouseTests", dependencies: ["StrandlineHost", "StrandlineSystem"], swiftSettings: strict),
  ]
)

#if os(Linux)
  // A stand-in for SwiftUI, so that StrandlineUI is compiled and tested here too. No product contains either: all modules of a
  // build share one search path, and no other target may ask for a module that is only a stand-in.
  package.targets += [
    .target(name: "SwiftUI", path: "Tests/SwiftUI", swiftSettings: strict),
    .target(name: "StrandlineUI", dependencies: ["SwiftUI", "Strandline"], swiftSettings: strict),
    .testTarget(
      name: "StrandlineUITests",
      dependencies: ["StrandlineUI", "SwiftUI", "Strandline", "StrandlineSimulation", "StrandlineTesting"],
      swiftSettings: strict),
    // The same for CloudKit and CoreLocation: StrandlineNativeCloudKit alone asks for them.
    .target(name: "CoreLocation", path: "Tests/CoreLocation", swiftSettings: strict),
    .target(
      name: "CloudKit", dependencies: ["CoreLocation", "StrandlineCloudKit", "Strandline"], path: "Tests/CloudKit",
      swiftSettings: strict),
    .target(
      name: "StrandlineNativeCloudKit",
      dependencies: ["CloudKit", "CoreLocation", "StrandlineCloudKit", "Strandline", "StrandlineSystem"],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineNativeCloudKitTests",
      dependencies: [
        "StrandlineNativeCloudKit", "CloudKit", "CoreLocation", "StrandlineSyncProofs", "StrandlineTesting",
        "StrandlineServer", "StrandlineCloudKit", "Strandline", "StrandlineSimulation", "StrandlineSystem",
        "StrandlineTestSupport",
      ],
      swiftSettings: strict),
  ]
#else
  package.targets += [
    .target(name: "StrandlineUI", dependencies: ["Strandline"], swiftSettings: strict),
    .target(
      name: "StrandlineNativeCloudKit", dependencies: ["StrandlineCloudKit", "Strandline", "StrandlineSystem"],
      swiftSettings: strict),
  ]
#endif

// `STRANDLINE_OPTIMIZED=1 swift test` optimises what the tests call as a release build does, with the checks of a debug build: all
// tests and campaigns take about a quarter of the time, the build half as long again. Not without the variable, because Swift
// Package Manager refuses a package with such flags as a dependency of an app.
if Context.environment["STRANDLINE_OPTIMIZED"] == "1" {
  // With two threads each file gets an object of its own, which a debug build links.
  let flags = ["-O", "-whole-module-optimization", "-num-threads", "2", "-assert-config", "Debug"]
  for target in package.targets where target.type != .test && target.swiftSettings != nil {
    target.swiftSettings?.append(.unsafeFlags(flags, .when(configuration: .debug)))
  }
}

// One target with those that it needs, and no product: `STRANDLINE_ONLY=StrandlineLogTests swift test` builds a tenth of all.
if let only = Context.environment["STRANDLINE_ONLY"] {
  var needed: Set = [only]
  for target in package.targets.reversed() where needed.contains(target.name) {
    for case .byNameItem(let name, _) in target.dependencies { needed.insert(name) }
  }
  package.targets.removeAll { !needed.contains($0.name) }
  package.products = []
}
