/* SPDX-License-Identifier: Apache-2.0
 *
 * Meters as Python configures and reads them: cells of arrays, and those of table entries.
 */
#include <string.h>

#include "engine.h"
#include "lookup.h"

/* In this order a configuration comes in and goes out: softswitch/meters.py. */
enum { COMMITTED_RATE, COMMITTED_SIZE, SECOND_RATE, SECOND_SIZE, SETTINGS };

/* `direct`: of the entry with handle `cell` in table `index`; else cell of an array. NULL: no entry. */
static struct ss_meter *find(struct ss_switch *sw, bool direct, uint32_t index, uint32_t cell) {
    if (!direct) return &sw->state->meters[index][cell];
    const struct ss_table *t = &sw->state->tables[index];
    struct ss_entry *e = ss_table_entry(t, cell);
    return e ? ss_entry_meter(e, ss_kept_words(t->desc), t->desc->with_timeouts) : NULL;
}

/* A meter starts with full buckets. Its counters stay. SS_METER_OFF needs no settings. */
SS_API int ss_meter_configure(struct ss_switch *sw, bool direct, uint32_t index, uint32_t cell,
                              uint32_t mode, const uint64_t settings[SETTINGS]) {
    pthread_mutex_lock(&sw->lock);
    struct ss_meter *m = find(sw, direct, index, cell);
    if (m) {
        ss_park(sw);
        m->mode = mode;
        m->filled_us = ss_time_us(sw);
        m->committed = (struct ss_bucket){0};
        m->second = (struct ss_bucket){0};
        if (mode != SS_METER_OFF) {
            m->committed.rate = settings[COMMITTED_RATE];
            m->committed.size = m->committed.tokens = settings[COMMITTED_SIZE];
            m->second.rate = settings[SECOND_RATE];
            m->second.size = m->second.tokens = settings[SECOND_SIZE];
        }
        ss_unpark(sw);
    }
    pthread_mutex_unlock(&sw->lock);
    return m ? SS_OK : SS_E_NOT_FOUND;
}

/* Gives the mode; the settings; then packets and bytes of each color. */
SS_API int ss_meter_read(struct ss_switch *sw, bool direct, uint32_t index, uint32_t cell,
                         uint64_t out[SETTINGS + 2 * SS_COLORS]) {
    pthread_mutex_lock(&sw->lock);
    const struct ss_meter *m = find(sw, direct, index, cell);
    int r = m ? (int)m->mode : SS_E_NOT_FOUND;
    if (m) {
        out[COMMITTED_RATE] = m->committed.rate;
        out[COMMITTED_SIZE] = m->committed.size;
        out[SECOND_RATE] = m->second.rate;
        out[SECOND_SIZE] = m->second.size;
        for (uint32_t i = 0; i < SS_COLORS; i++) {
            out[SETTINGS + 2 * i] = __atomic_load_n(&m->colors[i].packets, __ATOMIC_RELAXED);
            out[SETTINGS + 2 * i + 1] = __atomic_load_n(&m->colors[i].bytes, __ATOMIC_RELAXED);
        }
    }
    pthread_mutex_unlock(&sw->lock);
    return r;
}

/* Packets and bytes of each color from now on. */
SS_API int ss_meter_count(struct ss_switch *sw, bool direct, uint32_t index, uint32_t cell,
                          const uint64_t counts[2 * SS_COLORS]) {
    pthread_mutex_lock(&sw->lock);
    struct ss_meter *m = find(sw, direct, index, cell);
    if (m) {
        ss_park(sw);
        for (uint32_t i = 0; i < SS_COLORS; i++)
            m->colors[i] = (struct ss_counter){counts[2 * i], counts[2 * i + 1]};
        ss_unpark(sw);
    }
    pthread_mutex_unlock(&sw->lock);
    return m ? SS_OK : SS_E_NOT_FOUND;
}
