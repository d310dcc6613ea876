/* SPDX-License-Identifier: Apache-2.0
 *
 * Parser value sets: a set is replaced as a whole, so that the parser sees the old one or the new one.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "lookup.h"

/* A set without members, with room for the given ones. NULL: no memory. */
static struct ss_members_of_set *empty(uint32_t words, uint32_t exact, uint32_t ranges) {
    uint64_t slots = 1;
    while (slots < 2 * (uint64_t)exact) slots *= 2;
    size_t data = slots * (1 + words) + (size_t)ranges * 3 * words;
    struct ss_members_of_set *m = calloc(1, sizeof *m + data * sizeof m->data[0]);
    if (m) m->slots = (uint32_t)slots, m->ranges = ranges;
    return m;
}

int ss_value_set_init(struct ss_value_set *set, const struct ss_value_set_desc *desc) {
    set->desc = desc;
    set->members = empty(desc->words, 0, 0);
    return set->members ? SS_OK : SS_E_MEMORY;
}

/* Keys of exact members one after the other; mask, low and high of each of the others likewise. */
SS_API int ss_value_set_replace(struct ss_switch *sw, uint32_t index, const uint64_t *exact,
                                uint32_t exact_count, const uint64_t *ranges, uint32_t range_count) {
    int r = SS_E_MEMORY;
    pthread_mutex_lock(&sw->lock);
    struct ss_value_set *set = &sw->state->value_sets[index];
    uint32_t words = set->desc->words;
    struct ss_members_of_set *m = empty(words, exact_count, range_count), *old = set->members;
    if (m != NULL) {
        for (uint32_t i = 0; i < exact_count; i++) {
            const uint64_t *key = exact + (size_t)i * words;
            uint32_t at = (uint32_t)ss_hash_key(key, words, 0) & (m->slots - 1);
            while (m->data[(size_t)at * (1 + words)] != 0) at = (at + 1) & (m->slots - 1);
            m->data[(size_t)at * (1 + words)] = 1;
            memcpy(&m->data[(size_t)at * (1 + words) + 1], key, words * sizeof key[0]);
        }
        if (range_count)
            memcpy(&m->data[(size_t)m->slots * (1 + words)], ranges,
                   (size_t)range_count * 3 * words * sizeof ranges[0]);
        SS_STORE(&set->members, m);
        ss_retire(sw, old);
        r = SS_OK;
    }
    pthread_mutex_unlock(&sw->lock);
    return r;
}
