// The whole C surface of Strandline: what Swift cannot express, and nothing else.
#ifndef CSTRANDLINE_H
#define CSTRANDLINE_H

#include <stddef.h>
#include <stdint.h>

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, init and xorout 0xFFFFFFFF) of `count`
/// bytes, continuing from `crc` (0 to begin). By instruction where the CPU has it, by table elsewhere.
uint32_t strandline_crc32c(uint32_t crc, const void *bytes, size_t count);

/// The same by table alone; exists so that a test can hold the two against each other.
uint32_t strandline_crc32c_table(uint32_t crc, const void *bytes, size_t count);

/// Reserves space for bytes `offset ..< offset + length` and sets the file's size to at least that end.
/// Returns 0, or an errno. ENOTSUP where the file system cannot.
int strandline_preallocate(int descriptor, int64_t offset, int64_t length);

/// A pipe whose both ends are closed on exec from the first moment: `ends[0]` reads. 0, or an errno.
int strandline_pipe(int ends[2]);

/// accept(2), the new descriptor closed on exec and not blocking. Returns it, or minus an errno.
int strandline_accept(int listener);

/// The environment of this process, as execve(2) takes it.
char **strandline_environment(void);

/// Names the calling thread for debuggers; names that are too long are cut.
void strandline_name_thread(const char *name);

/// From now on the first SIGINT and the first SIGTERM write their number as one byte to `descriptor`; a second
/// one of a kind ends the process as ever. 0, or an errno.
int strandline_catch_interrupts(int descriptor);

/// A hint that this thread only waits for a change in memory.
void strandline_pause(void);

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
