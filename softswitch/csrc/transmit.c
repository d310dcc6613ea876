/* SPDX-License-Identifier: Apache-2.0
 *
 * Sending: a burst's packets leave by one sendmmsg per port, which gathers headers and payload into the
 * kernel's packet: the one copy on their way.
 *
 * Not by a mapped transmit ring, for three reasons. Over veth it is no faster (scripts/bench_switch.py
 * measures both): the ring's pages must be copied when the packet changes sides. A frame whose packet
 * an egress filter dropped stays in the ring and is sent again: of 1,000 packets to an interface where
 * nftables drops every other one, 983 arrived. And a packet could not be longer than a frame.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/*
 * Never waits: a port that is slow (a rate below it) must not stop the others. What it cannot take
 * waits in its send buffer, of ring_bytes, and is lost when that is full, as at the tail of a queue.
 */
static void count_loss(struct ss_port *port) {
    switch (errno) {
    case EAGAIN:
        port->stats.tx_full++;
        break;
    case ENOBUFS:
        port->stats.tx_dropped++;
        break;
    case ENETDOWN:
    case ENXIO:
    case ENODEV:
    case EBADF:
        port->stats.tx_down++;
        break;
    default:
        port->stats.tx_errors++;
    }
}

static void flush(struct ss_port *port) {
    for (uint32_t i = 0; i < port->pending;) {
        int n = sendmmsg(port->link.tx_fd, port->messages + i, port->pending - i, MSG_DONTWAIT);
        if (n > 0) {
            for (int k = 0; k < n; k++) port->stats.tx_bytes += port->messages[i + k].msg_len;
            port->stats.tx_packets += (uint64_t)n;
            i += (uint32_t)n;
        } else if (errno != EINTR) {
            count_loss(port);
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
    port->messages[i].msg_hdr = (struct msghdr){.msg_iov = port->iov[i], .msg_iovlen = 2};
    port->owned[i] = p->owned;
    if (SS_UNLIKELY(port->pcap_out != NULL))
        ss_pcap_write(port->pcap_out, header, header_bytes, p->data, payload_bytes);
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
