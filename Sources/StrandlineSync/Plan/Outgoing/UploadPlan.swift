// The order of the operations in an upload: saves before deletions; a saved record after the records that it refers to; a deleted
// record before them. Pure.

/// A mutation to send.
package struct UploadItem: Hashable, Sendable {
  package var id: RecordID
  package var lsn: LSN
  /// The record's oldest pending mutation: records that have waited longer are sent first.
  package var first: LSN
  package var isDeletion: Bool
  /// The names in the same zone that this record refers to; for a deletion, that its base refers to.
  package var targets: [CloudName]
  /// For a save, the targets that the server may need before the record: its parent, and those of DELETE_SELF and VALIDATE references.
  package var needs: [CloudName]

  package init(
    id: RecordID, lsn: LSN, first: LSN? = nil, isDeletion: Bool, targets: [CloudName], needs: [CloudName] = []
  ) {
    self.id = id
    self.lsn = lsn
    self.first = first ?? lsn
    self.isDeletion = isDeletion
    self.targets = targets
    self.needs = needs
  }
}

package enum UploadPlan {
  /// The most operations in one request.
  package static let operationsMax = Names.operationsMax
  /// The most bytes of JSON in one request; a larger record is sent alone.
  package static let requestBytesMax = 2_000_000

  /// The order for one zone, in units that one request must hold whole: a record by itself, or records that refer to each
  /// other in a cycle. Ties keep the order of the items, which is that of the log.
  package static func units(_ items: [UploadItem]) -> [[UploadItem]] {
    // Most uploads are in order already.
    if items.allSatisfy({ !$0.isDeletion && $0.targets.isEmpty }) { return items.map { [$0] } }
    let saves = items.filter { !$0.isDeletion }
    let deletes = items.filter(\.isDeletion)
    // A child is deleted before its parent. Reversed twice, so that ties keep their order.
    return targetsFirst(saves) + targetsFirst(deletes.reversed()).reversed().map { $0.reversed() }
  }

  /// The strongly connected components of the references, each after those that it refers to; O(items + references).
  /// Tarjan, *Depth-first search and linear graph algorithms*, 1972. Not recursive: a chain of a hundred thousand records
  /// would overflow the thread's stack.
  private static func targetsFirst(_ items: [UploadItem]) -> [[UploadItem]] {
    guard items.contains(where: { !$0.targets.isEmpty }) else { return items.map { [$0] } }
    var places: [CloudName: Int] = [:]
    for (place, item) in items.enumerated() { places[item.id.key] = place }
    // Of each item: the number in order of discovery, from 1; the lowest number that it leads back to; whether it is in no unit yet.
    var met = Array(repeating: 0, count: items.count)
    var low = met
    var isOpen = Array(repeating: false, count: items.count)
    var count = 0
    var open: [Int] = []
    var units: [[UploadItem]] = []
    for start in items.indices where met[start] == 0 {
      var path: [(place: Int, next: Int)] = []
      func enter(_ place: Int) {
        count += 1
        (met[place], low[place], isOpen[place]) = (count, count, true)
        open.append(place)
        path.append((place, 0))
      }
      enter(start)
      while let (place, next) = path.last {
        if next < items[place].targets.count {
          path[path.count - 1].next += 1
          guard let target = places[items[place].targets[next]] else { continue }
          if met[target] == 0 {
            enter(target)
          } else if isOpen[target] {
            low[place] = min(low[place], met[target])
          }
          continue
        }
        path.removeLast()
        if let before = path.last { low[before.place] = min(low[before.place], low[place]) }
        guard low[place] == met[place], let first = open.lastIndex(of: place) else { continue }
        let unit = open[first...].sorted()
        open.removeSubrange(first...)
        for place in unit { isOpen[place] = false }
        units.append(unit.map { items[$0] })
      }
    }
    return units
  }

  /// An upper bound of the bytes of JSON that an operation takes.
  package static func jsonBytes(_ operation: CloudOperation) -> Int {
    var bytes = 200 + jsonBytes(operation.name) + jsonBytes(operation.type)
    bytes += jsonBytes(operation.changeTag ?? "") + (operation.parent.map { 40 + jsonBytes($0) } ?? 0)
    for (name, value) in operation.fields { bytes += 40 + jsonBytes(name) + (value.map(jsonBytes) ?? 4) }
    return bytes
  }

  /// A string in JSON, with its quotes: quotes, backslashes and slashes take two bytes, control characters six.
  private static func jsonBytes(_ text: String) -> Int {
    // Without a closure, which the compiler would call for each byte.
    var bytes = 2
    for byte in text.utf8 { bytes += byte < 0x20 ? 6 : (byte == 0x22 || byte == 0x5C || byte == 0x2F ? 2 : 1) }
    return bytes
  }

  private static func jsonBytes(_ value: FieldValue) -> Int {
    switch value {
    case .string(let text): return jsonBytes(text)
    case .int64, .double, .date: return 26
    case .bytes(let bytes): return bytes.count * 3 / 2 + 8
    case .reference(let reference):
      return 160 + jsonBytes(reference.name) + jsonBytes(reference.zone?.name ?? "")
        + jsonBytes(reference.zone?.owner ?? "")
    case .location: return 320
    case .asset(let asset): return 600 + (asset.server?.downloadURL?.utf8.count ?? 0) * 2
    case .list(_, let items): return items.reduce(2) { $0 + jsonBytes($1) + 1 }
    case .encrypted(let inner): return 30 + jsonBytes(inner)
    case .opaque(let value): return jsonBytes(value.type) + value.json.count
    }
  }
}
