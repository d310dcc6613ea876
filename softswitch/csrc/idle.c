/* SPDX-License-Identifier: Apache-2.0
 *
 * Idle time-outs of table entries: when an entry was hit last, and which ones have not been for too long.
 */
#include "engine.h"
#include "lookup.h"

/* NULL: there is no such entry. */
static struct ss_idle *find(struct ss_switch *sw, uint32_t table, uint32_t handle) {
    const struct ss_table *t = &sw->state->tables[table];
    struct ss_entry *e = ss_table_entry(t, handle);
    return e ? ss_entry_idle(e, ss_kept_words(t->desc)) : NULL;
}

static uint64_t last_hit_us(const struct ss_idle *idle) {
    return __atomic_load_n(&idle->hit_us, __ATOMIC_RELAXED);
}

/* The time-out, 0: none, runs from now on. */
SS_API int ss_table_set_timeout(struct ss_switch *sw, uint32_t table, uint32_t handle,
                                uint64_t timeout_us) {
    pthread_mutex_lock(&sw->lock);
    struct ss_idle *idle = find(sw, table, handle);
    if (idle) {
        idle->timeout_us = timeout_us;
        idle->armed_us = ss_time_us(sw);
    }
    pthread_mutex_unlock(&sw->lock);
    return idle ? SS_OK : SS_E_NOT_FOUND;
}

/* Microseconds since an entry was hit last, or inserted. */
SS_API int64_t ss_table_idle_us(struct ss_switch *sw, uint32_t table, uint32_t handle) {
    pthread_mutex_lock(&sw->lock);
    const struct ss_idle *idle = find(sw, table, handle);
    uint64_t hit = idle ? last_hit_us(idle) : 0, now = ss_time_us(sw);
    pthread_mutex_unlock(&sw->lock);
    return !idle ? SS_E_NOT_FOUND : now > hit ? (int64_t)(now - hit) : 0;
}

/*
 * Entries whose time-outs have passed, at most `most`; each one's time-out then runs again. How many.
 * `*next_us` is how long it takes until there may be more; UINT64_MAX: no entry has a time-out.
 */
SS_API uint32_t ss_table_expired(struct ss_switch *sw, uint32_t table, uint32_t *handles,
                                 uint32_t most, uint64_t *next_us) {
    uint32_t found = 0;
    *next_us = UINT64_MAX;
    pthread_mutex_lock(&sw->lock);
    const struct ss_table *t = &sw->state->tables[table];
    uint64_t now = ss_time_us(sw);
    for (uint32_t handle = 0; handle < t->handles; handle++) {
        struct ss_idle *idle = find(sw, table, handle);
        if (idle == NULL || idle->timeout_us == 0) continue;
        uint64_t since = last_hit_us(idle);
        if (since < idle->armed_us) since = idle->armed_us;
        uint64_t idle_us = now > since ? now - since : 0, left = 0;
        if (idle_us < idle->timeout_us) {
            left = idle->timeout_us - idle_us;
        } else if (found < most) {
            handles[found++] = handle;
            idle->armed_us = now;
            left = idle->timeout_us;
        }
        if (left < *next_us) *next_us = left;
    }
    pthread_mutex_unlock(&sw->lock);
    return found;
}
