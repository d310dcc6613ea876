/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports: their sockets, whether their interfaces are there and up, their counts.
 *
 * Two AF_PACKET sockets each. One receives, into a ring that is mapped here (receive.c); the other
 * sends (transmit.c). They are two because PACKET_VNET_HDR, which says what a local sender left undone
 * in a packet, would otherwise be wanted in front of every packet that leaves, too.
 *
 * A packet socket dies with its interface. When an interface of the port's name is there again, new
 * sockets are opened; netlink.c says when to look. The kernel takes tens of milliseconds for sockets with
 * rings; the forwarding thread is parked only while a port's link is replaced.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

#define BLOCK_BYTES 65536u
/* In front of a packet in its frame, so that a VLAN tag can be put back. */
#define HEADROOM 16u

static int fail(const char *name, char *error, const char *what) {
    return ss_fail(error, "%s: %s: %s", name, what, strerror(errno));
}

static bool set_int(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/* Beyond the system's limit for those who may, up to it for others. */
static bool set_buffer(int fd, int forced, int plain, uint32_t bytes) {
    int half = (int)(bytes / 2); /* the kernel doubles it */
    return set_int(fd, SOL_SOCKET, forced, half) || set_int(fd, SOL_SOCKET, plain, half);
}

static bool bind_to(int fd, int ifindex, uint16_t protocol) {
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = ifindex};
    return bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
}

static bool map_ring(struct ss_link *link, uint32_t ring_bytes) {
    uint32_t blocks = ring_bytes / BLOCK_BYTES;
    /* A burst must not reach its own first frame again. */
    uint32_t least = 2 * SS_BURST * SS_FRAME_BYTES / BLOCK_BYTES;
    if (blocks < least) blocks = least;
    struct tpacket_req request = {
        .tp_block_size = BLOCK_BYTES,
        .tp_block_nr = blocks,
        .tp_frame_size = SS_FRAME_BYTES,
        .tp_frame_nr = blocks * (BLOCK_BYTES / SS_FRAME_BYTES),
    };
    if (setsockopt(link->rx_fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        return false;
    size_t bytes = (size_t)BLOCK_BYTES * blocks;
    void *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, link->rx_fd, 0);
    if (ring == MAP_FAILED) return false;
    link->ring = ring;
    link->ring_bytes = bytes;
    link->frames = request.tp_frame_nr;
    return true;
}

static int open_receiver(struct ss_link *link, const char *name, uint32_t ring_bytes, char *error) {
    /* Protocol 0: nothing arrives before the socket is bound to its interface. */
    int fd = link->rx_fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail(name, error, "packet socket");
    if (!set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, ring_bytes))
        return fail(name, error, "receive buffer");
    /* COPY_THRESH: packets that are longer than a frame come through the receive buffer. */
    if (!set_int(fd, SOL_PACKET, PACKET_VERSION, TPACKET_V2) ||
        !set_int(fd, SOL_PACKET, PACKET_VNET_HDR, 1) ||
        !set_int(fd, SOL_PACKET, PACKET_RESERVE, HEADROOM) ||
        !set_int(fd, SOL_PACKET, PACKET_COPY_THRESH, 1) ||
        !set_int(fd, SOL_PACKET, PACKET_AUXDATA, 1) ||
        !set_int(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1))
        return fail(name, error, "packet options");
    if (!map_ring(link, ring_bytes)) return fail(name, error, "receive ring");
    struct packet_mreq promiscuous = {.mr_ifindex = link->ifindex, .mr_type = PACKET_MR_PROMISC};
    if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) != 0)
        return fail(name, error, "promiscuous mode");
    if (!bind_to(fd, link->ifindex, ETH_P_ALL)) return fail(name, error, "bind");
    return SS_OK;
}

static int open_sender(struct ss_link *link, const char *name, uint32_t buffer_bytes, char *error) {
    link->tx_fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (link->tx_fd < 0) return fail(name, error, "packet socket");
    if (!set_buffer(link->tx_fd, SO_SNDBUFFORCE, SO_SNDBUF, buffer_bytes))
        return fail(name, error, "send buffer");
    if (!bind_to(link->tx_fd, link->ifindex, 0)) return fail(name, error, "bind");
    return SS_OK;
}

/* Packets that found the ring full; the kernel's count starts afresh at each reading. */
static uint64_t take_drops(const struct ss_link *link) {
    struct tpacket_stats kernel;
    socklen_t size = sizeof kernel;
    if (link->rx_fd < 0 ||
        getsockopt(link->rx_fd, SOL_PACKET, PACKET_STATISTICS, &kernel, &size) != 0)
        return 0;
    return kernel.tp_drops;
}

static void close_link(struct ss_link *link) {
    if (link->ring) munmap(link->ring, link->ring_bytes);
    if (link->rx_fd >= 0) close(link->rx_fd);
    if (link->tx_fd >= 0) close(link->tx_fd);
    *link = (struct ss_link){.rx_fd = -1, .tx_fd = -1};
}

/* `ifindex` 0: a link to nothing. */
static int open_link(struct ss_link *link, const char *name, int ifindex, uint32_t ring_bytes,
                     char *error) {
    *link = (struct ss_link){.rx_fd = -1, .tx_fd = -1};
    if (ifindex == 0) return SS_OK;
    link->ifindex = ifindex;
    int r = open_receiver(link, name, ring_bytes, error);
    if (r == SS_OK) r = open_sender(link, name, ring_bytes, error);
    if (r != SS_OK) close_link(link);
    return r;
}

/* What the interface of this name is now: its index, or 0, and whether packets pass. */
static int look(int fd, const char *name, bool *up) {
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    *up = false;
    if (ioctl(fd, SIOCGIFINDEX, &request) != 0) return 0;
    int index = request.ifr_ifindex;
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) return 0;
    *up = (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING);
    return index;
}

/* The forwarding thread is parked or not there. */
int ss_port_watch(struct ss_switch *sw, const struct ss_port *port, char *error) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = port->number};
    if (port->link.rx_fd >= 0 &&
        epoll_ctl(sw->epoll_fd, EPOLL_CTL_ADD, port->link.rx_fd, &event) != 0)
        return ss_fail(error, "%s: epoll: %s", port->name, strerror(errno));
    return SS_OK;
}

static void set_up(struct ss_switch *sw, struct ss_port *port, bool up) {
    if (port->up == up) return;
    __atomic_store_n(&port->up, up, __ATOMIC_RELAXED);
    if (sw->started) ss_event_port(sw, port->number, up);
}

/* Holding ports_lock, while the switch runs: connects the port to another interface, or to none. */
static int connect_to(struct ss_switch *sw, struct ss_port *port, int ifindex, char *error) {
    struct ss_link link;
    int r = open_link(&link, port->name, ifindex, sw->options.ring_bytes, error);
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    struct ss_link old = port->link;
    port->stats.rx_dropped += take_drops(&old);
    port->link = link;
    if (r == SS_OK) r = ss_port_watch(sw, port, error);
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
    close_link(&old);
    return r;
}

/* Holding ports_lock: the interface may have changed. */
void ss_port_refresh(struct ss_switch *sw, struct ss_port *port) {
    bool up;
    int ifindex = look(sw->netlink_fd, port->name, &up);
    char error[SS_ERROR_BYTES];
    /* When it fails it may be gone again: then there will be another message about it. */
    if (port->link.ifindex != ifindex && connect_to(sw, port, ifindex, error) != SS_OK) {
        fprintf(stderr, "softswitch: port %u: %s\n", port->number, error);
        up = false;
    }
    set_up(sw, port, up);
}

/* Reports of a socket (the interface went down) must be fetched, or epoll repeats them for ever. */
void ss_port_socket_error(struct ss_port *port) {
    int error;
    socklen_t size = sizeof error;
    if (port->link.rx_fd >= 0) getsockopt(port->link.rx_fd, SOL_SOCKET, SO_ERROR, &error, &size);
}

static void destroy(struct ss_port *port) {
    close_link(&port->link);
    if (port->pcap_in) fclose(port->pcap_in);
    if (port->pcap_out) fclose(port->pcap_out);
    free(port->headers);
    free(port);
}

void ss_ports_close(struct ss_switch *sw) {
    for (uint32_t i = 0; i < sw->port_count; i++) destroy(sw->port_list[i]);
    sw->port_count = 0;
}

/* Room for the headers of a burst. */
int ss_port_make_header_room(struct ss_port *port, uint32_t header_bytes) {
    free(port->headers);
    port->headers = malloc((size_t)SS_BURST * (header_bytes ? header_bytes : 1));
    return port->headers ? SS_OK : SS_E_MEMORY;
}

/* ---------------------------------------------------------------------------------------- Python */

static struct ss_port *new_port(uint32_t number, const char *name) {
    struct ss_port *port = calloc(1, sizeof *port);
    if (port == NULL) return NULL;
    port->number = number;
    port->link.rx_fd = port->link.tx_fd = -1;
    strcpy(port->name, name);
    return port;
}

static int open_port(struct ss_switch *sw, struct ss_port *port, const char *pcap_in,
                     const char *pcap_out, char *error) {
    int ifindex = look(sw->netlink_fd, port->name, &port->up);
    if (ifindex == 0) return ss_fail(error, "there is no interface %s", port->name);
    int r = open_link(&port->link, port->name, ifindex, sw->options.ring_bytes, error);
    if (r != SS_OK) return r;
    if (pcap_in && (port->pcap_in = ss_pcap_open(pcap_in, error)) == NULL) return SS_E_SYSTEM;
    if (pcap_out && (port->pcap_out = ss_pcap_open(pcap_out, error)) == NULL) return SS_E_SYSTEM;
    return SS_OK;
}

/* Makes the forwarding thread see a port that is open. */
static int enlist(struct ss_switch *sw, struct ss_port *port, char *error) {
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    int r = SS_OK;
    if (sw->program && ss_port_make_header_room(port, sw->program->max_header_bytes) != SS_OK)
        r = ss_fail(error, "no memory for the headers of port %u", port->number);
    if (r == SS_OK && sw->started) r = ss_port_watch(sw, port, error);
    if (r == SS_OK) {
        sw->ports[port->number] = port;
        sw->port_list[sw->port_count++] = port;
        if (sw->started && port->up) ss_event_port(sw, port->number, true);
    }
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
    return r;
}

/* Opens an interface as a port; the switch may run. The paths of capture files may be NULL. */
SS_API int ss_add_port(struct ss_switch *sw, uint32_t number, const char *name, const char *pcap_in,
                       const char *pcap_out, char *error) {
    if (number >= SS_MAX_PORTS) return ss_fail(error, "port %u: at most %u", number, SS_MAX_PORTS - 1);
    if (strlen(name) >= IFNAMSIZ)
        return ss_fail(error, "%s: names of interfaces have at most %u bytes", name, IFNAMSIZ - 1);
    struct ss_port *port = new_port(number, name);
    if (port == NULL) return ss_fail(error, "no memory for port %u", number);
    pthread_mutex_lock(&sw->ports_lock);
    int r = sw->ports[number] ? ss_fail(error, "port %u is there already", number) : SS_OK;
    for (uint32_t i = 0; r == SS_OK && i < sw->port_count; i++)
        if (strcmp(sw->port_list[i]->name, name) == 0)
            r = ss_fail(error, "%s is port %u already", name, sw->port_list[i]->number);
    if (r == SS_OK) r = open_port(sw, port, pcap_in, pcap_out, error);
    if (r == SS_OK) r = enlist(sw, port, error);
    pthread_mutex_unlock(&sw->ports_lock);
    if (r != SS_OK) destroy(port);
    return r;
}

/* Closes a port; the switch may run. What waits in its queues is dropped when it is due. */
SS_API int ss_remove_port(struct ss_switch *sw, uint32_t number) {
    pthread_mutex_lock(&sw->ports_lock);
    pthread_mutex_lock(&sw->lock);
    struct ss_port *port = number < SS_MAX_PORTS ? sw->ports[number] : NULL;
    if (port) {
        ss_park(sw);
        uint32_t i = 0;
        while (sw->port_list[i] != port) i++;
        sw->port_list[i] = sw->port_list[--sw->port_count];
        sw->ports[number] = NULL;
        set_up(sw, port, false);
        ss_unpark(sw);
    }
    pthread_mutex_unlock(&sw->lock);
    pthread_mutex_unlock(&sw->ports_lock);
    if (port == NULL) return SS_E_NOT_FOUND;
    destroy(port);
    return SS_OK;
}

/* Whether the port's interface is there, up and connected: 1 or 0. SS_E_NOT_FOUND: no such port. */
SS_API int ss_port_is_up(struct ss_switch *sw, uint32_t number) {
    pthread_mutex_lock(&sw->lock);
    const struct ss_port *port = number < SS_MAX_PORTS ? sw->ports[number] : NULL;
    int r = port ? __atomic_load_n(&port->up, __ATOMIC_RELAXED) : SS_E_NOT_FOUND;
    pthread_mutex_unlock(&sw->lock);
    return r;
}

SS_API int ss_port_read_stats(struct ss_switch *sw, uint32_t number, struct ss_port_stats *out) {
    pthread_mutex_lock(&sw->lock);
    struct ss_port *port = number < SS_MAX_PORTS ? sw->ports[number] : NULL;
    if (port) {
        ss_park(sw);
        port->stats.rx_dropped += take_drops(&port->link);
        if (sw->egress[number]) port->stats.queue_dropped = sw->egress[number]->dropped;
        *out = port->stats;
        ss_unpark(sw);
    }
    pthread_mutex_unlock(&sw->lock);
    return port ? SS_OK : SS_E_NOT_FOUND;
}
