/* SPDX-License-Identifier: Apache-2.0
 *
 * The forwarding thread. It sleeps until a packet arrives, one is injected or a paced queue is due.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

#define TIMER_SLACK_NS 1000
/* How soon a frozen switch whose queues are paced sees that it is not to be frozen any more. */
#define DRAIN_NAP_NS 1000000

/* After a burst: send, and leave nothing behind that refers to the burst buffers. */
static void finish_burst(struct ss_switch *sw) {
    if (sw->waiting) ss_own_queued(sw);
    ss_flush_all(sw);
    ss_quiescent(sw);
}

/* How long the thread may sleep. */
static struct timespec next_timeout(const struct ss_switch *sw, bool *forever) {
    struct timespec t = {0, 0};
    *forever = false;
    if (sw->loop_head || sw->waiting) return t;
    uint64_t due = ss_next_send_ns(sw);
    *forever = due == UINT64_MAX;
    uint64_t now = *forever ? 0 : ss_now_ns();
    uint64_t wait = due > now ? due - now : 0;
    if (!*forever) t = (struct timespec){(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
    return t;
}

static void work(struct ss_switch *sw, struct epoll_event *events, int count) {
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr) {
            ss_port_receive(sw, events[i].data.ptr);
        } else {
            uint64_t times;
            ssize_t n = read(sw->wake_fd, &times, sizeof times);
            (void)n; /* EAGAIN: somebody woke the thread before it slept */
            ss_injected(sw);
        }
        finish_burst(sw);
    }
    if (sw->paced) ss_serve_paced(sw, ss_now_ns());
    if (sw->loop_head) ss_serve_loops(sw, SS_BURST);
    if (sw->waiting) ss_serve(sw, SS_BURST * SS_BURST);
    finish_burst(sw);
}

/* For ss_freeze: serves what waits, without receiving, until nothing does. */
static void drain(struct ss_switch *sw) {
    work(sw, NULL, 0);
    if (sw->waiting || sw->loop_head) return;
    if (!sw->paced) {
        ss_rest(sw);
        return;
    }
    uint64_t now = ss_now_ns(), due = ss_next_send_ns(sw);
    uint64_t wait = due <= now ? 0 : due - now < DRAIN_NAP_NS ? due - now : DRAIN_NAP_NS;
    struct timespec nap = {.tv_nsec = (long)wait};
    nanosleep(&nap, NULL); /* cut short by nothing: signals are for Python's threads */
}

void *ss_loop(void *argument) {
    struct ss_switch *sw = argument;
    struct epoll_event events[SS_BURST];
    /* Paced packets should leave in time, not up to 50 us later. */
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    prctl(PR_SET_NAME, "softswitch", 0, 0, 0);
    while (!__atomic_load_n(&sw->stop, __ATOMIC_ACQUIRE)) {
        if (SS_UNLIKELY(SS_LOAD(&sw->draining))) {
            drain(sw);
            continue;
        }
        bool forever;
        struct timespec timeout = next_timeout(sw, &forever);
        ss_sleep_begin(sw);
        int n = epoll_pwait2(sw->epoll_fd, events, SS_BURST, forever ? NULL : &timeout, NULL);
        ss_sleep_end(sw);
        work(sw, events, n > 0 ? n : 0);
    }
    ss_sleep_begin(sw);
    return NULL;
}

void ss_wake(struct ss_switch *sw) {
    uint64_t one = 1;
    ssize_t n = write(sw->wake_fd, &one, sizeof one);
    (void)n; /* EAGAIN: the counter is full, so the thread wakes up anyway */
}

static int watch(struct ss_switch *sw, int fd, void *what, char *error) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    if (epoll_ctl(sw->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return ss_fail(error, "epoll: %s", strerror(errno));
    return SS_OK;
}

/* Starts forwarding on the ports that were added. */
SS_API int ss_start(struct ss_switch *sw, char *error) {
    if (sw->started) return ss_fail(error, "the switch is running already");
    int r = watch(sw, sw->wake_fd, NULL, error);
    for (uint32_t i = 0; i < sw->port_count && r == SS_OK; i++)
        r = watch(sw, sw->port_list[i]->fd, sw->port_list[i], error);
    if (r != SS_OK) return r;
    /* Signals are for Python's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&sw->thread, NULL, ss_loop, sw);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != 0) return ss_fail(error, "thread: %s", strerror(status));
    sw->started = true;
    return SS_OK;
}

/* Ends the forwarding thread. */
SS_API void ss_stop(struct ss_switch *sw) {
    if (!sw->started) return;
    __atomic_store_n(&sw->stop, true, __ATOMIC_RELEASE);
    ss_wake(sw);
    pthread_join(sw->thread, NULL);
    sw->started = false;
}
