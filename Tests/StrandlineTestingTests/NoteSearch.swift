// The worked example of the documentation: full text search over notes, as a projection in an SQLite file. What stands
// between the two marks is on the page Projections, letter by letter; SQLite itself is loaded by StrandlineHost, which an
// app has its own library for.

import Strandline
import StrandlineHost

// Example begins
/// Full text search over notes, in an SQLite file beside the store.
final class NoteSearch: Projection {
  let name = "note search"
  private let database: SQLiteDatabase

  init(path: String) throws {
    database = try SQLiteDatabase(path: path)
    try database.run("PRAGMA journal_mode = WAL")
    try database.run("PRAGMA synchronous = FULL")
    try database.run("CREATE TABLE IF NOT EXISTS notes(number INTEGER PRIMARY KEY, id TEXT UNIQUE, title TEXT)")
    try database.run(
      "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(title, content = notes, content_rowid = number)")
    try database.run("CREATE TABLE IF NOT EXISTS applied(position TEXT)")
  }

  func appliedPosition() throws -> LogPosition? {
    guard let row = try database.run("SELECT position FROM applied").first, let text = row[0] else { return nil }
    return try LogPosition(text: text)
  }

  func apply(_ batch: ProjectionBatch) throws {
    try database.run("BEGIN IMMEDIATE")
    do {
      if batch.beginsAnew {
        try database.run("INSERT INTO words(words) VALUES('delete-all')")
        try database.run("DELETE FROM notes")
      }
      for id in batch.deleted { try remove(id) }
      for record in batch.saved {
        try remove(record.id)
        guard record.type == "Note", case .string(let title)? = record["title"] else { continue }
        try database.run("INSERT INTO notes(id, title) VALUES(?, ?)", "\(record.id)", title)
        try database.run("INSERT INTO words(rowid, title) VALUES(last_insert_rowid(), ?)", title)
      }
      // In the same transaction: after a crash both are there, or neither.
      try database.run("DELETE FROM applied")
      if let position = batch.position { try database.run("INSERT INTO applied VALUES(?)", "\(position)") }
      try database.run("COMMIT")
    } catch {
      // SQLite may have rolled it back already. If this fails too, the end of the connection does it.
      do { try database.run("ROLLBACK") } catch {}
      throw error
    }
  }

  private func remove(_ id: RecordID) throws {
    let found = "FROM notes WHERE id = ?"
    try database.run("INSERT INTO words(words, rowid, title) SELECT 'delete', number, title \(found)", "\(id)")
    try database.run("DELETE \(found)", "\(id)")
  }

  /// The notes whose title has the words.
  func notes(matching words: String) throws -> [RecordID] {
    let query = "SELECT id FROM notes WHERE number IN (SELECT rowid FROM words WHERE words MATCH ?) ORDER BY id"
    return try database.run(query, words).compactMap { row in try row[0].map { try RecordID(text: $0) } }
  }
}
// Example ends
