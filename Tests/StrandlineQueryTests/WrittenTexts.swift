// Conditions on texts, as an app writes them, each beside the same closure.

import Foundation

private let (accent, decomposed, wide, high) = ("é", "e\u{301}", "\u{FF5E}", "\u{10FFFF}")
private let (plain, letters, shelf, fromPlain) = ("a", ["a", "é", "none"], ["p101", "p105"], "a"...)

enum WrittenTexts {
  static let cases = order + parts + places + optionals

  private static let order: [Case] = [
    Case(#Predicate { accent == $0.title }) { same($0.title, accent) },
    Case(#Predicate { $0.title == accent }) { same($0.title, accent) },
    Case(#Predicate { $0.title != accent }) { !same($0.title, accent) },
    Case(#Predicate { decomposed != $0.title }) { !same($0.title, decomposed) },
    Case(#Predicate { $0.title == high }) { same($0.title, high) },
    Case(#Predicate { $0.title == "" }) { $0.title.utf8.isEmpty },
    Case(#Predicate { $0.title >= wide }) { !less($0.title, wide) },
    Case(#Predicate { $0.title < high }) { less($0.title, high) },
    Case(#Predicate { $0.title <= accent }) { !less(accent, $0.title) },
    Case(#Predicate { wide > $0.title }) { less($0.title, wide) },
    Case(#Predicate { "L" < $0.title }) { less("L", $0.title) },
    Case(#Predicate { accent >= $0.title }) { !less(accent, $0.title) },
    Case(#Predicate { ("b"...high).contains($0.title) }) { !less($0.title, "b") && !less(high, $0.title) },
    Case(#Predicate { ("L"..<"Z").contains($0.title) }) { !less($0.title, "L") && less($0.title, "Z") },
    Case(#Predicate { fromPlain.contains($0.title) }) { !less($0.title, plain) },
    Case(#Predicate { letters.contains($0.title) }) { page in letters.contains { same($0, page.title) } },
    Case(#Predicate { !["a", "b"].contains($0.title) }) { !same($0.title, "a") && !same($0.title, "b") },
    Case(#Predicate { [decomposed, high].contains($0.title) }) { same($0.title, decomposed) || same($0.title, high) },
    Case(#Predicate { !($0.title < "b") }) { !less($0.title, "b") },
    Case(#Predicate { $0.title > $0.shout }) { less($0.shout, $0.title) },
  ]

  private static let parts: [Case] = [
    Case(#Predicate { !$0.title.isEmpty }) { !$0.title.isEmpty },
    Case(#Predicate { $0.title.starts(with: "") }) { _ in true },
    Case(#Predicate { $0.title.starts(with: accent) }) { begins($0.title, accent) },
    // The accent on its own comes after the letter.
    Case(#Predicate { $0.title.starts(with: "e") }) { begins($0.title, "e") },
    Case(#Predicate { !$0.title.starts(with: "a") }) { !begins($0.title, "a") },
    Case(#Predicate { $0.title.contains("") }) { _ in true },
    Case(#Predicate { $0.title.contains("ab") }) { has($0.title, "ab") },
    Case(#Predicate { $0.title.contains(accent) }) { has($0.title, accent) },
    Case(#Predicate { $0.title.contains("\u{301}") }) { has($0.title, "\u{301}") },
    Case(#Predicate { !$0.title.contains("o") }) { !has($0.title, "o") },
    Case(#Predicate { $0.title.contains(/^L./) }) { $0.title.contains(/^L./) },
    Case(#Predicate { $0.title.count == 0 }) { $0.title.isEmpty },
    Case(#Predicate { $0.title.count < 2 }) { $0.title.count < 2 },
    Case(#Predicate { $0.shout.starts(with: "L") }) { begins($0.shout, "L") },
    Case(#Predicate { $0.shout == "É" }) { same($0.shout, "É") },
    Case(#Predicate { $0.title == $0.shout }) { same($0.title, $0.shout) },
    Case(#Predicate { $0.kind.rawValue == "note" }) { $0.kind == .note },
    Case(#Predicate { $0.kind.rawValue < $0.mood.rawValue }) { less($0.kind.rawValue, $0.mood.rawValue) },
  ]

  private static let places: [Case] = [
    Case(#Predicate { $0.id.starts(with: "p10") }) { begins($0.id, "p10") },
    Case(#Predicate { $0.id >= "p105" && $0.id < "p108" }) { $0.id >= "p105" && $0.id < "p108" },
    Case(#Predicate { !shelf.contains($0.id) }) { !shelf.contains($0.id) },
    Case(#Predicate { shelf.contains($0.id) && $0.stars > -2 }) { shelf.contains($0.id) },
    Case(#Predicate { $0.id != $0.title }) { $0.id != $0.title },
    Case(#Predicate { $0.id == "p101" || $0.title == "a" }) { $0.id == "p101" || same($0.title, "a") },
  ]

  private static let optionals: [Case] = [
    Case(#Predicate { $0.body == accent }) { same($0.body, accent) },
    Case(#Predicate { $0.body != plain }) { !same($0.body, plain) },
    Case(#Predicate { plain == $0.body }) { same($0.body, plain) },
    Case(#Predicate { $0.body == "" }) { same($0.body, "") },
    Case(#Predicate { nil == $0.body }) { $0.body == nil },
    Case(#Predicate { ($0.body ?? "") < "b" }) { less($0.body ?? "", "b") },
    Case(#Predicate { ($0.body ?? high) >= wide }) { !less($0.body ?? high, wide) },
    Case(#Predicate { ($0.body ?? "").isEmpty }) { ($0.body ?? "").isEmpty },
    Case(#Predicate { ($0.body ?? $0.title) == "a" }) { same($0.body ?? $0.title, "a") },
    Case(#Predicate { $0.body?.isEmpty == true }) { $0.body?.isEmpty == true },
    Case(#Predicate { $0.body?.isEmpty != false }) { $0.body?.isEmpty != false },
    Case(#Predicate { $0.body?.count == 1 }) { $0.body?.count == 1 },
    Case(#Predicate { $0.body?.contains("b") == true }) { $0.body.map { has($0, "b") } ?? false },
    Case(#Predicate { if let body = $0.body { body > "a" } else { false } }) { $0.body.map { less("a", $0) } ?? false },
    Case(#Predicate { if let body = $0.body { body == decomposed } else { $0.isDone } }) {
      $0.body.map { same($0, decomposed) } ?? $0.isDone
    },
    Case(#Predicate { $0.body != nil && $0.body! == "a" }) { same($0.body, "a") },
    Case(#Predicate { $0.body == nil ? $0.isDone : !$0.isDone }) { $0.body == nil ? $0.isDone : !$0.isDone },
  ]
}
