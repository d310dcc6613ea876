/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings of bytes that need not start at a byte: variable-length fields.
 */
#ifndef SS_VARBIT_H
#define SS_VARBIT_H

#include "bits.h"

/* Reads n bytes that start `shift` (0 to 7) bits behind p; with a shift there is one byte more. */
SS_INLINE void ss_get_bytes(uint8_t *to, const uint8_t *p, uint64_t n, unsigned shift) {
    if (shift == 0) {
        memcpy(to, p, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++) to[i] = (uint8_t)(p[i] << shift | p[i + 1] >> (8 - shift));
}

/* Appends n bytes at bit `at` of a buffer whose rest is zero. */
SS_INLINE void ss_append_bytes(uint8_t *buf, uint32_t at, const uint8_t *from, uint32_t n) {
    if (at % 8 == 0) {
        memcpy(buf + at / 8, from, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) ss_append_bits(buf, at + 8 * i, from[i], 8);
}

/* Whether two big-endian numbers are the same. */
static inline __attribute__((unused)) bool ss_same_number(const uint8_t *a, uint32_t a_bytes,
                                                          const uint8_t *b, uint32_t b_bytes) {
    for (; a_bytes > b_bytes; a_bytes--)
        if (*a++ != 0) return false;
    for (; b_bytes > a_bytes; b_bytes--)
        if (*b++ != 0) return false;
    return memcmp(a, b, a_bytes) == 0;
}

#endif
