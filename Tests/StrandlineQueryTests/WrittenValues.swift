// Conditions on numbers, dates and enums, as an app writes them, each beside the same closure.

import Foundation

private let (largest, none, infinity) = (Int.max, Double.nan, Double.infinity)
private let (calm, wild, low, high) = (Mood.calm, Mood.wild, Level.low, Level.high)
private let (note, list, other) = (Kind.note, Kind.list, Kind.other)
private let (day, later) = (Date(timeIntervalSince1970: 1), Date(timeIntervalSince1970: 3))
private let due = Date(timeIntervalSince1970: 1.001)
private let (key, quarter, one) = (Page.keys[0], Float(0.25), Float(1))
private let (fromHalf, belowHalf, fromDay) = (0.5..., ..<0.5, day...)

enum WrittenValues {
  static let cases = integers + sums + doubles + unordered + flags + enums + dates + smalls + others

  private static let integers: [Case] = [
    Case(#Predicate { $0.stars == 3 }) { $0.stars == 3 },
    Case(#Predicate { 3 == $0.stars }) { $0.stars == 3 },
    Case(#Predicate { $0.stars != 2 }) { $0.stars != 2 },
    Case(#Predicate { $0.stars < 0 }) { $0.stars < 0 },
    Case(#Predicate { 0 >= $0.stars }) { $0.stars <= 0 },
    Case(#Predicate { $0.stars == largest }) { $0.stars == .max },
    Case(#Predicate { largest > $0.stars }) { $0.stars < .max },
    Case(#Predicate { ![0, 1].contains($0.stars) }) { $0.stars != 0 && $0.stars != 1 },
    Case(#Predicate { $0.stars > 0 && $0.stars < 3 }) { $0.stars > 0 && $0.stars < 3 },
    Case(#Predicate { $0.stars == 1 || $0.stars == 4 }) { $0.stars == 1 || $0.stars == 4 },
    Case(#Predicate { !($0.stars > 2) }) { $0.stars <= 2 },
    Case(#Predicate { (0..<1).contains($0.stars) }) { $0.stars == 0 },
    Case(#Predicate { ($0.clamped...9).contains($0.stars) }) { $0.stars >= $0.clamped && $0.stars <= 9 },
    Case(#Predicate { $0.stars == $0.clamped }) { $0.stars == $0.clamped },
    Case(#Predicate { $0.stars > $0.clamped }) { $0.stars > $0.clamped },
    Case(#Predicate { $0.clamped < 3 }) { $0.clamped < 3 },
    Case(#Predicate { $0.clamped != 0 }) { $0.clamped != 0 },
  ]

  private static let sums: [Case] = [
    Case(#Predicate { $0.stars - 2 > 0 }) { $0.stars > 2 },
    Case(#Predicate { $0.stars < 100 && $0.stars + 1 == 3 }) { $0.stars == 2 },
    Case(#Predicate { $0.stars < 100 && $0.stars * 2 > 5 }) { $0.stars < 100 && $0.stars > 2 },
    Case(#Predicate { $0.stars < 100 && $0.stars * $0.stars == 1 }) { $0.stars == 1 || $0.stars == -1 },
    Case(#Predicate { $0.stars / 3 == 0 }) { $0.stars / 3 == 0 },
    Case(#Predicate { $0.stars % 3 == 0 }) { $0.stars % 3 == 0 },
    Case(#Predicate { -$0.stars == 1 }) { $0.stars == -1 },
    Case(#Predicate { $0.clamped + $0.clamped == 4 }) { $0.clamped == 2 },
    Case(#Predicate { $0.isDone ? $0.stars == 1 : $0.clamped == 1 }) { $0.isDone ? $0.stars == 1 : $0.clamped == 1 },
  ]

  private static let doubles: [Case] = [
    Case(#Predicate { $0.price == 0 }) { $0.price == 0 },
    Case(#Predicate { $0.price < 0 }) { $0.price < 0 },
    Case(#Predicate { 0 <= $0.price }) { $0.price >= 0 },
    Case(#Predicate { $0.price != 0.5 }) { $0.price != 0.5 },
    Case(#Predicate { 2.5 == $0.price }) { $0.price == 2.5 },
    Case(#Predicate { (0...1).contains($0.price) }) { $0.price >= 0 && $0.price <= 1 },
    Case(#Predicate { fromHalf.contains($0.price) }) { $0.price >= 0.5 },
    Case(#Predicate { belowHalf.contains($0.price) }) { $0.price < 0.5 },
    Case(#Predicate { [0.5, 2.5].contains($0.price) }) { $0.price == 0.5 || $0.price == 2.5 },
    Case(#Predicate { -$0.price == 0.5 }) { $0.price == -0.5 },
    Case(#Predicate { $0.price + 1 > 2 }) { $0.price + 1 > 2 },
    Case(#Predicate { $0.price * $0.price == 0.25 }) { $0.price * $0.price == 0.25 },
  ]

  /// What a number that is none, and one without an end, makes of a comparison.
  private static let unordered: [Case] = [
    Case(#Predicate { $0.price != none }) { _ in true },
    Case(#Predicate { $0.price == none }) { _ in false },
    Case(#Predicate { [none, 1].contains($0.price) }) { $0.price == 1 },
    Case(#Predicate { $0.price <= infinity }) { !$0.price.isNaN },
    Case(#Predicate { $0.price > -infinity }) { $0.price > -.infinity },
    Case(#Predicate { $0.price < infinity }) { $0.price < .infinity },
    Case(#Predicate { $0.price - $0.price == 0 }) { $0.price.isFinite },
    Case(#Predicate { $0.price / $0.price == 1 }) { $0.price.isFinite && $0.price != 0 },
    Case(#Predicate { !($0.price > 0) }) { !($0.price > 0) },
    Case(#Predicate { !($0.price <= 0.5) }) { !($0.price <= 0.5) },
    Case(#Predicate { $0.price == $0.price }) { !$0.price.isNaN },
  ]

  private static let flags: [Case] = [
    Case(#Predicate { $0.isDone == false }) { !$0.isDone },
    Case(#Predicate { $0.isDone != true }) { !$0.isDone },
    Case(#Predicate { !(!$0.isDone) }) { $0.isDone },
    Case(#Predicate { true == $0.isDone }) { $0.isDone },
    Case(#Predicate { $0.isDone && !$0.title.isEmpty }) { $0.isDone && !$0.title.isEmpty },
    Case(#Predicate { $0.isDone == ($0.stars > 1) }) { $0.isDone == ($0.stars > 1) },
    Case(#Predicate { $0.isDone || $0.price < 1 }) { $0.isDone || $0.price < 1 },
    Case(#Predicate { !($0.isDone && $0.stars > 1) }) { !($0.isDone && $0.stars > 1) },
    Case(#Predicate { _ in false }) { _ in false },
  ]

  private static let enums: [Case] = [
    Case(#Predicate { wild == $0.mood }) { $0.mood == .wild },
    Case(#Predicate { [calm, wild].contains($0.mood) }) { $0.mood != .none },
    Case(#Predicate { $0.level != high }) { $0.level == .low },
    Case(#Predicate { low == $0.level }) { $0.level == .low },
    Case(#Predicate { $0.level.rawValue > 5 }) { $0.level == .high },
    Case(#Predicate { $0.kind != other }) { $0.kind != .other },
    Case(#Predicate { $0.kind == note }) { $0.kind == .note },
    Case(#Predicate { [note, list].contains($0.kind) }) { $0.kind != .other },
    Case(#Predicate { $0.mood == wild && $0.title.starts(with: "a") }) { $0.mood == .wild && begins($0.title, "a") },
    Case(#Predicate { $0.level == high && $0.kind == note }) { $0.level == .high && $0.kind == .note },
  ]

  private static let dates: [Case] = [
    Case(#Predicate { day < $0.made }) { $0.made > day },
    Case(#Predicate { $0.made != day }) { $0.made != day },
    Case(#Predicate { (day...later).contains($0.made) }) { $0.made >= day && $0.made <= later },
    Case(#Predicate { (day..<later).contains($0.made) }) { $0.made >= day && $0.made < later },
    Case(#Predicate { fromDay.contains($0.made) }) { $0.made >= day },
    Case(#Predicate { $0.made >= later }) { $0.made >= later },
    Case(#Predicate { [day, later].contains($0.made) }) { $0.made == day || $0.made == later },
    Case(#Predicate { !($0.made < day) }) { $0.made >= day },
    Case(#Predicate { $0.due == due }) { $0.due == due },
    Case(#Predicate { $0.due != due }) { $0.due != due },
    Case(#Predicate { $0.due == nil }) { $0.due == nil },
    Case(#Predicate { ($0.due ?? day) < $0.made }) { ($0.due ?? day) < $0.made },
    Case(#Predicate { if let due = $0.due { due > day } else { true } }) { $0.due.map { $0 > day } ?? true },
    Case(#Predicate { $0.due == nil && $0.rating == nil }) { $0.due == nil && $0.rating == nil },
  ]

  private static let smalls: [Case] = [
    Case(#Predicate { $0.small == nil }) { $0.small == nil },
    Case(#Predicate { $0.small != nil }) { $0.small != nil },
    Case(#Predicate { ($0.small ?? 7) > 100 }) { ($0.small ?? 7) > 100 },
    Case(#Predicate { $0.small != 0 }) { $0.small != 0 },
    Case(#Predicate { [0, 200].contains($0.small ?? 1) }) { $0.small == 0 || $0.small == 200 },
    Case(#Predicate { $0.small.flatMap { $0 / 2 } == 100 }) { $0.small == 200 },
    Case(#Predicate { $0.small == 1 || $0.small == nil }) { $0.small == 1 || $0.small == nil },
    Case(#Predicate { $0.rating == nil }) { $0.rating == nil },
    Case(#Predicate { $0.rating != 0.25 }) { $0.rating != 0.25 },
    Case(#Predicate { $0.rating == 0 }) { $0.rating == 0 },
    Case(#Predicate { ($0.rating ?? 0) > 0.2 }) { ($0.rating ?? 0) > 0.2 },
    Case(#Predicate { ($0.rating ?? 1) * 4 == 1 }) { $0.rating == 0.25 },
    Case(#Predicate { (quarter...one).contains($0.rating ?? 0) }) { (quarter...one).contains($0.rating ?? 0) },
  ]

  private static let others: [Case] = [
    Case(#Predicate { $0.key == nil }) { $0.key == nil },
    Case(#Predicate { $0.key != key }) { $0.key != key },
    Case(#Predicate { key == $0.key }) { $0.key == key },
    Case(#Predicate { [key].contains($0.key ?? key) }) { $0.key == nil || $0.key == key },
  ]
}
