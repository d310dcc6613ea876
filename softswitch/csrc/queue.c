/* SPDX-License-Identifier: Apache-2.0
 *
 * Egress queues: one for each priority of each port. Those of a port without any rate are emptied after
 * every packet; those of a port with a rate when their packets are due. As in simple_switch each queue has
 * its own depth and rate, and the highest priority number is served first.
 */
#include <stdlib.h>

#include "engine.h"

/* A queue without a rate only fills when one packet makes many; this ends a flood of copies. */
#define UNPACED_CAPACITY 4096

/* NULL: no memory. */
struct ss_egress *ss_egress_of(struct ss_switch *sw, uint32_t port) {
    struct ss_egress *eg = sw->egress[port];
    if (SS_LIKELY(eg != NULL)) return eg;
    eg = calloc(1, sizeof *eg);
    if (eg == NULL) return NULL;
    eg->port = port;
    for (uint32_t i = 0; i < SS_MAX_PRIORITIES; i++) {
        struct ss_queue *q = &eg->queues[i];
        q->tail = &q->head;
        q->capacity = sw->options.queue_depth;
        q->interval_ns = sw->queue_interval_ns;
    }
    eg->paced = sw->queue_interval_ns != 0;
    SS_STORE(&sw->egress[port], eg); /* ss_queue_read looks without stopping the thread */
    return eg;
}

static void list_egress(struct ss_switch *sw, struct ss_egress *eg) {
    struct ss_egress ***tail = eg->paced ? &sw->paced_tail : &sw->waiting_tail;
    eg->listed = true;
    eg->next_waiting = NULL;
    **tail = eg;
    *tail = &eg->next_waiting;
}

static void drop(struct ss_switch *sw, struct ss_egress *eg, struct ss_queue *q, struct ss_packet *p) {
    __atomic_store_n(&eg->dropped, eg->dropped + 1, __ATOMIC_RELAXED);
    if (q) __atomic_store_n(&q->dropped, q->dropped + 1, __ATOMIC_RELAXED);
    ss_packet_free(sw, p);
}

/* The packet gets its time stamps and depth, or is dropped. `port` is less than SS_MAX_PORTS. */
void ss_enqueue(struct ss_switch *sw, struct ss_packet *p, uint32_t port) {
    struct ss_egress *eg = ss_egress_of(sw, port);
    if (eg == NULL) {
        ss_packet_free(sw, p);
        return;
    }
    if (p->priority >= sw->options.priorities) {
        drop(sw, eg, NULL, p);
        return;
    }
    struct ss_queue *q = &eg->queues[p->priority];
    uint32_t capacity = q->capacity;
    if (!eg->paced && capacity < UNPACED_CAPACITY) capacity = UNPACED_CAPACITY;
    if (q->size >= capacity || (eg->paced && !ss_own(p))) {
        drop(sw, eg, q, p);
        return;
    }
    p->send_ns = 0;
    if (q->interval_ns) {
        uint64_t now = ss_now_ns();
        p->send_ns = q->last_send_ns + q->interval_ns;
        if (p->send_ns < now) p->send_ns = now;
        q->last_send_ns = p->send_ns;
    }
    ss_clock(sw);
    p->egress_port = port;
    p->enqueue_us = sw->now_us;
    p->enqueue_depth = q->size;
    p->next = NULL;
    *q->tail = p;
    q->tail = &p->next;
    __atomic_store_n(&q->size, q->size + 1, __ATOMIC_RELAXED); /* ss_queue_read looks on */
    eg->waiting++;
    if (!eg->listed) list_egress(sw, eg);
}

/* The first packet of the highest priority that is due; NULL: none is. */
static struct ss_packet *take(struct ss_egress *eg, uint64_t now_ns) {
    for (uint32_t i = SS_MAX_PRIORITIES; i-- > 0;) {
        struct ss_queue *q = &eg->queues[i];
        struct ss_packet *p = q->head;
        if (p == NULL || p->send_ns > now_ns) continue;
        q->head = p->next;
        if (q->head == NULL) q->tail = &q->head;
        __atomic_store_n(&q->size, q->size - 1, __ATOMIC_RELAXED);
        eg->waiting--;
        p->dequeue_depth = q->size;
        return p;
    }
    return NULL;
}

static void send_out(struct ss_switch *sw, struct ss_packet *p) {
    ss_clock(sw);
    p->dequeue_us = sw->now_us;
    ss_run_egress(sw, p);
}

/* Empties the queues without a rate; at most `budget` packets. How many it were. */
uint32_t ss_serve(struct ss_switch *sw, uint32_t budget) {
    uint32_t served = 0;
    while (sw->waiting && served < budget) {
        struct ss_egress *eg = sw->waiting;
        sw->waiting = eg->next_waiting;
        if (sw->waiting == NULL) sw->waiting_tail = &sw->waiting;
        /* What egress adds to this port waits for the other ports' turn. */
        for (uint32_t n = eg->waiting; n > 0 && served < budget; n--, served++)
            send_out(sw, take(eg, UINT64_MAX));
        eg->listed = false;
        if (eg->waiting) list_egress(sw, eg);
    }
    return served;
}

/* Sends what is due; now_ns UINT64_MAX: everything. */
void ss_serve_paced(struct ss_switch *sw, uint64_t now_ns) {
    struct ss_egress *first = sw->paced;
    sw->paced = NULL;
    sw->paced_tail = &sw->paced;
    while (first) {
        struct ss_egress *eg = first;
        first = eg->next_waiting;
        struct ss_packet *p;
        /* A packet that egress adds here is due later, or counted already. */
        for (uint32_t n = eg->waiting; n > 0 && (p = take(eg, now_ns)) != NULL; n--) send_out(sw, p);
        eg->listed = false;
        if (eg->waiting) list_egress(sw, eg);
    }
}

/* When the next packet of a queue with a rate is due; UINT64_MAX: none waits. */
uint64_t ss_next_send_ns(const struct ss_switch *sw) {
    uint64_t next = UINT64_MAX;
    for (const struct ss_egress *eg = sw->paced; eg; eg = eg->next_waiting)
        for (uint32_t i = 0; i < SS_MAX_PRIORITIES; i++) {
            const struct ss_packet *p = eg->queues[i].head;
            if (p && p->send_ns < next) next = p->send_ns;
        }
    return next;
}

/* Before the burst buffers are used again: packets that still wait get bytes of their own. */
void ss_own_queued(struct ss_switch *sw) {
    for (struct ss_egress *eg = sw->waiting; eg; eg = eg->next_waiting)
        for (uint32_t i = 0; i < SS_MAX_PRIORITIES; i++)
            for (struct ss_packet *p = eg->queues[i].head; p; p = p->next)
                if (!ss_own(p)) p->len = 0; /* no memory: an empty payload, not a wild one */
}

void ss_drop_queues(struct ss_switch *sw) {
    for (uint32_t port = 0; port < SS_MAX_PORTS; port++) {
        struct ss_egress *eg = sw->egress[port];
        struct ss_packet *p;
        if (eg == NULL) continue;
        while ((p = take(eg, UINT64_MAX)) != NULL) ss_packet_free(sw, p);
        eg->listed = false;
    }
    sw->waiting = sw->paced = NULL;
    sw->waiting_tail = &sw->waiting;
    sw->paced_tail = &sw->paced;
    struct ss_packet *p;
    while ((p = sw->loop_head) != NULL) {
        sw->loop_head = p->next;
        ss_packet_free(sw, p);
    }
    sw->loop_tail = &sw->loop_head;
    sw->loop_size = 0;
}

/* Takes a port out of the list that it is in. */
static void unlist(struct ss_switch *sw, struct ss_egress *eg) {
    struct ss_egress **at = eg->paced ? &sw->paced : &sw->waiting;
    struct ss_egress ***tail = eg->paced ? &sw->paced_tail : &sw->waiting_tail;
    while (*at != eg) at = &(*at)->next_waiting;
    *at = eg->next_waiting;
    if (*at == NULL) *tail = at;
    eg->listed = false;
}

/* What waits stays, in order; without a rate it is due at once. */
static void change(struct ss_switch *sw, struct ss_egress *eg, uint32_t priority, uint32_t depth,
                   uint64_t interval_ns) {
    bool listed = eg->listed;
    if (listed) unlist(sw, eg);
    eg->paced = false;
    for (uint32_t i = 0; i < SS_MAX_PRIORITIES; i++) {
        struct ss_queue *q = &eg->queues[i];
        if (priority == SS_ALL || priority == i) {
            if (depth != SS_KEEP_DEPTH) q->capacity = depth;
            if (interval_ns != SS_KEEP_RATE) q->interval_ns = interval_ns;
            if (q->interval_ns == 0)
                for (struct ss_packet *p = q->head; p; p = p->next) p->send_ns = 0;
        }
        eg->paced |= q->interval_ns != 0;
    }
    if (listed) list_egress(sw, eg);
}

/*
 * Depth in packets and rate in packets per second (0: none) of queues, at any time. `port` SS_ALL: of all
 * ports, and of those that come; `priority` SS_ALL: of all the port's queues. SS_KEEP_DEPTH and
 * SS_KEEP_RATE leave one as it is.
 */
SS_API int ss_set_queue(struct ss_switch *sw, uint32_t port, uint32_t priority, uint32_t depth,
                        uint64_t rate_pps) {
    uint64_t interval_ns = rate_pps;
    if (rate_pps != SS_KEEP_RATE && rate_pps) interval_ns = (1000000000 + rate_pps - 1) / rate_pps;
    int r = SS_OK;
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    if (port != SS_ALL) {
        struct ss_egress *eg = ss_egress_of(sw, port);
        if (eg) change(sw, eg, priority, depth, interval_ns);
        r = eg ? SS_OK : SS_E_MEMORY;
    } else {
        if (depth != SS_KEEP_DEPTH) sw->options.queue_depth = depth;
        if (interval_ns != SS_KEEP_RATE) sw->queue_interval_ns = interval_ns;
        for (uint32_t i = 0; i < SS_MAX_PORTS; i++)
            if (sw->egress[i]) change(sw, sw->egress[i], SS_ALL, depth, interval_ns);
    }
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
    if (sw->started) ss_wake(sw); /* it may sleep until a time that is not the right one any more */
    return r;
}

/* Waiting packets, depth, interval in nanoseconds (0: no rate), dropped packets of a queue. */
SS_API int ss_queue_read(struct ss_switch *sw, uint32_t port, uint32_t priority, uint64_t out[4]) {
    if (priority >= sw->options.priorities) return SS_E_NOT_FOUND;
    const struct ss_egress *eg = SS_LOAD(&sw->egress[port]);
    const struct ss_queue *q = eg ? &eg->queues[priority] : NULL;
    out[0] = q ? __atomic_load_n(&q->size, __ATOMIC_RELAXED) : 0;
    out[1] = q ? q->capacity : sw->options.queue_depth;
    out[2] = q ? q->interval_ns : sw->queue_interval_ns;
    out[3] = q ? __atomic_load_n(&q->dropped, __ATOMIC_RELAXED) : 0;
    return SS_OK;
}
