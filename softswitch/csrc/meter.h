/* SPDX-License-Identifier: Apache-2.0
 *
 * Meters, inlined into generated code. They take no lock: one thread forwards, and settings are changed
 * while it is parked.
 */
#ifndef SS_METER_H
#define SS_METER_H

#include "ss.h"

#define SS_MICROS 1000000u

/*
 * Puts in what `elapsed_us` bring; how many tokens there was no room for. No part of a token is lost,
 * however often this is called, and whether the bucket is full or not.
 */
SS_INLINE uint64_t ss_bucket_fill(struct ss_bucket *b, uint64_t elapsed_us) {
    uint64_t product, sum, fresh;
    if (SS_LIKELY(!__builtin_mul_overflow(elapsed_us, b->rate, &product) &&
                  !__builtin_add_overflow(product, b->part, &sum))) {
        fresh = sum / SS_MICROS;
        b->part = sum % SS_MICROS;
    } else {
        ss_u128 wide = (ss_u128)elapsed_us * b->rate + b->part;
        ss_u128 many = wide / SS_MICROS;
        b->part = (uint64_t)(wide % SS_MICROS);
        fresh = many > UINT64_MAX ? UINT64_MAX : (uint64_t)many;
    }
    uint64_t room = b->size - b->tokens;
    if (fresh <= room) {
        b->tokens += fresh;
        return 0;
    }
    b->tokens = b->size;
    return fresh - room;
}

SS_INLINE bool ss_bucket_take(struct ss_bucket *b, uint64_t tokens) {
    if (b->tokens < tokens) return false;
    b->tokens -= tokens;
    return true;
}

/*
 * The color of a packet that takes `tokens`; color-blind. A red packet takes none, a yellow one takes
 * them from `second` only.
 */
SS_INLINE enum ss_color ss_meter_color(struct ss_meter *m, uint64_t now_us, uint64_t tokens) {
    if (m->mode == SS_METER_OFF) return SS_GREEN;
    uint64_t elapsed = now_us > m->filled_us ? now_us - m->filled_us : 0;
    m->filled_us += elapsed;
    uint64_t over = ss_bucket_fill(&m->committed, elapsed);
    if (m->mode == SS_METER_ONE_RATE) {
        uint64_t room = m->second.size - m->second.tokens;
        m->second.tokens += over < room ? over : room;
        if (ss_bucket_take(&m->committed, tokens)) return SS_GREEN;
        return ss_bucket_take(&m->second, tokens) ? SS_YELLOW : SS_RED;
    }
    ss_bucket_fill(&m->second, elapsed);
    if (!ss_bucket_take(&m->second, tokens)) return SS_RED;
    return ss_bucket_take(&m->committed, tokens) ? SS_GREEN : SS_YELLOW;
}

SS_INLINE uint32_t ss_meter_execute(struct ss_meter *m, uint64_t now_us, uint64_t tokens,
                                    const struct ss_packet *p) {
    enum ss_color color = ss_meter_color(m, now_us, tokens);
    struct ss_counter *c = &m->colors[color];
    __atomic_store_n(&c->packets, c->packets + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&c->bytes, c->bytes + p->counted_length, __ATOMIC_RELAXED);
    return color;
}

#endif
