/* SPDX-License-Identifier: Apache-2.0
 *
 * When memory that the forwarding thread may still read is freed, and how a writer stops that thread.
 *
 * The thread passes a quiescent state between two bursts: it then holds no pointer into a table. Memory
 * that a writer has unlinked is freed once the thread has passed one more, or is asleep.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

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

SS_API void ss_thaw(struct ss_switch *sw) {
    pthread_mutex_lock(&sw->park_lock);
    SS_STORE(&sw->draining, false);
    pthread_cond_broadcast(&sw->resumed);
    pthread_mutex_unlock(&sw->park_lock);
}

/*
 * Stops forwarding until ss_thaw, with no packet half-way: no packet sees a table before and another one
 * after what is written meanwhile. The thread first serves what waits in queues or goes round, and
 * receives nothing new. SS_E_STATE: after `timeout_ns` some packets still wait, and it goes on forwarding.
 * Writers may ss_park in between.
 */
SS_API int ss_freeze(struct ss_switch *sw, uint64_t timeout_ns) {
    if (!sw->started) return SS_OK;
    uint64_t end = ss_now_ns() + timeout_ns;
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};
    SS_STORE(&sw->draining, true);
    ss_wake(sw);
    int status = 0;
    pthread_mutex_lock(&sw->park_lock);
    while (!sw->rested && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&sw->parked, &sw->park_lock, &until);
    bool rested = sw->rested;
    pthread_mutex_unlock(&sw->park_lock);
    if (rested) return SS_OK;
    ss_thaw(sw);
    return SS_E_STATE;
}

/* The forwarding thread, while it holds nothing and no packet waits: stays until ss_thaw. */
void ss_rest(struct ss_switch *sw) {
    pthread_mutex_lock(&sw->park_lock);
    sw->rested = true;
    sw->busy = false;
    pthread_cond_broadcast(&sw->parked);
    while (SS_LOAD(&sw->draining) || __atomic_load_n(&sw->parkers, __ATOMIC_SEQ_CST) != 0)
        pthread_cond_wait(&sw->resumed, &sw->park_lock);
    sw->rested = false;
    sw->busy = true;
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
