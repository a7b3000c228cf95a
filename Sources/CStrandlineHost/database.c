// SQLite as an app uses it: statements with bound text in, rows of text out. Loaded at run time and never linked, as in
// sqlite.c, which has the settings and statements of the benchmarks.
#include "CStrandlineHost.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

enum { ok = 0, open_readwrite = 2, open_create = 4, open_fullmutex = 0x10000 };

static struct {
  int (*open_v2)(const char *, sqlite3 **, int, const char *);
  int (*close_v2)(sqlite3 *);
  int (*prepare_v2)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
  int (*step)(sqlite3_stmt *);
  int (*finalize)(sqlite3_stmt *);
  int (*bind_text)(sqlite3_stmt *, int, const char *, int, void (*)(void *));
  int (*column_count)(sqlite3_stmt *);
  int (*column_bytes)(sqlite3_stmt *, int);
  const unsigned char *(*column_text)(sqlite3_stmt *, int);
  const char *(*errmsg)(sqlite3 *);
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
  FIND(finalize);
  FIND(bind_text);
  FIND(column_count);
  FIND(column_bytes);
  FIND(column_text);
  FIND(errmsg);
#undef FIND
  return 1;
}

int strandline_database_load(void) {
  static const char *const names[] = {"libsqlite3.so.0", "libsqlite3.dylib", "libsqlite3.so"};
  for (size_t i = 0; !sqlite.is_loaded && i < sizeof names / sizeof *names; i++)
    sqlite.is_loaded = load(dlopen(names[i], RTLD_NOW | RTLD_LOCAL));
  return sqlite.is_loaded;
}

intptr_t strandline_database_open(const char *path, char *message, size_t capacity) {
  sqlite3 *database = NULL;
  if (sqlite.open_v2(path, &database, open_readwrite | open_create | open_fullmutex, NULL) == ok)
    return (intptr_t)database;
  snprintf(message, capacity, "%s", database ? sqlite.errmsg(database) : "out of memory");
  sqlite.close_v2(database);
  return 0;
}

void strandline_database_close(intptr_t database) { sqlite.close_v2((sqlite3 *)database); }

const char *strandline_database_message(intptr_t database) { return sqlite.errmsg((sqlite3 *)database); }

intptr_t strandline_database_prepare(intptr_t database, const char *text) {
  sqlite3_stmt *statement = NULL;
  if (sqlite.prepare_v2((sqlite3 *)database, text, -1, &statement, NULL) != ok) return 0;
  return (intptr_t)statement;
}

int strandline_database_bind(intptr_t statement, int index, const char *text, size_t count) {
  // -1 is SQLITE_TRANSIENT: SQLite copies the text.
  return sqlite.bind_text((sqlite3_stmt *)statement, index, text, (int)count, (void (*)(void *))(intptr_t)-1);
}

int strandline_database_step(intptr_t statement) { return sqlite.step((sqlite3_stmt *)statement); }

int strandline_database_columns(intptr_t statement) { return sqlite.column_count((sqlite3_stmt *)statement); }

const char *strandline_database_text(intptr_t statement, int column, size_t *count) {
  // In this order: the conversion to text decides the length.
  const char *text = (const char *)sqlite.column_text((sqlite3_stmt *)statement, column);
  *count = (size_t)sqlite.column_bytes((sqlite3_stmt *)statement, column);
  return text;
}

void strandline_database_finalize(intptr_t statement) { sqlite.finalize((sqlite3_stmt *)statement); }
