/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash and checksum algorithms of v1model over a byte string, with BMv2's results.
 */
#ifndef SS_HASH_H
#define SS_HASH_H

#include "bits.h"

static uint16_t ss_crc16_table[256];
static uint16_t ss_crc_ccitt_table[256];
static uint32_t ss_crc32_table[256];

/* Reflected tables for polynomials 0x8005 and 0x04c11db7, a plain one for 0x1021. */
__attribute__((constructor, unused)) static void ss_make_crc_tables(void) {
    for (unsigned i = 0; i < 256; i++) {
        uint16_t arc = (uint16_t)i;
        uint16_t ccitt = (uint16_t)(i << 8);
        uint32_t ieee = i;
        for (unsigned bit = 0; bit < 8; bit++) {
            arc = (uint16_t)((arc >> 1) ^ ((arc & 1) ? 0xa001 : 0));
            ccitt = (uint16_t)((ccitt << 1) ^ ((ccitt & 0x8000) ? 0x1021 : 0));
            ieee = (ieee >> 1) ^ ((ieee & 1) ? 0xedb88320u : 0);
        }
        ss_crc16_table[i] = arc;
        ss_crc_ccitt_table[i] = ccitt;
        ss_crc32_table[i] = ieee;
    }
}

SS_INLINE uint64_t ss_crc16(const uint8_t *p, uint32_t n) {
    uint16_t crc = 0;
    for (uint32_t i = 0; i < n; i++) crc = (uint16_t)(crc >> 8) ^ ss_crc16_table[(uint8_t)(crc ^ p[i])];
    return crc;
}

SS_INLINE uint64_t ss_crc32(const uint8_t *p, uint32_t n) {
    uint32_t crc = 0xffffffffu;
    for (uint32_t i = 0; i < n; i++) crc = (crc >> 8) ^ ss_crc32_table[(uint8_t)(crc ^ p[i])];
    return crc ^ 0xffffffffu;
}

SS_INLINE uint64_t ss_crcCCITT(const uint8_t *p, uint32_t n) {
    uint16_t crc = 0xffff;
    for (uint32_t i = 0; i < n; i++)
        crc = (uint16_t)(crc << 8) ^ ss_crc_ccitt_table[(uint8_t)((crc >> 8) ^ p[i])];
    return crc;
}

/* The low `bits` bits in reverse. */
SS_INLINE uint64_t ss_reversed(uint64_t v, unsigned bits) {
    v = (v >> 1 & 0x5555555555555555ull) | (v & 0x5555555555555555ull) << 1;
    v = (v >> 2 & 0x3333333333333333ull) | (v & 0x3333333333333333ull) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0full) | (v & 0x0f0f0f0f0f0f0f0full) << 4;
    return __builtin_bswap64(v) >> (64 - bits);
}

static inline __attribute__((unused)) uint64_t ss_crc(const struct ss_crc *c, const uint8_t *p,
                                                      uint32_t n) {
    unsigned bits = c->desc.bits;
    uint64_t ones = ~0ull >> (64 - bits), crc = c->desc.initial;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t byte = c->desc.reflect_data ? ss_reversed(p[i], 8) : p[i];
        crc = c->table[(byte ^ crc >> (bits - 8)) & 0xff] ^ (crc << 8 & ones);
    }
    if (c->desc.reflect_remainder) crc = ss_reversed(crc, bits);
    return crc ^ c->desc.final_xor;
}

/* The Internet checksum; an odd last byte counts as the high byte of a word. */
SS_INLINE uint64_t ss_csum16(const uint8_t *p, uint32_t n) {
    uint64_t sum = 0;
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) sum += ss_get4(p + i);
    if (n & 2) {
        sum += ss_get2(p + i);
        i += 2;
    }
    if (n & 1) sum += (uint64_t)p[i] << 8;
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* The first eight bytes as a number. */
SS_INLINE uint64_t ss_identity(const uint8_t *p, uint32_t n) {
    uint64_t v = 0;
    for (uint32_t i = 0; i < n && i < 8; i++) v = v << 8 | p[i];
    return v;
}

SS_INLINE uint64_t ss_xor16(const uint8_t *p, uint32_t n) {
    uint16_t x = 0;
    uint32_t i = 0;
    for (; i + 2 <= n; i += 2) x ^= (uint16_t)ss_get2(p + i);
    if (i < n) x ^= (uint16_t)(p[i] << 8);
    return x;
}

SS_INLINE uint64_t ss_xor32(const uint8_t *p, uint32_t n) {
    uint32_t x = 0;
    for (uint32_t i = 0; i < n; i++) x ^= (uint32_t)p[i] << (24 - 8 * (i & 3));
    return x;
}

#endif
