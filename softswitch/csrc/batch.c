/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole P4Runtime writes at once: the plain table entries of a serialised p4.v1.WriteRequest, decoded
 * and written to tables without Python touching each of them.
 *
 * An update is plain when it inserts, modifies or deletes an entry with a direct action, perhaps with an
 * idle time-out, and when everything in it is as it should be: fields once, ids known, byte strings in
 * their shortest form and within their widths. All others are left to Python, which says what is wrong
 * with them; nothing is refused here. Field numbers are those of p4/v1/p4runtime.proto.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "lookup.h"
#include "wire.h"

enum update_kind { NOT_PLAIN = 0, INSERT = 1, MODIFY = 2, DELETE = 3 };
enum match_kind { EXACT = 2, LPM = 3, TERNARY = 4, RANGE = 5, OPTIONAL = 6 }; /* P4Info's numbers */

/* What is known of the program's tables. Arrays of 32-bit numbers, made by softswitch/batch.py. */
struct plan_table {
    uint32_t id;    /* P4Info's */
    uint32_t index; /* of ss_state.tables */
    uint32_t kind;  /* enum ss_match_kind */
    uint32_t words;
    uint32_t needs_priority;
    uint32_t first_field, fields;
    uint32_t first_action, actions;
    uint32_t with_timeouts;
};
struct plan_field {
    uint32_t id;
    uint32_t match; /* enum match_kind */
    uint32_t width;
    uint32_t shift;
};
struct plan_action {
    uint32_t id;     /* P4Info's */
    uint32_t number; /* of the JSON */
    uint32_t words;
    uint32_t first_param, params;
};
struct plan_param {
    uint32_t id;
    uint32_t width;
    uint32_t word; /* where its value begins among the action's */
};
struct ss_plan {
    const struct plan_table *tables;
    const struct plan_field *fields;
    const struct plan_action *actions;
    const struct plan_param *params;
    uint32_t table_count;
};

/* One update. `key` and `data` are places of words in the arenas. */
struct ss_update {
    uint32_t kind;  /* enum update_kind */
    uint32_t table; /* place in the plan */
    uint32_t entry, entry_bytes; /* the TableEntry within the request */
    uint32_t key, prefix_len;
    int32_t priority;
    uint32_t action, data, data_words;
    uint64_t timeout_us; /* 0: none */
};

/* Consecutive updates of one kind and table. */
struct ss_run {
    uint32_t kind, table, first, count;
};

/* ------------------------------------------------------------------------------------- values */

/* Adds a byte string in its shortest form to a cleared place in packed words. */
static bool put_value(struct reader v, uint32_t width, uint32_t shift, uint64_t *words) {
    if (v.at == NULL || v.at == v.end) return false;
    uint32_t length = (uint32_t)(v.end - v.at);
    if (v.at[0] == 0) return length == 1;
    uint32_t bits = 8 * length - ((uint32_t)__builtin_clz(v.at[0]) - 24);
    if (bits > width) return false;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t place = shift + 8 * i; /* fields of over 64 bits start a word: no byte crosses one */
        words[place / 64] |= (uint64_t)v.at[length - 1 - i] << place % 64;
    }
    return true;
}

/* Which bits of a word are in the `count` bits from `shift` on. */
static uint64_t bits_in(uint32_t count, uint32_t shift, uint32_t word) {
    uint32_t low = shift > 64 * word ? shift - 64 * word : 0;
    uint32_t high = shift + count < 64 * word + 64 ? shift + count - 64 * word : 64;
    if (high <= low) return 0;
    return (high - low == 64 ? ~0ull : (1ull << (high - low)) - 1) << low;
}

static void put_ones(uint32_t count, uint32_t shift, uint64_t *words) {
    for (uint32_t w = shift / 64; count && w <= (shift + count - 1) / 64; w++)
        words[w] |= bits_in(count, shift, w);
}

static bool has_bits(uint32_t count, uint32_t shift, const uint64_t *words) {
    uint64_t bits = 0;
    for (uint32_t w = shift / 64; count && w <= (shift + count - 1) / 64; w++)
        bits |= words[w] & bits_in(count, shift, w);
    return bits != 0;
}

static bool is_masked(uint32_t count, uint32_t shift, const uint64_t *value, const uint64_t *mask) {
    uint64_t outside = 0;
    for (uint32_t w = shift / 64; count && w <= (shift + count - 1) / 64; w++)
        outside |= value[w] & ~mask[w] & bits_in(count, shift, w);
    return outside == 0;
}

/* The two members of a match, each at most once: byte strings, or for lpm the second one a number. */
struct pair {
    struct reader first, second;
    uint64_t number;
    bool has_first, has_second;
};

static bool read_pair(struct reader r, bool numbered, struct pair *p) {
    *p = (struct pair){0};
    for (uint32_t tag; (tag = next_tag(&r)) != 0;) {
        if (tag == BYTES(1) && !p->has_first) {
            p->first = content(&r);
            p->has_first = true;
        } else if (tag == (numbered ? VARINT(2) : BYTES(2)) && !p->has_second) {
            if (numbered)
                p->number = varint(&r);
            else
                p->second = content(&r);
            p->has_second = true;
        } else {
            return false;
        }
    }
    return r.at != NULL;
}

/* ---------------------------------------------------------------------------------------- keys */

/* Tables with longer keys or more fields are left to Python. */
#define KEY_WORDS 16
#define KEY_FIELDS 32

struct key {
    uint64_t value[KEY_WORDS];
    uint64_t mask[KEY_WORDS];
    uint64_t high[KEY_WORDS];
    uint32_t prefix_len;
    uint32_t seen; /* fields, a bit each */
};

/* A range that is not empty and not everything. Fields of over 64 bits are left to Python. */
static bool in_order(const struct plan_field *f, const struct key *k) {
    if (f->width > 64) return false;
    if (ss_compare_field(k->value, k->high, f->shift, f->width) > 0) return false;
    uint64_t zero[KEY_WORDS] = {0}, ones[KEY_WORDS] = {0};
    put_ones(f->width, f->shift, ones);
    return ss_compare_field(k->value, zero, f->shift, f->width) != 0 ||
           ss_compare_field(k->high, ones, f->shift, f->width) != 0;
}

static bool read_match_of(const struct plan_field *f, struct reader r, struct key *k) {
    struct pair p;
    if (!read_pair(r, f->match == LPM, &p)) return false;
    if (!put_value(p.first, f->width, f->shift, k->value)) return false;
    switch (f->match) {
    case EXACT:
    case OPTIONAL: put_ones(f->width, f->shift, k->mask); return !p.has_second;
    case LPM:
        if (p.number == 0 || p.number > f->width) return false;
        k->prefix_len = (uint32_t)p.number;
        put_ones(k->prefix_len, f->shift + f->width - k->prefix_len, k->mask);
        return !has_bits(f->width - k->prefix_len, f->shift, k->value);
    case TERNARY:
        return put_value(p.second, f->width, f->shift, k->mask) &&
               has_bits(f->width, f->shift, k->mask) &&
               is_masked(f->width, f->shift, k->value, k->mask);
    case RANGE: return put_value(p.second, f->width, f->shift, k->high) && in_order(f, k);
    default: return false;
    }
}

static uint32_t match_tag(uint32_t match) {
    switch (match) {
    case EXACT: return BYTES(2);
    case TERNARY: return BYTES(3);
    case LPM: return BYTES(4);
    case RANGE: return BYTES(6);
    default: return BYTES(7);
    }
}

/* A FieldMatch: its id comes first, as every serialiser writes it. */
static bool read_match(const struct ss_plan *plan, const struct plan_table *t, struct reader r,
                       struct key *k) {
    if (next_tag(&r) != VARINT(1)) return false;
    uint64_t id = varint(&r);
    const struct plan_field *fields = plan->fields + t->first_field;
    uint32_t i = 0;
    while (i < t->fields && fields[i].id != id) i++;
    if (i == t->fields || k->seen & 1u << i) return false;
    k->seen |= 1u << i;
    if (next_tag(&r) != match_tag(fields[i].match)) return false;
    struct reader value = content(&r);
    return r.at != NULL && r.at == r.end && read_match_of(&fields[i], value, k);
}

/* Fields that are not given match everything; exact ones must be given. */
static bool complete(const struct ss_plan *plan, const struct plan_table *t, struct key *k) {
    const struct plan_field *fields = plan->fields + t->first_field;
    for (uint32_t i = 0; i < t->fields; i++) {
        if (k->seen & 1u << i) continue;
        if (fields[i].match == EXACT) return false;
        if (fields[i].match == RANGE) put_ones(fields[i].width, fields[i].shift, k->high);
    }
    return true;
}

/* -------------------------------------------------------------------------------------- actions */

/* A p4.v1.Action with its parameters in their order; adds the data to `data`. */
static bool read_action(const struct ss_plan *plan, const struct plan_table *t, struct reader r,
                        struct ss_update *u, uint64_t *data) {
    if (next_tag(&r) != VARINT(1)) return false;
    uint64_t id = varint(&r);
    const struct plan_action *a = plan->actions + t->first_action;
    const struct plan_action *end = a + t->actions;
    while (a < end && a->id != id) a++;
    if (a == end) return false;
    const struct plan_param *params = plan->params + a->first_param;
    memset(data, 0, a->words * sizeof data[0]);
    uint32_t given = 0;
    for (uint32_t tag; (tag = next_tag(&r)) != 0; given++) {
        if (tag != BYTES(4) || given == a->params) return false;
        struct reader param = content(&r);
        if (next_tag(&param) != VARINT(2) || varint(&param) != params[given].id) return false;
        if (next_tag(&param) != BYTES(3)) return false;
        struct reader value = content(&param);
        if (param.at == NULL || param.at != param.end) return false;
        if (!put_value(value, params[given].width, 0, data + params[given].word)) return false;
    }
    u->action = a->number;
    u->data_words = a->words;
    return r.at != NULL && given == a->params;
}

static bool read_table_action(const struct ss_plan *plan, const struct plan_table *t,
                              struct reader r, struct ss_update *u, uint64_t *data) {
    if (next_tag(&r) != BYTES(1)) return false;
    struct reader action = content(&r);
    return r.at != NULL && r.at == r.end && read_action(plan, t, action, u, data);
}

/* -------------------------------------------------------------------------------------- updates */

static const struct plan_table *find_table(const struct ss_plan *plan, uint64_t id) {
    for (uint32_t i = 0; i < plan->table_count; i++)
        if (plan->tables[i].id == id) return &plan->tables[i];
    return NULL;
}

/* A TableEntry: its table comes first, as every serialiser writes it. */
static bool read_entry(const struct ss_plan *plan, struct reader r, struct ss_update *u,
                       struct key *k, uint64_t *data) {
    if (next_tag(&r) != VARINT(1)) return false;
    const struct plan_table *t = find_table(plan, varint(&r));
    if (t == NULL || t->words > KEY_WORDS || t->fields > KEY_FIELDS) return false;
    u->table = (uint32_t)(t - plan->tables);
    bool acts = false;
    uint32_t seen = 0;
    for (uint32_t tag; (tag = next_tag(&r)) != 0;) {
        uint32_t bit = 1u << (tag >> 3 & 15);
        struct reader inner;
        if (tag != BYTES(2) && seen & bit) return false;
        seen |= bit;
        switch (tag) {
        case BYTES(2): /* match */
            inner = content(&r);
            if (r.at == NULL || !read_match(plan, t, inner, k)) return false;
            break;
        case BYTES(3): /* action; deleting does not look at it */
            inner = content(&r);
            if (r.at == NULL) return false;
            if (u->kind != DELETE && !read_table_action(plan, t, inner, u, data)) return false;
            acts = true;
            break;
        case VARINT(4): { /* priority */
            uint64_t priority = varint(&r);
            if (priority > INT32_MAX) return false;
            u->priority = (int32_t)priority;
            break;
        }
        case VARINT(5): varint(&r); break;   /* controller_metadata */
        case VARINT(9): { /* idle_timeout_ns */
            uint64_t timeout_ns = varint(&r);
            if (timeout_ns > INT64_MAX || (timeout_ns && !t->with_timeouts)) return false;
            u->timeout_us = timeout_ns / 1000 + (timeout_ns % 1000 != 0);
            break;
        }
        case BYTES(11): content(&r); break;  /* metadata */
        default: return false;
        }
    }
    if (r.at == NULL || (u->priority != 0) != (t->needs_priority != 0)) return false;
    u->prefix_len = t->kind == SS_LPM ? k->prefix_len : 0;
    return (acts || u->kind == DELETE) && complete(plan, t, k);
}

/* Words of a table's packed keys, as ss_table_insert takes them. */
static uint32_t key_words(const struct plan_table *t) {
    return t->words * (t->kind == SS_RANGE ? 3 : t->kind == SS_TERNARY ? 2 : 1);
}

/*
 * Key words, then a word with prefix length and priority: what tells a table's entries apart. Python
 * makes the same bytes (entities_match.py).
 */
static uint32_t put_key(const struct plan_table *t, const struct key *k, const struct ss_update *u,
                        uint64_t *to) {
    size_t bytes = t->words * sizeof to[0];
    memcpy(to, k->value, bytes);
    if (t->kind == SS_TERNARY || t->kind == SS_RANGE) memcpy(to + t->words, k->mask, bytes);
    if (t->kind == SS_RANGE) memcpy(to + 2 * t->words, k->high, bytes);
    uint32_t words = key_words(t);
    to[words] = u->prefix_len | (uint64_t)(uint32_t)u->priority << 32;
    return words + 1;
}

/* Finds the TableEntry of an Update with its type before it. */
static bool open_update(struct reader r, struct ss_update *u, struct reader *entry) {
    if (next_tag(&r) != VARINT(1)) return false;
    uint64_t kind = varint(&r);
    if (kind < INSERT || kind > DELETE || next_tag(&r) != BYTES(2)) return false;
    struct reader entity = content(&r);
    if (r.at == NULL || r.at != r.end || next_tag(&entity) != BYTES(2)) return false;
    *entry = content(&entity);
    u->kind = (uint32_t)kind;
    return entity.at != NULL && entity.at == entity.end;
}

/*
 * Decodes the updates of a WriteRequest into `updates`, keys and data into the arenas, and groups them
 * into `runs`; how many there are. There is room for `count` updates, which is how many the request has:
 * SS_E_STATE when that is not so. Arenas have room for the longest key and action of the plan each time.
 */
SS_API int ss_batch_decode(const struct ss_plan *plan, const uint8_t *bytes, uint64_t length,
                           uint32_t count, struct ss_update *updates, uint64_t *keys,
                           uint64_t *data, struct ss_run *runs) {
    struct reader r = {bytes, bytes + length};
    uint32_t found = 0, keys_used = 0, data_used = 0, run_count = 0;
    for (uint32_t tag; (tag = next_tag(&r)) != 0;) {
        if ((tag & 7) == 0) {
            varint(&r);
            continue;
        }
        if ((tag & 7) != 2) return SS_E_STATE;
        struct reader inner = content(&r), entry;
        if (r.at == NULL) break;
        if (tag != BYTES(4)) continue;
        if (found == count) return SS_E_STATE;
        struct ss_update *u = &updates[found];
        struct key k;
        memset(&k, 0, sizeof k);
        *u = (struct ss_update){.key = keys_used, .data = data_used};
        if (open_update(inner, u, &entry) && read_entry(plan, entry, u, &k, data + data_used)) {
            u->entry = (uint32_t)(entry.at - bytes);
            u->entry_bytes = (uint32_t)(entry.end - entry.at);
            keys_used += put_key(&plan->tables[u->table], &k, u, keys + keys_used);
            data_used += u->data_words;
        } else {
            u->kind = NOT_PLAIN;
            u->table = 0;
        }
        struct ss_run *run = run_count ? &runs[run_count - 1] : NULL;
        if (run && run->kind == u->kind && run->table == u->table)
            run->count++;
        else
            runs[run_count++] = (struct ss_run){u->kind, u->table, found, 1};
        found++;
    }
    return r.at && found == count ? (int)run_count : SS_E_STATE;
}

/* ------------------------------------------------------------------------------------- applying */

static void set_timeout(const struct ss_table *t, uint32_t handle, uint64_t timeout_us,
                        uint64_t now_us) {
    struct ss_idle *idle = ss_entry_idle(ss_table_entry(t, handle), ss_kept_words(t->desc));
    idle->timeout_us = timeout_us;
    idle->armed_us = now_us;
}

/*
 * Inserts a run; `handles` gets each entry's, or why there is none. With `stop` nothing is inserted
 * after the first failure. How many were inserted.
 */
SS_API uint32_t ss_batch_insert(struct ss_switch *sw, const struct ss_plan *plan,
                                const struct ss_update *updates, uint32_t count,
                                const uint64_t *keys, const uint64_t *data, bool stop,
                                int32_t *handles) {
    uint32_t inserted = 0;
    pthread_mutex_lock(&sw->lock);
    struct ss_table *t = &sw->state->tables[plan->tables[updates[0].table].index];
    uint64_t now = ss_time_us(sw);
    for (uint32_t i = 0; i < count; i++) {
        const struct ss_update *u = &updates[i];
        struct ss_action *a = ss_action_new(SS_DIRECT, u->action, data + u->data, u->data_words);
        handles[i] = a ? ss_table_add(sw, t, keys + u->key, u->prefix_len, u->priority, a)
                       : SS_E_MEMORY;
        if (handles[i] >= 0) {
            inserted++;
            if (u->timeout_us) set_timeout(t, (uint32_t)handles[i], u->timeout_us, now);
        } else {
            free(a);
            if (stop) break;
        }
    }
    pthread_mutex_unlock(&sw->lock);
    return inserted;
}

/*
 * Gives the entries with these handles (UINT32_MAX: none) other actions. How many of the run are done;
 * for the next one there is no memory.
 */
SS_API uint32_t ss_batch_modify(struct ss_switch *sw, const struct ss_plan *plan,
                                const struct ss_update *updates, uint32_t count,
                                const uint64_t *data, const uint32_t *handles) {
    uint32_t done = 0;
    pthread_mutex_lock(&sw->lock);
    struct ss_table *t = &sw->state->tables[plan->tables[updates[0].table].index];
    for (; done < count; done++) {
        const struct ss_update *u = &updates[done];
        if (handles[done] == UINT32_MAX) continue;
        struct ss_action *a = ss_action_new(SS_DIRECT, u->action, data + u->data, u->data_words);
        if (a == NULL) break;
        ss_table_act(sw, t, handles[done], a);
    }
    pthread_mutex_unlock(&sw->lock);
    return done;
}

/* Removes the entries with these handles. How many there were. */
SS_API uint32_t ss_batch_delete(struct ss_switch *sw, uint32_t table, const uint32_t *handles,
                                uint32_t count) {
    uint32_t deleted = 0;
    pthread_mutex_lock(&sw->lock);
    struct ss_table *t = &sw->state->tables[table];
    for (uint32_t i = 0; i < count; i++) deleted += ss_table_remove(sw, t, handles[i]) == SS_OK;
    pthread_mutex_unlock(&sw->lock);
    return deleted;
}
