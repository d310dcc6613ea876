/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact, lpm and range tables: where an entry is published, and taken away again.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "lookup.h"

/* Publishes a larger hash when there is no room for one more entry. */
static int make_room(struct ss_switch *sw, struct ss_hash **where) {
    struct ss_hash *old = *where;
    if (!ss_hash_is_full(old)) return SS_OK;
    struct ss_hash *grown = ss_hash_grown(old);
    if (grown == NULL) return SS_E_MEMORY;
    SS_STORE(where, grown);
    ss_retire(sw, old);
    return SS_OK;
}

/* Publishes the prefix lengths in use. */
static int publish_lengths(struct ss_switch *sw, struct ss_table *t) {
    uint32_t count = 0;
    for (uint32_t n = 0; n <= t->desc->lpm_width; n++) count += t->length_use[n] != 0;
    struct ss_lengths *l = malloc(sizeof *l + count * sizeof l->lengths[0]);
    if (l == NULL) return SS_E_MEMORY;
    l->count = 0;
    for (uint32_t n = t->desc->lpm_width + 1; n-- > 0;)
        if (t->length_use[n]) l->lengths[l->count++] = (uint16_t)n;
    struct ss_lengths *old = t->lengths;
    SS_STORE(&t->lengths, l);
    ss_retire(sw, old);
    return SS_OK;
}

int ss_link_hashed(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e) {
    uint32_t words = t->desc->words;
    if (ss_hash_find(t->hash, e->key, words, e->prefix_len)) return SS_E_EXISTS;
    int r = make_room(sw, &t->hash);
    if (r != SS_OK) return r;
    uint64_t hash = ss_hash_key(e->key, words, e->prefix_len);
    e->hash = (uint32_t)hash;
    ss_hash_add(t->hash, e, (uint32_t)(hash >> 48));
    if (t->desc->kind == SS_LPM && t->length_use[e->prefix_len]++ == 0) {
        r = publish_lengths(sw, t);
        if (r != SS_OK) {
            t->length_use[e->prefix_len]--;
            ss_hash_remove(t->hash, e);
        }
    }
    return r;
}

void ss_unlink_hashed(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e) {
    ss_hash_remove(t->hash, e);
    /* Without memory for the shorter list the length stays in it and finds nothing. */
    if (t->desc->kind == SS_LPM && --t->length_use[e->prefix_len] == 0) publish_lengths(sw, t);
}

static struct ss_entry_list *list_of(uint32_t count) {
    struct ss_entry_list *list = malloc(sizeof *list + count * sizeof list->entries[0]);
    if (list) list->count = count;
    return list;
}

static void publish_list(struct ss_switch *sw, struct ss_table *t, struct ss_entry_list *list) {
    struct ss_entry_list *old = t->list;
    SS_STORE(&t->list, list);
    ss_retire(sw, old);
}

int ss_link_range(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e) {
    const struct ss_entry_list *old = t->list;
    uint32_t at = 0;
    for (; at < old->count && old->entries[at]->priority >= e->priority; at++) {
        const struct ss_entry *other = old->entries[at];
        if (other->priority == e->priority && ss_same_key(other->key, e->key, 3 * t->desc->words))
            return SS_E_EXISTS;
        if (other->priority == e->priority && other->handle > e->handle) {
            /* The place is found; look for the same key among the rest of this priority. */
            for (uint32_t i = at; i < old->count && old->entries[i]->priority == e->priority; i++)
                if (ss_same_key(old->entries[i]->key, e->key, 3 * t->desc->words))
                    return SS_E_EXISTS;
            break;
        }
    }
    struct ss_entry_list *list = list_of(old->count + 1);
    if (list == NULL) return SS_E_MEMORY;
    memcpy(list->entries, old->entries, at * sizeof list->entries[0]);
    list->entries[at] = e;
    memcpy(list->entries + at + 1, old->entries + at, (old->count - at) * sizeof list->entries[0]);
    publish_list(sw, t, list);
    return SS_OK;
}

void ss_unlink_range(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e) {
    struct ss_entry_list *old = t->list;
    struct ss_entry_list *list = list_of(old->count - 1);
    if (list == NULL) { /* take it out in place, while nobody looks */
        ss_park(sw);
        list = old;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < old->count; i++)
        if (old->entries[i] != e) list->entries[count++] = old->entries[i];
    list->count = count;
    if (list == old)
        ss_unpark(sw);
    else
        publish_list(sw, t, list);
}
