// CRC-32C by instruction where the CPU has it, by table elsewhere.
//
// The loop lives here because a call for each instruction costs more than the instruction. Intrinsics
// are the compiler's builtins: the system headers for them do not import into Swift.
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

// Runs before main, so no call can meet a half-made table.
__attribute__((constructor)) static void prepare(void) { make_table(); }

static uint32_t by_table(uint32_t c, const uint8_t *p, size_t n) {
  // Slicing by 8: eight tables, one step for eight bytes.
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
  while (n--) d = __builtin_ia32_crc32qi(d, *p++);
  return d;
}
static int has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
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
  c = has_instruction() ? by_instruction(c, bytes, count) : by_table(c, bytes, count);
  return ~c;
}

uint32_t strandline_crc32c_table(uint32_t crc, const void *bytes, size_t count) {
  return ~by_table(~crc, bytes, count);
}
