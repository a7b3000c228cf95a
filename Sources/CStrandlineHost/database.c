// SQLite as an app uses it: statements with bound text in, rows of text out.
#include "CStrandlineHost.h"
#include "sqlite_library.h"

#include <stdio.h>

int strandline_database_load(void) { return strandline_sqlite_load_library(); }

intptr_t strandline_database_open(const char *path, char *message, size_t capacity) {
  sqlite3 *database = NULL;
  if (sqlite->open_v2(path, &database, open_readwrite | open_create | open_fullmutex, NULL) == ok)
    return (intptr_t)database;
  snprintf(message, capacity, "%s", database ? sqlite->errmsg(database) : "out of memory");
  sqlite->close_v2(database);
  return 0;
}

void strandline_database_close(intptr_t database) { sqlite->close_v2((sqlite3 *)database); }

const char *strandline_database_message(intptr_t database) { return sqlite->errmsg((sqlite3 *)database); }

intptr_t strandline_database_prepare(intptr_t database, const char *text) {
  sqlite3_stmt *statement = NULL;
  if (sqlite->prepare_v2((sqlite3 *)database, text, -1, &statement, NULL) != ok) return 0;
  return (intptr_t)statement;
}

int strandline_database_bind(intptr_t statement, int index, const char *text, size_t count) {
  // -1 is SQLITE_TRANSIENT: SQLite copies the text.
  return sqlite->bind_text((sqlite3_stmt *)statement, index, text, (int)count, (void (*)(void *))(intptr_t)-1);
}

int strandline_database_step(intptr_t statement) { return sqlite->step((sqlite3_stmt *)statement); }

int strandline_database_columns(intptr_t statement) { return sqlite->column_count((sqlite3_stmt *)statement); }

const char *strandline_database_text(intptr_t statement, int column, size_t *count) {
  // In this order: the conversion to text decides the length.
  const char *text = (const char *)sqlite->column_text((sqlite3_stmt *)statement, column);
  *count = (size_t)sqlite->column_bytes((sqlite3_stmt *)statement, column);
  return text;
}

void strandline_database_finalize(intptr_t statement) { sqlite->finalize((sqlite3_stmt *)statement); }
