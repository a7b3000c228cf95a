// In which order unsettled mutations leave: saves before deletes, what is pointed at before what points, and deletions
// the other way round. Pure: from what is owed to a list of names.

/// A mutation to send.
struct UploadItem {
  var id: RecordID
  var lsn: LSN
  var isDeletion: Bool
  /// The names in the same zone that this record points at (a save), or pointed at in its base (a deletion).
  var targets: [String]
}

enum UploadPlan {
  /// Operations a request takes.
  static let operationsMax = 200
  /// Bytes of JSON a request takes; a record above it goes alone.
  static let requestBytesMax = 2_000_000

  /// The order for one zone. Ties keep the order of the items, which is that of the log. Records that point at each
  /// other in a circle stand together.
  static func order(_ items: [UploadItem]) -> [UploadItem] {
    let saves = items.filter { !$0.isDeletion }
    let deletes = items.filter(\.isDeletion)
    // A deletion of a child before its parent: what points goes first.
    return targetsFirst(saves) + targetsFirst(deletes).reversed()
  }

  /// Depth first, targets before what points at them; O(items + pointers). The stack is our own: a chain of a hundred
  /// thousand records must not end the thread's.
  private static func targetsFirst(_ items: [UploadItem]) -> [UploadItem] {
    guard items.contains(where: { !$0.targets.isEmpty }) else { return items }
    var places: [String: Int] = [:]
    for (place, item) in items.enumerated() { places[item.id.name] = place }
    var done = Array(repeating: false, count: items.count)
    var result: [UploadItem] = []
    for start in items.indices where !done[start] {
      done[start] = true
      var stack: [(place: Int, next: Int)] = [(start, 0)]
      while let top = stack.last {
        let targets = items[top.place].targets
        if top.next == targets.count {
          stack.removeLast()
          result.append(items[top.place])
          continue
        }
        stack[stack.count - 1].next += 1
        if let target = places[targets[top.next]], !done[target] {
          done[target] = true
          stack.append((target, 0))
        }
      }
    }
    return result
  }

  /// About how many bytes of JSON an operation takes, from above.
  static func jsonBytes(_ operation: CloudOperation) -> Int {
    var bytes = 200 + operation.name.utf8.count + operation.type.utf8.count + (operation.changeTag?.utf8.count ?? 0)
    for (name, value) in operation.fields { bytes += 40 + name.utf8.count + (value.map(jsonBytes) ?? 4) }
    return bytes
  }

  private static func jsonBytes(_ value: FieldValue) -> Int {
    switch value {
    case .string(let text):
      // Quotes, backslashes and slashes take two bytes, control characters six.
      return text.utf8.reduce(2) { $0 + ($1 < 0x20 ? 6 : ($1 == 0x22 || $1 == 0x5C || $1 == 0x2F ? 2 : 1)) }
    case .int64, .double, .date: return 26
    case .bytes(let bytes): return bytes.count * 3 / 2 + 8
    case .reference(let reference): return 160 + reference.name.utf8.count + (reference.zone?.name.utf8.count ?? 0)
    case .location: return 320
    case .asset(let asset): return 600 + (asset.downloadURL?.utf8.count ?? 0) * 2
    case .list(_, let items): return items.reduce(2) { $0 + jsonBytes($1) + 1 }
    case .encrypted(let inner): return 30 + jsonBytes(inner)
    }
  }
}
