// The pages of Formats, read as data: headings, tables, and blocks of bytes. What a page says in words is not checked
// but people; what it says in a table is held against the code.

/// A page.
struct Page: Sendable {
  struct Table: Sendable {
    /// The heading above it, without its marks.
    var heading: String
    var columns: [String]
    var rows: [[String]]

    /// The cells of a column, by name.
    func column(_ name: String) throws -> [String] {
      guard let index = columns.firstIndex(of: name) else {
        throw PageError("the table below '\(heading)' has no column '\(name)'")
      }
      return rows.map { $0[index] }
    }
  }

  struct Block: Sendable {
    /// What stands behind the three marks.
    var info: String
    var lines: [String]
  }

  let name: String
  let lines: [String]
  private(set) var tables: [Table] = []
  private(set) var blocks: [Block] = []

  /// The text with single spaces and no line ends: a sentence may be broken anywhere.
  var sentences: String {
    lines.joined(separator: " ").split(separator: " ").joined(separator: " ")
  }

  init(_ name: String) throws { self.init(name, try Repository.text("Formats/\(name)")) }

  init(_ name: String, _ text: String) {
    self.name = name
    lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    var heading = ""
    var block: Block?
    var isInTable = false
    for line in lines {
      if line.hasPrefix("```") {
        if let finished = block {
          blocks.append(finished)
          block = nil
        } else {
          block = Block(info: String(line.dropFirst(3)), lines: [])
        }
        continue
      }
      guard block == nil else {
        block?.lines.append(line)
        continue
      }
      if line.hasPrefix("#") { heading = line.drop { $0 == "#" || $0 == " " }.filter { $0 != "`" } }
      guard line.hasPrefix("|") else {
        isInTable = false
        continue
      }
      let cells = line.split(separator: "|", omittingEmptySubsequences: false).dropFirst().dropLast()
        .map { Page.plain(String($0)) }
      if !isInTable {
        tables.append(Table(heading: heading, columns: cells, rows: []))
        isInTable = true
      } else if !cells.allSatisfy({ $0.allSatisfy { $0 == "-" } && !$0.isEmpty }) {
        tables[tables.count - 1].rows.append(cells)
      }
    }
  }

  /// A cell without code marks and outer spaces.
  private static func plain(_ cell: String) -> String {
    var rest = cell.filter { $0 != "`" }[...]
    while rest.last == " " { rest.removeLast() }
    return String(rest.drop { $0 == " " })
  }

  /// The table below a heading that has all of these columns.
  func table(_ heading: String, _ columns: String...) throws -> Table {
    guard
      let table = tables.first(where: { table in
        table.heading == heading && columns.allSatisfy { table.columns.contains($0) }
      })
    else { throw PageError("\(name) has no table of \(columns) below '\(heading)'") }
    return table
  }

  /// The first table with all of these columns.
  func table(columns: String...) throws -> Table {
    guard let table = tables.first(where: { table in columns.allSatisfy { table.columns.contains($0) } })
    else { throw PageError("\(name) has no table of \(columns)") }
    return table
  }

  /// The bytes of the hex blocks with these words behind their marks, with their offsets.
  func hexRows(_ info: String) throws -> [(offset: Int, bytes: [UInt8])] {
    let found = blocks.filter { $0.info == "hex \(info)" }
    guard !found.isEmpty else { throw PageError("\(name) has no block of the bytes of \(info)") }
    return found.flatMap(Self.hexRows)
  }

  /// The bytes of a hex block, with their offsets.
  static func hexRows(_ block: Block) -> [(offset: Int, bytes: [UInt8])] {
    block.lines.compactMap { line in
      let words = line.split(separator: " ")
      guard let first = words.first, first.count == 4, !line.hasPrefix(" "), let offset = Int(first, radix: 16)
      else { return nil }
      // Sixteen columns of two digits and a space, from column 6 on; what follows is words.
      let column = line.dropFirst(6).prefix(47)
      return (offset, column.split(separator: " ").compactMap { UInt8($0, radix: 16) })
    }
  }
}

/// A page that does not say what it should.
struct PageError: Error, CustomStringConvertible {
  var description: String
  init(_ description: String) { self.description = description }
}

/// A number as a page writes it: decimal.
func number(_ cell: String) throws -> Int {
  guard let value = Int(cell) else { throw PageError("'\(cell)' is no number") }
  return value
}
