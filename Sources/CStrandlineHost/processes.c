// The environment and signals of this process: calls that the system modules do not import into Swift, and a signal
// handler, which cannot be written in Swift.
#define _GNU_SOURCE
#include "CStrandlineHost.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <malloc.h>
#endif

#if defined(__APPLE__)
#include <TargetConditionals.h>
#if TARGET_OS_OSX
#include <crt_externs.h>
char **strandline_environment(void) { return *_NSGetEnviron(); }
#else
static char *no_environment[] = {NULL};
char **strandline_environment(void) { return no_environment; }
#endif
#else
extern char **environ;
char **strandline_environment(void) { return environ; }
#endif

// Written once before the handler is installed.
static volatile int interrupt_descriptor = -1;

static void on_interrupt(int number) {
  int saved = errno;
  unsigned char byte = (unsigned char)number;
  // The write fails only if the pipe is full, because no thread reads it. A signal handler cannot report this.
  if (write(interrupt_descriptor, &byte, 1) < 0) { }
  errno = saved;
}

int strandline_catch_interrupts(int descriptor) {
  interrupt_descriptor = descriptor;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  if (sigaction(SIGINT, &action, NULL) != 0) return errno;
  if (sigaction(SIGTERM, &action, NULL) != 0) return errno;
  return 0;
}

void strandline_return_large_blocks(void) {
#if defined(__GLIBC__)
  // A value that is set stays: by itself it grows to 32 MB with the blocks that are freed, and whatever is smaller then is
  // kept for the thread that had it.
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}
