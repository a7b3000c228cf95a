// `put`: creates one record, or changes those of its fields that the command line names.

import Strandline
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem

extension Command {
  static let put = Command(
    "put", "Change or create one record.", operands: ["STORE", "JSON|-"],
    details: [
      "JSON is a line as import accepts it. Only the fields that it names are changed; null clears a field.",
      "\"recordType\" is required for a record that does not exist yet.",
      "A field keeps its type, as at CloudKit: a value of another one is refused. A date may be a text such as 2026-01-31, or",
      "2026-01-31T18:00:00Z, where the store has dates in that field.",
      "Prints nothing when the record is saved.",
    ],
    options: [.zone, Option("--recreate", "Create a new record if this name was deleted.")],
    examples: [
      Example(
        "A new note",
        #"strandline put STORE '{"recordType": "Note", "recordName": "n1", "fields": {"title": "Milk"}}'"#),
      Example("Another title", #"strandline put STORE '{"recordName": "n1", "fields": {"title": "Bread"}}'"#),
    ],
    run: { arguments, console in
      let zone = try (arguments.zone() ?? .main).name
      let line = try input(arguments.operands[1], console)
      let path = arguments.operands[0]
      func write(_ store: RecordStore) throws -> ExitCode {
        let line = try line.fitted(to: store.view(), zone)
        try store.writeBlocking { transaction in
          try put(line, zone, recreates: arguments.has("--recreate"), &transaction)
        }
        return .done
      }
      if try console.fileSystem.kind(of: path) == .absent {
        // The record is first saved into a store in memory, so that one that cannot be saved does not create an empty
        // store at a mistyped path.
        var inMemory = console.environment
        inMemory.fileSystem = SimulatedDisk()
        let trial = try RecordStore.openBlocking(
          at: "/trial", environment: StoreEnvironment(inMemory, isSimulated: true))
        _ = try write(trial)
        try trial.closeBlocking()
      }
      return try withStore(path, console, write)
    })

  private static func input(_ operand: String, _ console: Console) throws -> RecordLine {
    var bytes = Array(operand.utf8)
    if operand == "-" {
      bytes = []
      while true {
        let more = try console.read(max: 64 << 10)
        if more.isEmpty { break }
        bytes += more
        if bytes.count > LineReader.lineBytesMax {
          throw Failure(
            .dataDamaged, "standard input: the record is longer than \(Words.bytes(UInt64(LineReader.lineBytesMax)))")
        }
      }
    }
    do throws(BadLine) { return try RecordLine(json: bytes) } catch {
      throw Failure(.dataDamaged, "the record\(error.place): \(error.words)", try: "strandline help put")
    }
  }

  private static func put(
    _ line: RecordLine, _ zone: String, recreates: Bool, _ transaction: inout WriteTransaction
  ) throws {
    do {
      if let record = try transaction.record(line.id(in: zone)) {
        return try transaction.save(line.changing(record), isVerbatim: line.isVerbatim, creating: false)
      }
      let record = try line.record(in: zone)
      do {
        try transaction.save(record, isVerbatim: line.isVerbatim, creating: false)
      } catch let error as StrandlineError where error.code == .recordWasDeleted && recreates {
        try transaction.save(record, isVerbatim: line.isVerbatim, creating: true)
      }
    } catch let bad as BadLine {
      throw Failure(.dataDamaged, "record '\(line.id(in: zone))': \(bad.words)", try: "strandline help put")
    }
  }
}

extension RecordLine {
  /// The line with values of the types that their fields have: in the record, else in the first records of its type.
  fileprivate func fitted(to view: StoreView, _ zone: String) throws -> RecordLine {
    let id = id(in: zone)
    let record = try view.record(id)
    guard !isVerbatim, let recordType = recordType ?? record?.type else { return self }
    let known = try view.examples(ofType: recordType, in: nil)
    var line = self
    for (name, value) in fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
      let examples = record?.fields[name].map { [$0] } ?? known[name].map { Array($0.values) } ?? []
      if examples.isEmpty || examples.contains(where: { $0.isOfSameType(as: value) }) { continue }
      let written = examples.compactMap { value.written(like: $0) }.first
      guard let written else {
        let kinds = examples.map(\.typeName).sorted().joined(separator: " or ")
        throw Failure(
          .dataDamaged,
          "record '\(id)' of type '\(recordType)': field '\(name)' has values of type \(kinds) in this store, and would get one "
            + "of type \(value.typeName); CloudKit keeps the type of a field for ever, so give the new values a field of another "
            + "name",
          try: "strandline types STORE --fields")
      }
      line.fields[name] = written
    }
    return line
  }
}
