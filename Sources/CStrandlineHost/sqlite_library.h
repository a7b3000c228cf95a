// The functions of SQLite that are used here, found in its library at run time. It is never linked, and the prototypes
// are declared here, so that a build needs neither its library nor its header. The constants are those of its public
// interface, which is stable.
#ifndef SQLITE_LIBRARY_H
#define SQLITE_LIBRARY_H

#include <stdint.h>

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

enum {
  ok = 0,
  row = 100,
  done = 101,
  open_readwrite = 2,
  open_create = 4,
  open_nomutex = 0x8000,
  open_fullmutex = 0x10000,
};

struct sqlite_functions {
  int (*open_v2)(const char *, sqlite3 **, int, const char *);
  int (*close_v2)(sqlite3 *);
  int (*prepare_v2)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
  int (*step)(sqlite3_stmt *);
  int (*reset)(sqlite3_stmt *);
  int (*finalize)(sqlite3_stmt *);
  int (*bind_blob)(sqlite3_stmt *, int, const void *, int, void (*)(void *));
  int (*bind_text)(sqlite3_stmt *, int, const char *, int, void (*)(void *));
  int (*bind_int64)(sqlite3_stmt *, int, int64_t);
  int (*column_count)(sqlite3_stmt *);
  int (*column_int)(sqlite3_stmt *, int);
  int64_t (*column_int64)(sqlite3_stmt *, int);
  const void *(*column_blob)(sqlite3_stmt *, int);
  int (*column_bytes)(sqlite3_stmt *, int);
  const unsigned char *(*column_text)(sqlite3_stmt *, int);
  const char *(*errmsg)(sqlite3 *);
  const char *(*libversion)(void);
};

/// The functions, after `strandline_sqlite_load_library` returned 1.
extern struct sqlite_functions strandline_sqlite_functions;
static const struct sqlite_functions *const sqlite = &strandline_sqlite_functions;

/// Loads the library, unless it is loaded. Returns 1, or 0 if it is not installed or lacks a function. Safe to call from
/// every thread.
int strandline_sqlite_load_library(void);

#endif
