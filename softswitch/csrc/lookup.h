/* SPDX-License-Identifier: Apache-2.0
 *
 * Table look-ups, inlined into generated code with a constant number of key words. They take no lock:
 * whatever they reach was published with a release store and stays allocated until this thread has
 * passed a quiescent state (rcu.c).
 */
#ifndef SS_LOOKUP_H
#define SS_LOOKUP_H

#include "ss.h"

#define SS_SLOT_DELETED 1ull
#define SS_SLOT_POINTER 0xffffffffffffull

SS_INLINE uint64_t ss_mix(uint64_t a, uint64_t b) {
    ss_u128 m = (ss_u128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

SS_INLINE uint64_t ss_hash_key(const uint64_t *key, unsigned words, uint32_t salt) {
    uint64_t h = 0x9e3779b97f4a7c15ull ^ salt;
    for (unsigned i = 0; i < words; i++) h = ss_mix(h ^ key[i], 0xe7037ed1a0b428dbull);
    return ss_mix(h, 0x8ebc6af09c88c6e3ull);
}

SS_INLINE uint64_t ss_slot(const struct ss_entry *e, uint64_t hash) {
    return (hash >> 48) << 48 | (uint64_t)(uintptr_t)e;
}

SS_INLINE bool ss_same_key(const uint64_t *a, const uint64_t *b, unsigned words) {
    uint64_t diff = 0;
    for (unsigned i = 0; i < words; i++) diff |= a[i] ^ b[i];
    return diff == 0;
}

/* `salt` is the prefix length in lpm tables, 0 otherwise. */
SS_INLINE struct ss_entry *ss_hash_find(const struct ss_hash *h, const uint64_t *key, unsigned words,
                                        uint32_t salt) {
    uint64_t hash = ss_hash_key(key, words, salt);
    uint64_t tag = hash >> 48;
    for (uint32_t i = (uint32_t)hash & h->mask;; i = (i + 1) & h->mask) {
        uint64_t slot = SS_LOAD(&h->slots[i]);
        if (slot == 0) return NULL;
        if (slot >> 48 != tag || slot == SS_SLOT_DELETED) continue;
        struct ss_entry *e = (struct ss_entry *)(uintptr_t)(slot & SS_SLOT_POINTER);
        if (e->prefix_len == salt && ss_same_key(e->key, key, words)) return e;
    }
}

SS_INLINE struct ss_entry *ss_find_exact(const struct ss_table *t, const uint64_t *key,
                                         unsigned words) {
    return ss_hash_find(SS_LOAD(&t->hash), key, words, 0);
}

/* `masked` has room for a key, here and below. */
SS_INLINE struct ss_entry *ss_find_lpm(const struct ss_table *t, const uint64_t *key,
                                       uint64_t *masked, unsigned words) {
    const struct ss_lengths *l = SS_LOAD(&t->lengths);
    const struct ss_hash *h = SS_LOAD(&t->hash);
    for (uint32_t i = 0; i < l->count; i++) {
        uint32_t length = l->lengths[i];
        for (unsigned w = 0; w < words; w++) masked[w] = key[w] & t->masks[length * words + w];
        struct ss_entry *e = ss_hash_find(h, masked, words, length);
        if (e) return e;
    }
    return NULL;
}

SS_INLINE struct ss_entry *ss_find_ternary(const struct ss_table *t, const uint64_t *key,
                                           uint64_t *masked, unsigned words) {
    const struct ss_tuples *all = SS_LOAD(&t->tuples);
    struct ss_entry *best = NULL;
    for (uint32_t i = 0; i < all->count; i++) {
        const struct ss_tuple *tuple = all->items[i].tuple;
        if (best && best->priority > all->items[i].best) break;
        for (unsigned w = 0; w < words; w++) masked[w] = key[w] & tuple->mask[w];
        struct ss_entry *e = ss_hash_find(SS_LOAD(&tuple->hash), masked, words, 0);
        if (e && (!best || e->priority > best->priority ||
                  (e->priority == best->priority && e->handle < best->handle)))
            best = e;
    }
    return best;
}

/* The value of a field of a packed key; `width` is at most 64 or the field starts a word. */
SS_INLINE int ss_compare_field(const uint64_t *a, const uint64_t *b, uint32_t shift, uint32_t width) {
    if (width <= 64) {
        uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
        uint64_t x = a[shift / 64] >> (shift % 64) & mask;
        uint64_t y = b[shift / 64] >> (shift % 64) & mask;
        return x < y ? -1 : x > y;
    }
    uint32_t end = shift + width;
    uint64_t mask = end % 64 ? (1ull << end % 64) - 1 : ~0ull; /* another field may follow */
    for (uint32_t w = (end + 63) / 64; w-- > shift / 64; mask = ~0ull) {
        uint64_t x = a[w] & mask, y = b[w] & mask;
        if (x != y) return x < y ? -1 : 1;
    }
    return 0;
}

/* An entry's key holds value, mask and high, one after the other; range fields have mask 0. */
SS_INLINE struct ss_entry *ss_find_range(const struct ss_table *t, const uint64_t *key, unsigned words) {
    const struct ss_entry_list *list = SS_LOAD(&t->list);
    for (uint32_t i = 0; i < list->count; i++) {
        struct ss_entry *e = list->entries[i];
        const uint64_t *mask = e->key + words, *high = e->key + 2 * words;
        bool match = true;
        for (unsigned w = 0; w < words; w++) match &= ((key[w] ^ e->key[w]) & mask[w]) == 0;
        for (uint32_t r = 0; match && r < t->desc->range_fields; r++) {
            struct ss_range_field f = t->desc->ranges[r];
            match = ss_compare_field(key, e->key, f.shift, f.width) >= 0 &&
                    ss_compare_field(key, high, f.shift, f.width) <= 0;
        }
        if (match) return e;
    }
    return NULL;
}

/* Whether low <= key & mask <= high, as a number of `words` words. */
SS_INLINE bool ss_in_range(const uint64_t *key, const uint64_t *mask, const uint64_t *low,
                           const uint64_t *high, unsigned words) {
    int above = 0, below = 0; /* decided by the highest word that differs */
    for (unsigned w = words; w-- > 0;) {
        uint64_t value = key[w] & mask[w];
        if (above == 0 && value != low[w]) above = value > low[w] ? 1 : -1;
        if (below == 0 && value != high[w]) below = value < high[w] ? 1 : -1;
    }
    return above >= 0 && below >= 0;
}

static inline __attribute__((unused)) bool ss_value_set_has(const struct ss_value_set *set,
                                                            const uint64_t *key) {
    const struct ss_members_of_set *m = SS_LOAD(&set->members);
    unsigned words = set->desc->words;
    const uint64_t *slot;
    for (uint32_t i = (uint32_t)ss_hash_key(key, words, 0);; i++) {
        slot = &m->data[(size_t)(i & (m->slots - 1)) * (1 + words)];
        if (slot[0] == 0) break;
        if (ss_same_key(slot + 1, key, words)) return true;
    }
    const uint64_t *range = &m->data[(size_t)m->slots * (1 + words)];
    for (uint32_t i = 0; i < m->ranges; i++, range += 3 * words) {
        bool in = true;
        for (uint32_t f = 0, w = 0; in && f < set->desc->fields; w += set->desc->field_words[f++])
            in = ss_in_range(key + w, range + w, range + words + w, range + 2 * words + w,
                             set->desc->field_words[f]);
        if (in) return true;
    }
    return false;
}

/* Words of an entry's key, with mask and high. */
SS_INLINE uint32_t ss_kept_words(const struct ss_table_desc *d) {
    return d->kind == SS_RANGE ? 3 * d->words : d->words;
}

/* Of a table with time-outs; `kept_words` as above, a constant in generated code. */
SS_INLINE struct ss_idle *ss_entry_idle(struct ss_entry *e, uint32_t kept_words) {
    return (struct ss_idle *)(void *)(e->key + kept_words);
}

/* Of a table with meters, which are behind what time-outs need. */
SS_INLINE struct ss_meter *ss_entry_meter(struct ss_entry *e, uint32_t kept_words,
                                          bool with_timeouts) {
    uint32_t before = with_timeouts ? sizeof(struct ss_idle) / sizeof e->key[0] : 0;
    return (struct ss_meter *)(void *)(e->key + kept_words + before);
}

SS_INLINE void ss_note_hit(struct ss_idle *idle, uint64_t now_us) {
    __atomic_store_n(&idle->hit_us, now_us, __ATOMIC_RELAXED);
}

SS_INLINE void ss_count_hit(struct ss_entry *e, const struct ss_packet *p) {
    __atomic_store_n(&e->packets, e->packets + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&e->bytes, e->bytes + p->counted_length, __ATOMIC_RELAXED);
}

SS_INLINE void ss_count_miss(struct ss_table *t, const struct ss_packet *p) {
    __atomic_store_n(&t->miss_packets, t->miss_packets + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&t->miss_bytes, t->miss_bytes + p->counted_length, __ATOMIC_RELAXED);
}

/* xoshiro256**: Blackman and Vigna, "Scrambled linear pseudorandom number generators". */
SS_INLINE uint64_t ss_random(uint64_t s[4]) {
    uint64_t x = s[1] * 5;
    uint64_t result = (x << 7 | x >> 57) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

/* The action of a member, or of the group's member that `hash` picks; NULL: an empty group. */
SS_INLINE const struct ss_action *ss_member(struct ss_state *s, uint32_t profile,
                                            const struct ss_action *ref, uint32_t hash) {
    const struct ss_profile *p = &s->profiles[profile];
    uint32_t handle = ref->id;
    if (ref->kind == SS_GROUP) {
        const struct ss_groups *groups = SS_LOAD(&p->groups);
        const struct ss_group *g = SS_LOAD(&groups->groups[handle]);
        /* Entry and group may be deleted while this thread still holds the entry. */
        if (g == NULL || g->count == 0) return NULL;
        if (SS_UNLIKELY(g->at_random)) hash = (uint32_t)(ss_random(s->random) >> 32);
        handle = g->members[hash % g->count];
    }
    /* After the group: a member is published before any group that holds it. */
    const struct ss_members *members = SS_LOAD(&p->members);
    return SS_LOAD(&members->actions[handle]);
}

#endif
