/* SPDX-License-Identifier: Apache-2.0
 *
 * When memory that the forwarding thread may still read is freed, and how a writer stops that thread.
 *
 * The thread passes a quiescent state between two bursts: it then holds no pointer into a table. Memory
 * that a writer has unlinked is freed once the thread has passed one more, or is asleep.
 */
#include <stdlib.h>

#include "engine.h"

/* Unlinked pieces that may wait before a writer waits for a quiescent state. */
#define RETIRED_LIMIT 256

/* The forwarding thread: between two bursts. */
void ss_quiescent(struct ss_switch *sw) {
    __atomic_fetch_add(&sw->epoch, 1, __ATOMIC_SEQ_CST);
    if (SS_LIKELY(__atomic_load_n(&sw->parkers, __ATOMIC_SEQ_CST) == 0)) return;
    pthread_mutex_lock(&sw->park_lock);
    sw->busy = false;
    pthread_cond_broadcast(&sw->parked);
    while (__atomic_load_n(&sw->parkers, __ATOMIC_SEQ_CST) != 0)
        pthread_cond_wait(&sw->resumed, &sw->park_lock);
    sw->busy = true;
    pthread_mutex_unlock(&sw->park_lock);
}

/* The forwarding thread, before it blocks: writers need not wait for it until ss_sleep_end. */
void ss_sleep_begin(struct ss_switch *sw) {
    __atomic_fetch_add(&sw->epoch, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&sw->park_lock);
    sw->busy = false;
    pthread_cond_broadcast(&sw->parked);
    pthread_mutex_unlock(&sw->park_lock);
}

void ss_sleep_end(struct ss_switch *sw) {
    pthread_mutex_lock(&sw->park_lock);
    while (__atomic_load_n(&sw->parkers, __ATOMIC_SEQ_CST) != 0)
        pthread_cond_wait(&sw->resumed, &sw->park_lock);
    sw->busy = true;
    pthread_mutex_unlock(&sw->park_lock);
}

/* A writer, holding `lock`: when this returns the thread holds no references and takes none. */
void ss_park(struct ss_switch *sw) {
    __atomic_fetch_add(&sw->parkers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&sw->park_lock);
    while (sw->busy) pthread_cond_wait(&sw->parked, &sw->park_lock);
}

void ss_unpark(struct ss_switch *sw) {
    __atomic_fetch_sub(&sw->parkers, 1, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&sw->resumed);
    pthread_mutex_unlock(&sw->park_lock);
}

static void reclaim(struct ss_switch *sw, uint64_t below) {
    struct ss_retired *r;
    while ((r = sw->retired) != NULL && r->epoch < below) {
        sw->retired = r->next;
        if (sw->retired == NULL) sw->retired_tail = &sw->retired;
        sw->retired_count--;
        free(r->memory);
        free(r);
    }
}

void ss_reclaim_all(struct ss_switch *sw) { reclaim(sw, UINT64_MAX); }

/* A writer, holding `lock`: frees memory that is unlinked already, now or later. */
void ss_retire(struct ss_switch *sw, void *memory) {
    if (memory == NULL) return;
    uint64_t epoch = __atomic_load_n(&sw->epoch, __ATOMIC_SEQ_CST);
    struct ss_retired *r = malloc(sizeof *r);
    if (r == NULL) { /* no memory to remember it: wait instead */
        ss_park(sw);
        ss_unpark(sw);
        free(memory);
        return;
    }
    *r = (struct ss_retired){.memory = memory, .epoch = epoch};
    *sw->retired_tail = r;
    sw->retired_tail = &r->next;
    sw->retired_count++;
    /* A state counted after the unlinking saw none of it; the one in progress may have. */
    reclaim(sw, epoch);
    if (sw->retired_count >= RETIRED_LIMIT) {
        ss_park(sw);
        ss_reclaim_all(sw);
        ss_unpark(sw);
    }
}
