/* SPDX-License-Identifier: Apache-2.0
 *
 * The forwarding thread. While there are packets it goes round the ports' rings without asking the
 * kernel. Then it sleeps until one arrives or is injected, or a paced queue is due.
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
/*
 * When more than FAST packets/s come, measured over WINDOW_NS, a thread that has caught up naps before it
 * sleeps: waking it for every few packets would cost the senders, whose threads do it, more than sending.
 */
#define FAST 100000
#define WINDOW_NS 1000000
#define NAP_NS 20000

struct arrivals {
    uint64_t begin_ns; /* of the window */
    uint64_t packets;  /* in it, so far */
    bool fast;
};

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

/* After a burst: send, give back the frames of the port it came from, and refer to nothing any more. */
static void finish_burst(struct ss_switch *sw, struct ss_port *from) {
    if (sw->waiting) ss_own_queued(sw);
    ss_flush_all(sw);
    if (from) ss_port_release(from);
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
    finish_burst(sw, NULL);
    return any;
}

/* A burst of every port and all else that there is to do; false: there was nothing. */
static bool work(struct ss_switch *sw, struct arrivals *arrivals) {
    bool any = false;
    ss_burst_clock(sw);
    for (uint32_t i = 0; i < sw->port_count; i++) {
        struct ss_port *port = sw->port_list[i];
        uint32_t packets = ss_port_receive(sw, port);
        if (packets == 0) continue;
        any = true;
        arrivals->packets += packets;
        finish_burst(sw, port); /* the port may be gone now */
    }
    if (__atomic_load_n(&sw->inject_count, __ATOMIC_RELAXED) != 0) {
        any = true;
        ss_injected(sw);
        finish_burst(sw, NULL);
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

/* Waits until a port, a writer or a queue needs the thread. */
static void wait_for_events(struct ss_switch *sw) {
    struct epoll_event events[SS_BURST];
    bool forever;
    struct timespec timeout = next_timeout(sw, &forever);
    ss_sleep_begin(sw);
    int n = epoll_pwait2(sw->epoll_fd, events, SS_BURST, forever ? NULL : &timeout, NULL);
    ss_sleep_end(sw);
    for (int i = 0; i < n; i++) {
        uint64_t number = events[i].data.u64, times;
        if (number == SS_WATCH_WAKE) {
            ssize_t got = read(sw->wake_fd, &times, sizeof times);
            (void)got; /* EAGAIN: somebody woke the thread before it slept */
        } else if ((events[i].events & (EPOLLERR | EPOLLHUP)) && sw->ports[number]) {
            ss_port_socket_error(sw->ports[number]); /* those with packets are found by looking at all */
        }
    }
}

/* True: packets came meanwhile. */
static bool nap(struct ss_switch *sw, struct arrivals *arrivals) {
    uint64_t now = ss_now_ns(), window = now - arrivals->begin_ns;
    if (window >= WINDOW_NS) {
        arrivals->fast = arrivals->packets * 1000000000 / FAST >= window;
        arrivals->begin_ns = now;
        arrivals->packets = 0;
    }
    if (!arrivals->fast || sw->paced) return false;
    struct timespec time = {.tv_nsec = NAP_NS};
    ss_sleep_begin(sw);
    nanosleep(&time, NULL);
    ss_sleep_end(sw);
    for (uint32_t i = 0; i < sw->port_count; i++)
        if (ss_port_has_packets(sw->port_list[i])) return true;
    return false;
}

void *ss_loop(void *argument) {
    struct ss_switch *sw = argument;
    struct arrivals arrivals = {.begin_ns = ss_now_ns()};
    /* Paced packets should leave in time, not up to 50 us later. */
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    prctl(PR_SET_NAME, "softswitch", 0, 0, 0);
    ask_for_short_turns();
    ss_sleep_end(sw);
    while (!__atomic_load_n(&sw->stop, __ATOMIC_ACQUIRE)) {
        if (SS_UNLIKELY(SS_LOAD(&sw->draining))) {
            drain(sw);
            continue;
        }
        if (!work(sw, &arrivals) && !nap(sw, &arrivals)) wait_for_events(sw);
    }
    ss_sleep_begin(sw);
    return NULL;
}

void ss_wake(struct ss_switch *sw) {
    uint64_t one = 1;
    ssize_t n = write(sw->wake_fd, &one, sizeof one);
    (void)n; /* EAGAIN: the counter is full, so the thread wakes up anyway */
}

static int watch_wake(struct ss_switch *sw, char *error) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = SS_WATCH_WAKE};
    if (epoll_ctl(sw->epoll_fd, EPOLL_CTL_ADD, sw->wake_fd, &event) != 0)
        return ss_fail(error, "epoll: %s", strerror(errno));
    return SS_OK;
}

/* 0, or an errno. */
static int start_threads(struct ss_switch *sw) {
    /* Signals are for Python's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&sw->thread, NULL, ss_loop, sw);
    if (status == 0 && (status = pthread_create(&sw->ports_thread, NULL, ss_ports_loop, sw)) != 0) {
        __atomic_store_n(&sw->stop, true, __ATOMIC_RELEASE);
        ss_wake(sw);
        pthread_join(sw->thread, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* Starts forwarding on the ports that were added. */
SS_API int ss_start(struct ss_switch *sw, char *error) {
    if (sw->started) return ss_fail(error, "the switch is running already");
    int r = watch_wake(sw, error);
    for (uint32_t i = 0; i < sw->port_count && r == SS_OK; i++)
        r = ss_port_watch(sw, sw->port_list[i], error);
    if (r != SS_OK) return r;
    sw->started = true;
    int status = start_threads(sw);
    if (status == 0) return SS_OK;
    sw->started = false;
    return ss_fail(error, "thread: %s", strerror(status));
}

/* Ends the forwarding thread, after the one that follows the interfaces. */
SS_API void ss_stop(struct ss_switch *sw) {
    if (!sw->started) return;
    uint64_t one = 1;
    ssize_t n = write(sw->ports_stop_fd, &one, sizeof one);
    (void)n; /* a counter of 0 takes it */
    pthread_join(sw->ports_thread, NULL);
    __atomic_store_n(&sw->stop, true, __ATOMIC_RELEASE);
    ss_wake(sw);
    pthread_join(sw->thread, NULL);
    sw->started = false;
}
