// SQLite as the database that benchmarks compare with. It is loaded at run time and never linked, and the prototypes
// are declared here, so that a build needs neither its library nor its header. The constants are those of its public
// interface, which is stable.
#include "CStrandlineHost.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

enum { ok = 0, row = 100, done = 101, open_readwrite = 2, open_create = 4, open_nomutex = 0x8000 };

static struct {
  int (*open_v2)(const char *, sqlite3 **, int, const char *);
  int (*close_v2)(sqlite3 *);
  int (*prepare_v2)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
  int (*step)(sqlite3_stmt *);
  int (*reset)(sqlite3_stmt *);
  int (*finalize)(sqlite3_stmt *);
  int (*bind_blob)(sqlite3_stmt *, int, const void *, int, void (*)(void *));
  int (*column_int)(sqlite3_stmt *, int);
  const unsigned char *(*column_text)(sqlite3_stmt *, int);
  const char *(*errmsg)(sqlite3 *);
  const char *(*version)(void);
  int is_loaded;
} sqlite;

static int load(void *library) {
  if (!library) return 0;
#define FIND(name)                                                        \
  do {                                                                    \
    void *symbol = dlsym(library, "sqlite3_" #name);                      \
    if (!symbol) return 0;                                                \
    memcpy(&sqlite.name, &symbol, sizeof symbol);                         \
  } while (0)
  FIND(open_v2);
  FIND(close_v2);
  FIND(prepare_v2);
  FIND(step);
  FIND(reset);
  FIND(finalize);
  FIND(bind_blob);
  FIND(column_int);
  FIND(column_text);
  FIND(errmsg);
#undef FIND
  void *symbol = dlsym(library, "sqlite3_libversion");
  if (!symbol) return 0;
  memcpy(&sqlite.version, &symbol, sizeof symbol);
  sqlite.is_loaded = 1;
  return 1;
}

const char *strandline_sqlite_load(void) {
  static const char *const names[] = {"libsqlite3.so.0", "libsqlite3.dylib", "libsqlite3.so"};
  for (size_t i = 0; !sqlite.is_loaded && i < sizeof names / sizeof *names; i++)
    load(dlopen(names[i], RTLD_NOW | RTLD_LOCAL));
  return sqlite.is_loaded ? sqlite.version() : NULL;
}

struct peer {
  sqlite3 *database;
  sqlite3_stmt *insert, *begin, *commit, *last;
};

static int run(struct peer *peer, const char *text) {
  sqlite3_stmt *statement;
  int code = sqlite.prepare_v2(peer->database, text, -1, &statement, NULL);
  if (code != ok) return code;
  do code = sqlite.step(statement);
  while (code == row);
  sqlite.finalize(statement);
  return code == done ? ok : code;
}

// Returns 0, or -1 and fills in `message`.
static int prepare(struct peer *peer, const char *path, char *message, size_t capacity) {
  if (sqlite.open_v2(path, &peer->database, open_readwrite | open_create | open_nomutex, NULL) != ok) goto failed;
  if (run(peer, "PRAGMA journal_mode=WAL") != ok) goto failed;
  if (run(peer, "PRAGMA synchronous=FULL") != ok) goto failed;
  if (run(peer, "CREATE TABLE IF NOT EXISTS log(id INTEGER PRIMARY KEY, body BLOB)") != ok) goto failed;
  // Both settings are read back, because a build of SQLite may override them, and then the benchmark would measure
  // transactions that are not durable.
  sqlite3_stmt *statement;
  if (sqlite.prepare_v2(peer->database, "PRAGMA journal_mode", -1, &statement, NULL) != ok) goto failed;
  const unsigned char *mode = sqlite.step(statement) == row ? sqlite.column_text(statement, 0) : NULL;
  int is_wal = mode && strcmp((const char *)mode, "wal") == 0;
  sqlite.finalize(statement);
  if (sqlite.prepare_v2(peer->database, "PRAGMA synchronous", -1, &statement, NULL) != ok) goto failed;
  int strength = sqlite.step(statement) == row ? sqlite.column_int(statement, 0) : -1;
  sqlite.finalize(statement);
  if (!is_wal || strength != 2) {
    snprintf(message, capacity, "journal_mode is %s and synchronous is %d, not WAL and FULL",
             is_wal ? "WAL" : "another", strength);
    return -1;
  }
  if (sqlite.prepare_v2(peer->database, "INSERT INTO log(body) VALUES(?1)", -1, &peer->insert, NULL) != ok ||
      sqlite.prepare_v2(peer->database, "BEGIN IMMEDIATE", -1, &peer->begin, NULL) != ok ||
      sqlite.prepare_v2(peer->database, "COMMIT", -1, &peer->commit, NULL) != ok ||
      sqlite.prepare_v2(
          peer->database, "SELECT length(body) FROM log ORDER BY id DESC LIMIT 1", -1, &peer->last, NULL) != ok)
    goto failed;
  return 0;
failed:
  snprintf(message, capacity, "%s", peer->database ? sqlite.errmsg(peer->database) : "out of memory");
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
  int code = sqlite.step(statement);
  sqlite.reset(statement);
  return code == done ? ok : code;
}

int strandline_sqlite_insert(intptr_t handle, const void *body, size_t count, size_t times) {
  struct peer *peer = (struct peer *)handle;
  // NULL is SQLITE_STATIC: SQLite does not copy the body, which the caller keeps unchanged until this returns.
  int code = sqlite.bind_blob(peer->insert, 1, body, (int)count, NULL);
  if (code != ok) return code;
  if (times == 1) return step(peer->insert);
  if ((code = step(peer->begin)) != ok) return code;
  for (size_t i = 0; i < times; i++)
    if ((code = step(peer->insert)) != ok) return code;
  return step(peer->commit);
}

int strandline_sqlite_last(intptr_t handle) {
  struct peer *peer = (struct peer *)handle;
  int length = sqlite.step(peer->last) == row ? sqlite.column_int(peer->last, 0) : -1;
  sqlite.reset(peer->last);
  return length;
}

void strandline_sqlite_close(intptr_t handle) {
  struct peer *peer = (struct peer *)handle;
  sqlite.finalize(peer->insert);
  sqlite.finalize(peer->begin);
  sqlite.finalize(peer->commit);
  sqlite.finalize(peer->last);
  sqlite.close_v2(peer->database);
  free(peer);
}
