/* SPDX-License-Identifier: Apache-2.0
 *
 * Interfaces that go away, come back, or change between up and down: the kernel tells (rtnetlink(7)).
 * A thread of its own listens, for opening and closing packet sockets takes tens of milliseconds, in which
 * the other ports go on forwarding.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "engine.h"

/* -1: errno says why. */
int ss_netlink_open(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd < 0) return -1;
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

static void refresh_all(struct ss_switch *sw) {
    for (uint32_t i = 0; i < sw->port_count; i++) ss_port_refresh(sw, sw->port_list[i]);
}

/* What a message says is only a reason to look: it may be old, or others may have been lost. */
static void refresh_named(struct ss_switch *sw, const struct nlmsghdr *m) {
    if (m->nlmsg_type != RTM_NEWLINK && m->nlmsg_type != RTM_DELLINK) return;
    const struct ifinfomsg *info = NLMSG_DATA(m);
    const char *name = "";
    int left = (int)IFLA_PAYLOAD(m);
    for (const struct rtattr *a = IFLA_RTA(info); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == IFLA_IFNAME) name = RTA_DATA(a);
    for (uint32_t i = 0; i < sw->port_count; i++) {
        struct ss_port *port = sw->port_list[i];
        if (port->link.ifindex == info->ifi_index || strcmp(port->name, name) == 0)
            ss_port_refresh(sw, port);
    }
}

static void read_messages(struct ss_switch *sw) {
    _Alignas(struct nlmsghdr) uint8_t buffer[16384];
    for (;;) {
        ssize_t n = recv(sw->netlink_fd, buffer, sizeof buffer, 0);
        if (n < 0 && errno == ENOBUFS) { /* messages were lost */
            refresh_all(sw);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        int left = (int)n;
        for (struct nlmsghdr *m = (void *)buffer; NLMSG_OK(m, (uint32_t)left);
             m = NLMSG_NEXT(m, left))
            refresh_named(sw, m);
    }
}

void *ss_ports_loop(void *argument) {
    struct ss_switch *sw = argument;
    prctl(PR_SET_NAME, "softswitch-if", 0, 0, 0);
    struct pollfd waits[] = {{.fd = sw->ports_stop_fd, .events = POLLIN},
                             {.fd = sw->netlink_fd, .events = POLLIN}};
    for (;;) {
        poll(waits, 2, -1);
        if (waits[0].revents) return NULL;
        pthread_mutex_lock(&sw->ports_lock);
        read_messages(sw);
        pthread_mutex_unlock(&sw->ports_lock);
    }
}
