// The order in which unsettled mutations are sent: saves before deletions; a saved record after the records that it
// refers to; a deleted record before them. Pure.

/// A mutation to send.
package struct UploadItem: Hashable, Sendable {
  package var id: RecordID
  package var lsn: LSN
  package var isDeletion: Bool
  /// The names in the same zone that this record refers to; for a deletion, that its base refers to.
  package var targets: [String]

  package init(id: RecordID, lsn: LSN, isDeletion: Bool, targets: [String]) {
    self.id = id
    self.lsn = lsn
    self.isDeletion = isDeletion
    self.targets = targets
  }
}

package enum UploadPlan {
  /// The most operations in one request.
  package static let operationsMax = 200
  /// The most bytes of JSON in one request; a larger record is sent alone.
  package static let requestBytesMax = 2_000_000

  /// The order for one zone. Ties keep the order of the items, which is that of the log. Records that refer to each
  /// other in a cycle stand together.
  package static func order(_ items: [UploadItem]) -> [UploadItem] {
    // Without a copy of what is in order already, as most first uploads are.
    if items.allSatisfy({ !$0.isDeletion && $0.targets.isEmpty }) { return items }
    let saves = items.filter { !$0.isDeletion }
    let deletes = items.filter(\.isDeletion)
    // A child is deleted before its parent. Reversed twice, so that ties keep their order.
    return targetsFirst(saves) + targetsFirst(deletes.reversed()).reversed()
  }

  /// Depth first, targets before the records that refer to them; O(items + references). Not recursive: a chain of a
  /// hundred thousand records would overflow the thread's stack.
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
