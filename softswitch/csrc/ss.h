/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine (compiled once) and every generated program share: packets, tables, the program's
 * entry points. Changing anything here changes the cache key of both.
 */
#ifndef SS_H
#define SS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned __int128 ss_u128;
typedef __int128 ss_i128;

#define SS_INLINE static inline __attribute__((always_inline, unused))
#define SS_LIKELY(x) __builtin_expect(!!(x), 1)
#define SS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SS_LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define SS_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

/* The values of standard_metadata.instance_type, as simple_switch numbers them. */
enum ss_instance_type {
    SS_NORMAL = 0,
    SS_INGRESS_CLONE = 1,
    SS_EGRESS_CLONE = 2,
    SS_RECIRCULATED = 4,
    SS_REPLICATED = 5,
    SS_RESUBMITTED = 6,
};

/* Bit 15 marks a session id as set, so that session 0 can be used. */
#define SS_CLONE_REQUESTED 0x8000u
#define SS_NOT_TRUNCATED UINT32_MAX
#define SS_MAX_PACKET 65536
/* How often a parser may go round a loop, beyond once for each byte of the packet. */
#define SS_PARSER_ROUNDS 1024

/* A packet on its way. `base` is what arrived, `data` what the parser has not consumed. */
struct ss_packet {
    const uint8_t *base;
    const uint8_t *data;
    uint8_t *owned;          /* malloc'd memory that base and data point into, or NULL: borrowed */
    struct ss_packet *next;  /* queues and free lists */
    uint32_t base_len;
    uint32_t len;
    uint32_t counted_length; /* what counters add; simple_switch's ingress_length */
    uint32_t length;         /* packet_length: arrival, plus headers added, less headers removed */
    uint32_t truncated;      /* most bytes that leave, SS_NOT_TRUNCATED */
    uint32_t ingress_port;
    uint32_t egress_port;
    uint32_t instance_type;
    /* Written by the program's functions for the engine. */
    uint32_t egress_spec;
    uint32_t multicast_group;
    uint32_t priority;
    uint16_t clone_session; /* SS_CLONE_REQUESTED | id, or 0 */
    uint16_t clone_list;
    uint16_t learn_list;
    uint16_t resubmit_list;
    uint16_t recirculate_list;
    bool exit;
    /* Microseconds since the switch started, and queue lengths in packets. */
    uint64_t arrival_us;
    uint64_t enqueue_us;
    uint64_t dequeue_us;
    uint64_t send_ns; /* earliest time at which its queue may serve it, CLOCK_MONOTONIC */
    uint32_t enqueue_depth;
    uint32_t dequeue_depth;
    _Alignas(16) uint8_t phv[]; /* struct phv of the generated program */
};

/* ------------------------------------------------------------------------------------ tables */

enum ss_match_kind { SS_EXACT = 0, SS_LPM = 1, SS_TERNARY = 2, SS_RANGE = 3, SS_KEYLESS = 4 };
enum ss_action_kind { SS_DIRECT = 0, SS_MEMBER = 1, SS_GROUP = 2 };

/* What an entry does. Immutable; a modification publishes another one. */
struct ss_action {
    uint32_t kind;   /* enum ss_action_kind */
    uint32_t id;     /* action id of the JSON, or handle of the member or group */
    uint64_t data[]; /* parameters, each from a word of its own, lowest word first */
};

struct ss_entry {
    uint64_t packets; /* written by the thread that forwards only */
    uint64_t bytes;
    struct ss_action *action;
    struct ss_entry *next;  /* ternary: same masked key, lower precedence */
    struct ss_tuple *tuple; /* ternary: that it is in */
    uint32_t hash;
    uint32_t handle;
    int32_t priority;
    uint32_t prefix_len; /* lpm */
    /* Masked; for range tables followed by mask and by high; then, where the table has them, a struct
     * ss_idle and a struct ss_meter (ss_entry_idle and ss_entry_meter in lookup.h). */
    uint64_t key[];
};

/* Open addressing, linear probing. A slot is tag << 48 | entry; 0 is free, 1 was deleted. */
struct ss_hash {
    uint32_t mask;
    uint32_t used;
    uint32_t deleted;
    uint64_t slots[];
};

struct ss_lengths {
    uint32_t count;
    uint16_t lengths[]; /* prefix lengths in use, longest first */
};

struct ss_tuple {
    struct ss_hash *hash;
    uint32_t entries;
    uint64_t mask[];
};

struct ss_tuples {
    uint32_t count;
    struct {
        struct ss_tuple *tuple;
        int32_t best; /* highest priority of its entries */
    } items[];        /* by best priority, highest first */
};

struct ss_entry_list {
    uint32_t count;
    struct ss_entry *entries[]; /* by priority, highest first, then by handle */
};

/* Of entries that may time out; microseconds on the clock of ss_state.now_us. */
struct ss_idle {
    uint64_t hit_us;     /* written by the thread that forwards, or the time of the insertion */
    uint64_t armed_us;   /* from when on the time-out runs, when there is no later hit */
    uint64_t timeout_us; /* 0: none */
};

/* What the program says about a table. `lpm_shift` and `lpm_width` place the lpm field in the key. */
struct ss_table_desc {
    const char *name;
    uint32_t kind;
    uint32_t words;
    uint32_t max_size;
    uint32_t lpm_shift;
    uint32_t lpm_width;
    uint32_t range_fields; /* how many of ss_range_field follow in `ranges` */
    const struct ss_range_field *ranges;
    const uint64_t *looked_at; /* words of the key's bits that look-ups take; NULL: all */
    bool with_timeouts;        /* each entry has a struct ss_idle */
    bool with_meters;          /* each entry has a meter */
};

struct ss_range_field {
    uint32_t shift;
    uint32_t width;
};

struct ss_table {
    const struct ss_table_desc *desc;
    struct ss_hash *hash;         /* exact, lpm */
    struct ss_lengths *lengths;   /* lpm */
    uint64_t *masks;              /* lpm: words of the mask of each prefix length, 0 to lpm_width */
    struct ss_tuples *tuples;     /* ternary */
    struct ss_entry_list *list;   /* range */
    struct ss_action *def;        /* default action, NULL: none */
    uint64_t miss_packets;
    uint64_t miss_bytes;
    struct ss_entry **by_handle;
    uint32_t handles;
    uint32_t first_free;
    uint32_t count;
    uint32_t *length_use; /* lpm: entries of each prefix length */
};

/* ---------------------------------------------------------------------------- action profiles */

struct ss_group {
    uint32_t count;
    bool at_random;     /* and not by the hash of the packet */
    uint32_t members[]; /* handles in ascending order, which is BMv2's order */
};

struct ss_members {
    uint32_t count;
    struct ss_action *actions[];
};

struct ss_groups {
    uint32_t count;
    struct ss_group *groups[];
};

struct ss_profile {
    struct ss_members *members;
    struct ss_groups *groups;
    uint32_t member_room; /* no place before it is free; writers only */
    uint32_t group_room;
};

struct ss_counter {
    uint64_t packets;
    uint64_t bytes;
};

struct ss_counter_desc {
    const char *name;
    uint32_t size;
};

struct ss_register_desc {
    const char *name;
    uint32_t size;
    uint32_t cell_bytes;
};

/* -------------------------------------------------------------------------------------- meters */

/* The values that a P4 program sees, as simple_switch numbers them. */
enum ss_color { SS_GREEN = 0, SS_YELLOW = 1, SS_RED = 2, SS_COLORS = 3 };

enum ss_meter_mode {
    SS_METER_OFF = 0,       /* every packet is green */
    SS_METER_TWO_RATES = 1, /* RFC 2698: `second` fills at the peak rate */
    SS_METER_ONE_RATE = 2,  /* RFC 2697: `second` gets what `committed` has no room for */
};

/* Tokens are packets or bytes. */
struct ss_bucket {
    uint64_t rate; /* tokens per second */
    uint64_t size;
    uint64_t tokens;
    uint64_t part; /* millionths of a token, below 1,000,000 */
};

struct ss_meter {
    uint32_t mode;
    uint64_t filled_us; /* up to when the buckets have been filled */
    struct ss_bucket committed;
    struct ss_bucket second;
    struct ss_counter colors[SS_COLORS]; /* how many packets got each color */
};

struct ss_meter_desc {
    const char *name;
    uint32_t size;
};

/* --------------------------------------------------------------------------- parser value sets */

/* Keys are words, lowest first; each field starts a word of its own. `field_words`: how many it has. */
struct ss_value_set_desc {
    uint32_t fields;
    uint32_t words;
    const uint8_t *field_words;
};

/*
 * Members. Immutable; a change publishes another set. `slots` (a power of two, more than there are exact
 * members) of 1 + words words each come first: an exact member's key with 1 in front of it, or 0. Then
 * `ranges` times 3 words: mask, low and high; a member has all keys with low <= key & mask <= high in
 * every field.
 */
struct ss_members_of_set {
    uint32_t slots;
    uint32_t ranges;
    uint64_t data[];
};

struct ss_value_set {
    const struct ss_value_set_desc *desc;
    struct ss_members_of_set *members;
};

/* ------------------------------------------------------------------------ cyclic redundancy checks */

/* A CRC of `bits` (8, 16, 32 or 64) in the terms of simple_switch_CLI's set_crc*_parameters. */
struct ss_crc_desc {
    uint64_t polynomial;
    uint64_t initial;
    uint64_t final_xor;
    uint32_t bits;
    bool reflect_data;
    bool reflect_remainder;
};

/* Immutable; a change publishes another one. */
struct ss_crc {
    struct ss_crc_desc desc;
    uint64_t table[256];
};

/* --------------------------------------------------------------------------------- the program */

/* A message of log_msg: per value "<limbs>u" or "<limbs>s" (signed), and the limbs of all values. */
typedef void ss_log_message(const char *text, const char *kinds, const uint64_t *limbs);

/* The state of a loaded program. Allocated by the engine, read by the generated code. */
struct ss_state {
    const struct ss_program *program;
    struct ss_table *tables;
    struct ss_profile *profiles;
    struct ss_counter **counters;
    void **registers;
    struct ss_meter **meters;
    struct ss_value_set *value_sets;
    struct ss_crc **crcs;
    uint64_t now_us; /* since the switch started, when the program needs a clock or has time-outs */
    uint64_t random[4];
    uint32_t drop_port;
    void *engine;
    void (*assertion_failed)(void *engine, const char *text);
    ss_log_message *log_message; /* NULL: nobody wants them */
};

struct ss_program {
    uint32_t abi; /* SS_ABI */
    uint32_t phv_size;
    uint32_t max_header_bytes; /* all headers of the deparser together */
    uint32_t digest_words;     /* longest digest, in 64-bit words */
    bool needs_clock;          /* the program reads time stamps or has meters */
    bool has_timeouts;         /* some table has: the time of each burst is needed */
    uint32_t table_count;
    uint32_t profile_count;
    uint32_t counter_count;
    uint32_t register_count;
    uint32_t meter_count;
    uint32_t value_set_count;
    uint32_t crc_count;
    const struct ss_table_desc *tables;
    const struct ss_counter_desc *counters;
    const struct ss_register_desc *registers;
    const struct ss_meter_desc *meters;
    const struct ss_value_set_desc *value_sets;
    const struct ss_crc_desc *crcs; /* as the program starts */
    /* Clears all headers and metadata, sets the intrinsic metadata of a new packet. */
    void (*start)(struct ss_state *, struct ss_packet *);
    /* Parses and runs ingress. Fills in the "written by the program" part of the packet. */
    void (*ingress)(struct ss_state *, struct ss_packet *);
    /* `copy` holds the packet as it arrived: parses it and takes over a field list. */
    void (*clone_ingress)(struct ss_state *, const struct ss_packet *, struct ss_packet *copy,
                          uint32_t list);
    /* Clears the metadata of `copy` and takes over a field list. */
    void (*preserve)(struct ss_state *, const struct ss_packet *, struct ss_packet *copy,
                     uint32_t list);
    void (*set_instance_type)(struct ss_packet *, uint32_t);
    void (*set_replication_id)(struct ss_packet *, uint32_t);
    /* Runs egress. Sets egress_spec. */
    void (*egress)(struct ss_state *, struct ss_packet *);
    /* Updates checksums, writes the headers; their length. */
    uint32_t (*deparse)(struct ss_state *, struct ss_packet *, uint8_t *out);
    /* Writes the fields of a digest, each from a word of its own; number of words. */
    uint32_t (*digest)(struct ss_state *, const struct ss_packet *, uint64_t *out);
};

#define SS_ABI 7u

#endif
