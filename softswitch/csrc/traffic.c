/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of a packet: ingress, copies, queues, egress, and out; the order is simple_switch's.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* The clock is read only for programs that depend on it. */
void ss_clock(struct ss_switch *sw) {
    if (sw->program->needs_clock) sw->now_us = sw->state->now_us = ss_time_us(sw);
}

/* Time-outs need to know when an entry was hit, but not to the microsecond. */
void ss_burst_clock(struct ss_switch *sw) {
    if (sw->program && sw->program->has_timeouts) sw->state->now_us = ss_time_us(sw);
}

/* ------------------------------------------------------------------------------------- copies */

static void take_over(struct ss_packet *copy, const struct ss_packet *p, uint32_t length) {
    copy->ingress_port = p->ingress_port;
    copy->arrival_us = p->arrival_us;
    copy->counted_length = p->counted_length;
    copy->length = length;
}

/* A copy with headers, metadata and the unparsed bytes. NULL: no memory. */
static struct ss_packet *duplicate(struct ss_switch *sw, const struct ss_packet *p) {
    struct ss_packet *copy = ss_packet_new(sw);
    if (copy == NULL) return NULL;
    take_over(copy, p, p->length);
    copy->instance_type = p->instance_type;
    copy->priority = p->priority;
    memcpy(copy->phv, p->phv, sw->program->phv_size);
    if (ss_share(copy, p)) return copy;
    ss_packet_free(sw, copy);
    return NULL;
}

/* A copy as it arrived, with cleared metadata but for a field list; headers not parsed. */
static struct ss_packet *rewound(struct ss_switch *sw, const struct ss_packet *p, uint32_t length) {
    struct ss_packet *copy = ss_packet_new(sw);
    if (copy == NULL) return NULL;
    take_over(copy, p, length);
    copy->base = copy->data = p->base;
    copy->base_len = copy->len = p->base_len;
    if (p->owned == NULL || ss_own(copy)) return copy;
    ss_packet_free(sw, copy);
    return NULL;
}

/* Sends a copy of `p` to every replica. */
static void replicate(struct ss_switch *sw, const struct ss_packet *p, const struct ss_replicas *r,
                      uint32_t truncate) {
    for (uint32_t i = 0; i < r->count; i++) {
        struct ss_packet *copy = duplicate(sw, p);
        if (copy == NULL) return;
        copy->truncated = truncate;
        sw->program->set_replication_id(copy, r->list[i].rid);
        ss_enqueue(sw, copy, r->list[i].port);
    }
}

static void clone_at_ingress(struct ss_switch *sw, const struct ss_packet *p, uint32_t arrived) {
    const struct ss_replicas *session =
        ss_replicas_find(&sw->clones, p->clone_session & (SS_CLONE_REQUESTED - 1));
    if (session == NULL) return;
    struct ss_packet *copy = rewound(sw, p, arrived);
    if (copy == NULL) return;
    sw->program->clone_ingress(sw->state, p, copy, p->clone_list);
    sw->program->set_instance_type(copy, SS_INGRESS_CLONE);
    copy->priority = session->priority;
    replicate(sw, copy, session, session->truncate);
    ss_packet_free(sw, copy);
}

static void clone_at_egress(struct ss_switch *sw, const struct ss_packet *p) {
    const struct ss_replicas *session =
        ss_replicas_find(&sw->clones, p->clone_session & (SS_CLONE_REQUESTED - 1));
    if (session == NULL) return;
    struct ss_packet *copy = duplicate(sw, p);
    if (copy == NULL) return;
    copy->priority = session->priority; /* metadata starts afresh */
    sw->program->preserve(sw->state, p, copy, p->clone_list);
    sw->program->set_instance_type(copy, SS_EGRESS_CLONE);
    replicate(sw, copy, session, session->truncate);
    ss_packet_free(sw, copy);
}

/* ---------------------------------------------------------------------------------- once again */

/* Puts a packet with bytes of its own to the start of ingress. */
static void append_loop(struct ss_switch *sw, const struct ss_packet *p, struct ss_packet *again,
                        uint32_t list, enum ss_instance_type type) {
    if (sw->loop_size >= SS_LOOP_CAPACITY) {
        sw->loop_dropped++;
        ss_packet_free(sw, again);
        return;
    }
    sw->program->start(sw->state, again);
    sw->program->preserve(sw->state, p, again, list);
    sw->program->set_instance_type(again, type);
    again->next = NULL;
    *sw->loop_tail = again;
    sw->loop_tail = &again->next;
    sw->loop_size++;
}

static void resubmit(struct ss_switch *sw, const struct ss_packet *p, uint32_t arrived) {
    struct ss_packet *again = rewound(sw, p, arrived);
    if (again == NULL) return;
    if (ss_own(again))
        append_loop(sw, p, again, p->resubmit_list, SS_RESUBMITTED);
    else
        ss_packet_free(sw, again);
}

static void recirculate(struct ss_switch *sw, const struct ss_packet *p, const uint8_t *header,
                        uint32_t header_bytes) {
    struct ss_packet *again = ss_packet_new(sw);
    uint32_t bytes = header_bytes + p->len;
    uint8_t *memory = malloc(bytes ? bytes : 1);
    if (again == NULL || memory == NULL) {
        free(memory);
        if (again) ss_packet_free(sw, again);
        return;
    }
    memcpy(memory, header, header_bytes);
    memcpy(memory + header_bytes, p->data, p->len);
    take_over(again, p, bytes);
    again->counted_length = bytes;
    again->owned = memory;
    again->base = again->data = memory;
    again->base_len = again->len = bytes;
    append_loop(sw, p, again, p->recirculate_list, SS_RECIRCULATED);
}

/* ------------------------------------------------------------------------------------- ingress */

static void run_ingress(struct ss_switch *sw, struct ss_packet *p) {
    const struct ss_program *program = sw->program;
    uint32_t arrived = p->length;
    program->ingress(sw->state, p);
    p->exit = false;
    if (SS_UNLIKELY(p->clone_session)) {
        clone_at_ingress(sw, p, arrived);
        p->clone_session = p->clone_list = 0;
    }
    if (SS_UNLIKELY(p->learn_list)) ss_event_digest(sw, p);
    if (SS_UNLIKELY(p->resubmit_list)) {
        resubmit(sw, p, arrived);
        ss_packet_free(sw, p);
        return;
    }
    if (p->multicast_group) {
        const struct ss_replicas *group = ss_replicas_find(&sw->multicast, p->multicast_group);
        program->set_instance_type(p, SS_REPLICATED);
        if (group) replicate(sw, p, group, SS_NOT_TRUNCATED);
        ss_packet_free(sw, p);
        return;
    }
    if (p->egress_spec == sw->options.drop_port || p->egress_spec >= SS_MAX_PORTS) {
        ss_packet_free(sw, p);
        return;
    }
    program->set_instance_type(p, SS_NORMAL);
    ss_enqueue(sw, p, p->egress_spec);
}

/* A new packet: `base`, `base_len`, `owned` and `ingress_port` are set. */
void ss_receive(struct ss_switch *sw, struct ss_packet *p) {
    ss_clock(sw);
    p->data = p->base;
    p->len = p->counted_length = p->length = p->base_len;
    p->arrival_us = sw->now_us;
    sw->program->start(sw->state, p);
    run_ingress(sw, p);
}

/* Resubmitted and recirculated packets, at most `budget`. */
void ss_serve_loops(struct ss_switch *sw, uint32_t budget) {
    struct ss_packet *p;
    for (; budget > 0 && (p = sw->loop_head) != NULL; budget--) {
        sw->loop_head = p->next;
        if (sw->loop_head == NULL) sw->loop_tail = &sw->loop_head;
        sw->loop_size--;
        ss_clock(sw);
        p->arrival_us = sw->now_us;
        run_ingress(sw, p);
    }
}

/* -------------------------------------------------------------------------------------- egress */

/* Appends port, length and bytes to what ss_process returns. */
static void output(struct ss_switch *sw, uint32_t port, const uint8_t *header, uint32_t header_bytes,
                   const uint8_t *payload, uint32_t payload_bytes) {
    struct ss_output *o = &sw->output;
    uint32_t prefix[2] = {port, header_bytes + payload_bytes};
    size_t needed = o->length + sizeof prefix + prefix[1];
    if (needed > o->capacity) {
        uint8_t *bytes = realloc(o->bytes, needed * 2);
        if (bytes == NULL) {
            sw->failed = true;
            snprintf(sw->failure, sizeof sw->failure, "no memory for the output");
            return;
        }
        o->bytes = bytes;
        o->capacity = needed * 2;
    }
    uint8_t *to = o->bytes + o->length;
    memcpy(to, prefix, sizeof prefix);
    memcpy(to + sizeof prefix, header, header_bytes);
    memcpy(to + sizeof prefix + header_bytes, payload, payload_bytes);
    o->length = needed;
}

void ss_run_egress(struct ss_switch *sw, struct ss_packet *p) {
    const struct ss_program *program = sw->program;
    program->egress(sw->state, p);
    p->exit = false;
    if (SS_UNLIKELY(p->clone_session)) {
        clone_at_egress(sw, p);
        p->clone_session = p->clone_list = 0;
    }
    if (p->egress_spec == sw->options.drop_port) {
        ss_packet_free(sw, p);
        return;
    }
    bool to_wire = !sw->processing && p->recirculate_list == 0 &&
                   (p->egress_port != sw->options.cpu_port || sw->options.cpu_port == 0);
    struct ss_port *port = to_wire ? sw->ports[p->egress_port] : NULL;
    uint8_t *header = port ? ss_port_header_room(sw, port) : sw->scratch;
    uint32_t header_bytes = program->deparse(sw->state, p, header);
    if (SS_UNLIKELY(p->recirculate_list)) {
        recirculate(sw, p, header, header_bytes);
        ss_packet_free(sw, p);
        return;
    }
    uint32_t payload_bytes = p->len;
    if (SS_UNLIKELY(p->truncated < header_bytes + payload_bytes)) {
        if (header_bytes > p->truncated) header_bytes = p->truncated;
        payload_bytes = p->truncated - header_bytes;
    }
    if (port)
        ss_port_transmit(sw, port, p, header_bytes, payload_bytes);
    else if (sw->processing)
        output(sw, p->egress_port, header, header_bytes, p->data, payload_bytes);
    else if (!to_wire)
        ss_event_packet(sw, header, header_bytes, p->data, payload_bytes);
    ss_packet_free(sw, p);
}
