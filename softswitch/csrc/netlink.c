/* SPDX-License-Identifier: Apache-2.0
 *
 * Interfaces that go away, come back, or change between up and down: the kernel tells (rtnetlink(7)).
 */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
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

void ss_refresh_ports(struct ss_switch *sw) {
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
        if (port->ifindex == info->ifi_index || strcmp(port->name, name) == 0)
            ss_port_refresh(sw, port);
    }
}

/* The forwarding thread, between two bursts. */
void ss_netlink_read(struct ss_switch *sw) {
    _Alignas(struct nlmsghdr) uint8_t buffer[16384];
    for (;;) {
        ssize_t n = recv(sw->netlink_fd, buffer, sizeof buffer, 0);
        if (n < 0 && errno == ENOBUFS) { /* messages were lost */
            ss_refresh_ports(sw);
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
