// SQLite as the database that benchmarks compare with: with settings under which its transactions are durable.
#include "CStrandlineHost.h"
#include "sqlite_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *strandline_sqlite_load(void) { return strandline_sqlite_load_library() ? sqlite->libversion() : NULL; }

struct peer {
  sqlite3 *database;
  sqlite3_stmt *insert, *begin, *commit, *last;
};

static int run(sqlite3 *database, const char *text) {
  sqlite3_stmt *statement;
  int code = sqlite->prepare_v2(database, text, -1, &statement, NULL);
  if (code != ok) return code;
  do code = sqlite->step(statement);
  while (code == row);
  sqlite->finalize(statement);
  return code == done ? ok : code;
}

// Opens a database in journal mode WAL with synchronous FULL. Returns 0, or -1 and fills in `message`; `*database` may
// then be open.
static int open_durable(const char *path, sqlite3 **database, char *message, size_t capacity) {
  if (sqlite->open_v2(path, database, open_readwrite | open_create | open_nomutex, NULL) != ok) goto failed;
  if (run(*database, "PRAGMA journal_mode=WAL") != ok) goto failed;
  if (run(*database, "PRAGMA synchronous=FULL") != ok) goto failed;
  // Both settings are read back, because a build of SQLite may override them, and then the benchmark would measure
  // transactions that are not durable.
  sqlite3_stmt *statement;
  if (sqlite->prepare_v2(*database, "PRAGMA journal_mode", -1, &statement, NULL) != ok) goto failed;
  const unsigned char *mode = sqlite->step(statement) == row ? sqlite->column_text(statement, 0) : NULL;
  int is_wal = mode && strcmp((const char *)mode, "wal") == 0;
  sqlite->finalize(statement);
  if (sqlite->prepare_v2(*database, "PRAGMA synchronous", -1, &statement, NULL) != ok) goto failed;
  int strength = sqlite->step(statement) == row ? sqlite->column_int(statement, 0) : -1;
  sqlite->finalize(statement);
  if (is_wal && strength == 2) return 0;
  snprintf(message, capacity, "journal_mode is %s and synchronous is %d, not WAL and FULL", is_wal ? "WAL" : "another",
           strength);
  return -1;
failed:
  snprintf(message, capacity, "%s", *database ? sqlite->errmsg(*database) : "out of memory");
  return -1;
}

// Returns 0, or -1 and fills in `message`.
static int prepare(struct peer *peer, const char *path, char *message, size_t capacity) {
  if (open_durable(path, &peer->database, message, capacity) != 0) return -1;
  if (run(peer->database, "CREATE TABLE IF NOT EXISTS log(id INTEGER PRIMARY KEY, body BLOB)") == ok &&
      sqlite->prepare_v2(peer->database, "INSERT INTO log(body) VALUES(?1)", -1, &peer->insert, NULL) == ok &&
      sqlite->prepare_v2(peer->database, "BEGIN IMMEDIATE", -1, &peer->begin, NULL) == ok &&
      sqlite->prepare_v2(peer->database, "COMMIT", -1, &peer->commit, NULL) == ok &&
      sqlite->prepare_v2(
          peer->database, "SELECT length(body) FROM log ORDER BY id DESC LIMIT 1", -1, &peer->last, NULL) == ok)
    return 0;
  snprintf(message, capacity, "%s", sqlite->errmsg(peer->database));
  return -1;
}

intptr_t strandline_sqlite_open(const char *path, char *message, size_t capacity) {
  struct peer *peer = calloc(1, sizeof *peer);
  if (!peer) {
    snprintf(message, capacity, "out of memory");
    return 0;
  }
  if (prepare(peer, path, message, capacity) == 0) return (intptr_t)peer;
  strandline_sqlite_close((intptr_t)peer);
  return 0;
}

static int step(sqlite3_stmt *statement) {
  int code = sqlite->step(statement);
  sqlite->reset(statement);
  return code == done ? ok : code;
}

int strandline_sqlite_insert(intptr_t handle, const void *body, size_t count, size_t times) {
  struct peer *peer = (struct peer *)handle;
  // NULL is SQLITE_STATIC: SQLite does not copy the body, which the caller keeps unchanged until this returns.
  int code = sqlite->bind_blob(peer->insert, 1, body, (int)count, NULL);
  if (code != ok) return code;
  if (times == 1) return step(peer->insert);
  if ((code = step(peer->begin)) != ok) return code;
  for (size_t i = 0; i < times; i++)
    if ((code = step(peer->insert)) != ok) return code;
  return step(peer->commit);
}

int strandline_sqlite_last(intptr_t handle) {
  struct peer *peer = (struct peer *)handle;
  int length = sqlite->step(peer->last) == row ? sqlite->column_int(peer->last, 0) : -1;
  sqlite->reset(peer->last);
  return length;
}

void strandline_sqlite_close(intptr_t handle) {
  struct peer *peer = (struct peer *)handle;
  sqlite->finalize(peer->insert);
  sqlite->finalize(peer->begin);
  sqlite->finalize(peer->commit);
  sqlite->finalize(peer->last);
  sqlite->close_v2(peer->database);
  free(peer);
}

// Records.

struct records {
  sqlite3 *database;
  sqlite3_stmt *begin, *commit, *save, *get, *list, *range;
  // The statement whose rows `strandline_sqlite_next` returns.
  sqlite3_stmt *current;
};

static const char *const schema[] = {
    "CREATE TABLE IF NOT EXISTS records(id TEXT PRIMARY KEY, type TEXT NOT NULL, rank INTEGER, body BLOB NOT NULL)",
    "CREATE INDEX IF NOT EXISTS by_type ON records(type)",
};

// Returns 0, or -1 and fills in `message`.
static int prepare_records(struct records *records, const char *path, char *message, size_t capacity) {
  if (open_durable(path, &records->database, message, capacity) != 0) return -1;
  const struct {
    const char *text;
    sqlite3_stmt **statement;
  } statements[] = {
      {"BEGIN IMMEDIATE", &records->begin},
      {"COMMIT", &records->commit},
      {"INSERT INTO records VALUES(?1, ?2, ?3, ?4) ON CONFLICT(id) DO UPDATE SET type = ?2, rank = ?3, body = ?4",
       &records->save},
      {"SELECT id, type, rank, body FROM records WHERE id = ?1", &records->get},
      // The plus sign keeps the index of types out: then the names come in their order, and the first hundred of them
      // are found without sorting all.
      {"SELECT id FROM records WHERE +type = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT ?4", &records->list},
      {"SELECT id, type, rank, body FROM records WHERE type = ?1 AND rank >= ?2 ORDER BY rank LIMIT ?3",
       &records->range},
  };
  int code = ok;
  for (size_t i = 0; code == ok && i < sizeof schema / sizeof *schema; i++) code = run(records->database, schema[i]);
  for (size_t i = 0; code == ok && i < sizeof statements / sizeof *statements; i++)
    code = sqlite->prepare_v2(records->database, statements[i].text, -1, statements[i].statement, NULL);
  if (code == ok) return 0;
  snprintf(message, capacity, "%s", sqlite->errmsg(records->database));
  return -1;
}

intptr_t strandline_sqlite_records_open(const char *path, char *message, size_t capacity) {
  struct records *records = calloc(1, sizeof *records);
  if (!records) {
    snprintf(message, capacity, "out of memory");
    return 0;
  }
  if (prepare_records(records, path, message, capacity) == 0) return (intptr_t)records;
  strandline_sqlite_records_close((intptr_t)records);
  return 0;
}

int strandline_sqlite_begin(intptr_t handle) { return step(((struct records *)handle)->begin); }

int strandline_sqlite_commit(intptr_t handle) { return step(((struct records *)handle)->commit); }

int strandline_sqlite_index_ranks(intptr_t handle) {
  return run(
      ((struct records *)handle)->database, "CREATE INDEX IF NOT EXISTS by_rank ON records(type, rank)");
}

int strandline_sqlite_save(
    intptr_t handle, const char *id, const char *type, int64_t rank, const void *body, size_t count) {
  sqlite3_stmt *save = ((struct records *)handle)->save;
  int code;
  // As above: what is bound stays unchanged until this returns.
  if ((code = sqlite->bind_text(save, 1, id, -1, NULL)) != ok) return code;
  if ((code = sqlite->bind_text(save, 2, type, -1, NULL)) != ok) return code;
  if ((code = sqlite->bind_int64(save, 3, rank)) != ok) return code;
  if ((code = sqlite->bind_blob(save, 4, body, (int)count, NULL)) != ok) return code;
  return step(save);
}

// SQLITE_TRANSIENT: SQLite copies the text, which need not outlive the call.
static void (*const transient)(void *) = (void (*)(void *))(intptr_t)-1;

int strandline_sqlite_find(intptr_t handle, const char *id) {
  struct records *records = (struct records *)handle;
  records->current = records->get;
  return sqlite->bind_text(records->current, 1, id, -1, transient);
}

int strandline_sqlite_list(intptr_t handle, const char *type, const char *low, const char *high, size_t limit) {
  struct records *records = (struct records *)handle;
  records->current = records->list;
  int code;
  if ((code = sqlite->bind_text(records->current, 1, type, -1, transient)) != ok) return code;
  if ((code = sqlite->bind_text(records->current, 2, low, -1, transient)) != ok) return code;
  if ((code = sqlite->bind_text(records->current, 3, high, -1, transient)) != ok) return code;
  return sqlite->bind_int64(records->current, 4, (int64_t)limit);
}

int strandline_sqlite_range(intptr_t handle, const char *type, int64_t rank, size_t limit) {
  struct records *records = (struct records *)handle;
  records->current = records->range;
  int code;
  if ((code = sqlite->bind_text(records->current, 1, type, -1, transient)) != ok) return code;
  if ((code = sqlite->bind_int64(records->current, 2, rank)) != ok) return code;
  return sqlite->bind_int64(records->current, 3, (int64_t)limit);
}

int strandline_sqlite_next(intptr_t handle) {
  struct records *records = (struct records *)handle;
  int code = sqlite->step(records->current);
  if (code == row) return 1;
  sqlite->reset(records->current);
  return code == done ? 0 : -code;
}

const char *strandline_sqlite_text(intptr_t handle, int column) {
  return (const char *)sqlite->column_text(((struct records *)handle)->current, column);
}

int64_t strandline_sqlite_integer(intptr_t handle, int column) {
  return sqlite->column_int64(((struct records *)handle)->current, column);
}

const void *strandline_sqlite_blob(intptr_t handle, int column, size_t *count) {
  sqlite3_stmt *current = ((struct records *)handle)->current;
  const void *bytes = sqlite->column_blob(current, column);
  *count = bytes ? (size_t)sqlite->column_bytes(current, column) : 0;
  return bytes;
}

void strandline_sqlite_records_close(intptr_t handle) {
  struct records *records = (struct records *)handle;
  sqlite3_stmt *statements[] = {
      records->begin, records->commit, records->save, records->get, records->list, records->range,
  };
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) sqlite->finalize(statements[i]);
  sqlite->close_v2(records->database);
  free(records);
}
