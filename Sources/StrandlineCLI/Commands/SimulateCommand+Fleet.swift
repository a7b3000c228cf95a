// `simulate --fleet`: the load of thousands of devices on one server, before, during and after an outage.

import StrandlineHost
import StrandlineLogBench
import StrandlineSyncProofs
import StrandlineSystem

/// The options of `simulate --fleet`.
struct FleetOptions: Sendable {
  var shape = FleetShape()
  var svgPath: String?
  var isJSON: Bool

  init(_ arguments: Arguments, _ console: Console) throws {
    for name in ["--runs", "--faults", "--steps", "--trace"] where arguments[name] != nil {
      throw UsageError(message: "\(name) cannot be used with --fleet")
    }
    shape.devices = try arguments.number("--devices", in: 2...20_000) ?? shape.devices
    shape.days = try arguments.number("--days", in: 2...100) ?? shape.days
    shape.seed = try arguments["--seed"].map { text in try CrashTestOptions.seed(text) } ?? shape.seed
    guard shape.devices % 2 == 0 else { throw UsageError(message: "--devices takes an even number with --fleet") }
    for word in arguments["--without"]?.split(separator: ",") ?? [] {
      switch word {
      case "jitter": shape.hasJitter = false
      case "pace": shape.hasPace = false
      default: throw UsageError(message: "--without takes 'jitter', 'pace' or both with a comma between them")
      }
    }
    svgPath = arguments["--svg"]
    isJSON = arguments.has("--json")
  }
}

extension Command {
  /// Runs a fleet, and for a plot the same fleet without jitter and without pace.
  static func simulateFleet(_ arguments: Arguments, _ console: Console) async throws -> ExitCode {
    let options = try FleetOptions(arguments, console)
    var progress = Progress(console)
    defer { progress.end() }
    let start = console.environment.clock.monotonicNanoseconds()
    func run(_ shape: FleetShape, _ name: String) async throws -> FleetOutcome {
      try await FleetLoad.run(shape) { hour in progress.update("\(name): \(Words.plural(hour, "hour"))") }
    }
    let outcome = try await run(options.shape, "fleet")
    let nanoseconds = console.environment.clock.monotonicNanoseconds() &- start
    if let path = options.svgPath {
      var curves = [FleetCurve(name: options.shape.curveName, outcome: outcome)]
      for (jitter, pace) in [(true, true), (false, true), (true, false)] {
        var shape = options.shape
        (shape.hasJitter, shape.hasPace) = (jitter, pace)
        if curves.contains(where: { $0.name == shape.curveName }) { continue }
        curves.append(FleetCurve(name: shape.curveName, outcome: try await run(shape, shape.curveName)))
      }
      try FleetPlot(curves: curves).save(at: path, console.environment.fileSystem)
    }
    progress.end()
    try options.isJSON
      ? console.write(outcome.json(options.shape).canonicalBytes + [UInt8(ascii: "\n")])
      : outcome.show(options.shape, nanoseconds, console)
    guard let missed = outcome.missed.first else { return .done }
    throw Failure(.recoverable, missed, try: "the same command with --svg FILE, which shows the requests over time")
  }
}

extension FleetShape {
  /// What a plot calls it.
  fileprivate var curveName: String {
    let left = (hasJitter ? [] : ["jitter"]) + (hasPace ? [] : ["pace"])
    return left.isEmpty ? "with jitter and pace" : "without " + left.joined(separator: " and ")
  }
}

extension FleetOutcome {
  private static func hundredths(_ number: Double) -> String {
    let value = Int((number * 100).rounded())
    return "\(value / 100).\(value % 100 < 10 ? "0" : "")\(value % 100)"
  }

  fileprivate func show(_ shape: FleetShape, _ nanoseconds: UInt64, _ console: Console) throws {
    let all = requests.reduce(0, +)
    let deviceDays = shape.devices * shape.days
    for line in [
      "seed \(shape.seed)",
      "\(Words.plural(shape.devices, "device")), \(Words.plural(shape.days, "day")), \(Words.plural(edits, "edit"))",
      "requests \(Words.count(all)), refused \(Words.count(refused.reduce(0, +))), of these "
        + "\(Words.count(overload)) beyond the capacity of \(Self.hundredths(capacity)) a second",
      "mean before the outage \(Self.hundredths(mean)) a second, "
        + "\(Self.hundredths(mean * 86_400 / Double(shape.devices))) a device-day",
      "busiest 5 minutes in the hour after the outage \(Self.hundredths(peak)) a second, "
        + "\(Self.hundredths(peak / mean)) times the mean",
      "each 5 minutes of that hour: " + recovery.map { Self.hundredths($0) }.joined(separator: " "),
      "longest wait of an edit after the outage \(longestWait / 1000) s",
      "needless requests \(needless), too early \(impolite)",
      "simulate: \(Words.count(deviceDays)) device-days; \(Words.seconds(nanoseconds: nanoseconds))",
    ] { try console.print(line) }
  }

  fileprivate func json(_ shape: FleetShape) -> JSONValue {
    func thousandths(_ number: Double) -> JSONValue { .integer(Int64((number * 1000).rounded())) }
    return .object([
      "seed": .string(String(shape.seed)), "devices": .integer(Int64(shape.devices)),
      "days": .integer(Int64(shape.days)), "edits": .integer(Int64(edits)),
      "requests": .integer(Int64(requests.reduce(0, +))), "refused": .integer(Int64(refused.reduce(0, +))),
      "overload": .integer(Int64(overload)), "capacityPerThousandSeconds": thousandths(capacity),
      "meanPerThousandSeconds": thousandths(mean), "peakPerThousandSeconds": thousandths(peak),
      "longestWaitMilliseconds": .integer(longestWait), "needless": .integer(Int64(needless)),
      "tooEarly": .integer(Int64(impolite)), "missed": .array(missed.map { .string($0) }),
    ])
  }
}

/// One fleet in a plot.
private struct FleetCurve {
  var name: String
  var outcome: FleetOutcome
}

/// Requests a second over time, and below them those that were refused, around the outage.
private struct FleetPlot {
  var curves: [FleetCurve]
  private static let (width, height, left, right) = (900.0, 640.0, 70.0, 30.0)
  private static let colors = ["#0b6e8f", "#c1582b", "#4a7c2c", "#7a4f9a"]
  /// From two hours before the outage to four hours after it, in steps of five minutes.
  private static let hours = 31...43

  var svg: String {
    var parts = [
      SVG.open(width: Self.width, height: Self.height),
      SVG.text("A fleet and an outage of six hours", Self.width / 2, 28, "middle", SVG.heading),
    ]
    parts += panel("requests a second", 60, 260) { $0.requests }
    parts += panel("refused attempts a second", 340, 540) { $0.refused }
    parts.append(SVG.text("hours since the beginning", Self.width / 2, 580, "middle"))
    for (index, curve) in curves.enumerated() {
      let x = Self.left + Double(index) * 260
      parts.append(SVG.box(x, 600, 12, 12, Self.colors[index % Self.colors.count]))
      parts.append(SVG.text(curve.name, x + 18, 611, "start"))
    }
    return (parts + ["</svg>"]).joined(separator: "\n") + "\n"
  }

  private func panel(_ name: String, _ top: Double, _ floor: Double, _ series: (FleetOutcome) -> [Int]) -> [String] {
    let lines = curves.map { curve -> [Double] in
      let minutes = series(curve.outcome)
      return stride(from: Self.hours.lowerBound * 60, to: Self.hours.upperBound * 60, by: 5).map { minute in
        Double(minutes[min(minute, minutes.count - 5)..<min(minute + 5, minutes.count)].reduce(0, +)) / 300
      }
    }
    let most = max(lines.flatMap { $0 }.max() ?? 0, (curves.first?.outcome.mean ?? 0) * 2, 0.01)
    let wall = Self.width - Self.right
    func x(_ part: Double) -> Double { Self.left + part * (wall - Self.left) }
    func y(_ value: Double) -> Double { floor - value / most * (floor - top) }
    var parts = [SVG.text(name, Self.left, top - 8, "start")]
    for hour in stride(from: Self.hours.lowerBound, through: Self.hours.upperBound, by: 1) {
      let at = x(Double(hour - Self.hours.lowerBound) / Double(Self.hours.count - 1))
      parts.append(SVG.stroke(at, top, at, floor))
      parts.append(SVG.text("\(hour)", at, floor + 18, "middle"))
    }
    for quarter in 0...4 {
      let value = most * Double(quarter) / 4
      parts.append(SVG.stroke(Self.left, y(value), wall, y(value)))
      parts.append(SVG.text(SVG.short(value), Self.left - 8, y(value) + 4, "end"))
    }
    for (index, line) in lines.enumerated() {
      let points = line.enumerated().map { place, value in
        "\(SVG.short(x(Double(place) / Double(line.count)))),\(SVG.short(y(value)))"
      }
      parts.append(
        "<polyline points=\"\(points.joined(separator: " "))\" fill=\"none\" "
          + "stroke=\"\(Self.colors[index % Self.colors.count])\" stroke-width=\"2\"/>")
    }
    return parts
  }

  func save(at path: String, _ fileSystem: any FileSystem) throws { try SVG.save(svg, at: path, fileSystem) }
}
