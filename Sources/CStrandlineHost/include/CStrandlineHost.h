// The C functions of the command, its proofs and its benchmarks, which no app links: environment, signals, SQLite as
// the database to compare with, load and memory of this process.
#ifndef CSTRANDLINEHOST_H
#define CSTRANDLINEHOST_H

#include <stddef.h>
#include <stdint.h>

/// The environment of this process, as execve(2) takes it.
char **strandline_environment(void);

/// Installs a handler with which the first SIGINT and the first SIGTERM write their number as one byte to
/// `descriptor`. A second signal of the same number has its default effect and ends the process. Returns 0 or an errno.
int strandline_catch_interrupts(int descriptor);

/// From now on the system's allocator gives a large block that is freed back to the system. Has no effect with another
/// allocator than glibc's.
void strandline_return_large_blocks(void);

// SQLite, if it is installed, for comparison in benchmarks.

/// Loads the SQLite library. Returns its version, or NULL if it is not installed.
const char *strandline_sqlite_load(void);

/// Opens the database at `path`, and creates it if it is missing, with a table of numbered bodies. Sets journal mode
/// WAL and synchronous FULL, and reads both settings back. Returns 0 and fills in `message` if this fails. Only one
/// thread at a time may use the connection.
intptr_t strandline_sqlite_open(const char *path, char *message, size_t capacity);

/// Inserts the body `times` times in one transaction, which is durable when this returns. Returns 0 or SQLite's
/// result code.
int strandline_sqlite_insert(intptr_t handle, const void *body, size_t count, size_t times);

/// Returns the length of the body that was inserted last, or -1 if there is none or it cannot be read.
int strandline_sqlite_last(intptr_t handle);

/// Closes the connection.
void strandline_sqlite_close(intptr_t handle);

/// Opens the database at `path` as `strandline_sqlite_open` does, with a table of records: id, type, rank, body, and an
/// index on the type.
intptr_t strandline_sqlite_records_open(const char *path, char *message, size_t capacity);

// Of these, each returns 0 or SQLite's result code, unless it says otherwise.

/// Begins a transaction.
int strandline_sqlite_begin(intptr_t handle);

/// Commits the transaction, which is durable when this returns.
int strandline_sqlite_commit(intptr_t handle);

/// Makes an index on type and rank.
int strandline_sqlite_index_ranks(intptr_t handle);

/// Inserts a record, or replaces the one with this ID.
int strandline_sqlite_save(
    intptr_t handle, const char *id, const char *type, int64_t rank, const void *body, size_t count);

/// Asks for the record with an ID. `strandline_sqlite_next` returns it.
int strandline_sqlite_find(intptr_t handle, const char *id);

/// Asks for the first `limit` IDs of a type from `low` to below `high`, in order.
int strandline_sqlite_list(intptr_t handle, const char *type, const char *low, const char *high, size_t limit);

/// Asks for the first `limit` records of a type with at least this rank, in the order of their ranks.
int strandline_sqlite_range(intptr_t handle, const char *type, int64_t rank, size_t limit);

/// Steps to the next row of what was asked for last. Returns 1, or 0 after the last row, or a negated result code. It
/// must be called until it does not return 1.
int strandline_sqlite_next(intptr_t handle);

/// A column of the row, which SQLite keeps until the next call of `strandline_sqlite_next`.
const char *strandline_sqlite_text(intptr_t handle, int column);
int64_t strandline_sqlite_integer(intptr_t handle, int column);
const void *strandline_sqlite_blob(intptr_t handle, int column, size_t *count);

/// Closes the connection.
void strandline_sqlite_records_close(intptr_t handle);
// SQLite, if it is installed, as an app's own database.

/// Loads the SQLite library. Returns 1, or 0 if it is not installed.
int strandline_database_load(void);

/// Opens the database at `path`, and creates it if it is missing. Returns 0 and fills in `message` if this fails.
intptr_t strandline_database_open(const char *path, char *message, size_t capacity);

/// Closes the connection. A transaction that is open is rolled back.
void strandline_database_close(intptr_t database);

/// Returns what went wrong in the last call, until the next one.
const char *strandline_database_message(intptr_t database);

/// Prepares a statement. Returns 0 if this fails.
intptr_t strandline_database_prepare(intptr_t database, const char *text);

/// Binds a copy of UTF-8 text to a parameter, counted from 1. Returns 0 or SQLite's result code.
int strandline_database_bind(intptr_t statement, int index, const char *text, size_t count);

/// Runs the statement to its next row. Returns 100 if there is one, 101 at the end, else SQLite's result code.
int strandline_database_step(intptr_t statement);

/// Returns how many columns its rows have.
int strandline_database_columns(intptr_t statement);

/// Returns a column of the row as UTF-8 text with its length, NULL for a null. Valid until the next call.
const char *strandline_database_text(intptr_t statement, int column, size_t *count);

/// Ends the statement.
void strandline_database_finalize(intptr_t statement);

/// Returns the load average of the last minute, or a negative number if the system has none.
double strandline_load_average(void);

/// Resets the peak of resident memory to what is resident now. Returns 1, or 0 if the system cannot reset it.
int strandline_reset_peak(void);

/// Returns the peak of resident memory in bytes since the process began, or since the last successful reset.
int64_t strandline_peak_bytes(void);

#endif
