// What a benchmark measures besides time: the load of the machine and the peak of resident memory.
#define _GNU_SOURCE
#include "CStrandlineHost.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

double strandline_load_average(void) {
  double average[1];
  return getloadavg(average, 1) == 1 ? average[0] : -1;
}

#if defined(__linux__)
int strandline_reset_peak(void) {
  // proc(5): writing 5 to clear_refs sets VmHWM to the current resident size.
  int descriptor = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  int is_done = write(descriptor, "5", 1) == 1;
  close(descriptor);
  return is_done;
}

int64_t strandline_peak_bytes(void) {
  char text[4096];
  int descriptor = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  ssize_t count = descriptor < 0 ? 0 : read(descriptor, text, sizeof text - 1);
  if (descriptor >= 0) close(descriptor);
  text[count > 0 ? count : 0] = 0;
  const char *line = strstr(text, "VmHWM:");
  return line ? strtoll(line + 6, NULL, 10) * 1024 : 0;
}
#else
int strandline_reset_peak(void) { return 0; }

int64_t strandline_peak_bytes(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss : 0;
}
#endif
