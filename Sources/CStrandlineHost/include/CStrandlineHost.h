// The C surface of the command, its proofs and its benchmarks, which no app links: the environment, signals, SQLite as
// a peer, and measures of this process.
#ifndef CSTRANDLINEHOST_H
#define CSTRANDLINEHOST_H

#include <stddef.h>
#include <stdint.h>

/// The environment of this process, as execve(2) takes it.
char **strandline_environment(void);

/// From now on the first SIGINT and the first SIGTERM write their number as one byte to `descriptor`; a second
/// one of a kind ends the process as ever. 0, or an errno.
int strandline_catch_interrupts(int descriptor);

// SQLite, where the machine has it, as a peer in benchmarks.

/// Looks for the library. Its version, or NULL if it is not there. Not to be called by two threads at once.
const char *strandline_sqlite_load(void);

/// A connection to the database at `path`, made if it is not there: a table of numbered bodies, WAL, synchronous
/// FULL, both read back. 0 and a message if that is not to be had. Of one thread at a time.
intptr_t strandline_sqlite_open(const char *path, char *message, size_t capacity);

/// Inserts a body `times` times in one transaction, which is durable when this returns. 0, or SQLite's code.
int strandline_sqlite_insert(intptr_t handle, const void *body, size_t count, size_t times);

/// The length of the last body; -1 if there is none or it cannot be read.
int strandline_sqlite_last(intptr_t handle);

void strandline_sqlite_close(intptr_t handle);

/// The system's count of runnable threads over the last minute; negative if it does not say.
double strandline_load_average(void);

/// Forgets how much memory was resident, so that the next peak is that of what follows. 0 if the system cannot.
int strandline_forget_peak(void);

/// The most bytes that were resident since the process began, or since the peak was forgotten.
int64_t strandline_peak_bytes(void);

#endif
