/* SPDX-License-Identifier: Apache-2.0
 *
 * The forwarding thread. While there are packets it goes round the ports' rings without asking the
 * kernel. Then it sleeps until one arrives or is injected, a paced queue is due, or an interface changes.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

#define TIMER_SLACK_NS 1000
/* sched_setattr(2); the kernel's header for it and the C library's exclude each other. */
struct scheduling {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

#define SLICE_NS 100000 /* the shortest that the kernel grants */
/* How soon a frozen switch whose queues are paced sees that it is not to be frozen any more. */
#define DRAIN_NAP_NS 1000000
/* How often a thread that is never idle asks the kernel whether there is something besides packets. */
#define ROUNDS_PER_POLL 64

/* After a burst: send, and leave nothing behind that refers to the ring. */
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

/* Sends what is due and what goes round; whether there was anything. */
static bool serve(struct ss_switch *sw) {
    if (SS_LIKELY(!sw->paced && !sw->loop_head && !sw->waiting)) return false;
    bool any = sw->loop_head || sw->waiting;
    if (sw->paced) {
        uint64_t now = ss_now_ns();
        any |= ss_next_send_ns(sw) <= now;
        ss_serve_paced(sw, now);
    }
    if (sw->loop_head) ss_serve_loops(sw, SS_BURST);
    if (sw->waiting) ss_serve(sw, SS_BURST * SS_BURST);
    finish_burst(sw);
    return any;
}

/* A burst of every port and all else that there is to do; false: there was nothing. */
static bool work(struct ss_switch *sw) {
    bool any = false;
    ss_burst_clock(sw);
    for (uint32_t i = 0; i < sw->port_count; i++) {
        struct ss_port *port = sw->port_list[i];
        if (ss_port_receive(sw, port) == 0) continue;
        any = true;
        finish_burst(sw);
        ss_port_release(port);
    }
    if (__atomic_load_n(&sw->inject_count, __ATOMIC_RELAXED) != 0) {
        any = true;
        ss_injected(sw);
        finish_burst(sw);
    }
    return serve(sw) || any;
}

/* For ss_freeze: serves what waits, without receiving, until nothing does. */
static void drain(struct ss_switch *sw) {
    ss_burst_clock(sw);
    serve(sw);
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

/*
 * Asks for short turns on the processor: a thread with short ones gets them soon after it wakes up, so
 * that rings do not fill while others compute. Its share of the processor stays that of any thread.
 * Linux 6.12 and later heed it.
 */
static void ask_for_short_turns(void) {
    struct scheduling attributes;
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
    if (attributes.policy != SCHED_OTHER) return; /* somebody has decided already */
    attributes.runtime = SLICE_NS;
    /* An old kernel may refuse; then turns are as long as everybody's. */
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* Waits until a port, a writer, the kernel or a queue needs the thread; `poll`: looks only. */
static void wait_for_events(struct ss_switch *sw, bool poll) {
    struct epoll_event events[SS_BURST];
    bool forever = false;
    struct timespec timeout = {0, 0};
    if (!poll) timeout = next_timeout(sw, &forever);
    ss_sleep_begin(sw);
    int n = epoll_pwait2(sw->epoll_fd, events, SS_BURST, forever ? NULL : &timeout, NULL);
    ss_sleep_end(sw);
    for (int i = 0; i < n; i++) {
        uint64_t times;
        ssize_t got;
        switch (events[i].data.u64) {
        case SS_WATCH_WAKE:
            got = read(sw->wake_fd, &times, sizeof times);
            (void)got; /* EAGAIN: somebody woke the thread before it slept */
            break;
        case SS_WATCH_NETLINK:
            ss_netlink_read(sw);
            break;
        default:
            /* A port that has packets is found by looking at all. It may have been removed. */
            if ((events[i].events & (EPOLLERR | EPOLLHUP)) && sw->ports[events[i].data.u64])
                ss_port_socket_error(sw->ports[events[i].data.u64]);
        }
    }
}

void *ss_loop(void *argument) {
    struct ss_switch *sw = argument;
    /* Paced packets should leave in time, not up to 50 us later. */
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    prctl(PR_SET_NAME, "softswitch", 0, 0, 0);
    ask_for_short_turns();
    ss_sleep_end(sw);
    for (uint32_t rounds = 1; !__atomic_load_n(&sw->stop, __ATOMIC_ACQUIRE); rounds++) {
        if (SS_UNLIKELY(SS_LOAD(&sw->draining))) {
            drain(sw);
            continue;
        }
        if (!work(sw))
            wait_for_events(sw, false);
        else if (rounds % ROUNDS_PER_POLL == 0)
            wait_for_events(sw, true);
    }
    ss_sleep_begin(sw);
    return NULL;
}

void ss_wake(struct ss_switch *sw) {
    uint64_t one = 1;
    ssize_t n = write(sw->wake_fd, &one, sizeof one);
    (void)n; /* EAGAIN: the counter is full, so the thread wakes up anyway */
}

/* `what` is a port's number or SS_WATCH_... */
int ss_watch(struct ss_switch *sw, int fd, uint64_t what, char *error) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = what};
    if (epoll_ctl(sw->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return ss_fail(error, "epoll: %s", strerror(errno));
    return SS_OK;
}

/* Starts forwarding on the ports that were added. */
SS_API int ss_start(struct ss_switch *sw, char *error) {
    if (sw->started) return ss_fail(error, "the switch is running already");
    int r = ss_watch(sw, sw->wake_fd, SS_WATCH_WAKE, error);
    if (r == SS_OK) r = ss_watch(sw, sw->netlink_fd, SS_WATCH_NETLINK, error);
    for (uint32_t i = 0; i < sw->port_count && r == SS_OK; i++)
        if (sw->port_list[i]->rx_fd >= 0)
            r = ss_watch(sw, sw->port_list[i]->rx_fd, sw->port_list[i]->number, error);
    if (r != SS_OK) return r;
    /* Signals are for Python's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    sw->started = true;
    int status = pthread_create(&sw->thread, NULL, ss_loop, sw);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0) return SS_OK;
    sw->started = false;
    return ss_fail(error, "thread: %s", strerror(status));
}

/* Ends the forwarding thread. */
SS_API void ss_stop(struct ss_switch *sw) {
    if (!sw->started) return;
    __atomic_store_n(&sw->stop, true, __ATOMIC_RELEASE);
    ss_wake(sw);
    pthread_join(sw->thread, NULL);
    sw->started = false;
}
