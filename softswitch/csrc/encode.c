/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers to reads of table entries with their counters, whole tables at a time. Python keeps each entry
 * as a serialised TableEntry; here it gets its counter, and the Entity message around both.
 */
#include "engine.h"
#include "wire.h"

/* Field numbers of p4/v1/p4runtime.proto. */
enum { COUNTER_BYTES = 1, COUNTER_PACKETS = 2 };              /* CounterData */
enum { ENTRY_TABLE = 1, ENTRY_MATCH = 2, ENTRY_PRIORITY = 4, ENTRY_COUNTER = 7, ENTRY_DEFAULT = 8 };
enum { DIRECT_ENTRY = 1, DIRECT_DATA = 2 };                   /* DirectCounterEntry */
enum { ENTITY_ENTRY = 2, ENTITY_DIRECT_COUNTER = 8 };         /* Entity */

/* What an Entity has at most beyond the entry: tags and lengths of three messages, two numbers. */
#define SS_ENTITY_MORE (3 * (1 + SS_VARINT_BYTES) + 2 * (1 + SS_VARINT_BYTES))

static uint8_t *put_number(uint8_t *o, uint32_t field, uint64_t value) {
    if (value == 0) return o; /* as proto3 has it */
    *o++ = (uint8_t)VARINT(field);
    return put_varint(o, value);
}

static size_t counter_data(const struct ss_entry *e, uint8_t *out) {
    uint8_t *o = put_number(out, COUNTER_BYTES, __atomic_load_n(&e->bytes, __ATOMIC_RELAXED));
    o = put_number(o, COUNTER_PACKETS, __atomic_load_n(&e->packets, __ATOMIC_RELAXED));
    return (size_t)(o - out);
}

/* A TableEntry without all but what names the entry. */
static size_t key_only(const uint8_t *entry, size_t bytes, uint8_t *out) {
    struct reader r = {entry, entry + bytes};
    uint8_t *o = out;
    for (const uint8_t *from = r.at; r.at != r.end; from = r.at) {
        uint32_t tag = next_tag(&r), field = tag >> 3;
        if ((tag & 7) == 2)
            content(&r);
        else
            varint(&r);
        if (r.at == NULL) break; /* it is not a TableEntry */
        if (field == ENTRY_TABLE || field == ENTRY_MATCH || field == ENTRY_PRIORITY ||
            field == ENTRY_DEFAULT)
            o = put_bytes(o, from, (size_t)(r.at - from));
    }
    return (size_t)(o - out);
}

static uint8_t *put_table_entry(uint8_t *o, const uint8_t *entry, size_t bytes, const uint8_t *data,
                                size_t data_bytes) {
    *o++ = BYTES(ENTITY_ENTRY);
    o = put_varint(o, bytes + 2 + data_bytes); /* the counter's data are below 128 bytes */
    return put_field(put_bytes(o, entry, bytes), ENTRY_COUNTER, data, data_bytes);
}

static uint8_t *put_direct_counter(uint8_t *o, const uint8_t *entry, size_t bytes,
                                   const uint8_t *data, size_t data_bytes) {
    /* The key is put where it will not be overwritten before it is moved to its place. */
    uint8_t *key = o + SS_ENTITY_MORE, length[SS_VARINT_BYTES];
    size_t key_bytes = key_only(entry, bytes, key);
    size_t prefix = (size_t)(put_varint(length, key_bytes) - length);
    *o++ = BYTES(ENTITY_DIRECT_COUNTER);
    o = put_varint(o, 1 + prefix + key_bytes + 2 + data_bytes);
    *o++ = BYTES(DIRECT_ENTRY);
    o = put_bytes(o, length, prefix);
    memmove(o, key, key_bytes);
    return put_field(o + key_bytes, DIRECT_DATA, data, data_bytes);
}

/*
 * Entity messages one after the other of `count` entries with their counters, as table entries or as
 * direct counter entries; `ends` gets where each one ends. `wires` are serialised TableEntry messages of
 * `lengths` bytes. There is room for them and SS_ENTITY_MORE bytes for each, and once more that for one.
 */
SS_API int ss_table_encode(struct ss_switch *sw, uint32_t table, bool direct, uint32_t count,
                           const uint32_t *handles, const uint8_t *const *wires,
                           const uint32_t *lengths, uint8_t *out, uint32_t *ends) {
    int r = SS_OK;
    uint8_t *o = out, data[2 * (1 + SS_VARINT_BYTES)];
    pthread_mutex_lock(&sw->lock);
    const struct ss_table *t = &sw->state->tables[table];
    for (uint32_t i = 0; i < count; i++) {
        const struct ss_entry *e = ss_table_entry(t, handles[i]);
        if (e == NULL) {
            r = SS_E_NOT_FOUND;
            break;
        }
        size_t bytes = counter_data(e, data);
        o = direct ? put_direct_counter(o, wires[i], lengths[i], data, bytes)
                   : put_table_entry(o, wires[i], lengths[i], data, bytes);
        ends[i] = (uint32_t)(o - out);
    }
    pthread_mutex_unlock(&sw->lock);
    return r;
}
