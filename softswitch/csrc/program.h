/* SPDX-License-Identifier: Apache-2.0
 *
 * What generated code includes: arithmetic, registers, counters and random numbers of the P4 program.
 */
#ifndef SS_PROGRAM_H
#define SS_PROGRAM_H

#include "bits.h"
#include "hash.h"
#include "lookup.h"
#include "meter.h"
#include "ss.h"
#include "varbit.h"
#include "wide.h"

/* Shifts whose amount is a run-time value: C leaves amounts of the width and beyond undefined. */
SS_INLINE uint64_t ss_shl64(uint64_t v, uint64_t by) { return by < 64 ? v << by : 0; }
SS_INLINE ss_u128 ss_shl128(ss_u128 v, uint64_t by) { return by < 128 ? v << by : 0; }
SS_INLINE uint64_t ss_shr64(uint64_t v, uint64_t by) { return by < 64 ? v >> by : 0; }
SS_INLINE ss_u128 ss_shr128(ss_u128 v, uint64_t by) { return by < 128 ? v >> by : 0; }
SS_INLINE int64_t ss_sar64(int64_t v, uint64_t by) { return v >> (by < 63 ? by : 63); }
SS_INLINE ss_i128 ss_sar128(ss_i128 v, uint64_t by) { return v >> (by < 127 ? by : 127); }

/* Division and remainder by 0 give 0: BMv2 stops there. */
SS_INLINE uint64_t ss_div64(uint64_t a, uint64_t b) { return b ? a / b : 0; }
SS_INLINE uint64_t ss_mod64(uint64_t a, uint64_t b) { return b ? a % b : 0; }
SS_INLINE ss_u128 ss_div128(ss_u128 a, ss_u128 b) { return b ? a / b : 0; }
SS_INLINE ss_u128 ss_mod128(ss_u128 a, ss_u128 b) { return b ? a % b : 0; }

/* Saturation: without sign at the upper end, with sign (two's complement) at both. */
SS_INLINE uint64_t ss_umin64(uint64_t v, uint64_t most) { return v > most ? most : v; }
SS_INLINE ss_u128 ss_umin128(ss_u128 v, ss_u128 most) { return v > most ? most : v; }
SS_INLINE uint64_t ss_clamp64(uint64_t v, uint64_t low, uint64_t high) {
    return (int64_t)v < (int64_t)low ? low : (int64_t)v > (int64_t)high ? high : v;
}
SS_INLINE ss_u128 ss_clamp128(ss_u128 v, ss_u128 low, ss_u128 high) {
    return (ss_i128)v < (ss_i128)low ? low : (ss_i128)v > (ss_i128)high ? high : v;
}

/* Two elements of a stack. */
#define SS_SWAP(a, b)                                                                              \
    do {                                                                                           \
        uint8_t kept_[sizeof(a)];                                                                  \
        memcpy(kept_, &(a), sizeof(a));                                                            \
        memcpy(&(a), &(b), sizeof(a));                                                             \
        memcpy(&(b), kept_, sizeof(a));                                                            \
    } while (0)

/* Elements of a stack change places by `by`, at most its size; new ones are invalid. */
#define SS_PUSH(stack, by)                                                                         \
    do {                                                                                           \
        const uint64_t size_ = sizeof(stack) / sizeof((stack)[0]);                                 \
        for (uint64_t i_ = size_; i_-- > (by);) SS_SWAP((stack)[i_], (stack)[i_ - (by)]);          \
        for (uint64_t i_ = 0; i_ < (by); i_++) (stack)[i_].valid = 0;                              \
    } while (0)
#define SS_POP(stack, by)                                                                          \
    do {                                                                                           \
        const uint64_t size_ = sizeof(stack) / sizeof((stack)[0]);                                 \
        for (uint64_t i_ = 0; i_ + (by) < size_; i_++) SS_SWAP((stack)[i_], (stack)[i_ + (by)]);   \
        for (uint64_t i_ = size_ - (by); i_ < size_; i_++) (stack)[i_].valid = 0;                  \
    } while (0)

/* The low `bits` bits as a signed number; bits is 1 to 64, 1 to 128. */
SS_INLINE int64_t ss_extend64(uint64_t v, unsigned bits) {
    return (int64_t)(v << (64 - bits)) >> (64 - bits);
}
SS_INLINE ss_i128 ss_extend128(ss_u128 v, unsigned bits) {
    return (ss_i128)(v << (128 - bits)) >> (128 - bits);
}

SS_INLINE ss_u128 ss_big(uint64_t high, uint64_t low) { return (ss_u128)high << 64 | low; }

/* Counting takes no lock: one thread forwards, and writes from outside happen while it is parked. */
SS_INLINE void ss_count(struct ss_counter *c, uint32_t size, uint64_t index, const struct ss_packet *p) {
    if (index >= size) return;
    __atomic_store_n(&c[index].packets, c[index].packets + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&c[index].bytes, c[index].bytes + p->counted_length, __ATOMIC_RELAXED);
}

/* Uniform over low..high, both included; low <= high. Rejects the part that would bias. */
SS_INLINE uint64_t ss_random_between(uint64_t s[4], uint64_t low, uint64_t high) {
    uint64_t span = high - low + 1;
    if (span == 0) return ss_random(s);
    if ((span & (span - 1)) == 0) return low + (ss_random(s) & (span - 1));
    uint64_t limit = -span % span; /* 2^64 mod span */
    for (;;) {
        ss_u128 m = (ss_u128)ss_random(s) * span;
        if ((uint64_t)m >= limit) return low + (uint64_t)(m >> 64);
    }
}

/* hash(): (value mod size) + base in 64-bit arithmetic; size 0 counts as 1. */
SS_INLINE uint64_t ss_hash_offset(uint64_t value, uint64_t base, uint64_t size) {
    return (size == 0 ? 0 : value % size) + base;
}

#endif
