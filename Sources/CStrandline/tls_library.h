// The functions of OpenSSL that are used here, found in its library at run time. It is never linked, and the prototypes are
// declared here, so that a build needs neither its library nor its headers. The constants are those of its public interface,
// which are the same in versions 1.1 and 3.
#ifndef TLS_LIBRARY_H
#define TLS_LIBRARY_H

#if !defined(__APPLE__)

#include <stddef.h>
#include <stdint.h>

enum {
  ctrl_mode = 33,
  ctrl_set_host_name = 55,
  ctrl_set_min_version = 123,
  mode_auto_retry = 4,
  version_1_2 = 0x0303,
  verify_peer = 1,
  verified = 0,
  error_want_read = 2,
  error_zero_return = 6,
  host_no_partial_wildcards = 0x4,
  host_never_subject = 0x20,
};
#define OPTION_NO_COMPRESSION (1u << 17)
#define OPTION_NO_RENEGOTIATION (1u << 30)
#define INIT_NO_ATEXIT 0x80000u
#define VERSION_3 0x30000000ul

// X(result, name, parameters)
#define TLS_FUNCTIONS(X)                                                          \
  X(int, OPENSSL_init_crypto, (uint64_t, const void *))                           \
  X(unsigned long, OpenSSL_version_num, (void))                                   \
  X(unsigned long, ERR_get_error, (void))                                         \
  X(void, ERR_clear_error, (void))                                                \
  X(const char *, ERR_reason_error_string, (unsigned long))                       \
  X(void *, BIO_new, (const void *))                                              \
  X(const void *, BIO_s_mem, (void))                                              \
  X(int, BIO_free, (void *))                                                      \
  X(int, BIO_read, (void *, void *, int))                                         \
  X(int, BIO_write, (void *, const void *, int))                                  \
  X(const void *, TLS_client_method, (void))                                      \
  X(void *, SSL_CTX_new, (const void *))                                          \
  X(void, SSL_CTX_free, (void *))                                                 \
  X(long, SSL_CTX_ctrl, (void *, int, long, void *))                              \
  X(uint64_t, SSL_CTX_set_options, (void *, uint64_t))                            \
  X(void, SSL_CTX_set_verify, (void *, int, int (*)(int, void *)))                \
  X(int, SSL_CTX_set_default_verify_paths, (void *))                              \
  X(int, SSL_CTX_load_verify_locations, (void *, const char *, const char *))     \
  X(void *, SSL_new, (void *))                                                    \
  X(void, SSL_free, (void *))                                                     \
  X(long, SSL_ctrl, (void *, int, long, void *))                                  \
  X(void, SSL_set_bio, (void *, void *, void *))                                  \
  X(void, SSL_set_connect_state, (void *))                                        \
  X(void *, SSL_get0_param, (void *))                                             \
  X(int, SSL_do_handshake, (void *))                                              \
  X(int, SSL_read, (void *, void *, int))                                         \
  X(int, SSL_write, (void *, const void *, int))                                  \
  X(int, SSL_shutdown, (void *))                                                  \
  X(int, SSL_get_error, (const void *, int))                                      \
  X(long, SSL_get_verify_result, (const void *))                                  \
  X(const char *, X509_verify_cert_error_string, (long))                          \
  X(void, X509_VERIFY_PARAM_set_hostflags, (void *, unsigned int))                \
  X(int, X509_VERIFY_PARAM_set1_host, (void *, const char *, size_t))             \
  X(int, X509_VERIFY_PARAM_set1_ip_asc, (void *, const char *))

struct tls_library {
#define FIELD(result, name, parameters) result(*name) parameters;
  TLS_FUNCTIONS(FIELD)
#undef FIELD
};

#endif
#endif
