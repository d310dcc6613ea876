/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer's side of the hash that lookup.h searches. A slot changes by one store, so that readers
 * always see a whole one.
 */
#include <stdlib.h>

#include "engine.h"
#include "lookup.h"

/* `slots` is a power of two. NULL: no memory. */
struct ss_hash *ss_hash_new(uint32_t slots) {
    struct ss_hash *h = calloc(1, sizeof *h + slots * sizeof h->slots[0]);
    if (h) h->mask = slots - 1;
    return h;
}

/* Whether another entry would make searches long; a free slot must remain, it ends them. */
bool ss_hash_is_full(const struct ss_hash *h) {
    return ((uint64_t)h->used + h->deleted + 1) * 4 > ((uint64_t)h->mask + 1) * 3;
}

/* The hash is kept in the entry in halves: the start of the search, and the tag in the slot. */
static uint64_t slot_value(const struct ss_entry *e, uint32_t tag) {
    return (uint64_t)tag << 48 | (uint64_t)(uintptr_t)e;
}

static void put(struct ss_hash *h, uint64_t value, uint32_t hash) {
    uint32_t i = hash & h->mask;
    while (h->slots[i] > SS_SLOT_DELETED) i = (i + 1) & h->mask;
    if (h->slots[i] == SS_SLOT_DELETED) h->deleted--;
    SS_STORE(&h->slots[i], value);
    h->used++;
}

/* A hash with the same entries and at least twice the room they need. NULL: no memory. */
struct ss_hash *ss_hash_grown(const struct ss_hash *h) {
    uint32_t slots = 16;
    while (slots < (h->used + 1) * 2) slots *= 2;
    struct ss_hash *g = ss_hash_new(slots);
    if (g == NULL) return NULL;
    for (uint32_t i = 0; i <= h->mask; i++) {
        uint64_t value = h->slots[i];
        if (value <= SS_SLOT_DELETED) continue;
        const struct ss_entry *e = (const struct ss_entry *)(uintptr_t)(value & SS_SLOT_POINTER);
        put(g, value, e->hash);
    }
    return g;
}

/* `e->hash` holds the low half of the key's hash. */
void ss_hash_add(struct ss_hash *h, struct ss_entry *e, uint32_t tag) {
    put(h, slot_value(e, tag), e->hash);
}

/* The slot of an entry that is in the hash. */
uint64_t *ss_hash_slot_of(struct ss_hash *h, const struct ss_entry *e) {
    uint32_t i = e->hash & h->mask;
    while ((h->slots[i] & SS_SLOT_POINTER) != (uint64_t)(uintptr_t)e) i = (i + 1) & h->mask;
    return &h->slots[i];
}

void ss_hash_remove(struct ss_hash *h, const struct ss_entry *e) {
    uint64_t *slot = ss_hash_slot_of(h, e);
    uint32_t i = (uint32_t)(slot - h->slots);
    h->used--;
    if (h->slots[(i + 1) & h->mask] != 0) {
        SS_STORE(slot, SS_SLOT_DELETED);
        h->deleted++;
        return;
    }
    /* No search goes on beyond here, so this slot and deleted ones before it become free. */
    SS_STORE(slot, 0);
    for (i = (i - 1) & h->mask; h->slots[i] == SS_SLOT_DELETED; i = (i - 1) & h->mask) {
        SS_STORE(&h->slots[i], 0);
        h->deleted--;
    }
}
