/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of more than 128 bits: SS_WIDE(n) defines ss_w<n>, n 64-bit limbs of two's complement with the
 * lowest first, and its operations. Results are modulo 2^(64 n); codegen/arithmetic.py chooses n so
 * that nothing is lost that anybody looks at.
 */
#ifndef SS_WIDE_H
#define SS_WIDE_H

#include "bits.h"

/* a <- b, cut or extended: by its sign, or by zeros. */
SS_INLINE void ss_limbs_copy(uint64_t *a, unsigned na, const uint64_t *b, unsigned nb, bool sign) {
    uint64_t fill = sign && b[nb - 1] >> 63 ? ~0ull : 0;
    for (unsigned i = 0; i < na; i++) a[i] = i < nb ? b[i] : fill;
}

/* a += b. */
SS_INLINE void ss_limbs_add(uint64_t *a, const uint64_t *b, unsigned n) {
    ss_u128 carry = 0;
    for (unsigned i = 0; i < n; i++) {
        carry += (ss_u128)a[i] + b[i];
        a[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

SS_INLINE void ss_limbs_sub(uint64_t *a, const uint64_t *b, unsigned n) {
    uint64_t borrow = 0;
    for (unsigned i = 0; i < n; i++) {
        ss_u128 d = (ss_u128)a[i] - b[i] - borrow;
        a[i] = (uint64_t)d;
        borrow = (uint64_t)(d >> 64) & 1;
    }
}

/* r <- a * b; r is neither. */
SS_INLINE void ss_limbs_mul(uint64_t *r, const uint64_t *a, const uint64_t *b, unsigned n) {
    for (unsigned i = 0; i < n; i++) r[i] = 0;
    for (unsigned i = 0; i < n; i++) {
        ss_u128 carry = 0;
        for (unsigned j = 0; i + j < n; j++) {
            carry += (ss_u128)a[i] * b[j] + r[i + j];
            r[i + j] = (uint64_t)carry;
            carry >>= 64;
        }
    }
}

/* r <- a << by; r is not a. */
SS_INLINE void ss_limbs_shl(uint64_t *r, const uint64_t *a, unsigned n, uint64_t by) {
    uint64_t limbs = by / 64;
    unsigned bits = by % 64;
    for (unsigned i = 0; i < n; i++) {
        uint64_t v = i >= limbs ? a[i - limbs] << bits : 0;
        if (bits != 0 && i > limbs) v |= a[i - limbs - 1] >> (64 - bits);
        r[i] = v;
    }
}

/* r <- a >> by, `fill` coming in at the top; r is not a. */
SS_INLINE void ss_limbs_shr(uint64_t *r, const uint64_t *a, unsigned n, uint64_t by, uint64_t fill) {
    uint64_t limbs = by / 64;
    unsigned bits = by % 64;
    for (unsigned i = 0; i < n; i++) {
        uint64_t low = limbs < n - i ? a[i + limbs] : fill;
        uint64_t high = limbs < n - 1 - i ? a[i + limbs + 1] : fill;
        r[i] = bits == 0 ? low : (low >> bits | high << (64 - bits));
    }
}

SS_INLINE int ss_limbs_cmp(const uint64_t *a, const uint64_t *b, unsigned n, bool sign) {
    if (sign && a[n - 1] != b[n - 1]) return (int64_t)a[n - 1] < (int64_t)b[n - 1] ? -1 : 1;
    for (unsigned i = n; i-- > 0;)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* Keeps the low `bits` bits; with `sign`, repeats bit bits-1 upwards. */
SS_INLINE void ss_limbs_cut(uint64_t *a, unsigned n, unsigned bits, bool sign) {
    uint64_t fill = sign && a[(bits - 1) / 64] >> (bits - 1) % 64 & 1 ? ~0ull : 0;
    for (unsigned i = 0; i < n; i++) {
        if (i * 64 >= bits) {
            a[i] = fill;
        } else if (bits - i * 64 < 64) {
            uint64_t keep = (1ull << (bits - i * 64)) - 1;
            a[i] = (a[i] & keep) | (fill & ~keep);
        }
    }
}

/* q <- a / b, r <- a % b without sign, bit by bit; both 0 when b is. */
SS_INLINE void ss_limbs_divide(uint64_t *q, uint64_t *r, const uint64_t *a, const uint64_t *b,
                               unsigned n) {
    uint64_t any = 0;
    for (unsigned i = 0; i < n; i++) {
        q[i] = r[i] = 0;
        any |= b[i];
    }
    if (any == 0) return;
    for (unsigned bit = n * 64; bit-- > 0;) {
        uint64_t out = r[n - 1] >> 63;
        for (unsigned i = n - 1; i > 0; i--) r[i] = r[i] << 1 | r[i - 1] >> 63;
        r[0] = r[0] << 1 | (a[bit / 64] >> bit % 64 & 1);
        if (out || ss_limbs_cmp(r, b, n, false) >= 0) {
            ss_limbs_sub(r, b, n);
            q[bit / 64] |= 1ull << bit % 64;
        }
    }
}

/* `width` bits from bit `at` of the packet. */
SS_INLINE void ss_limbs_get(uint64_t *r, unsigned n, const uint8_t *p, uint32_t at, unsigned width) {
    for (unsigned i = 0; i < n; i++) {
        unsigned low = i * 64;
        unsigned take = low >= width ? 0 : width - low < 64 ? width - low : 64;
        uint32_t from = at + width - low - take;
        if (take == 64 && from % 8 == 0)
            r[i] = ss_get8(p + from / 8);
        else
            r[i] = take ? ss_bits(p, from, take) : 0;
    }
}

/* Appends the low `width` bits at bit `at` of a buffer whose rest is zero. */
SS_INLINE void ss_limbs_append(uint8_t *buf, uint32_t at, const uint64_t *a, unsigned width) {
    for (unsigned i = (width + 63) / 64; i-- > 0;) {
        unsigned take = width - i * 64;
        if (take == 64 && at % 8 == 0)
            ss_put8(buf + at / 8, a[i]);
        else
            ss_append_bits(buf, at, a[i], take);
        at += take;
        width = i * 64;
    }
}

#define SS_WIDE_LIMBWISE(N, NAME, OP)                                                              \
    SS_INLINE ss_w##N ss_w##N##_##NAME(ss_w##N a, ss_w##N b) {                                     \
        for (unsigned i = 0; i < N; i++) a.limb[i] OP b.limb[i];                                   \
        return a;                                                                                  \
    }

#define SS_WIDE(N)                                                                                 \
    typedef struct {                                                                               \
        uint64_t limb[N];                                                                          \
    } ss_w##N;                                                                                     \
    SS_INLINE ss_w##N ss_w##N##_of(const uint64_t *b, unsigned n, bool sign) {                     \
        ss_w##N r;                                                                                 \
        ss_limbs_copy(r.limb, N, b, n, sign);                                                      \
        return r;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_of_u128(ss_u128 v) {                                               \
        ss_w##N r = {{(uint64_t)v, (uint64_t)(v >> 64)}};                                          \
        return r;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_of_i128(ss_i128 v) {                                               \
        uint64_t b[2] = {(uint64_t)v, (uint64_t)((ss_u128)v >> 64)};                               \
        return ss_w##N##_of(b, 2, true);                                                           \
    }                                                                                              \
    SS_INLINE ss_u128 ss_w##N##_low(ss_w##N a) {                                                   \
        return (ss_u128)a.limb[1] << 64 | a.limb[0];                                               \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_add(ss_w##N a, ss_w##N b) {                                        \
        ss_limbs_add(a.limb, b.limb, N);                                                           \
        return a;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_sub(ss_w##N a, ss_w##N b) {                                        \
        ss_limbs_sub(a.limb, b.limb, N);                                                           \
        return a;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_mul(ss_w##N a, ss_w##N b) {                                        \
        ss_w##N r;                                                                                 \
        ss_limbs_mul(r.limb, a.limb, b.limb, N);                                                   \
        return r;                                                                                  \
    }                                                                                              \
    SS_WIDE_LIMBWISE(N, and, &=)                                                                   \
    SS_WIDE_LIMBWISE(N, or, |=)                                                                    \
    SS_WIDE_LIMBWISE(N, xor, ^=)                                                                   \
    SS_INLINE ss_w##N ss_w##N##_not(ss_w##N a) {                                                   \
        for (unsigned i = 0; i < N; i++) a.limb[i] = ~a.limb[i];                                   \
        return a;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_shl(ss_w##N a, uint64_t by) {                                      \
        ss_w##N r;                                                                                 \
        ss_limbs_shl(r.limb, a.limb, N, by);                                                       \
        return r;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_shr(ss_w##N a, uint64_t by) {                                      \
        ss_w##N r;                                                                                 \
        ss_limbs_shr(r.limb, a.limb, N, by, 0);                                                    \
        return r;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_sar(ss_w##N a, uint64_t by) {                                      \
        ss_w##N r;                                                                                 \
        ss_limbs_shr(r.limb, a.limb, N, by, a.limb[N - 1] >> 63 ? ~0ull : 0);                      \
        return r;                                                                                  \
    }                                                                                              \
    SS_INLINE int ss_w##N##_cmp(ss_w##N a, ss_w##N b) {                                            \
        return ss_limbs_cmp(a.limb, b.limb, N, true);                                              \
    }                                                                                              \
    SS_INLINE int ss_w##N##_ucmp(ss_w##N a, ss_w##N b) {                                           \
        return ss_limbs_cmp(a.limb, b.limb, N, false);                                             \
    }                                                                                              \
    SS_INLINE bool ss_w##N##_nonzero(ss_w##N a) {                                                  \
        uint64_t any = 0;                                                                          \
        for (unsigned i = 0; i < N; i++) any |= a.limb[i];                                         \
        return any != 0;                                                                           \
    }                                                                                              \
    SS_INLINE bool ss_w##N##_same(ss_w##N a, ss_w##N b) {                                          \
        return !ss_w##N##_nonzero(ss_w##N##_xor(a, b));                                            \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_umin(ss_w##N a, ss_w##N most) {                                    \
        return ss_w##N##_ucmp(a, most) > 0 ? most : a;                                             \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_clamp(ss_w##N a, ss_w##N low, ss_w##N high) {                      \
        return ss_w##N##_cmp(a, low) < 0 ? low : ss_w##N##_cmp(a, high) > 0 ? high : a;            \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_cut(ss_w##N a, unsigned bits) {                                    \
        ss_limbs_cut(a.limb, N, bits, false);                                                      \
        return a;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_extend(ss_w##N a, unsigned bits) {                                 \
        ss_limbs_cut(a.limb, N, bits, true);                                                       \
        return a;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_div(ss_w##N a, ss_w##N b) {                                        \
        ss_w##N q, r;                                                                              \
        ss_limbs_divide(q.limb, r.limb, a.limb, b.limb, N);                                        \
        return q;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_mod(ss_w##N a, ss_w##N b) {                                        \
        ss_w##N q, r;                                                                              \
        ss_limbs_divide(q.limb, r.limb, a.limb, b.limb, N);                                        \
        return r;                                                                                  \
    }                                                                                              \
    SS_INLINE ss_w##N ss_w##N##_get(const uint8_t *p, uint32_t at, unsigned width) {               \
        ss_w##N r;                                                                                 \
        ss_limbs_get(r.limb, N, p, at, width);                                                     \
        return r;                                                                                  \
    }

#endif
