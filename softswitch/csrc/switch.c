/* SPDX-License-Identifier: Apache-2.0
 *
 * A switch from creation to destruction, and packets that go through it without interfaces.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

/* Passes of a packet through ingress or queues after which ss_process gives up. */
#define PROCESS_ROUNDS 10000

uint64_t ss_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Microseconds since the switch was created. */
SS_API uint64_t ss_time_us(const struct ss_switch *sw) {
    uint64_t fixed = __atomic_load_n(&sw->fixed_ns, __ATOMIC_RELAXED);
    return ((fixed ? fixed : ss_now_ns()) - sw->start_ns) / 1000;
}

/* For tests: the clock of meters and time stamps stands at `ns` after the switch's creation. */
SS_API void ss_set_clock(struct ss_switch *sw, uint64_t ns) {
    __atomic_store_n(&sw->fixed_ns, sw->start_ns + ns, __ATOMIC_RELAXED);
}

/* Writes a message for the caller; SS_E_SYSTEM. `error` has SS_ERROR_BYTES. */
int ss_fail(char *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, SS_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return SS_E_SYSTEM;
}

SS_API void ss_destroy(struct ss_switch *sw);

static bool init(struct ss_switch *sw) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sw->event_ready, &monotonic);
    pthread_cond_init(&sw->parked, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&sw->resumed, NULL);
    pthread_mutex_init(&sw->park_lock, NULL);
    pthread_mutex_init(&sw->ports_lock, NULL);
    pthread_mutex_init(&sw->lock, NULL);
    pthread_mutex_init(&sw->inject_lock, NULL);
    pthread_mutex_init(&sw->event_lock, NULL);
    sw->retired_tail = &sw->retired;
    sw->inject_tail = &sw->inject_head;
    sw->event_tail = &sw->event_head;
    sw->loop_tail = &sw->loop_head;
    sw->waiting_tail = &sw->waiting;
    sw->paced_tail = &sw->paced;
    sw->start_ns = ss_now_ns();
    sw->ports = calloc(SS_MAX_PORTS, sizeof sw->ports[0]);
    sw->port_list = calloc(SS_MAX_PORTS, sizeof sw->port_list[0]);
    sw->egress = calloc(SS_MAX_PORTS, sizeof sw->egress[0]);
    sw->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    sw->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sw->netlink_fd = ss_netlink_open();
    sw->ports_stop_fd = eventfd(0, EFD_CLOEXEC);
    return sw->ports && sw->port_list && sw->egress && sw->epoll_fd >= 0 && sw->wake_fd >= 0 &&
           sw->netlink_fd >= 0 && sw->ports_stop_fd >= 0;
}

/* NULL: no memory or descriptors; errno says which. */
SS_API struct ss_switch *ss_create(const struct ss_options *options) {
    struct ss_switch *sw = calloc(1, sizeof *sw);
    if (sw == NULL) return NULL;
    sw->options = *options;
    if (init(sw)) return sw;
    int number = errno;
    ss_destroy(sw);
    errno = number;
    return NULL;
}

/* After ss_stop, and when no thread waits in ss_next_event. */
SS_API void ss_destroy(struct ss_switch *sw) {
    if (sw->egress) ss_unload(sw);
    ss_ports_close(sw);
    for (uint32_t i = 0; sw->egress && i < SS_MAX_PORTS; i++) free(sw->egress[i]);
    if (sw->epoll_fd >= 0) close(sw->epoll_fd);
    if (sw->wake_fd >= 0) close(sw->wake_fd);
    if (sw->netlink_fd >= 0) close(sw->netlink_fd);
    if (sw->ports_stop_fd >= 0) close(sw->ports_stop_fd);
    free(sw->ports);
    free(sw->port_list);
    free(sw->egress);
    free(sw->scratch);
    free(sw->output.bytes);
    pthread_cond_destroy(&sw->event_ready);
    pthread_cond_destroy(&sw->parked);
    pthread_cond_destroy(&sw->resumed);
    pthread_mutex_destroy(&sw->park_lock);
    pthread_mutex_destroy(&sw->ports_lock);
    pthread_mutex_destroy(&sw->lock);
    pthread_mutex_destroy(&sw->inject_lock);
    pthread_mutex_destroy(&sw->event_lock);
    free(sw);
}

static bool everything_left(struct ss_switch *sw) {
    for (uint32_t i = 0; i < PROCESS_ROUNDS; i++) {
        ss_serve(sw, SS_BURST);
        ss_serve_paced(sw, UINT64_MAX);
        ss_serve_loops(sw, 1);
        if (!sw->waiting && !sw->paced && !sw->loop_head) return true;
    }
    return false;
}

/*
 * Puts a packet through a switch that is not started. What leaves is in *out (see struct ss_output) until
 * the next call; queue rates do not delay it. Digests become events. SS_E_LOOP: it never ends.
 */
SS_API int ss_process(struct ss_switch *sw, uint32_t port, const uint8_t *bytes, uint32_t length,
                      const uint8_t **out, uint64_t *out_length, char *error) {
    if (sw->started) return SS_E_STATE;
    pthread_mutex_lock(&sw->lock);
    struct ss_packet *p = ss_packet_new(sw);
    int r = p ? SS_OK : SS_E_MEMORY;
    if (p) {
        sw->processing = true;
        ss_burst_clock(sw);
        sw->failed = false;
        sw->output.length = 0;
        p->base = bytes;
        p->base_len = length;
        p->ingress_port = port;
        ss_receive(sw, p);
        if (!everything_left(sw)) {
            ss_drop_queues(sw);
            r = SS_E_LOOP;
        }
        sw->processing = false;
        *out = sw->output.bytes;
        *out_length = sw->output.length;
        if (sw->failed) {
            snprintf(error, SS_ERROR_BYTES, "%s", sw->failure);
            r = SS_E_ASSERTION;
        }
    }
    pthread_mutex_unlock(&sw->lock);
    return r;
}
