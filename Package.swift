// swift-tools-version: 6.2
// Strandline is a package without dependencies: the toolchain's libraries and the C library are all
// there is. Arrows between targets point down only; Tests/HouseTests keeps them so.

import PackageDescription

/// What every Swift target is held to: language mode 6, memory safety said aloud, no warning left.
let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .strictMemorySafety(),
  .treatAllWarnings(as: .error),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
]

let package = Package(
  name: "Strandline",
  platforms: [.macOS(.v15), .iOS(.v18)],
  products: [
    .library(name: "Strandline", targets: ["Strandline", "StrandlineCloudKit"]),
    .library(name: "StrandlineTesting", targets: ["StrandlineTesting"]),
    .library(name: "StrandlineServer", targets: ["StrandlineServer"]),
    .executable(name: "strandline", targets: ["StrandlineCLI"]),
  ],
  targets: [
    .target(name: "CStrandline"),
    .target(
      name: "StrandlineSystem", dependencies: ["CStrandline"], swiftSettings: strict),
    .target(
      name: "StrandlineLog", dependencies: ["StrandlineSystem"], swiftSettings: strict),
    .target(
      name: "Strandline", dependencies: ["StrandlineLog", "StrandlineSystem"],
      swiftSettings: strict),
    .target(
      name: "StrandlineCloudKit", dependencies: ["Strandline", "StrandlineSystem"],
      swiftSettings: strict),
    .target(
      name: "StrandlineServer",
      dependencies: ["StrandlineCloudKit", "Strandline", "StrandlineLog", "StrandlineSystem"],
      swiftSettings: strict),
    .target(
      name: "StrandlineTesting",
      dependencies: [
        "StrandlineServer", "StrandlineCloudKit", "Strandline", "StrandlineLog",
        "StrandlineSystem",
      ],
      swiftSettings: strict),
    .executableTarget(
      name: "StrandlineCLI",
      dependencies: [
        "StrandlineTesting", "StrandlineServer", "StrandlineCloudKit", "Strandline",
        "StrandlineLog", "StrandlineSystem",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineSystemTests", dependencies: ["StrandlineSystem", "StrandlineTesting"],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineLogTests",
      dependencies: ["StrandlineLog", "StrandlineSystem", "StrandlineTesting"],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineTests",
      dependencies: [
        "Strandline", "StrandlineLog", "StrandlineSystem", "StrandlineTesting",
        "StrandlineServer", "StrandlineCloudKit",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineCloudKitTests",
      dependencies: [
        "StrandlineCloudKit", "Strandline", "StrandlineServer", "StrandlineSystem",
        "StrandlineTesting",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineServerTests",
      dependencies: [
        "StrandlineServer", "StrandlineCloudKit", "Strandline", "StrandlineLog",
        "StrandlineSystem", "StrandlineTesting",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineTestingTests",
      dependencies: ["StrandlineTesting", "StrandlineServer", "Strandline", "StrandlineSystem"],
      swiftSettings: strict),
    .testTarget(
      name: "StrandlineCLITests",
      dependencies: [
        "StrandlineCLI", "Strandline", "StrandlineLog", "StrandlineServer", "StrandlineSystem", "StrandlineTesting",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "FormatsTests",
      dependencies: ["Strandline", "StrandlineLog", "StrandlineSystem", "StrandlineTesting", "StrandlineServer"],
      swiftSettings: strict),
    .testTarget(name: "HouseTests", dependencies: ["StrandlineSystem"], swiftSettings: strict),
  ]
)
