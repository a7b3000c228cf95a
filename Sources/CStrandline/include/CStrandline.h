// All C functions that the library links: only what Swift cannot express. Those that only the command and its proofs
// need are in CStrandlineHost.
#ifndef CSTRANDLINE_H
#define CSTRANDLINE_H

#include <stddef.h>
#include <stdbool.h>
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

/// The number that `strandline_set_locks_held` has set on the calling thread; 0 on a new one.
uint64_t strandline_locks_held(void);
void strandline_set_locks_held(uint64_t places);

/// What `strandline_set_asking` has set on the calling thread; false on a new one.
bool strandline_is_asking(void);
void strandline_set_asking(bool is_asking);

/// Names the calling thread for debuggers. Only the first 15 bytes are used.
void strandline_name_thread(const char *name);

#if !defined(__APPLE__)

// TLS over memory, by the system's OpenSSL, which is found at run time. A library stays loaded; a context may make sessions on any
// thread; one thread at a time may use a session.

/// What the calls of a session return instead of a number above 0: more bytes of the peer are needed; the peer has ended the
/// session as TLS asks for (close_notify); the session has failed, and is not to be used again.
enum { STRANDLINE_TLS_WAITS = 0, STRANDLINE_TLS_ENDED = -1, STRANDLINE_TLS_FAILED = -2 };

/// Loads a library by its name, "libssl.so.3", with every function that is used here. Returns 0 and fills in `problem` if there is
/// no such library or it lacks one.
intptr_t strandline_tls_load(const char *name, char *problem, size_t capacity);

/// Makes what the sessions of one trust have in common: TLS 1.2 at least, without compression and renegotiation, with certificates
/// of the authorities in a PEM file, or for NULL of those that the system trusts. Returns 0 and fills in `problem` if this fails.
intptr_t strandline_tls_context(intptr_t library, const char *authorities, char *problem, size_t capacity);

/// Frees it. Its sessions stay valid.
void strandline_tls_context_free(intptr_t context);

/// Makes a session with a server, whose certificate must be for `name`, or if that is NULL for the literal `address`. Returns 0 if
/// neither can be one.
intptr_t strandline_tls_session(intptr_t context, const char *name, const char *address);

/// Frees it.
void strandline_tls_session_free(intptr_t session);

/// Hands over bytes that came from the peer. Returns 1, or 0 if there is no memory for them.
int strandline_tls_feed(intptr_t session, const void *bytes, size_t count);

/// Moves bytes that are to be sent to the peer to `bytes`, and returns how many; 0 if there are none.
size_t strandline_tls_drain(intptr_t session, void *bytes, size_t capacity);

/// Goes on with the handshake. Returns 1 when it is done and the certificate is good.
long strandline_tls_handshake(intptr_t session);

/// Reads decrypted bytes and returns how many.
long strandline_tls_read(intptr_t session, void *bytes, size_t capacity);

/// Encrypts bytes, which `strandline_tls_drain` then returns, and returns how many.
long strandline_tls_write(intptr_t session, const void *bytes, size_t count);

/// Encrypts the end of the session (close_notify).
void strandline_tls_shutdown(intptr_t session);

/// Why the session has failed, and whether it is the server's certificate that was refused. The words live as long as the library.
const char *strandline_tls_problem(intptr_t session, int *is_untrusted);

#endif

#endif
