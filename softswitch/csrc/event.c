/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes to and comes from the controller: packets of the CPU port, and digests.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

/* NULL: no memory. */
struct ss_event *ss_event_new(uint32_t kind, uint32_t bytes) {
    struct ss_event *e = malloc(sizeof *e + bytes);
    if (e) *e = (struct ss_event){.kind = kind, .bytes = bytes};
    return e;
}

/* Takes `e` over; what does not fit is counted and dropped. */
static void publish(struct ss_switch *sw, struct ss_event *e) {
    pthread_mutex_lock(&sw->event_lock);
    if (e == NULL || sw->event_count >= SS_EVENT_CAPACITY) {
        sw->events_lost++;
        free(e);
    } else {
        *sw->event_tail = e;
        sw->event_tail = &e->next;
        if (sw->event_count++ == 0) pthread_cond_signal(&sw->event_ready);
    }
    pthread_mutex_unlock(&sw->event_lock);
}

void ss_event_packet(struct ss_switch *sw, const uint8_t *header, uint32_t header_bytes,
                     const uint8_t *payload, uint32_t payload_bytes) {
    struct ss_event *e = ss_event_new(SS_EVENT_PACKET, header_bytes + payload_bytes);
    if (e) {
        memcpy(e->data, header, header_bytes);
        memcpy(e->data + header_bytes, payload, payload_bytes);
    }
    publish(sw, e);
}

void ss_event_digest(struct ss_switch *sw, const struct ss_packet *p) {
    struct ss_event *e = ss_event_new(SS_EVENT_DIGEST, sw->program->digest_words * 8);
    if (e) {
        e->list = p->learn_list;
        e->time_us = (ss_now_ns() - sw->start_ns) / 1000;
        e->bytes = sw->program->digest(sw->state, p, (uint64_t *)(void *)e->data) * 8;
    }
    publish(sw, e);
}

void ss_event_port(struct ss_switch *sw, uint32_t number, bool up) {
    struct ss_event *e = ss_event_new(SS_EVENT_PORT, 1);
    if (e) {
        e->list = number;
        e->time_us = (ss_now_ns() - sw->start_ns) / 1000;
        e->data[0] = up;
    }
    publish(sw, e);
}

void ss_events_clear(struct ss_switch *sw) {
    pthread_mutex_lock(&sw->event_lock);
    while (sw->event_head) {
        struct ss_event *e = sw->event_head;
        sw->event_head = e->next;
        free(e);
    }
    sw->event_tail = &sw->event_head;
    sw->event_count = 0;
    pthread_mutex_unlock(&sw->event_lock);
    pthread_mutex_lock(&sw->inject_lock);
    while (sw->inject_head) {
        struct ss_event *e = sw->inject_head;
        sw->inject_head = e->next;
        free(e);
    }
    sw->inject_tail = &sw->inject_head;
    __atomic_store_n(&sw->inject_count, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&sw->inject_lock);
}

/* Waits for an event, at most `timeout_ns`. NULL: none came. To be freed by ss_event_free. */
SS_API struct ss_event *ss_next_event(struct ss_switch *sw, uint64_t timeout_ns) {
    uint64_t end = ss_now_ns() + timeout_ns;
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};
    pthread_mutex_lock(&sw->event_lock);
    while (sw->event_head == NULL && timeout_ns &&
           pthread_cond_timedwait(&sw->event_ready, &sw->event_lock, &until) != ETIMEDOUT) {}
    struct ss_event *e = sw->event_head;
    if (e) {
        sw->event_head = e->next;
        if (sw->event_head == NULL) sw->event_tail = &sw->event_head;
        sw->event_count--;
    }
    pthread_mutex_unlock(&sw->event_lock);
    return e;
}

SS_API void ss_event_free(struct ss_event *e) { free(e); }

/* A packet enters at the CPU port. SS_E_FULL: too many wait already. */
SS_API int ss_inject(struct ss_switch *sw, const uint8_t *bytes, uint32_t length) {
    struct ss_event *e = ss_event_new(SS_EVENT_PACKET, length);
    if (e == NULL) return SS_E_MEMORY;
    memcpy(e->data, bytes, length);
    pthread_mutex_lock(&sw->inject_lock);
    bool full = sw->inject_count >= SS_INJECT_CAPACITY;
    if (!full) {
        *sw->inject_tail = e;
        sw->inject_tail = &e->next;
        __atomic_store_n(&sw->inject_count, sw->inject_count + 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&sw->inject_lock);
    if (full) {
        free(e);
        return SS_E_FULL;
    }
    ss_wake(sw);
    return SS_OK;
}

/* The forwarding thread: takes in what was injected; the packets own their bytes. */
void ss_injected(struct ss_switch *sw) {
    pthread_mutex_lock(&sw->inject_lock);
    struct ss_event *e = sw->inject_head;
    sw->inject_head = NULL;
    sw->inject_tail = &sw->inject_head;
    __atomic_store_n(&sw->inject_count, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&sw->inject_lock);
    while (e) {
        struct ss_event *next = e->next;
        struct ss_packet *p = sw->program ? ss_packet_new(sw) : NULL;
        if (p) {
            p->base = p->data = e->data;
            p->base_len = p->len = e->bytes;
            p->ingress_port = sw->options.cpu_port;
            if (ss_own(p))
                ss_receive(sw, p);
            else
                ss_packet_free(sw, p);
            ss_serve(sw, SS_BURST * SS_BURST);
        }
        free(e);
        e = next;
    }
}

/* Events and packets lost for want of room: events, recirculated packets. */
SS_API void ss_losses(struct ss_switch *sw, uint64_t out[2]) {
    pthread_mutex_lock(&sw->event_lock);
    out[0] = sw->events_lost;
    pthread_mutex_unlock(&sw->event_lock);
    out[1] = __atomic_load_n(&sw->loop_dropped, __ATOMIC_RELAXED);
}
