// All C functions that the library links: only what Swift cannot express. Those that only the command and its proofs
// need are in CStrandlineHost.
#ifndef CSTRANDLINE_H
#define CSTRANDLINE_H

#include <stddef.h>
#include <stdint.h>

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, init and xorout 0xFFFFFFFF) of `count`
/// bytes, continuing from `crc` (0 to begin). Uses the CPU's instruction if there is one, else a table.
uint32_t strandline_crc32c(uint32_t crc, const void *bytes, size_t count);

/// The same checksum of two numbers, little-endian, and the `count` bytes behind them: one call for what seeds a
/// checksum and what it covers.
uint32_t strandline_crc32c_behind(uint32_t first, uint32_t second, const void *bytes, size_t count);

/// The same checksum, always by table, so that a test can compare the two implementations.
uint32_t strandline_crc32c_table(uint32_t crc, const void *bytes, size_t count);

/// Takes `blocks` blocks of 64 bytes into the state of a SHA-256. Uses the CPU's instructions if it has them.
void strandline_sha256(uint32_t state[8], const void *bytes, size_t blocks);

/// The same without those instructions, so that a test can compare the two implementations.
void strandline_sha256_arithmetic(uint32_t state[8], const void *bytes, size_t blocks);

/// Reserves disk space for bytes `offset ..< offset + length` and sets the file's size to at least
/// `offset + length`. Returns 0 or an errno; ENOTSUP or EOPNOTSUPP if the file system cannot reserve space.
int strandline_preallocate(int descriptor, int64_t offset, int64_t length);

/// Makes a pipe whose ends are both close-on-exec (set atomically on Linux only). `ends[0]` is the end to read from.
/// Returns 0 or an errno.
int strandline_pipe(int ends[2]);

/// accept(2), with the new descriptor close-on-exec and non-blocking. Returns the descriptor, or a negated errno.
int strandline_accept(int listener);

/// Raises the number of descriptors that this process may have to `wanted`, as far as the system permits it, and returns
/// the number that it may have now; 0 if the system does not tell. With 0 it only asks.
int64_t strandline_descriptor_limit(int64_t wanted);

/// Names the calling thread for debuggers. Only the first 15 bytes are used.
void strandline_name_thread(const char *name);

#endif
