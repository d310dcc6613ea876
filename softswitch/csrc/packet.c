/* SPDX-License-Identifier: Apache-2.0
 *
 * The packet pool, and who owns the bytes of a packet.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* NULL: no memory. Only the fields that say where the packet comes from are left to the caller. */
struct ss_packet *ss_packet_new(struct ss_switch *sw) {
    struct ss_packet *p = sw->free_packets;
    if (SS_LIKELY(p != NULL)) {
        sw->free_packets = p->next;
    } else {
        size_t bytes = sizeof *p + sw->program->phv_size;
        p = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (p == NULL) return NULL;
    }
    memset(p, 0, sizeof *p);
    p->truncated = SS_NOT_TRUNCATED;
    return p;
}

void ss_packet_free(struct ss_switch *sw, struct ss_packet *p) {
    free(p->owned);
    p->next = sw->free_packets;
    sw->free_packets = p;
}

/* Packets of another program have another size. */
void ss_packet_pool_free(struct ss_switch *sw) {
    while (sw->free_packets) {
        struct ss_packet *p = sw->free_packets;
        sw->free_packets = p->next;
        free(p);
    }
}

/* Copies borrowed bytes; the parsed part is not needed any more. False: no memory. */
bool ss_own(struct ss_packet *p) {
    if (p->owned != NULL) return true;
    uint8_t *bytes = malloc(p->len ? p->len : 1);
    if (bytes == NULL) return false;
    memcpy(bytes, p->data, p->len);
    p->owned = bytes;
    p->base = p->data = bytes;
    p->base_len = p->len;
    return true;
}

/* Gives `copy` the unparsed bytes of `p`. Borrowed bytes can be borrowed twice, owned ones not. */
bool ss_share(struct ss_packet *copy, const struct ss_packet *p) {
    copy->base = copy->data = p->data;
    copy->base_len = copy->len = p->len;
    copy->owned = NULL;
    return p->owned == NULL || ss_own(copy);
}
