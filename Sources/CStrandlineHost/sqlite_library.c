// Finds SQLite's library and the functions that are used of it, once in a process.
#include "sqlite_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

struct sqlite_functions strandline_sqlite_functions;
static int is_loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// Returns 1 if the library has every function.
static int find_functions(void *library) {
  if (!library) return 0;
#define FIND(name)                                                        \
  do {                                                                    \
    void *symbol = dlsym(library, "sqlite3_" #name);                      \
    if (!symbol) return 0;                                                \
    memcpy(&strandline_sqlite_functions.name, &symbol, sizeof symbol);    \
  } while (0)
  FIND(open_v2);
  FIND(close_v2);
  FIND(prepare_v2);
  FIND(step);
  FIND(reset);
  FIND(finalize);
  FIND(bind_blob);
  FIND(bind_text);
  FIND(bind_int64);
  FIND(column_count);
  FIND(column_int);
  FIND(column_int64);
  FIND(column_blob);
  FIND(column_bytes);
  FIND(column_text);
  FIND(errmsg);
  FIND(libversion);
#undef FIND
  return 1;
}

static void load(void) {
  static const char *const names[] = {"libsqlite3.so.0", "libsqlite3.dylib", "libsqlite3.so"};
  for (size_t i = 0; !is_loaded && i < sizeof names / sizeof *names; i++)
    is_loaded = find_functions(dlopen(names[i], RTLD_NOW | RTLD_LOCAL));
}

int strandline_sqlite_load_library(void) {
  pthread_once(&once, load);
  return is_loaded;
}
