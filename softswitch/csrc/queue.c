/* SPDX-License-Identifier: Apache-2.0
 *
 * Egress queues. Those of a port without a rate are emptied after every packet; those of a port with a
 * rate when their packets are due. As in simple_switch a rate holds for each priority by itself.
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
    eg->capacity = sw->options.queue_depth;
    for (uint32_t i = 0; i < SS_MAX_PRIORITIES; i++) eg->queues[i].tail = &eg->queues[i].head;
    sw->egress[port] = eg;
    return eg;
}

static void list_egress(struct ss_switch *sw, struct ss_egress *eg) {
    struct ss_egress ***tail = eg->interval_ns ? &sw->paced_tail : &sw->waiting_tail;
    eg->listed = true;
    eg->next_waiting = NULL;
    **tail = eg;
    *tail = &eg->next_waiting;
}

/* The packet gets its time stamps and depth, or is dropped. `port` is less than SS_MAX_PORTS. */
void ss_enqueue(struct ss_switch *sw, struct ss_packet *p, uint32_t port) {
    struct ss_egress *eg = ss_egress_of(sw, port);
    if (eg == NULL || p->priority >= sw->options.priorities) {
        if (eg) eg->dropped++;
        ss_packet_free(sw, p);
        return;
    }
    struct ss_queue *q = &eg->queues[p->priority];
    uint32_t capacity = eg->capacity;
    if (eg->interval_ns == 0 && capacity < UNPACED_CAPACITY) capacity = UNPACED_CAPACITY;
    if (q->size >= capacity || (eg->interval_ns && !ss_own(p))) {
        eg->dropped++;
        ss_packet_free(sw, p);
        return;
    }
    if (eg->interval_ns) {
        uint64_t now = ss_now_ns();
        p->send_ns = q->last_send_ns + eg->interval_ns;
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
    q->size++;
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
        q->size--;
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

/* Before packets come: depth and rate (0: none) of a port's queues. */
SS_API int ss_set_queue(struct ss_switch *sw, uint32_t port, uint32_t depth, uint64_t rate_pps) {
    struct ss_egress *eg = ss_egress_of(sw, port);
    if (eg == NULL) return SS_E_MEMORY;
    eg->capacity = depth;
    eg->interval_ns = rate_pps ? (1000000000ull + rate_pps - 1) / rate_pps : 0;
    return SS_OK;
}
