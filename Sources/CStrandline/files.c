// Reserves disk space for a file: calls that the system modules do not import into Swift, one function for each OS.
#define _GNU_SOURCE
#include "CStrandline.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__APPLE__)
int strandline_preallocate(int descriptor, int64_t offset, int64_t length) {
  // fcntl(2), F_PREALLOCATE reserves space from the physical end of the file and leaves the size unchanged, so
  // ftruncate sets it.
  struct stat now;
  if (fstat(descriptor, &now) != 0) return errno;
  int64_t end = offset + length;
  if (end <= now.st_size) return 0;
  fstore_t store = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, end - now.st_size, 0};
  if (fcntl(descriptor, F_PREALLOCATE, &store) == -1) return errno;
  if (ftruncate(descriptor, end) != 0) return errno;
  return 0;
}
#elif defined(__linux__)
int strandline_preallocate(int descriptor, int64_t offset, int64_t length) {
  // fallocate(2), mode 0, reserves the space and sets the size. A file system without it returns EOPNOTSUPP.
  int result;
  do result = fallocate(descriptor, 0, offset, length);
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}
#else
int strandline_preallocate(int descriptor, int64_t offset, int64_t length) {
  (void)descriptor; (void)offset; (void)length;
  return ENOTSUP;
}
#endif
