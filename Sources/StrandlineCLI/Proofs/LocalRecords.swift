// Real input for `demo` and `crash-test` that every machine has: its installed packages, or else its list of network
// services, or else its time zones, converted to the JSON Lines that `import` accepts.

import Strandline
import StrandlineHost
import StrandlineSystem

/// Real records of this machine.
enum LocalRecords {
  private static let dpkg = "/var/lib/dpkg/status"
  private static let services = "/etc/services"
  private static let zones = ["/usr/share/zoneinfo/tzdata.zi", "/var/db/timezone/zoneinfo/tzdata.zi"]
  private static let bytesMax = 64 << 20

  /// Writes the records of the first source that has enough of them to a file. Returns a description of them.
  static func save(at path: String, _ fileSystem: any FileSystem) throws -> String {
    let sources: [(path: String, what: String, parse: (String) -> [Record])] =
      [(dpkg, "installed packages", packages), (services, "network services", serviceRecords)]
      + zones.map { ($0, "time zones", timeZones) }
    for source in sources {
      guard try fileSystem.kind(of: source.path) == .file else { continue }
      let records = source.parse(try text(source.path, fileSystem))
      // Fewer records would be no useful test.
      guard records.count >= 20 else { continue }
      let file = try fileSystem.open(path, .create)
      defer { file.close() }
      try file.write(records.flatMap { $0.line(zone: false) + [UInt8(ascii: "\n")] }, at: 0)
      return "\(Words.count(records.count)) \(source.what) of this machine (\(source.path))"
    }
    throw Failure(
      .noSuchStore, "no input: this machine has none of \(([dpkg, services] + zones).joined(separator: ", "))",
      try: "the same command with --records FILE")
  }

  private static func text(_ path: String, _ fileSystem: any FileSystem) throws -> String {
    let file = try fileSystem.open(path, .read)
    defer { file.close() }
    return String(decoding: try file.read(at: 0, count: bytesMax), as: UTF8.self)
  }

  /// The stanzas of Debian's package database.
  private static func packages(_ text: String) -> [Record] {
    var result: [Record] = []
    var values: [String: String] = [:]
    var last: String?
    func finish() {
      defer {
        values = [:]
        last = nil
      }
      guard let name = values["Package"], let architecture = values["Architecture"] else { return }
      var record = Record(type: "Package", id: RecordID("\(name):\(architecture)"))
      record.fields["name"] = .string(name)
      for (field, key) in [
        ("version", "Version"), ("section", "Section"), ("maintainer", "Maintainer"), ("summary", "Description"),
      ] { record.fields[field] = values[key].map { .string($0) } }
      record.fields["installedKiB"] = values["Installed-Size"].flatMap { Int64($0) }.map { .int64($0) }
      let depends = values["Depends"]?.split(separator: ",").map { $0.trimmingPrefix(" ") } ?? []
      if !depends.isEmpty { record.fields["depends"] = .list(.strings, depends.map { .string(String($0)) }) }
      result.append(record)
    }
    for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.isEmpty {
        finish()
      } else if line.first == " " || line.first == "\t" {
        if let last { values[last, default: ""] += "\n" + line.drop { $0 == " " || $0 == "\t" } }
      } else if let colon = line.firstIndex(of: ":") {
        last = String(line[..<colon])
        values[String(line[..<colon])] = String(line[line.index(after: colon)...].drop { $0 == " " })
      }
    }
    finish()
    return unique(result)
  }

  /// The lines of services(5).
  private static func serviceRecords(_ text: String) -> [Record] {
    var result: [Record] = []
    for line in text.split(separator: "\n") {
      let halves = line.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
      let words = halves[0].split { $0 == " " || $0 == "\t" }.map(String.init)
      guard words.count >= 2 else { continue }
      let port = words[1].split(separator: "/")
      guard port.count == 2, let number = Int64(port[0]) else { continue }
      var record = Record(type: "Service", id: RecordID("\(words[0])/\(port[1])"))
      record.fields = ["name": .string(words[0]), "port": .int64(number), "protocol": .string(String(port[1]))]
      if words.count > 2 { record.fields["aliases"] = .list(.strings, words[2...].map { .string($0) }) }
      if halves.count > 1 { record.fields["remark"] = .string(String(halves[1].drop { $0 == " " })) }
      result.append(record)
    }
    return unique(result)
  }

  /// The zones and links of the time zone database in its short form.
  private static func timeZones(_ text: String) -> [Record] {
    var result: [Record] = []
    for line in text.split(separator: "\n") {
      let words = line.split(separator: " ").map(String.init)
      if words.count >= 3, words[0] == "L" {
        result.append(
          Record(type: "TimeZoneLink", id: RecordID(words[2]), fields: ["target": .string(words[1])]))
      } else if words.count >= 3, words[0] == "Z" {
        result.append(
          Record(
            type: "TimeZone", id: RecordID(words[1]), fields: ["firstRule": .string(words[2...].joined(separator: " "))]
          ))
      }
    }
    return unique(result)
  }

  private static func unique(_ records: [Record]) -> [Record] {
    var names: Set<CloudName> = []
    return records.filter { names.insert($0.id.key).inserted }
  }
}
