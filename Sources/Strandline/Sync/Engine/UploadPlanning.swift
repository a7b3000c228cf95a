// The first step of an upload without its request, to measure the cost of finding the next batch.

import StrandlineSystem

extension RecordStore {
  /// Plans the first step of an upload as a process that has just begun, and sends nothing.
  ///
  /// For tests: the benchmark measures that the cost does not grow with the number of pending changes.
  ///
  /// - Returns: how many operations the step would send.
  package func planUpload(to scope: DatabaseScope) throws -> Int {
    var queue = OutgoingQueue(scope: scope)
    let reading = OutgoingQueue.Reading(StoreFacts(self), only: nil, frozen: [], upTo: durableLSN)
    guard case .send(_, let units)? = try queue.next(reading) else { return 0 }
    return units.reduce(0) { $0 + $1.count }
  }
}
