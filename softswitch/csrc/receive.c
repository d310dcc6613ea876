/* SPDX-License-Identifier: Apache-2.0
 *
 * Receiving: packets are parsed and forwarded where the kernel put them, in a mapped TPACKET_V2 ring.
 * V2, because V3 hands over blocks of packets, and a lone one would wait for its block's timer.
 *
 * In front of each packet is a struct virtio_net_hdr. A packet of a local stack that computes no
 * checksums (an interface with checksum offload) gets its checksum here, as on its way onto a wire.
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define TAG_BYTES 4u
#define VNET_BYTES ((uint32_t)sizeof(struct virtio_net_hdr))

/* Puts a tag that the kernel keeps beside the packet back into it, 4 bytes further to the front. */
static uint8_t *restore_tag(uint8_t *bytes, uint32_t status, uint16_t tpid, uint16_t tci) {
    uint16_t tag[2] = {htons(ETHERTYPE_VLAN), htons(tci)};
    if (status & TP_STATUS_VLAN_TPID_VALID) tag[0] = htons(tpid);
    memmove(bytes - TAG_BYTES, bytes, 2 * ETH_ALEN);
    memcpy(bytes - TAG_BYTES + 2 * ETH_ALEN, tag, sizeof tag);
    return bytes - TAG_BYTES;
}

/* The Internet checksum (RFC 1071) from where and to where the sender's stack wanted it. */
static void complete_checksum(const uint8_t *header, uint8_t *bytes, uint32_t length) {
    struct virtio_net_hdr vnet;
    memcpy(&vnet, header, sizeof vnet);
    uint32_t at = (uint32_t)vnet.csum_start + vnet.csum_offset;
    if (!(vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || at + 2 > length) return;
    uint64_t sum = 0;
    uint32_t i = vnet.csum_start;
    for (; i + 1 < length; i += 2) sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    if (i < length) sum += (uint32_t)bytes[i] << 8;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    uint16_t checksum = (uint16_t)~sum;
    if (checksum == 0) checksum = 0xffff; /* UDP: 0 would mean none; the same number elsewhere */
    bytes[at] = (uint8_t)(checksum >> 8);
    bytes[at + 1] = (uint8_t)checksum;
}

/* Takes `owned` over. */
static void deliver(struct ss_switch *sw, struct ss_port *port, const uint8_t *bytes, uint32_t length,
                    uint8_t *owned) {
    port->stats.rx_packets++;
    port->stats.rx_bytes += length;
    if (SS_UNLIKELY(port->pcap_in != NULL)) ss_pcap_write(port->pcap_in, bytes, length, bytes, 0);
    struct ss_packet *p = sw->program ? ss_packet_new(sw) : NULL;
    if (SS_UNLIKELY(p == NULL)) {
        port->stats.rx_dropped++;
        free(owned);
        return;
    }
    p->base = bytes;
    p->base_len = length;
    p->owned = owned;
    p->ingress_port = port->number;
    ss_receive(sw, p);
    ss_serve(sw, SS_BURST * SS_BURST);
}

/* A packet that is longer than a frame waits in the receive buffer, in the ring's order. */
static void receive_long(struct ss_switch *sw, struct ss_port *port, const struct tpacket2_hdr *h) {
    uint32_t room = h->tp_len + TAG_BYTES;
    uint8_t *memory = malloc(TAG_BYTES + room);
    uint8_t *bytes = memory ? memory + TAG_BYTES : NULL;
    uint8_t vnet[VNET_BYTES];
    struct iovec iov[2] = {{vnet, sizeof vnet}, {bytes, bytes ? room : 0}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t n = recvmsg(port->link.rx_fd, &m, MSG_DONTWAIT);
    if (n < (ssize_t)sizeof vnet || (m.msg_flags & MSG_TRUNC)) {
        port->stats.rx_errors++;
        free(memory);
        return;
    }
    uint32_t length = (uint32_t)n - VNET_BYTES;
    if (h->tp_status & TP_STATUS_CSUMNOTREADY) complete_checksum(vnet, bytes, length);
    if (h->tp_status & TP_STATUS_VLAN_VALID) {
        bytes = restore_tag(bytes, h->tp_status, h->tp_vlan_tpid, h->tp_vlan_tci);
        length += TAG_BYTES;
    }
    deliver(sw, port, bytes, length, memory);
}

static void receive_frame(struct ss_switch *sw, struct ss_port *port, struct tpacket2_hdr *h,
                          uint32_t status) {
    uint8_t *bytes = (uint8_t *)h + h->tp_mac;
    uint32_t length = h->tp_snaplen;
    if (SS_UNLIKELY(status & TP_STATUS_COPY)) {
        receive_long(sw, port, h);
        return;
    }
    if (SS_UNLIKELY(length < h->tp_len)) { /* too long, and the receive buffer was full */
        port->stats.rx_dropped++;
        return;
    }
    if (SS_UNLIKELY(status & TP_STATUS_CSUMNOTREADY))
        complete_checksum(bytes - VNET_BYTES, bytes, length);
    if (SS_UNLIKELY(status & TP_STATUS_VLAN_VALID)) {
        bytes = restore_tag(bytes, status, h->tp_vlan_tpid, h->tp_vlan_tci);
        length += TAG_BYTES;
    }
    deliver(sw, port, bytes, length, NULL);
}

static struct tpacket2_hdr *frame_at(const struct ss_port *port, uint32_t index) {
    return (struct tpacket2_hdr *)(void *)(port->link.ring + (size_t)index * SS_FRAME_BYTES);
}

static uint32_t following(const struct ss_port *port, uint32_t index) {
    return index + 1 == port->link.frames ? 0 : index + 1;
}

bool ss_port_has_packets(const struct ss_port *port) {
    return port->link.ring && SS_LOAD(&frame_at(port, port->link.head)->tp_status) & TP_STATUS_USER;
}

/* Forwards a burst; how many packets. Their frames stay ours until ss_port_release. */
uint32_t ss_port_receive(struct ss_switch *sw, struct ss_port *port) {
    if (SS_UNLIKELY(port->link.ring == NULL)) return 0;
    uint32_t n = 0;
    for (; n < SS_BURST; n++) {
        struct tpacket2_hdr *h = frame_at(port, port->link.head);
        uint32_t status = SS_LOAD(&h->tp_status);
        if (!(status & TP_STATUS_USER)) break;
        port->link.head = following(port, port->link.head);
        const uint8_t *next = (const uint8_t *)frame_at(port, port->link.head);
        for (unsigned line = 0; line < 192; line += 64) /* as far as its first headers */
            __builtin_prefetch(next + line);
        receive_frame(sw, port, h, status);
    }
    if (SS_UNLIKELY(n > 0 && port->pcap_in != NULL)) fflush(port->pcap_in);
    return n;
}

/* After the flush: nothing points into the frames any more. */
void ss_port_release(struct ss_port *port) {
    struct ss_link *link = &port->link;
    for (; link->release != link->head; link->release = following(port, link->release))
        SS_STORE(&frame_at(port, link->release)->tp_status, (uint32_t)TP_STATUS_KERNEL);
}
