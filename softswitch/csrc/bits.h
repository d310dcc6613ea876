/* SPDX-License-Identifier: Apache-2.0
 *
 * Big-endian loads and stores of 1 to 16 bytes that never touch a byte more, and bit strings.
 */
#ifndef SS_BITS_H
#define SS_BITS_H

#include <string.h>

#include "ss.h"

SS_INLINE uint64_t ss_get1(const uint8_t *p) { return p[0]; }
SS_INLINE uint64_t ss_get2(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}
SS_INLINE uint64_t ss_get3(const uint8_t *p) { return ss_get2(p) << 8 | p[2]; }
SS_INLINE uint64_t ss_get4(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
SS_INLINE uint64_t ss_get5(const uint8_t *p) { return ss_get4(p) << 8 | p[4]; }
SS_INLINE uint64_t ss_get6(const uint8_t *p) { return ss_get4(p) << 16 | ss_get2(p + 4); }
SS_INLINE uint64_t ss_get7(const uint8_t *p) { return ss_get4(p) << 24 | ss_get3(p + 4); }
SS_INLINE uint64_t ss_get8(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

/* n is a constant of 1 to 16 wherever this is called, so that only one branch remains. */
SS_INLINE ss_u128 ss_get(const uint8_t *p, unsigned n) {
    switch (n) {
    case 1: return ss_get1(p);
    case 2: return ss_get2(p);
    case 3: return ss_get3(p);
    case 4: return ss_get4(p);
    case 5: return ss_get5(p);
    case 6: return ss_get6(p);
    case 7: return ss_get7(p);
    case 8: return ss_get8(p);
    case 9: return (ss_u128)ss_get8(p) << 8 | ss_get1(p + 8);
    case 10: return (ss_u128)ss_get8(p) << 16 | ss_get2(p + 8);
    case 11: return (ss_u128)ss_get8(p) << 24 | ss_get3(p + 8);
    case 12: return (ss_u128)ss_get8(p) << 32 | ss_get4(p + 8);
    case 13: return (ss_u128)ss_get8(p) << 40 | ss_get5(p + 8);
    case 14: return (ss_u128)ss_get8(p) << 48 | ss_get6(p + 8);
    case 15: return (ss_u128)ss_get8(p) << 56 | ss_get7(p + 8);
    default: return (ss_u128)ss_get8(p) << 64 | ss_get8(p + 8);
    }
}

SS_INLINE void ss_put2(uint8_t *p, uint64_t v) {
    uint16_t b = __builtin_bswap16((uint16_t)v);
    memcpy(p, &b, 2);
}
SS_INLINE void ss_put4(uint8_t *p, uint64_t v) {
    uint32_t b = __builtin_bswap32((uint32_t)v);
    memcpy(p, &b, 4);
}
SS_INLINE void ss_put8(uint8_t *p, uint64_t v) {
    uint64_t b = __builtin_bswap64(v);
    memcpy(p, &b, 8);
}

/* Writes the low n bytes of v; n is a constant of 1 to 16. */
SS_INLINE void ss_put(uint8_t *p, ss_u128 v, unsigned n) {
    if (n >= 8) {
        ss_put8(p + n - 8, (uint64_t)v);
        v >>= 64;
        n -= 8;
    }
    if (n >= 8) {
        ss_put8(p + n - 8, (uint64_t)v);
        return;
    }
    if (n >= 4) {
        ss_put4(p + n - 4, (uint64_t)v);
        v >>= 32;
        n -= 4;
    }
    if (n >= 2) {
        ss_put2(p + n - 2, (uint64_t)v);
        v >>= 16;
        n -= 2;
    }
    if (n >= 1) p[0] = (uint8_t)v;
}

/* Appends the low `width` (at most 64) bits of v at bit `at` of a buffer whose rest is zero. */
SS_INLINE void ss_append_bits(uint8_t *buf, uint32_t at, uint64_t v, unsigned width) {
    while (width > 0) {
        unsigned room = 8 - (at & 7);
        unsigned take = width < room ? width : room;
        uint8_t piece = (uint8_t)(v >> (width - take)) & (uint8_t)((1u << take) - 1);
        buf[at >> 3] |= (uint8_t)(piece << (room - take));
        at += take;
        width -= take;
    }
}

/* The same for a width of up to 128. */
SS_INLINE void ss_append(uint8_t *buf, uint32_t at, ss_u128 v, unsigned width) {
    if (width > 64) {
        ss_append_bits(buf, at, (uint64_t)(v >> 64), width - 64);
        at += width - 64;
        width = 64;
    }
    ss_append_bits(buf, at, (uint64_t)v, width);
}

/* The `width` (at most 64) bits from bit `at` on. */
SS_INLINE uint64_t ss_bits(const uint8_t *buf, uint32_t at, unsigned width) {
    uint64_t v = 0;
    while (width > 0) {
        unsigned room = 8 - (at & 7);
        unsigned take = width < room ? width : room;
        v = v << take | ((buf[at >> 3] >> (room - take)) & ((1u << take) - 1));
        at += take;
        width -= take;
    }
    return v;
}

#endif
