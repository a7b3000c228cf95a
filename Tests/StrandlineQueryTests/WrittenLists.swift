// Conditions on lists, sets, dictionaries and references, as an app writes them, each beside the same closure.

import Foundation
import Strandline

private let (accent, decomposed, high) = ("é", "e\u{301}", "\u{10FFFF}")
private let (words, empty) = (["a", "b", "é"], [String]())
private let (folder, parent) = (TypedReference<Folder>(id: "f1"), Parent<Folder>(id: "f1"))
private let (place, pair, one) = (Place(city: "a", floor: nil), Set([1, 2]), ["a"])

enum WrittenLists {
  static let cases = tags + items + numbers + references + places

  private static let tags: [Case] = [
    Case(#Predicate { !$0.tags.contains("a") }) { !$0.tags.contains { same($0, "a") } },
    Case(#Predicate { $0.tags.contains(decomposed) }) { $0.tags.contains { same($0, decomposed) } },
    Case(#Predicate { $0.tags.contains("") }) { $0.tags.contains("") },
    Case(#Predicate { $0.tags.contains("a") && $0.isDone }) { $0.tags.contains { same($0, "a") } && $0.isDone },
    Case(#Predicate { $0.tags.contains("a") || $0.tags.contains("b") }) {
      $0.tags.contains { same($0, "a") || same($0, "b") }
    },
    Case(#Predicate { $0.tags.isEmpty }) { $0.tags.isEmpty },
    Case(#Predicate { !$0.tags.isEmpty }) { !$0.tags.isEmpty },
    Case(#Predicate { $0.tags.count == 2 }) { $0.tags.count == 2 },
    Case(#Predicate { $0.tags == empty }) { $0.tags.isEmpty },
    Case(#Predicate { $0.tags != one }) { !($0.tags.count == 1 && same($0.tags[0], "a")) },
    Case(#Predicate { $0.tags.contains(one) }) { $0.tags.contains { same($0, "a") } },
    Case(#Predicate { $0.tags.starts(with: one) }) { same($0.tags.first, "a") },
    Case(#Predicate { $0.tags.contains($0.title) }) { page in page.tags.contains { same($0, page.title) } },
  ]

  private static let items: [Case] = [
    Case(#Predicate { $0.tags.contains { $0 == decomposed } }) { $0.tags.contains { same($0, decomposed) } },
    Case(#Predicate { $0.tags.contains { $0.isEmpty } }) { $0.tags.contains { $0.isEmpty } },
    Case(#Predicate { $0.tags.contains { $0.count > 1 } }) { $0.tags.contains { $0.count > 1 } },
    Case(#Predicate { $0.tags.allSatisfy { $0.isEmpty } }) { $0.tags.allSatisfy { $0.isEmpty } },
    Case(#Predicate { $0.tags.allSatisfy { $0 != "a" } }) { $0.tags.allSatisfy { !same($0, "a") } },
    Case(#Predicate { $0.tags.filter { $0 == "" }.isEmpty }) { !$0.tags.contains("") },
    Case(#Predicate { $0.tags.filter { $0.starts(with: "L") }.count > 0 }) { $0.tags.contains { begins($0, "L") } },
    Case(#Predicate { $0.tags.max() == high }) { same($0.tags.max(by: less), high) },
    Case(#Predicate { ($0.tags.min() ?? "x") < "b" }) { less($0.tags.min(by: less) ?? "x", "b") },
    Case(#Predicate { $0.tags.min() == nil }) { $0.tags.isEmpty },
    Case(#Predicate { $0.tags.count > 0 && $0.tags[0] == accent }) { same($0.tags.first, accent) },
    Case(#Predicate { $0.tags.count > 1 && $0.tags[0..<2].contains("b") }) {
      $0.tags.count > 1 && $0.tags[0..<2].contains { same($0, "b") }
    },
    Case(#Predicate { page in words.contains { $0 == page.title } }) { page in words.contains { same($0, page.title) }
    },
    Case(#Predicate { page in words.allSatisfy { $0 < page.title } }) { page in
      words.allSatisfy { less($0, page.title) }
    },
    Case(#Predicate { page in page.tags.contains { $0 > page.title } }) { page in
      page.tags.contains { less(page.title, $0) }
    },
  ]

  private static let numbers: [Case] = [
    Case(#Predicate { !$0.numbers.contains(1) }) { !$0.numbers.contains(1) },
    Case(#Predicate { $0.numbers.isEmpty }) { $0.numbers.isEmpty },
    Case(#Predicate { $0.numbers.count == 2 }) { $0.numbers.count == 2 },
    Case(#Predicate { $0.numbers == pair }) { $0.numbers == pair },
    Case(#Predicate { $0.numbers.contains { $0 > 2 } }) { $0.numbers.contains { $0 > 2 } },
    Case(#Predicate { $0.numbers.allSatisfy { $0 < 2 } }) { $0.numbers.allSatisfy { $0 < 2 } },
    Case(#Predicate { $0.numbers.max() == 3 }) { $0.numbers.max() == 3 },
    Case(#Predicate { ($0.numbers.min() ?? 9) == 0 }) { $0.numbers.min() == 0 },
    Case(#Predicate { $0.numbers.filter { $0 % 2 == 0 }.count == 1 }) { $0.numbers.filter { $0 % 2 == 0 }.count == 1 },
    Case(#Predicate { $0.numbers.contains($0.stars) }) { $0.numbers.contains($0.stars) },
    Case(#Predicate { $0.numbers.contains($0.clamped) }) { $0.numbers.contains($0.clamped) },
    Case(#Predicate { $0.lengths["title"] != nil }) { _ in true },
    Case(#Predicate { ($0.lengths["title"] ?? 0) > 1 }) { $0.title.utf8.count > 1 },
    Case(#Predicate { $0.lengths.count == 1 }) { _ in true },
  ]

  private static let references: [Case] = [
    Case(#Predicate { $0.folder == nil }) { $0.folder == nil },
    Case(#Predicate { $0.folder != nil }) { $0.folder != nil },
    Case(#Predicate { $0.folder != folder }) { $0.folder?.id != "f1" },
    Case(#Predicate { folder == $0.folder }) { $0.folder?.id == "f1" },
    Case(#Predicate { $0.folder?.id != "f0" }) { $0.folder?.id != "f0" },
    Case(#Predicate { $0.folder == folder && $0.price > 0 }) { $0.folder?.id == "f1" && $0.price > 0 },
    Case(#Predicate { $0.parent == parent }) { $0.parent?.id == "f1" },
    Case(#Predicate { $0.parent != parent }) { $0.parent?.id != "f1" },
    Case(#Predicate { $0.parent == nil }) { $0.parent == nil },
    Case(#Predicate { $0.parent?.id == "f0" }) { $0.parent?.id == "f0" },
    Case(#Predicate { $0.parent == parent || $0.folder == folder }) { $0.parent?.id == "f1" || $0.folder?.id == "f1" },
  ]

  private static let places: [Case] = [
    Case(#Predicate { $0.place == nil }) { $0.place == nil },
    Case(#Predicate { $0.place != nil }) { $0.place != nil },
    Case(#Predicate { $0.place == place }) { $0.place == place },
    Case(#Predicate { $0.place?.floor == 1 }) { $0.place?.floor == 1 },
    Case(#Predicate { ($0.place?.floor ?? 0) > 0 }) { ($0.place?.floor ?? 0) > 0 },
    Case(#Predicate { $0.place?.city.isEmpty == true }) { $0.place?.city.isEmpty == true },
    Case(#Predicate { $0.place?.city == accent }) { same($0.place?.city, accent) },
  ]
}
