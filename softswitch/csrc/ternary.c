/* SPDX-License-Identifier: Apache-2.0
 *
 * Ternary tables: one hash per mask in use. Entries with the same masked key hang together, the one
 * that wins first; only that one is in the hash.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "lookup.h"

/* Publishes the tuples without `without`, with `with`, sorted by their best priority. */
static int publish(struct ss_switch *sw, struct ss_table *t, const struct ss_tuple *without,
                   struct ss_tuple *with, int32_t best) {
    struct ss_tuples *old = t->tuples;
    struct ss_tuples *all = malloc(sizeof *all + (old->count + 1) * sizeof all->items[0]);
    if (all == NULL) return SS_E_MEMORY;
    uint32_t n = 0;
    bool placed = with == NULL;
    for (uint32_t i = 0; i < old->count; i++) {
        if (old->items[i].tuple == without) continue;
        if (!placed && old->items[i].best < best) {
            all->items[n].tuple = with;
            all->items[n++].best = best;
            placed = true;
        }
        all->items[n++] = old->items[i];
    }
    if (!placed) {
        all->items[n].tuple = with;
        all->items[n++].best = best;
    }
    all->count = n;
    SS_STORE(&t->tuples, all);
    ss_retire(sw, old);
    return SS_OK;
}

static bool precedes(const struct ss_entry *a, const struct ss_entry *b) {
    return a->priority != b->priority ? a->priority > b->priority : a->handle < b->handle;
}

static void replace(struct ss_hash *h, const struct ss_entry *head, struct ss_entry *by) {
    uint64_t *slot = ss_hash_slot_of(h, head);
    SS_STORE(slot, (*slot & ~SS_SLOT_POINTER) | (uint64_t)(uintptr_t)by);
}

static int add_to(struct ss_switch *sw, struct ss_tuple *tuple, struct ss_entry *e, unsigned words) {
    uint64_t hash = ss_hash_key(e->key, words, 0);
    e->hash = (uint32_t)hash;
    struct ss_entry *head = ss_hash_find(tuple->hash, e->key, words, 0);
    for (struct ss_entry *x = head; x; x = x->next)
        if (x->priority == e->priority) return SS_E_EXISTS;
    if (head == NULL) {
        if (ss_hash_is_full(tuple->hash)) {
            struct ss_hash *old = tuple->hash, *grown = ss_hash_grown(old);
            if (grown == NULL) return SS_E_MEMORY;
            SS_STORE(&tuple->hash, grown);
            ss_retire(sw, old);
        }
        ss_hash_add(tuple->hash, e, (uint32_t)(hash >> 48));
    } else if (precedes(e, head)) {
        e->next = head;
        replace(tuple->hash, head, e);
    } else {
        struct ss_entry *x = head;
        while (x->next && precedes(x->next, e)) x = x->next;
        e->next = x->next;
        x->next = e;
    }
    tuple->entries++;
    return SS_OK;
}

static void take_from(struct ss_tuple *tuple, struct ss_entry *e, unsigned words) {
    struct ss_entry *head = ss_hash_find(tuple->hash, e->key, words, 0);
    if (head == e && e->next) {
        replace(tuple->hash, e, e->next);
    } else if (head == e) {
        ss_hash_remove(tuple->hash, e);
    } else {
        struct ss_entry *x = head;
        while (x->next != e) x = x->next;
        x->next = e->next;
    }
    tuple->entries--;
}

static uint32_t find(const struct ss_table *t, const uint64_t *mask) {
    uint32_t i = 0;
    while (i < t->tuples->count && !ss_same_key(t->tuples->items[i].tuple->mask, mask, t->desc->words))
        i++;
    return i;
}

int ss_link_ternary(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e,
                    const uint64_t *mask) {
    uint32_t words = t->desc->words;
    uint32_t i = find(t, mask);
    if (i < t->tuples->count) {
        struct ss_tuple *tuple = t->tuples->items[i].tuple;
        if (e->priority > t->tuples->items[i].best) {
            /* First, so that `best` is never too low; too high only makes a search longer. */
            int r = publish(sw, t, tuple, tuple, e->priority);
            if (r != SS_OK) return r;
        }
        e->tuple = tuple;
        return add_to(sw, tuple, e, words);
    }
    struct ss_tuple *tuple = calloc(1, sizeof *tuple + words * sizeof mask[0]);
    if (tuple == NULL || (tuple->hash = ss_hash_new(16)) == NULL) {
        free(tuple);
        return SS_E_MEMORY;
    }
    memcpy(tuple->mask, mask, words * sizeof mask[0]);
    e->tuple = tuple;
    int r = add_to(sw, tuple, e, words);
    if (r == SS_OK) r = publish(sw, t, NULL, tuple, e->priority);
    if (r != SS_OK) {
        free(tuple->hash);
        free(tuple);
    }
    return r;
}

void ss_unlink_ternary(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e) {
    struct ss_tuple *tuple = e->tuple;
    take_from(tuple, e, t->desc->words);
    /* Without memory for a shorter list the empty tuple stays, and is found again by its mask. */
    if (tuple->entries == 0 && publish(sw, t, tuple, NULL, 0) == SS_OK) {
        ss_retire(sw, tuple->hash);
        ss_retire(sw, tuple);
    }
}
