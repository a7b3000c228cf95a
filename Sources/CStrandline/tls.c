// TLS over memory, by the system's OpenSSL. The library is found when the first `https:` request needs it; the caller moves the
// bytes between a session and its socket.
#if !defined(__APPLE__)

#include "CStrandline.h"
#include "tls_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tls_context {
  const struct tls_library *library;
  void *ssl_context;
};

struct tls_session {
  const struct tls_library *library;
  void *ssl;
  // What came from the peer and what is to be sent to it. Both belong to `ssl`.
  void *incoming, *outgoing;
  const char *problem;
  int is_untrusted;
};

intptr_t strandline_tls_load(const char *name, char *problem, size_t capacity) {
  void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *words = dlerror();
    snprintf(problem, capacity, "%s", words ? words : name);
    return 0;
  }
  // Kept for the life of the process, as the library is.
  struct tls_library *library = calloc(1, sizeof *library);
  if (!library) {
    snprintf(problem, capacity, "out of memory");
    return 0;
  }
  // A library's handle finds the functions of those that it needs too: libcrypto's are found by libssl's.
#define FIND(result, function, parameters)                                  \
  do {                                                                      \
    void *symbol = dlsym(handle, #function);                                \
    if (!symbol) {                                                          \
      snprintf(problem, capacity, "%s has no function " #function, name);   \
      free(library);                                                        \
      return 0;                                                             \
    }                                                                       \
    memcpy(&library->function, &symbol, sizeof symbol);                     \
  } while (0);
  TLS_FUNCTIONS(FIND)
#undef FIND
  // A process may end while threads of it are still at work: what the library would tear down then, they use.
  library->OPENSSL_init_crypto(INIT_NO_ATEXIT, NULL);
  return (intptr_t)library;
}

// The reason of the first error in this thread's queue, which is emptied.
static const char *first_reason(const struct tls_library *library) {
  unsigned long code = library->ERR_get_error();
  library->ERR_clear_error();
  const char *words = code ? library->ERR_reason_error_string(code) : NULL;
  return words ? words : "no reason was given";
}

static void set_options(const struct tls_library *library, void *ssl_context) {
  unsigned long options = OPTION_NO_COMPRESSION | OPTION_NO_RENEGOTIATION;
  if (library->OpenSSL_version_num() >= VERSION_3) {
    library->SSL_CTX_set_options(ssl_context, options);
  } else {
    // Version 1.1 takes an unsigned long, which is not as wide on every machine.
    unsigned long (*narrow)(void *, unsigned long);
    memcpy(&narrow, &library->SSL_CTX_set_options, sizeof narrow);
    narrow(ssl_context, options);
  }
}

intptr_t strandline_tls_context(intptr_t handle, const char *authorities, char *problem, size_t capacity) {
  const struct tls_library *library = (const struct tls_library *)handle;
  library->ERR_clear_error();
  struct tls_context *context = calloc(1, sizeof *context);
  void *ssl_context = library->SSL_CTX_new(library->TLS_client_method());
  if (!context || !ssl_context) {
    snprintf(problem, capacity, "%s", context ? first_reason(library) : "out of memory");
    if (ssl_context) library->SSL_CTX_free(ssl_context);
    free(context);
    return 0;
  }
  context->library = library;
  context->ssl_context = ssl_context;
  set_options(library, ssl_context);
  library->SSL_CTX_ctrl(ssl_context, ctrl_mode, mode_auto_retry, NULL);
  library->SSL_CTX_set_verify(ssl_context, verify_peer, NULL);
  int is_set = library->SSL_CTX_ctrl(ssl_context, ctrl_set_min_version, version_1_2, NULL) == 1;
  // The default paths are those of the system's library, or what SSL_CERT_FILE and SSL_CERT_DIR name.
  is_set = is_set && (authorities ? library->SSL_CTX_load_verify_locations(ssl_context, authorities, NULL)
                                  : library->SSL_CTX_set_default_verify_paths(ssl_context)) == 1;
  if (!is_set) {
    snprintf(problem, capacity, "%s", first_reason(library));
    strandline_tls_context_free((intptr_t)context);
    return 0;
  }
  // A missing default file is no error, but leaves one in the queue.
  library->ERR_clear_error();
  return (intptr_t)context;
}

void strandline_tls_context_free(intptr_t handle) {
  struct tls_context *context = (struct tls_context *)handle;
  context->library->SSL_CTX_free(context->ssl_context);
  free(context);
}

// Names the server in the handshake, and demands a certificate for it. Returns 1, or 0 if the name cannot be used.
static int expect_server(const struct tls_library *library, void *ssl, const char *name, const char *address) {
  void *parameters = library->SSL_get0_param(ssl);
  if (address) return library->X509_VERIFY_PARAM_set1_ip_asc(parameters, address) == 1;
  library->X509_VERIFY_PARAM_set_hostflags(parameters, host_no_partial_wildcards | host_never_subject);
  return library->X509_VERIFY_PARAM_set1_host(parameters, name, 0) == 1 &&
         library->SSL_ctrl(ssl, ctrl_set_host_name, 0, (void *)(uintptr_t)name) == 1;
}

intptr_t strandline_tls_session(intptr_t handle, const char *name, const char *address) {
  const struct tls_context *context = (const struct tls_context *)handle;
  const struct tls_library *library = context->library;
  library->ERR_clear_error();
  struct tls_session *session = calloc(1, sizeof *session);
  if (!session) return 0;
  session->library = library;
  session->ssl = library->SSL_new(context->ssl_context);
  session->incoming = library->BIO_new(library->BIO_s_mem());
  session->outgoing = library->BIO_new(library->BIO_s_mem());
  if (!session->ssl || !session->incoming || !session->outgoing) {
    if (session->incoming) library->BIO_free(session->incoming);
    if (session->outgoing) library->BIO_free(session->outgoing);
    if (session->ssl) library->SSL_free(session->ssl);
    free(session);
    return 0;
  }
  library->SSL_set_bio(session->ssl, session->incoming, session->outgoing);
  library->SSL_set_connect_state(session->ssl);
  if (!expect_server(library, session->ssl, name, address)) {
    strandline_tls_session_free((intptr_t)session);
    return 0;
  }
  return (intptr_t)session;
}

void strandline_tls_session_free(intptr_t handle) {
  struct tls_session *session = (struct tls_session *)handle;
  session->library->SSL_free(session->ssl);
  free(session);
}

int strandline_tls_feed(intptr_t handle, const void *bytes, size_t count) {
  struct tls_session *session = (struct tls_session *)handle;
  return count <= INT32_MAX &&
         session->library->BIO_write(session->incoming, bytes, (int)count) == (int)count;
}

size_t strandline_tls_drain(intptr_t handle, void *bytes, size_t capacity) {
  struct tls_session *session = (struct tls_session *)handle;
  int count = session->library->BIO_read(session->outgoing, bytes, capacity < INT32_MAX ? (int)capacity : INT32_MAX);
  return count > 0 ? (size_t)count : 0;
}

// What a call that did not succeed means, as the header says it.
static long outcome(struct tls_session *session, int result) {
  const struct tls_library *library = session->library;
  switch (library->SSL_get_error(session->ssl, result)) {
  case error_want_read:
    return STRANDLINE_TLS_WAITS;
  case error_zero_return:
    return STRANDLINE_TLS_ENDED;
  default:
    break;
  }
  long verdict = library->SSL_get_verify_result(session->ssl);
  session->is_untrusted = verdict != verified;
  session->problem = session->is_untrusted ? library->X509_verify_cert_error_string(verdict) : first_reason(library);
  library->ERR_clear_error();
  return STRANDLINE_TLS_FAILED;
}

long strandline_tls_handshake(intptr_t handle) {
  struct tls_session *session = (struct tls_session *)handle;
  session->library->ERR_clear_error();
  int result = session->library->SSL_do_handshake(session->ssl);
  return result == 1 ? 1 : outcome(session, result);
}

long strandline_tls_read(intptr_t handle, void *bytes, size_t capacity) {
  struct tls_session *session = (struct tls_session *)handle;
  session->library->ERR_clear_error();
  int result = session->library->SSL_read(session->ssl, bytes, capacity < INT32_MAX ? (int)capacity : INT32_MAX);
  return result > 0 ? result : outcome(session, result);
}

long strandline_tls_write(intptr_t handle, const void *bytes, size_t count) {
  struct tls_session *session = (struct tls_session *)handle;
  session->library->ERR_clear_error();
  int result = session->library->SSL_write(session->ssl, bytes, count < INT32_MAX ? (int)count : INT32_MAX);
  return result > 0 ? result : outcome(session, result);
}

void strandline_tls_shutdown(intptr_t handle) {
  struct tls_session *session = (struct tls_session *)handle;
  session->library->ERR_clear_error();
  session->library->SSL_shutdown(session->ssl);
  session->library->ERR_clear_error();
}

const char *strandline_tls_problem(intptr_t handle, int *is_untrusted) {
  const struct tls_session *session = (const struct tls_session *)handle;
  *is_untrusted = session->is_untrusted;
  return session->problem ? session->problem : "no reason was given";
}

#endif
