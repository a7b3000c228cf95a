// Preloaded into the client, so that its TLS trusts the certificates in $JUDGE_CERTIFICATES instead of the system's.
//
// FoundationNetworking on Linux reads the system's file and offers no setting to name another one (its environment
// variable URLSessionCertificateAuthorityInfoFile works on Android only). A judge must not change the system's file.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *replaced(const char *path) {
  static const char *const bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/usr/share/ssl/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
  };
  const char *own = getenv("JUDGE_CERTIFICATES");
  if (own == NULL || path == NULL) return path;
  for (size_t i = 0; i < sizeof bundles / sizeof *bundles; i++) {
    if (strcmp(path, bundles[i]) == 0) return own;
  }
  return path;
}

typedef FILE *opener(const char *, const char *);

FILE *fopen(const char *path, const char *mode) {
  opener *next = (opener *)dlsym(RTLD_NEXT, "fopen");
  return next == NULL ? NULL : next(replaced(path), mode);
}

FILE *fopen64(const char *path, const char *mode) {
  opener *next = (opener *)dlsym(RTLD_NEXT, "fopen64");
  return next == NULL ? NULL : next(replaced(path), mode);
}
