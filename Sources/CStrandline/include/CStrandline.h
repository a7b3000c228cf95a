// The whole C surface that the library links: what Swift cannot express, and nothing else. What only the command and
// its proofs need is in CStrandlineHost.
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

/// Names the calling thread for debuggers; names that are too long are cut.
void strandline_name_thread(const char *name);

#endif
