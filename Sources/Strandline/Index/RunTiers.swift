// Which runs become one. A rule over their numbers of entries alone, so that a long schedule of sessions can be tried
// without a disk.
//
// A run's level is 0 while it has fewer entries than a flush of a full memory, and one more each time that it has `width`
// times as many. When there are `width` runs of a level they become one, with the newer ones before them: so an entry is
// written again once a level. Of level 0, which sessions make that end early, one fewer is enough: there an entry is written
// again more often, but each time with no more than one such flush. What stays is `width - 1` runs a level at most, which is
// 12 of a million rows.

/// The rule by which runs are merged.
package struct RunTiers {
  /// The entries of a flush of a full memory.
  package var flushCount: Int
  /// How many runs of a level become one.
  package var width: Int

  package init(flushCount: Int, width: Int) {
    self.flushCount = flushCount
    self.width = width
  }

  /// How many merges made a run with this number of entries.
  package func level(_ entries: Int) -> Int {
    var (level, size) = (0, entries / max(1, flushCount))
    while size > 0 {
      size /= max(2, width)
      level += 1
    }
    return level
  }

  /// The most runs that a store with this number of entries has once every due merge is done.
  package func most(_ entries: Int) -> Int { (level(entries) + 1) * max(1, width - 1) }

  /// How many of the newest runs are to become one; 0 for none.
  ///
  /// - Parameter entries: how many each of them has, the newest first.
  package func due(_ entries: some Sequence<Int>) -> Int {
    var counts: [Int] = []
    var highest = 0
    // A run counts at the level of the largest before it: it cannot be merged without that.
    for entries in entries {
      highest = max(highest, level(entries))
      while counts.count <= highest { counts.append(0) }
      counts[highest] += 1
    }
    var newest = 0
    for (level, count) in counts.enumerated() {
      newest += count
      if count >= (level == 0 ? max(2, width - 1) : max(2, width)) { return newest }
    }
    return 0
  }
}

extension IndexOptions {
  var tiers: RunTiers { RunTiers(flushCount: flushCount, width: mergeWidth) }
}

extension RunTiers {
  func due(_ runs: some Sequence<Run>) -> Int { due(runs.map(\.entryCount)) }
  func most(_ runs: some Sequence<Run>) -> Int { most(runs.reduce(0) { $0 + $1.entryCount }) }
}
