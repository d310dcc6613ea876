/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine: ports, queues, events and the thread that forwards. Private to the engine's sources;
 * what Python calls is marked SS_API.
 *
 * Threads. One thread forwards (loop.c), one follows the interfaces (netlink.c). All others are Python's.
 * `lock` serialises the writers among themselves, `ports_lock`, taken before it, those of ports. The forwarding thread reads tables without a lock (rcu.c says when memory is freed); for
 * everything else a writer parks it first (ss_park), which waits for the end of the current burst.
 *
 * Memory. Packets arrive in a port's ring and are forwarded from there; nothing refers to their frames
 * when the burst ends and the kernel gets them back. A packet that has to wait longer is copied first
 * (ss_own).
 */
#ifndef SS_ENGINE_H
#define SS_ENGINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "ss.h"

#define SS_API __attribute__((visibility("default")))

#define SS_MAX_PORTS 65536
#define SS_MAX_PRIORITIES 8
/* For ss_set_queue; softswitch/engine.py has the same numbers. */
#define SS_ALL UINT32_MAX
#define SS_KEEP_DEPTH UINT32_MAX
#define SS_KEEP_RATE UINT64_MAX
#define SS_BURST 64
#define SS_LOOP_CAPACITY 1024 /* resubmitted and recirculated packets, as in simple_switch */
#define SS_INJECT_CAPACITY 1024
#define SS_EVENT_CAPACITY 16384
#define SS_ERROR_BYTES 256
#define SS_NO_BUDGET UINT32_MAX
/* What epoll watches besides ports, whose numbers are below it. */
#define SS_WATCH_WAKE SS_MAX_PORTS

/* Results of the functions that Python calls; softswitch/engine.py has the same numbers. */
enum ss_result {
    SS_OK = 0,
    SS_E_FULL = -1,
    SS_E_NOT_FOUND = -2,
    SS_E_EXISTS = -3,
    SS_E_MEMORY = -4,
    SS_E_SYSTEM = -5, /* the message says why */
    SS_E_ASSERTION = -6,
    SS_E_LOOP = -7,
    SS_E_STATE = -8,
};

struct ss_options {
    uint32_t cpu_port; /* 0: none */
    uint32_t drop_port;
    uint32_t queue_depth;
    uint32_t priorities;
    uint32_t ring_bytes;
    uint32_t has_seed;
    uint64_t seed;
};

struct ss_queue {
    struct ss_packet *head;
    struct ss_packet **tail;
    uint32_t size; /* packets in it */
    uint32_t capacity;
    uint64_t interval_ns; /* between two packets; 0: no rate */
    uint64_t last_send_ns;
    uint64_t dropped;
};

/* The queues of a port number, whether or not an interface has it. */
struct ss_egress {
    uint32_t port;
    uint32_t waiting; /* packets in all its queues */
    bool paced;       /* some queue has a rate */
    bool listed;      /* is in one of the lists of ports with waiting packets */
    struct ss_egress *next_waiting;
    uint64_t dropped; /* by its queues, or for a priority that there is not */
    struct ss_queue queues[SS_MAX_PRIORITIES];
};

/* `rx_dropped`: the ring was full, or there is no program. `queue_dropped`: by egress queues. */
struct ss_port_stats {
    uint64_t rx_packets, rx_bytes, rx_dropped, rx_errors;
    uint64_t tx_packets, tx_bytes;
    uint64_t tx_full;    /* the send buffer was: the interface is slower than what is sent */
    uint64_t tx_dropped; /* by a queueing discipline or filter of the interface */
    uint64_t tx_down;    /* the interface was down or absent */
    uint64_t tx_errors;  /* otherwise refused by the kernel, such as packets above the MTU */
    uint64_t queue_dropped;
};

/*
 * Of a receive ring. Most packets fit; longer ones come another, slower way. Frames for the longest
 * packet of a jumbo MTU would make a ring of the same memory too short for a burst of small packets.
 */
#define SS_FRAME_BYTES 2048u

/* A port's connection to its interface. Replaced while the forwarding thread is parked. */
struct ss_link {
    int ifindex; /* 0: there is no such interface, and nothing else here either */
    int rx_fd;
    int tx_fd;
    uint8_t *ring; /* `frames` times SS_FRAME_BYTES; NULL: none */
    size_t ring_bytes;
    uint32_t frames;
    uint32_t head;    /* next frame that the kernel fills */
    uint32_t release; /* first frame that is still ours */
};

struct ss_port {
    uint32_t number;
    char name[16];
    struct ss_link link;
    bool up;    /* atomic; the interface is up and has a carrier */
    bool dirty; /* is in the list of ports with pending messages */
    uint32_t pending; /* messages to send */
    struct ss_port *next_dirty;
    struct mmsghdr messages[SS_BURST];
    struct iovec iov[SS_BURST][2];
    uint8_t *owned[SS_BURST]; /* payloads to free once sent */
    uint8_t *headers;         /* SS_BURST times the program's longest headers */
    FILE *pcap_in;
    FILE *pcap_out;
    struct ss_port_stats stats;
};

struct ss_replica {
    uint32_t port;
    uint32_t rid;
};

struct ss_replicas {
    struct ss_replicas *next;
    uint32_t id;
    uint32_t truncate; /* clone sessions: most bytes of a copy, SS_NOT_TRUNCATED */
    uint32_t priority; /* clone sessions: of the copies */
    uint32_t count;
    struct ss_replica list[];
};

#define SS_REPLICA_BUCKETS 256
struct ss_replica_table {
    struct ss_replicas *buckets[SS_REPLICA_BUCKETS];
};

/* `list` is a learn list's id, or the number of a port that went up (`data[0]` 1) or down (0). */
enum ss_event_kind { SS_EVENT_NONE = 0, SS_EVENT_PACKET = 1, SS_EVENT_DIGEST = 2, SS_EVENT_PORT = 3 };

struct ss_event {
    struct ss_event *next;
    uint32_t kind;
    uint32_t list;
    uint64_t time_us;
    uint32_t bytes;
    _Alignas(8) uint8_t data[];
};

struct ss_retired {
    struct ss_retired *next;
    void *memory;
    uint64_t epoch;
};

/* What leaves during ss_process: port, length (both 32 bits), bytes, one packet after the other. */
struct ss_output {
    uint8_t *bytes;
    size_t length;
    size_t capacity;
};

struct ss_switch {
    struct ss_options options;
    ss_log_message *log_message;
    void *library; /* of the program */
    const struct ss_program *program; /* NULL: nothing loaded, packets are dropped */
    struct ss_state *state;
    uint64_t start_ns;
    uint64_t now_us; /* of the packets being processed, when the program needs a clock */
    uint64_t fixed_ns; /* what the clock shows, for tests; 0: the time */

    struct ss_port **ports; /* by number */
    struct ss_port **port_list;
    uint32_t port_count;
    struct ss_egress **egress; /* by port number, made when first used */
    uint64_t queue_interval_ns; /* of the queues of ports that come; their depth is in the options */
    /* Ports with waiting packets: without a rate, served after every packet, and with one. */
    struct ss_egress *waiting, **waiting_tail;
    struct ss_egress *paced, **paced_tail;
    struct ss_packet *loop_head, **loop_tail; /* resubmitted and recirculated packets */
    uint32_t loop_size;
    uint64_t loop_dropped;
    struct ss_packet *free_packets;
    struct ss_port *dirty; /* ports with pending messages */
    struct ss_replica_table multicast;
    struct ss_replica_table clones;
    uint8_t *scratch; /* headers of a packet that is not sent to an interface */

    /* ss_process */
    struct ss_output output;
    bool processing;
    bool failed; /* an assertion; the text is in `failure` */
    char failure[SS_ERROR_BYTES];

    /* forwarding thread */
    pthread_t thread;
    bool started;
    bool stop; /* atomic */
    int epoll_fd;
    int wake_fd;
    pthread_mutex_t park_lock;
    pthread_cond_t parked;
    pthread_cond_t resumed;
    uint32_t parkers; /* atomic */
    bool busy;        /* under park_lock: the thread may hold references */
    bool draining;    /* atomic: ss_freeze wants it to rest */
    bool rested;      /* under park_lock: it does */
    uint64_t epoch;   /* atomic: quiescent states passed */

    /* thread that follows the interfaces */
    pthread_t ports_thread;
    int netlink_fd;
    int ports_stop_fd;

    /* writers */
    pthread_mutex_t ports_lock; /* that of the list of ports and their links */
    pthread_mutex_t lock;
    struct ss_retired *retired, **retired_tail;
    uint32_t retired_count;

    /* packets from the CPU port */
    pthread_mutex_t inject_lock;
    struct ss_event *inject_head, **inject_tail;
    uint32_t inject_count;

    /* events */
    pthread_mutex_t event_lock;
    pthread_cond_t event_ready;
    struct ss_event *event_head, **event_tail;
    uint32_t event_count;
    uint64_t events_lost;
};

/* rcu.c */
void ss_quiescent(struct ss_switch *sw);
void ss_sleep_begin(struct ss_switch *sw);
void ss_sleep_end(struct ss_switch *sw);
void ss_retire(struct ss_switch *sw, void *memory);
void ss_reclaim_all(struct ss_switch *sw);
void ss_park(struct ss_switch *sw);
void ss_unpark(struct ss_switch *sw);
void ss_rest(struct ss_switch *sw);

/* switch.c */
uint64_t ss_now_ns(void);
SS_API uint64_t ss_time_us(const struct ss_switch *sw);
int ss_fail(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* program.c */
void ss_unload(struct ss_switch *sw);
int ss_make_header_room(struct ss_switch *sw);
/* event.c */
void ss_injected(struct ss_switch *sw);

/* packet.c */
struct ss_packet *ss_packet_new(struct ss_switch *sw);
void ss_packet_free(struct ss_switch *sw, struct ss_packet *p);
void ss_packet_pool_free(struct ss_switch *sw);
bool ss_own(struct ss_packet *p);
bool ss_share(struct ss_packet *copy, const struct ss_packet *p);

/* hash.c */
struct ss_hash *ss_hash_new(uint32_t slots);
struct ss_hash *ss_hash_grown(const struct ss_hash *h);
bool ss_hash_is_full(const struct ss_hash *h);
void ss_hash_add(struct ss_hash *h, struct ss_entry *e, uint32_t tag);
uint64_t *ss_hash_slot_of(struct ss_hash *h, const struct ss_entry *e);
void ss_hash_remove(struct ss_hash *h, const struct ss_entry *e);

/* table.c, profile.c */
int ss_table_init(struct ss_table *t, const struct ss_table_desc *desc);
void ss_table_destroy(struct ss_table *t);
struct ss_entry *ss_table_entry(const struct ss_table *t, uint32_t handle);
int ss_table_add(struct ss_switch *sw, struct ss_table *t, const uint64_t *key,
                 uint32_t prefix_len, int32_t priority, struct ss_action *action);
int ss_table_act(struct ss_switch *sw, struct ss_table *t, uint32_t handle,
                 struct ss_action *action);
int ss_table_remove(struct ss_switch *sw, struct ss_table *t, uint32_t handle);
struct ss_action *ss_action_new(uint32_t kind, uint32_t id, const uint64_t *data, uint32_t words);
int ss_profile_init(struct ss_profile *p);
void ss_profile_destroy(struct ss_profile *p);

/* valueset.c */
int ss_value_set_init(struct ss_value_set *set, const struct ss_value_set_desc *desc);

/* crc.c */
struct ss_crc *ss_crc_new(const struct ss_crc_desc *desc);

/* match.c: puts an entry where readers find it, or removes it from there */
int ss_link_hashed(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e);
void ss_unlink_hashed(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e);
int ss_link_range(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e);
void ss_unlink_range(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e);
/* ternary.c */
int ss_link_ternary(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e,
                    const uint64_t *mask);
void ss_unlink_ternary(struct ss_switch *sw, struct ss_table *t, struct ss_entry *e);

/* traffic.c */
void ss_clock(struct ss_switch *sw);
void ss_burst_clock(struct ss_switch *sw);
void ss_receive(struct ss_switch *sw, struct ss_packet *p);
void ss_serve_loops(struct ss_switch *sw, uint32_t budget);
void ss_run_egress(struct ss_switch *sw, struct ss_packet *p);

/* queue.c */
struct ss_egress *ss_egress_of(struct ss_switch *sw, uint32_t port);
void ss_enqueue(struct ss_switch *sw, struct ss_packet *p, uint32_t port);
uint32_t ss_serve(struct ss_switch *sw, uint32_t budget);
void ss_serve_paced(struct ss_switch *sw, uint64_t now_ns);
uint64_t ss_next_send_ns(const struct ss_switch *sw);
void ss_own_queued(struct ss_switch *sw);
void ss_drop_queues(struct ss_switch *sw);

/* replicas.c */
const struct ss_replicas *ss_replicas_find(const struct ss_replica_table *t, uint32_t id);
void ss_replicas_clear(struct ss_replica_table *t);

/* port.c */
void ss_port_refresh(struct ss_switch *sw, struct ss_port *port);
void ss_port_socket_error(struct ss_port *port);
int ss_port_watch(struct ss_switch *sw, const struct ss_port *port, char *error);
int ss_port_make_header_room(struct ss_port *port, uint32_t header_bytes);
void ss_ports_close(struct ss_switch *sw);

/* receive.c */
bool ss_port_has_packets(const struct ss_port *port);
uint32_t ss_port_receive(struct ss_switch *sw, struct ss_port *port);
void ss_port_release(struct ss_port *port);

/* transmit.c */
uint8_t *ss_port_header_room(struct ss_switch *sw, struct ss_port *port);
void ss_port_transmit(struct ss_switch *sw, struct ss_port *port, struct ss_packet *p,
                      uint32_t header_bytes, uint32_t payload_bytes);
void ss_flush_all(struct ss_switch *sw);

/* netlink.c */
int ss_netlink_open(void);
void *ss_ports_loop(void *sw);

/* event.c */
void ss_event_packet(struct ss_switch *sw, const uint8_t *header, uint32_t header_bytes,
                     const uint8_t *payload, uint32_t payload_bytes);
void ss_event_digest(struct ss_switch *sw, const struct ss_packet *p);
void ss_event_port(struct ss_switch *sw, uint32_t number, bool up);
struct ss_event *ss_event_new(uint32_t kind, uint32_t bytes);
void ss_events_clear(struct ss_switch *sw);

/* pcap.c */
FILE *ss_pcap_open(const char *path, char *error);
void ss_pcap_write(FILE *file, const uint8_t *a, uint32_t a_bytes, const uint8_t *b, uint32_t b_bytes);

/* loop.c */
void *ss_loop(void *sw);
void ss_wake(struct ss_switch *sw);

#endif
