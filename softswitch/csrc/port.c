/* SPDX-License-Identifier: Apache-2.0
 *
 * Interfaces: one AF_PACKET socket each. The socket's receive buffer takes bursts; packets are read
 * and written many at a time. An interface that goes down and up again needs nothing: the kernel keeps
 * the socket bound. One that is deleted stays silent.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

/* Room before a packet for the VLAN tag that the kernel took out. */
#define HEADROOM 16
#define TAG_BYTES 4
/* Not a multiple of a page, so that the first bytes of packets do not share cache sets. */
#define STRIDE (SS_MAX_PACKET + HEADROOM + 192)

struct ss_burst {
    struct mmsghdr messages[SS_BURST];
    struct iovec iov[SS_BURST];
    _Alignas(16) uint8_t control[SS_BURST][CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    uint8_t bytes[SS_BURST][STRIDE];
};

/* Pages of `bytes` take memory when a packet first reaches them. NULL: no memory. */
struct ss_burst *ss_burst_new(void) {
    struct ss_burst *b = calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    for (uint32_t i = 0; i < SS_BURST; i++) {
        b->iov[i] = (struct iovec){b->bytes[i] + HEADROOM, SS_MAX_PACKET};
        b->messages[i].msg_hdr.msg_iov = &b->iov[i];
        b->messages[i].msg_hdr.msg_iovlen = 1;
        b->messages[i].msg_hdr.msg_control = b->control[i];
    }
    return b;
}

/* ------------------------------------------------------------------------------------ receive */

/* Puts a tag that the kernel keeps beside the packet back into it. */
static uint8_t *restore_tag(struct msghdr *m, uint8_t *bytes, uint32_t *length) {
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c == NULL || c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) return bytes;
    struct tpacket_auxdata aux;
    memcpy(&aux, CMSG_DATA(c), sizeof aux);
    if (!(aux.tp_status & TP_STATUS_VLAN_VALID) || *length < 2 * ETH_ALEN) return bytes;
    uint16_t tag[2] = {htons(ETHERTYPE_VLAN), htons(aux.tp_vlan_tci)};
    if (aux.tp_status & TP_STATUS_VLAN_TPID_VALID) tag[0] = htons(aux.tp_vlan_tpid);
    memmove(bytes - TAG_BYTES, bytes, 2 * ETH_ALEN);
    memcpy(bytes - TAG_BYTES + 2 * ETH_ALEN, tag, sizeof tag);
    *length += TAG_BYTES;
    return bytes - TAG_BYTES;
}

static void receive_one(struct ss_switch *sw, struct ss_port *port, struct mmsghdr *message,
                        uint8_t *bytes) {
    uint32_t length = message->msg_len;
    if (message->msg_hdr.msg_flags & MSG_TRUNC) {
        port->stats.rx_errors++;
        return;
    }
    bytes = restore_tag(&message->msg_hdr, bytes, &length);
    port->stats.rx_packets++;
    port->stats.rx_bytes += length;
    if (port->pcap_in) ss_pcap_write(port->pcap_in, bytes, length, bytes, 0);
    struct ss_packet *p = sw->program ? ss_packet_new(sw) : NULL;
    if (p == NULL) {
        port->stats.rx_dropped++;
        return;
    }
    p->base = bytes;
    p->base_len = length;
    p->ingress_port = port->number;
    ss_receive(sw, p);
    ss_serve(sw, SS_BURST * SS_BURST);
}

/* Forwards a burst of packets; how many there were. */
uint32_t ss_port_receive(struct ss_switch *sw, struct ss_port *port) {
    struct ss_burst *b = sw->burst;
    for (uint32_t i = 0; i < SS_BURST; i++)
        b->messages[i].msg_hdr.msg_controllen = sizeof b->control[i];
    int n = recvmmsg(port->fd, b->messages, SS_BURST, MSG_DONTWAIT, NULL);
    if (n < 0) {
        /* ENETDOWN is said once when the interface goes down, and cleared by saying it. */
        if (errno != EAGAIN && errno != EINTR) port->stats.rx_errors++;
        return 0;
    }
    for (int i = 0; i < n; i++) receive_one(sw, port, &b->messages[i], b->bytes[i] + HEADROOM);
    if (port->pcap_in) fflush(port->pcap_in);
    return (uint32_t)n;
}

/* ----------------------------------------------------------------------------------- transmit */

static void flush(struct ss_port *port) {
    for (uint32_t i = 0; i < port->pending;) {
        int n = sendmmsg(port->fd, port->messages + i, port->pending - i, MSG_DONTWAIT);
        if (n > 0) {
            for (int k = 0; k < n; k++) port->stats.tx_bytes += port->messages[i + k].msg_len;
            port->stats.tx_packets += (uint64_t)n;
            i += (uint32_t)n;
        } else if (errno != EINTR) {
            /* A full queue or a dropping filter below; or the interface is down or gone. */
            if (errno == EAGAIN || errno == ENOBUFS)
                port->stats.tx_dropped++;
            else
                port->stats.tx_errors++;
            i++;
        }
    }
    for (uint32_t i = 0; i < port->pending; i++) free(port->owned[i]);
    port->pending = 0;
    if (port->pcap_out) fflush(port->pcap_out);
}

/* Where the next packet's headers go. */
uint8_t *ss_port_header_room(struct ss_switch *sw, struct ss_port *port) {
    if (port->pending == SS_BURST) flush(port);
    return port->headers + (size_t)port->pending * sw->program->max_header_bytes;
}

/* The headers were written to ss_port_header_room. Sent at the next flush, before bytes go away. */
void ss_port_transmit(struct ss_switch *sw, struct ss_port *port, struct ss_packet *p,
                      uint32_t header_bytes, uint32_t payload_bytes) {
    uint32_t i = port->pending++;
    uint8_t *header = port->headers + (size_t)i * sw->program->max_header_bytes;
    port->iov[i][0] = (struct iovec){header, header_bytes};
    port->iov[i][1] = (struct iovec){(void *)p->data, payload_bytes};
    port->owned[i] = p->owned;
    if (port->pcap_out) ss_pcap_write(port->pcap_out, header, header_bytes, p->data, payload_bytes);
    p->owned = NULL;
    if (!port->dirty) {
        port->dirty = true;
        port->next_dirty = sw->dirty;
        sw->dirty = port;
    }
}

void ss_flush_all(struct ss_switch *sw) {
    while (sw->dirty) {
        struct ss_port *port = sw->dirty;
        sw->dirty = port->next_dirty;
        port->dirty = false;
        flush(port);
    }
}

/* --------------------------------------------------------------------------------- open, close */

static bool set_int(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/* `number` and `name` are set. The interface may be down. */
int ss_port_open(struct ss_port *port, uint32_t ring_bytes, char *error) {
    for (uint32_t i = 0; i < SS_BURST; i++) {
        port->messages[i].msg_hdr.msg_iov = port->iov[i];
        port->messages[i].msg_hdr.msg_iovlen = 2;
    }
    unsigned index = if_nametoindex(port->name);
    if (index == 0) return ss_fail(error, "there is no interface %s", port->name);
    /* Protocol 0: nothing arrives before the socket is bound to its interface. */
    port->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (port->fd < 0) return ss_fail(error, "%s: packet socket: %s", port->name, strerror(errno));
    int half = (int)(ring_bytes / 2); /* the kernel doubles it */
    if (!set_int(port->fd, SOL_SOCKET, SO_RCVBUFFORCE, half) &&
        !set_int(port->fd, SOL_SOCKET, SO_RCVBUF, half))
        return ss_fail(error, "%s: receive buffer: %s", port->name, strerror(errno));
    if (!set_int(port->fd, SOL_SOCKET, SO_SNDBUFFORCE, half) &&
        !set_int(port->fd, SOL_SOCKET, SO_SNDBUF, half))
        return ss_fail(error, "%s: send buffer: %s", port->name, strerror(errno));
    if (!set_int(port->fd, SOL_PACKET, PACKET_AUXDATA, 1) ||
        !set_int(port->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1))
        return ss_fail(error, "%s: packet options: %s", port->name, strerror(errno));
    struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
    if (setsockopt(port->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) != 0)
        return ss_fail(error, "%s: promiscuous mode: %s", port->name, strerror(errno));
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index};
    if (bind(port->fd, (struct sockaddr *)&address, sizeof address) != 0)
        return ss_fail(error, "%s: bind: %s", port->name, strerror(errno));
    return SS_OK;
}

void ss_port_close(struct ss_port *port) {
    for (uint32_t i = 0; i < port->pending; i++) free(port->owned[i]);
    if (port->fd >= 0) close(port->fd);
    if (port->pcap_in) fclose(port->pcap_in);
    if (port->pcap_out) fclose(port->pcap_out);
    free(port->headers);
    free(port);
}

/* The kernel's count of packets that found the receive buffer full starts afresh at each reading. */
SS_API int ss_port_read_stats(struct ss_switch *sw, uint32_t number, struct ss_port_stats *out) {
    pthread_mutex_lock(&sw->lock);
    struct ss_port *port = sw->ports[number];
    if (port) {
        ss_park(sw);
        struct tpacket_stats kernel;
        socklen_t size = sizeof kernel;
        if (getsockopt(port->fd, SOL_PACKET, PACKET_STATISTICS, &kernel, &size) == 0)
            port->stats.rx_dropped += kernel.tp_drops;
        if (sw->egress[number]) port->stats.queue_dropped = sw->egress[number]->dropped;
        *out = port->stats;
        ss_unpark(sw);
    }
    pthread_mutex_unlock(&sw->lock);
    return port ? SS_OK : SS_E_NOT_FOUND;
}
