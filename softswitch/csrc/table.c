/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables as Python programs them: entries by handle, default actions, direct counters.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "lookup.h"

#define NO_HANDLE UINT32_MAX

/* A free handle's place holds the next free one, marked by its lowest bit. */
static struct ss_entry *free_mark(uint32_t next) {
    return (struct ss_entry *)((uintptr_t)next << 1 | 1);
}

struct ss_entry *ss_table_entry(const struct ss_table *t, uint32_t handle) {
    if (handle >= t->handles || ((uintptr_t)t->by_handle[handle] & 1)) return NULL;
    return t->by_handle[handle];
}

/* The mask of a prefix of the lpm field; all other bits of the key are exact. */
static void prefix_mask(const struct ss_table_desc *d, uint32_t length, uint64_t *mask) {
    memset(mask, 0xff, d->words * sizeof mask[0]);
    for (uint32_t bit = d->lpm_shift; bit < d->lpm_shift + d->lpm_width - length; bit++)
        mask[bit / 64] &= ~(1ull << bit % 64);
}

int ss_table_init(struct ss_table *t, const struct ss_table_desc *desc) {
    memset(t, 0, sizeof *t);
    t->desc = desc;
    t->first_free = NO_HANDLE;
    switch (desc->kind) {
    case SS_LPM:
        t->lengths = calloc(1, sizeof *t->lengths);
        t->length_use = calloc(desc->lpm_width + 1, sizeof t->length_use[0]);
        t->masks = calloc((size_t)(desc->lpm_width + 1) * desc->words, sizeof t->masks[0]);
        if (!t->lengths || !t->length_use || !t->masks) return SS_E_MEMORY;
        for (uint32_t n = 0; n <= desc->lpm_width; n++)
            prefix_mask(desc, n, t->masks + (size_t)n * desc->words);
        /* fall through */
    case SS_EXACT:
        t->hash = ss_hash_new(16);
        return t->hash ? SS_OK : SS_E_MEMORY;
    case SS_TERNARY:
        t->tuples = calloc(1, sizeof *t->tuples);
        return t->tuples ? SS_OK : SS_E_MEMORY;
    case SS_RANGE:
        t->list = calloc(1, sizeof *t->list);
        return t->list ? SS_OK : SS_E_MEMORY;
    default:
        return SS_OK;
    }
}

/* No thread may read the table any more. */
void ss_table_destroy(struct ss_table *t) {
    for (uint32_t i = 0; i < t->handles; i++) {
        struct ss_entry *e = ss_table_entry(t, i);
        if (e == NULL) continue;
        free(e->action);
        free(e);
    }
    for (uint32_t i = 0; t->tuples && i < t->tuples->count; i++) {
        free(t->tuples->items[i].tuple->hash);
        free(t->tuples->items[i].tuple);
    }
    free(t->by_handle);
    free(t->hash);
    free(t->lengths);
    free(t->length_use);
    free(t->masks);
    free(t->tuples);
    free(t->list);
    free(t->def);
}

struct ss_action *ss_action_new(uint32_t kind, uint32_t id, const uint64_t *data, uint32_t words) {
    struct ss_action *a = malloc(sizeof *a + words * sizeof a->data[0]);
    if (a == NULL) return NULL;
    a->kind = kind;
    a->id = id;
    if (words) memcpy(a->data, data, words * sizeof a->data[0]);
    return a;
}

static bool reserve_handle(struct ss_table *t) {
    if (t->first_free != NO_HANDLE) return true;
    uint32_t handles = t->handles ? t->handles * 2 : 16;
    struct ss_entry **grown = realloc(t->by_handle, handles * sizeof grown[0]);
    if (grown == NULL) return false;
    t->by_handle = grown;
    for (uint32_t i = handles; i-- > t->handles;) {
        grown[i] = free_mark(t->first_free);
        t->first_free = i;
    }
    t->handles = handles;
    return true;
}

static int link_entry(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e,
                      const uint64_t *mask) {
    switch (t->desc->kind) {
    case SS_TERNARY: return ss_link_ternary(sw, t, e, mask);
    case SS_RANGE: return ss_link_range(sw, t, e);
    default: return ss_link_hashed(sw, t, e);
    }
}

/* Adds an entry, which takes the action over when it succeeds; its handle. `lock` is held. */
int ss_table_add(struct ss_switch *sw, struct ss_table *t, const uint64_t *key,
                 uint32_t prefix_len, int32_t priority, struct ss_action *action) {
    uint32_t words = t->desc->words, kept = ss_kept_words(t->desc);
    size_t more = (t->desc->with_timeouts ? sizeof(struct ss_idle) : 0) +
                  (t->desc->with_meters ? sizeof(struct ss_meter) : 0);
    if (t->count >= t->desc->max_size) return SS_E_FULL;
    struct ss_entry *e = calloc(1, sizeof *e + kept * sizeof e->key[0] + more);
    if (e == NULL || !reserve_handle(t)) {
        free(e);
        return SS_E_MEMORY;
    }
    memcpy(e->key, key, kept * sizeof key[0]);
    if (t->desc->looked_at)
        for (uint32_t i = 0; i < words; i++) e->key[i] &= t->desc->looked_at[i];
    e->action = action;
    e->prefix_len = prefix_len;
    e->priority = priority;
    e->handle = t->first_free;
    if (t->desc->with_timeouts) ss_entry_idle(e, kept)->hit_us = ss_time_us(sw);
    uint32_t next_free = (uint32_t)((uintptr_t)t->by_handle[e->handle] >> 1);
    int r = link_entry(sw, t, e, key + words);
    if (r != SS_OK) {
        free(e);
        return r;
    }
    t->first_free = next_free;
    t->by_handle[e->handle] = e;
    t->count++;
    return (int)e->handle;
}

/*
 * Adds an entry; its handle. `key` holds the masked value; in ternary tables the mask follows, in range
 * tables mask and high. `data` are the parameters of a direct action.
 */
SS_API int ss_table_insert(struct ss_switch *sw, uint32_t table, const uint64_t *key,
                           uint32_t prefix_len, int32_t priority, uint32_t kind, uint32_t id,
                           const uint64_t *data, uint32_t data_words) {
    struct ss_action *action = ss_action_new(kind, id, data, data_words);
    if (action == NULL) return SS_E_MEMORY;
    pthread_mutex_lock(&sw->lock);
    int r = ss_table_add(sw, &sw->state->tables[table], key, prefix_len, priority, action);
    pthread_mutex_unlock(&sw->lock);
    if (r < 0) free(action);
    return r;
}

/* Gives an entry another action, which is taken over in any case. `lock` is held. */
int ss_table_act(struct ss_switch *sw, struct ss_table *t, uint32_t handle,
                 struct ss_action *action) {
    struct ss_entry *e = ss_table_entry(t, handle);
    struct ss_action *old = action;
    if (e) {
        old = e->action;
        SS_STORE(&e->action, action);
    }
    ss_retire(sw, old);
    return e ? SS_OK : SS_E_NOT_FOUND;
}

SS_API int ss_table_modify(struct ss_switch *sw, uint32_t table, uint32_t handle, uint32_t kind,
                           uint32_t id, const uint64_t *data, uint32_t data_words) {
    struct ss_action *action = ss_action_new(kind, id, data, data_words);
    if (action == NULL) return SS_E_MEMORY;
    pthread_mutex_lock(&sw->lock);
    int r = ss_table_act(sw, &sw->state->tables[table], handle, action);
    pthread_mutex_unlock(&sw->lock);
    return r;
}

/* Removes an entry. `lock` is held. */
int ss_table_remove(struct ss_switch *sw, struct ss_table *t, uint32_t handle) {
    struct ss_entry *e = ss_table_entry(t, handle);
    if (e == NULL) return SS_E_NOT_FOUND;
    switch (t->desc->kind) {
    case SS_TERNARY: ss_unlink_ternary(sw, t, e); break;
    case SS_RANGE: ss_unlink_range(sw, t, e); break;
    default: ss_unlink_hashed(sw, t, e);
    }
    t->by_handle[handle] = free_mark(t->first_free);
    t->first_free = handle;
    t->count--;
    ss_retire(sw, e->action);
    ss_retire(sw, e);
    return SS_OK;
}

SS_API int ss_table_delete(struct ss_switch *sw, uint32_t table, uint32_t handle) {
    pthread_mutex_lock(&sw->lock);
    int r = ss_table_remove(sw, &sw->state->tables[table], handle);
    pthread_mutex_unlock(&sw->lock);
    return r;
}

/* `id` UINT32_MAX: no default action. */
SS_API int ss_table_set_default(struct ss_switch *sw, uint32_t table, uint32_t id,
                                const uint64_t *data, uint32_t data_words) {
    struct ss_action *action = NULL;
    if (id != UINT32_MAX) {
        action = ss_action_new(SS_DIRECT, id, data, data_words);
        if (action == NULL) return SS_E_MEMORY;
    }
    pthread_mutex_lock(&sw->lock);
    struct ss_table *t = &sw->state->tables[table];
    struct ss_action *old = t->def;
    SS_STORE(&t->def, action);
    ss_retire(sw, old);
    pthread_mutex_unlock(&sw->lock);
    return SS_OK;
}

/* The counters of an entry; `handle` UINT32_MAX: of the default entry, which counts the misses. */
SS_API int ss_table_read_counter(struct ss_switch *sw, uint32_t table, uint32_t handle,
                                 uint64_t out[2]) {
    pthread_mutex_lock(&sw->lock);
    struct ss_table *t = &sw->state->tables[table];
    struct ss_entry *e = handle == UINT32_MAX ? NULL : ss_table_entry(t, handle);
    bool found = e || handle == UINT32_MAX;
    if (found) {
        out[0] = __atomic_load_n(e ? &e->packets : &t->miss_packets, __ATOMIC_RELAXED);
        out[1] = __atomic_load_n(e ? &e->bytes : &t->miss_bytes, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&sw->lock);
    return found ? SS_OK : SS_E_NOT_FOUND;
}

SS_API int ss_table_write_counter(struct ss_switch *sw, uint32_t table, uint32_t handle,
                                  uint64_t packets, uint64_t bytes) {
    pthread_mutex_lock(&sw->lock);
    struct ss_table *t = &sw->state->tables[table];
    struct ss_entry *e = handle == UINT32_MAX ? NULL : ss_table_entry(t, handle);
    bool found = e || handle == UINT32_MAX;
    if (found) {
        ss_park(sw);
        *(e ? &e->packets : &t->miss_packets) = packets;
        *(e ? &e->bytes : &t->miss_bytes) = bytes;
        ss_unpark(sw);
    }
    pthread_mutex_unlock(&sw->lock);
    return found ? SS_OK : SS_E_NOT_FOUND;
}
