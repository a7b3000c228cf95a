// The one binary search, against a walk through the collection.

import StrandlineSystem
import Testing

private struct Asked: Error, Equatable { let element: Int }

@Suite(.timeLimit(.minutes(30)))
struct `A search in a divided collection` {
  @Test func `finds the first element after the division, wherever that is`() {
    for count in 0...40 {
      let numbers = Array(0..<count)
      for first in 0...count {
        #expect(numbers.partitioningIndex { $0 >= first } == first)
        #expect((0..<count).partitioningIndex { $0 >= first } == first)
        // The indices of a slice are those of its array.
        let slice = numbers[(count / 3)...]
        #expect(slice.partitioningIndex { $0 >= first } == max(first, count / 3))
      }
    }
  }

  @Test func `finds the first of equal elements`() {
    let random = SeededRandom(seed: 0x5EA)
    for _ in 0..<2_000 {
      let numbers = (0..<random.below(30)).map { _ in random.below(10) }.sorted()
      let wanted = random.below(11)
      #expect(
        numbers.partitioningIndex { $0 >= wanted } == numbers.firstIndex { $0 >= wanted } ?? numbers.endIndex)
    }
  }

  @Test func `asks about a few elements, and about none twice`() {
    for exponent in 0...12 {
      let count = (1 << exponent) - 1
      for wanted in stride(from: 0, through: count, by: max(1, count / 50)) {
        var asked: [Int] = []
        let found = (0..<count).partitioningIndex { element in
          asked.append(element)
          return element >= wanted
        }
        #expect(found == wanted && asked.count == exponent && Set(asked).count == asked.count)
      }
    }
  }

  @Test func `throws the error of the question`() {
    #expect(throws: Asked(element: 5)) {
      try (0..<10).partitioningIndex { (element) throws(Asked) in throw Asked(element: element) }
    }
  }
}
