// CRC-32C by instruction where the CPU has it, by table elsewhere.
//
// The loop is in C because a Swift call for each instruction costs more than the instruction. The intrinsics are the
// compiler's builtins, because the system headers that declare them do not import into Swift.
#include "CStrandline.h"

#include <string.h>

static uint32_t table[8][256];

static void make_table(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = (c & 1) ? (c >> 1) ^ 0x82F63B78u : c >> 1;
    table[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; i++)
    for (int t = 1; t < 8; t++)
      table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 0xFF];
}

#if defined(__x86_64__)
static void make_shifts(void);
#endif

// Runs before main, so that no checksum is computed with an incomplete table.
__attribute__((constructor)) static void prepare(void) {
  make_table();
#if defined(__x86_64__)
  make_shifts();
#endif
}

static uint32_t by_table(uint32_t c, const uint8_t *p, size_t n) {
  // Slicing by 8: eight tables, one step for each eight bytes.
  while (n >= 8) {
    uint32_t low = c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    c = table[7][low & 0xFF] ^ table[6][(low >> 8) & 0xFF] ^ table[5][(low >> 16) & 0xFF] ^
        table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    p += 8;
    n -= 8;
  }
  while (n--) c = (c >> 8) ^ table[0][(c ^ *p++) & 0xFF];
  return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n) {
  uint64_t c = crc;
  while (n >= 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    c = __builtin_ia32_crc32di(c, word);
    p += 8;
    n -= 8;
  }
  uint32_t d = (uint32_t)c;
  if (n >= 4) {
    uint32_t word;
    memcpy(&word, p, 4);
    d = __builtin_ia32_crc32si(d, word);
    p += 4;
    n -= 4;
  }
  while (n--) d = __builtin_ia32_crc32qi(d, *p++);
  return d;
}

// The crc32 instruction has a latency of three cycles and a throughput of one a cycle, so the bytes are divided into
// three parts whose checksums are computed in parallel and then combined. To extend a checksum by n zero bytes it is
// multiplied by x^8n modulo the polynomial. A carry-less multiplication by x^(8n-33) and one more crc32 instruction
// do this, where n is a multiple of eight.
enum { third_words_max = 64 };
static uint32_t shifts[2 * third_words_max + 2];

static void make_shifts(void) {
  // The factor for one word is x^31 (64 - 33 = 31), with its bits reflected.
  uint32_t power = 1;
  for (size_t words = 1; words < sizeof shifts / sizeof *shifts; words++) {
    shifts[words] = power;
    for (int bit = 0; bit < 64; bit++) power = (power & 1) ? (power >> 1) ^ 0x82F63B78u : power >> 1;
  }
}

typedef long long pair __attribute__((vector_size(16)));

__attribute__((target("sse4.2,pclmul"))) static uint32_t by_thirds(uint32_t c, const uint8_t *p, size_t n) {
  while (n >= 96) {
    size_t words = (n - 8) / 24;
    if (words > third_words_max) words = third_words_max;
    uint64_t a = c, b = 0, d = 0, x, y, z;
    const uint8_t *q = p + 8 * words, *r = q + 8 * words;
    for (size_t i = 0; i < words; i++) {
      memcpy(&x, p + 8 * i, 8);
      memcpy(&y, q + 8 * i, 8);
      memcpy(&z, r + 8 * i, 8);
      a = __builtin_ia32_crc32di(a, x);
      b = __builtin_ia32_crc32di(b, y);
      d = __builtin_ia32_crc32di(d, z);
    }
    pair first = __builtin_ia32_pclmulqdq128(
        (pair){(long long)a, 0}, (pair){shifts[2 * words + 1], 0}, 0);
    pair second = __builtin_ia32_pclmulqdq128((pair){(long long)b, 0}, (pair){shifts[words + 1], 0}, 0);
    // The word behind the three parts goes through the same instruction as the two products.
    p = r + 8 * words;
    memcpy(&z, p, 8);
    c = (uint32_t)__builtin_ia32_crc32di(d, z ^ (uint64_t)first[0] ^ (uint64_t)second[0]);
    p += 8;
    n -= 24 * words + 8;
  }
  return by_instruction(c, p, n);
}

// Read once at start, because __builtin_cpu_supports loads and masks runtime variables at each call.
static int has_crc, has_thirds;
__attribute__((constructor)) static void detect_instructions(void) {
  __builtin_cpu_init();
  has_crc = __builtin_cpu_supports("sse4.2") != 0;
  has_thirds = has_crc && __builtin_cpu_supports("pclmul");
}
static int has_instruction(void) { return has_crc; }
#elif defined(__aarch64__) && (defined(__ARM_FEATURE_CRC32) || defined(__APPLE__))
#include <arm_acle.h>
__attribute__((target("crc"))) static uint32_t by_instruction(uint32_t c, const uint8_t *p, size_t n) {
  while (n >= 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    c = __crc32cd(c, word);
    p += 8;
    n -= 8;
  }
  while (n--) c = __crc32cb(c, *p++);
  return c;
}
static int has_instruction(void) { return 1; }
#else
static uint32_t by_instruction(uint32_t c, const uint8_t *p, size_t n) { return by_table(c, p, n); }
static int has_instruction(void) { return 0; }
#endif

uint32_t strandline_crc32c(uint32_t crc, const void *bytes, size_t count) {
  uint32_t c = ~crc;
#if defined(__x86_64__)
  if (count >= 96 && has_thirds) return ~by_thirds(c, bytes, count);
#endif
  c = has_instruction() ? by_instruction(c, bytes, count) : by_table(c, bytes, count);
  return ~c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2")))
#endif
static uint32_t behind_by_instruction(const uint8_t *words, const uint8_t *p, size_t n) {
  return by_instruction(by_instruction(~(uint32_t)0, words, 8), p, n);
}

uint32_t strandline_crc32c_behind(uint32_t first, uint32_t second, const void *bytes, size_t count) {
  uint8_t words[8];
  for (int i = 0; i < 4; i++) {
    words[i] = (uint8_t)(first >> 8 * i);
    words[4 + i] = (uint8_t)(second >> 8 * i);
  }
  if (has_instruction()) return ~behind_by_instruction(words, bytes, count);
  return ~by_table(by_table(~(uint32_t)0, words, 8), bytes, count);
}

uint32_t strandline_crc32c_table(uint32_t crc, const void *bytes, size_t count) {
  return ~by_table(~crc, bytes, count);
}
