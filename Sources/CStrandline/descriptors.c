// Close-on-exec descriptors, their limit, and thread names: calls that the system modules do not import into Swift, or that have
// another name on each system.
#define _GNU_SOURCE
#include "CStrandline.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int strandline_pipe(int ends[2]) {
#if defined(__linux__)
  return pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
#else
  // This system has no pipe2(2). A child that another thread spawns between pipe and fcntl inherits the descriptors.
  if (pipe(ends) != 0) return errno;
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  return 0;
#endif
}

int strandline_accept(int listener) {
#if defined(__linux__)
  int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return descriptor >= 0 ? descriptor : -errno;
#else
  int descriptor = accept(listener, NULL, NULL);
  if (descriptor < 0) return -errno;
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  return descriptor;
#endif
}

void strandline_name_thread(const char *name) {
  char cut[16];
  strncpy(cut, name, sizeof cut - 1);
  cut[sizeof cut - 1] = 0;
#if defined(__APPLE__)
  pthread_setname_np(cut);
#else
  pthread_setname_np(pthread_self(), cut);
#endif
}

int64_t strandline_descriptor_limit(int64_t wanted) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur != RLIM_INFINITY && (int64_t)limit.rlim_cur < wanted) {
    struct rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max == RLIM_INFINITY || (int64_t)limit.rlim_max > wanted ? (rlim_t)wanted
                                                                                            : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > (rlim_t)INT32_MAX ? INT32_MAX : (int64_t)limit.rlim_cur;
}
