/* SPDX-License-Identifier: Apache-2.0
 *
 * One fuzzing input is a list of operations on a switch whose program and first entries are given: an
 * operation's number, 16 bits of length, and its arguments, all little-endian. What is missing at the
 * end reads as 0. Arguments are made valid the way softswitch/tables.py guarantees it to the engine
 * (values within their widths, handles that were given out), so that whatever fails is the engine's or
 * the generated code's fault.
 *
 * Built with libFuzzer, or with standalone.c where there is none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h" /* from softswitch/engine.py, see fuzzing.py */
#include "plan.h"

#define NONE UINT32_MAX
#define ERROR_BYTES 256
#define ASSERTION_FAILED (-6) /* SS_E_ASSERTION */
#define MAX_MEMBERS 64
#define MAX_REPLICAS 16

enum { EXACT, LPM, TERNARY, RANGE, KEYLESS };      /* enum ss_match_kind */
enum { DIRECT, MEMBER, GROUP };                    /* enum ss_action_kind */

/* fuzzing.py has the same numbers. */
enum operation {
    OP_PACKET,
    OP_INSERT,
    OP_MODIFY,
    OP_DELETE,
    OP_DEFAULT,
    OP_MEMBER,
    OP_DELETE_MEMBER,
    OP_GROUP,
    OP_DELETE_GROUP,
    OP_REPLICAS,
    OP_DELETE_REPLICAS,
    OP_COUNTER,
    OP_REGISTER,
    OP_METER,
    OP_VALUE_SET,
    OP_CLOCK,
    OP_TIMEOUT,
    OPERATIONS,
};

struct plan plan;
static struct ss_options options;
static const char *library;
static void *sw;
static bool preparing; /* what the program fixes is being written */
bool harness_forwards; /* the switch is started: packets are injected (race.c) */

/* ----------------------------------------------------------------------------------- arguments */

struct reader {
    const uint8_t *at, *end;
};

static uint64_t number(struct reader *r, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes && r->at < r->end; i++) value |= (uint64_t)*r->at++ << 8 * i;
    return value;
}

static void words(struct reader *r, uint64_t *to, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) to[i] = number(r, 8);
}

static uint64_t ones(uint32_t width) { return width >= 64 ? ~0ull : (1ull << width) - 1; }

/* The bits of a field in word `w` of a packed key. */
static uint64_t field_bits(const struct key *k, uint32_t w) {
    if (k->width <= 64) return w == k->shift / 64 ? ones(k->width) << k->shift % 64 : 0;
    uint32_t first = k->shift / 64, last = (k->shift + k->width - 1) / 64;
    if (w < first || w > last) return 0;
    return w < last ? ~0ull : ones(k->width - 64 * (last - first));
}

/* The parameters of one of the actions of a choice; their number of words. */
static uint32_t take_action(struct reader *r, const struct choice *c, uint32_t *id, uint64_t *data) {
    uint32_t wanted = (uint32_t)number(r, 4);
    if (c->count == 0) {
        *id = NONE;
        return 0;
    }
    const struct action *a = &plan.action[c->actions[wanted % c->count]];
    for (uint32_t i = 0; i < c->count; i++)
        if (plan.action[c->actions[i]].id == wanted) a = &plan.action[c->actions[i]];
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->params; i++) {
        uint32_t width = a->widths[i];
        do {
            data[n++] = number(r, 8) & ones(width);
            width = width > 64 ? width - 64 : 0;
        } while (width);
    }
    *id = a->id;
    return n;
}

/* What an entry refers to. False: there is nothing that it could be. */
static bool take_target(struct reader *r, const struct table *t, uint32_t *kind, uint32_t *id,
                        uint64_t *data, uint32_t *data_words) {
    *kind = (uint32_t)number(r, 1);
    *data_words = 0;
    if (t->profile == NONE) {
        *kind = DIRECT;
        *data_words = take_action(r, &t->choice, id, data);
        return *id != NONE;
    }
    const struct profile *p = &plan.profile[t->profile];
    *kind = *kind == GROUP && p->groups ? GROUP : MEMBER;
    uint32_t handles = *kind == GROUP ? p->groups : p->members;
    *id = (uint32_t)number(r, 4);
    if (handles) *id %= handles;
    return handles > 0;
}

/* Low bounds of range fields must not be above their high ones. */
static void order_range(const struct key *k, uint64_t *low, uint64_t *high, uint32_t count) {
    for (uint32_t w = count; w-- > 0;) {
        uint64_t bits = field_bits(k, w);
        if ((low[w] & bits) == (high[w] & bits)) continue;
        if ((low[w] & bits) < (high[w] & bits)) return;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t change = (low[i] ^ high[i]) & field_bits(k, i);
            low[i] ^= change;
            high[i] ^= change;
        }
        return;
    }
}

/* Makes a key of value, mask and high valid; the prefix length. */
static uint32_t make_valid(const struct table *t, uint64_t *key, uint32_t prefix_len) {
    uint64_t *mask = key + t->words, *high = key + 2 * t->words;
    uint64_t used[MAX_WORDS] = {0}, any[MAX_WORDS] = {0}, range[MAX_WORDS] = {0};
    uint32_t length = 0;
    for (uint32_t i = 0; i < t->keys; i++) {
        const struct key *k = &t->key[i];
        for (uint32_t w = 0; w < t->words; w++) {
            used[w] |= field_bits(k, w);
            if (k->type == KEY_TERNARY || k->type == KEY_LPM) any[w] |= field_bits(k, w);
            if (k->type == KEY_RANGE) range[w] |= field_bits(k, w);
        }
        if (t->kind == LPM && k->type == KEY_LPM) {
            length = prefix_len < k->width ? prefix_len : k->width;
            for (uint32_t bit = k->shift; bit < k->shift + k->width - length; bit++)
                key[bit / 64] &= ~(1ull << bit % 64);
        }
    }
    for (uint32_t w = 0; w < t->words; w++) {
        mask[w] = t->kind == EXACT || t->kind == LPM
                      ? used[w]
                      : ((mask[w] & any[w]) | (used[w] & ~any[w])) & ~range[w];
        key[w] &= mask[w] | range[w];
        high[w] &= range[w];
    }
    for (uint32_t i = 0; t->kind == RANGE && i < t->keys; i++)
        if (t->key[i].type == KEY_RANGE) order_range(&t->key[i], key, high, t->words);
    return length;
}

/* ---------------------------------------------------------------------------------- operations */

static void packet(struct reader *r) {
    uint32_t port = (uint32_t)number(r, 2);
    uint32_t length = (uint32_t)(r->end - r->at);
    /* Memory of its own, so that a byte read behind the packet is noticed. */
    uint8_t *bytes = malloc(length ? length : 1);
    if (bytes == NULL) abort();
    if (length) memcpy(bytes, r->at, length);
    void *out = NULL;
    uint64_t total = 0;
    char error[ERROR_BYTES] = "";
    if (harness_forwards)
        ss_inject(sw, bytes, length);
    else if (ss_process(sw, port, bytes, length, &out, &total, error) == ASSERTION_FAILED)
        abort(); /* what our programs assert holds */
    free(bytes);
    const uint8_t *left = out;
    for (uint64_t at = 0; at < total;) {
        uint32_t size;
        memcpy(&size, left + at + 4, sizeof size);
        at += 8 + (uint64_t)size;
        if (at > total) abort();
    }
    void *event;
    while (!harness_forwards && (event = ss_next_event(sw, 0)) != NULL) ss_event_free(event);
}

static const struct table *take_table(struct reader *r, uint32_t *index) {
    *index = (uint32_t)number(r, 2);
    if (plan.tables == 0) return NULL;
    *index %= plan.tables;
    return &plan.table[*index];
}

static void insert(struct reader *r) {
    uint32_t index, kind, id, count;
    uint64_t data[MAX_DATA], key[3 * MAX_WORDS] = {0};
    const struct table *t = take_table(r, &index);
    if (t == NULL || t->kind == KEYLESS) return;
    uint32_t prefix_len = (uint32_t)number(r, 2);
    int32_t priority = (int32_t)number(r, 4);
    if (!take_target(r, t, &kind, &id, data, &count)) return;
    words(r, key, (t->kind == RANGE ? 3 : t->kind == TERNARY ? 2 : 1) * t->words);
    prefix_len = make_valid(t, key, prefix_len);
    ss_table_insert(sw, index, key, prefix_len, priority, kind, id, data, count);
}

static void modify(struct reader *r) {
    uint32_t index, kind, id, count;
    uint64_t data[MAX_DATA];
    const struct table *t = take_table(r, &index);
    if (t == NULL) return;
    uint32_t handle = (uint32_t)number(r, 4);
    if (take_target(r, t, &kind, &id, data, &count))
        ss_table_modify(sw, index, handle, kind, id, data, count);
}

static void set_default(struct reader *r) {
    uint32_t index, id = NONE, count = 0;
    uint64_t data[MAX_DATA];
    const struct table *t = take_table(r, &index);
    if (t == NULL || (t->fixed && !preparing)) return;
    if (number(r, 1)) count = take_action(r, &t->choice, &id, data);
    ss_table_set_default(sw, index, id, data, count);
}

/* A handle that is in use or was, or -1 for a new one. */
static int take_handle(struct reader *r, uint32_t known) {
    uint32_t wanted = (uint32_t)number(r, 4);
    return wanted == NONE || known == 0 ? -1 : (int)(wanted % known);
}

static void note(uint32_t *known, int handle) {
    if (handle >= 0 && (uint32_t)handle >= *known) *known = (uint32_t)handle + 1;
}

static void set_member(struct reader *r, uint32_t index, struct profile *p) {
    uint32_t id;
    uint64_t data[MAX_DATA];
    int handle = take_handle(r, p->members);
    uint32_t count = take_action(r, &p->choice, &id, data);
    if (id == NONE) return;
    note(&p->members,
         ss_profile_set_member(sw, index, handle, id, data, count));
}

static void set_group(struct reader *r, uint32_t index, struct profile *p) {
    uint32_t members[MAX_MEMBERS];
    int handle = take_handle(r, p->groups);
    uint32_t count = (uint32_t)number(r, 1) % (MAX_MEMBERS + 1);
    if (p->members == 0) count = 0;
    for (uint32_t i = 0; i < count; i++) members[i] = (uint32_t)number(r, 4) % p->members;
    note(&p->groups, ss_profile_set_group(sw, index, handle, members, count, count % 4 == 3));
}

static void profile_operation(struct reader *r, enum operation op) {
    if (plan.profiles == 0) return;
    uint32_t index = (uint32_t)number(r, 1) % plan.profiles;
    struct profile *p = &plan.profile[index];
    switch (op) {
    case OP_MEMBER: set_member(r, index, p); break;
    case OP_GROUP: set_group(r, index, p); break;
    case OP_DELETE_MEMBER:
        if (p->members) ss_profile_delete_member(sw, index, (uint32_t)number(r, 4) % p->members);
        break;
    default:
        if (p->groups) ss_profile_delete_group(sw, index, (uint32_t)number(r, 4) % p->groups);
    }
}

static void set_replicas(struct reader *r) {
    uint32_t pairs[2 * MAX_REPLICAS];
    bool clones = number(r, 1) & 1;
    uint32_t id = (uint32_t)number(r, 2), truncate = (uint32_t)number(r, 4);
    uint32_t count = (uint32_t)number(r, 1) % (MAX_REPLICAS + 1);
    for (uint32_t i = 0; i < 2 * count; i++) pairs[i] = (uint32_t)number(r, 2);
    ss_set_replicas(sw, clones, id, pairs, count, truncate, count % 2);
}

static void counter(struct reader *r) {
    if (plan.counters == 0) return;
    uint32_t index = (uint32_t)number(r, 1) % plan.counters;
    uint32_t size = plan.counter[index].size;
    uint64_t value[2];
    if (size == 0) return;
    uint32_t cell = (uint32_t)number(r, 4) % size;
    words(r, value, 2);
    ss_counter_write(sw, index, cell, value[0], value[1]);
    ss_counter_read(sw, index, cell, value);
}

static void reg(struct reader *r) {
    if (plan.registers == 0) return;
    uint32_t index = (uint32_t)number(r, 1) % plan.registers;
    const struct cells *c = &plan.reg[index];
    uint64_t value[MAX_DATA] = {0}, back[MAX_DATA];
    uint32_t count = (c->width + 63) / 64;
    if (c->size == 0 || count == 0 || count > MAX_DATA) return;
    uint32_t cell = (uint32_t)number(r, 4) % c->size;
    words(r, value, count);
    value[count - 1] &= ones(c->width - 64 * (count - 1));
    ss_register_write(sw, index, cell, value);
    ss_register_read(sw, index, cell, back);
}

/* Rates and sizes, up to the largest that P4Runtime has. */
static void meter(struct reader *r) {
    uint64_t settings[4], back[10];
    bool direct = number(r, 1) & 1;
    uint32_t count = direct ? plan.tables : plan.meters;
    if (count == 0) return;
    uint32_t index = (uint32_t)number(r, 1) % count, cell = (uint32_t)number(r, 4);
    if (direct ? !plan.table[index].meters : plan.meter[index].size == 0) return;
    if (!direct) cell %= plan.meter[index].size;
    uint32_t mode = (uint32_t)number(r, 1) % 3;
    words(r, settings, 4);
    for (unsigned i = 0; i < 4; i++) settings[i] &= INT64_MAX;
    ss_meter_configure(sw, direct, index, cell, mode, settings);
    ss_meter_read(sw, direct, index, cell, back);
}

static void timeout(struct reader *r) {
    uint32_t index, expired[4];
    uint64_t next_us;
    if (!take_table(r, &index) || !plan.table[index].timeouts) return;
    uint32_t handle = (uint32_t)number(r, 4);
    ss_table_set_timeout(sw, index, handle, number(r, 4));
    ss_table_idle_us(sw, index, handle);
    ss_table_expired(sw, index, expired, 4, &next_us);
}

/* Members of one key each are exact, all others are mask, low and high. */
static void value_set(struct reader *r) {
    uint64_t exact[MAX_DATA] = {0}, ranges[MAX_DATA] = {0};
    if (plan.value_sets == 0) return;
    uint32_t index = (uint32_t)number(r, 1) % plan.value_sets;
    const struct value_set *set = &plan.value_set[index];
    if (set->words == 0) return;
    uint32_t exacts = (uint32_t)number(r, 1) % 2;
    uint32_t count = (uint32_t)number(r, 1) % (MAX_DATA / (3 * set->words) + 1);
    words(r, exact, exacts * set->words);
    words(r, ranges, 3 * count * set->words);
    ss_value_set_replace(sw, index, exact, exacts, ranges, count);
}

static void operate(enum operation op, struct reader *r) {
    uint32_t index;
    switch (op) {
    case OP_INSERT: insert(r); break;
    case OP_MODIFY: modify(r); break;
    case OP_DELETE:
        if (take_table(r, &index)) ss_table_delete(sw, index, (uint32_t)number(r, 4));
        break;
    case OP_DEFAULT: set_default(r); break;
    case OP_MEMBER:
    case OP_DELETE_MEMBER:
    case OP_GROUP:
    case OP_DELETE_GROUP: profile_operation(r, op); break;
    case OP_REPLICAS: set_replicas(r); break;
    case OP_DELETE_REPLICAS: ss_delete_replicas(sw, number(r, 1) & 1, (uint32_t)number(r, 2)); break;
    case OP_COUNTER: counter(r); break;
    case OP_REGISTER: reg(r); break;
    case OP_METER: meter(r); break;
    case OP_VALUE_SET: value_set(r); break;
    case OP_TIMEOUT: timeout(r); break;
    case OP_CLOCK: ss_set_clock(sw, 1 + number(r, 7)); break;
    default: packet(r);
    }
}

static void run(const uint8_t *bytes, size_t count) {
    struct reader all = {bytes, bytes + count};
    while (all.at < all.end) {
        uint32_t op = (uint32_t)number(&all, 1);
        size_t length = number(&all, 2);
        if (length > (size_t)(all.end - all.at)) length = (size_t)(all.end - all.at);
        struct reader one = {all.at, all.at + length};
        /* Numbers that mean nothing are packets: most of a run should be. */
        operate(op < OPERATIONS ? (enum operation)op : OP_PACKET, &one);
        all.at += length;
    }
}

/* ------------------------------------------------------------------------------------ libFuzzer */

/* A switch in the state in which every input finds it. */
static void prepare(void) {
    char error[ERROR_BYTES] = "";
    if (ss_load(sw, library, error) < 0) {
        fprintf(stderr, "%s: %s\n", library, error);
        exit(2);
    }
    ss_set_clock(sw, 1);
    for (uint32_t i = 0; i < plan.profiles; i++) plan.profile[i].members = plan.profile[i].groups = 0;
    preparing = true;
    run(plan.setup, plan.setup_bytes);
    preparing = false;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *path = getenv("SS_FUZZ_PLAN");
    library = getenv("SS_FUZZ_PROGRAM");
    if (path == NULL || library == NULL) {
        fprintf(stderr, "SS_FUZZ_PLAN and SS_FUZZ_PROGRAM are not set\n");
        exit(2);
    }
    plan_read(&plan, path);
    options = (struct ss_options){
        .cpu_port = plan.cpu_port,
        .drop_port = 511,
        .queue_depth = 64,
        .priorities = 8,
        .has_seed = 1,
    };
    sw = ss_create(&options);
    if (sw == NULL) exit(2);
    prepare();
    return 0;
}

void *harness_switch(void) { return sw; }

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    run(bytes, count);
    prepare();
    return 0;
}
