/* SPDX-License-Identifier: Apache-2.0
 *
 * What bench_switch.py measures switches with, compiled by it:
 *
 *   load INTERFACE FRAME SECONDS RATE   sends; RATE packets/s, or 0 for as many as one core can
 *   forward IN OUT ring|sendmmsg        the ceiling: changes one byte of each packet, until killed
 *   pingpong OUT IN FRAME COUNT         sends, waits for the packet to come back, COUNT times
 *
 * FRAME is a file with the packet. Results go to standard output as numbers on one line.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#define BURST 64u
#define FRAME_BYTES 2048u
#define RX_FRAMES 2048u
#define TX_FRAMES 512u
#define BLOCK_BYTES 65536u
#define CHANGED_BYTE 21 /* the hop limit of an IPv6 packet */
#define SEND_BUFFER_BYTES (4 << 20)
#define NAP_NS 50000
/* More than this behind its rate, the load gives up what it owes: no bursts that nobody asked for. */
#define MOST_OWED 512.0
#define LOST_MS 1000

static void fail(const char *what) {
    fprintf(stderr, "bench_io: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void set(int fd, int level, int name, int value) {
    if (setsockopt(fd, level, name, &value, sizeof value) != 0) fail("setsockopt");
}

static int packet_socket(void) {
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("packet socket");
    return fd;
}

static void attach(int fd, const char *interface, uint16_t protocol) {
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons(protocol),
                                  .sll_ifindex = (int)if_nametoindex(interface)};
    if (address.sll_ifindex == 0) fail(interface);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) fail(interface);
}

static uint8_t *map_ring(int fd, int kind, uint32_t frames) {
    struct tpacket_req request = {.tp_block_size = BLOCK_BYTES,
                                  .tp_block_nr = frames * FRAME_BYTES / BLOCK_BYTES,
                                  .tp_frame_size = FRAME_BYTES,
                                  .tp_frame_nr = frames};
    set(fd, SOL_PACKET, PACKET_VERSION, TPACKET_V2);
    if (setsockopt(fd, SOL_PACKET, kind, &request, sizeof request) != 0) fail("ring");
    size_t bytes = (size_t)frames * FRAME_BYTES;
    void *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) fail("mmap");
    return ring;
}

static size_t read_frame(const char *path, uint8_t *frame) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail(path);
    size_t bytes = fread(frame, 1, FRAME_BYTES, file);
    fclose(file);
    return bytes;
}

/* Prints how many packets the kernel took and the seconds that it took. */
static void load(const char *interface, const char *path, double seconds, double rate) {
    static uint8_t frame[FRAME_BYTES];
    struct iovec iov = {frame, read_frame(path, frame)};
    struct mmsghdr messages[BURST];
    for (unsigned i = 0; i < BURST; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
    int fd = packet_socket();
    set(fd, SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES);
    attach(fd, interface, 0);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    uint64_t sent = 0;
    double begin = now_s(), now, granted = begin, owed = 0;
    while ((now = now_s()) - begin < seconds) {
        unsigned burst = BURST;
        if (rate > 0) {
            owed += (now - granted) * rate;
            granted = now;
            if (owed > MOST_OWED) owed = MOST_OWED;
            if (owed < 1) {
                struct timespec nap = {.tv_nsec = NAP_NS};
                nanosleep(&nap, NULL);
                continue;
            }
            if (owed < BURST) burst = (unsigned)owed;
        }
        int n = sendmmsg(fd, messages, burst, 0);
        if (n < 0 && errno != ENOBUFS && errno != EINTR) fail("sendmmsg");
        if (n > 0) sent += (uint64_t)n;
        if (n > 0) owed -= n;
    }
    printf("%llu %.6f\n", (unsigned long long)sent, now - begin);
}

/* ------------------------------------------------------------------------------------- ceiling */

struct sender {
    int fd;
    uint8_t *ring; /* NULL: sendmmsg */
    uint32_t head;
    struct mmsghdr messages[BURST];
    struct iovec iov[BURST];
};

static void put(struct sender *s, unsigned index, uint8_t *bytes, uint32_t length) {
    if (s->ring == NULL) {
        s->iov[index] = (struct iovec){bytes, length};
        return;
    }
    struct tpacket2_hdr *h = (void *)(s->ring + (size_t)s->head * FRAME_BYTES);
    while (__atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE)
        if (send(s->fd, NULL, 0, 0) < 0 && errno != ENOBUFS) fail("send");
    memcpy((uint8_t *)h + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll), bytes, length);
    h->tp_len = length;
    __atomic_store_n(&h->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
    s->head = (s->head + 1) % TX_FRAMES;
}

static void flush(struct sender *s, unsigned count) {
    if (s->ring) {
        if (send(s->fd, NULL, 0, 0) < 0 && errno != ENOBUFS) fail("send");
        return;
    }
    for (unsigned i = 0; i < count;) {
        int n = sendmmsg(s->fd, s->messages + i, count - i, 0);
        if (n < 0 && errno != ENOBUFS) fail("sendmmsg");
        i += n > 0 ? (unsigned)n : 1;
    }
}

static void forward(const char *in, const char *out, bool ring) {
    static struct sender sender;
    int fd = packet_socket();
    set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
    uint8_t *received = map_ring(fd, PACKET_RX_RING, RX_FRAMES);
    attach(fd, in, ETH_P_ALL);
    sender.fd = packet_socket();
    set(sender.fd, SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES);
    if (ring) sender.ring = map_ring(sender.fd, PACKET_TX_RING, TX_FRAMES);
    attach(sender.fd, out, 0);
    for (unsigned i = 0; i < BURST; i++)
        sender.messages[i].msg_hdr = (struct msghdr){.msg_iov = &sender.iov[i], .msg_iovlen = 1};
    for (uint32_t head = 0;;) {
        unsigned count = 0;
        uint32_t first = head;
        for (; count < BURST; count++, head = (head + 1) % RX_FRAMES) {
            struct tpacket2_hdr *h = (void *)(received + (size_t)head * FRAME_BYTES);
            if (!(__atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) break;
            uint8_t *bytes = (uint8_t *)h + h->tp_mac;
            bytes[CHANGED_BYTE]++;
            put(&sender, count, bytes, h->tp_snaplen);
        }
        if (count == 0) {
            struct pollfd idle = {.fd = fd, .events = POLLIN};
            poll(&idle, 1, -1);
            continue;
        }
        flush(&sender, count);
        for (; first != head; first = (first + 1) % RX_FRAMES) {
            struct tpacket2_hdr *h = (void *)(received + (size_t)first * FRAME_BYTES);
            __atomic_store_n(&h->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        }
    }
}

/* ------------------------------------------------------------------------------------- latency */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints the median and the 99th percentile in microseconds, and how many did not come back. */
static void pingpong(const char *out, const char *in, const char *path, unsigned count) {
    static uint8_t frame[FRAME_BYTES], back[FRAME_BYTES];
    size_t bytes = read_frame(path, frame);
    double *times = calloc(count, sizeof *times);
    if (times == NULL) fail("memory");
    int sender = packet_socket(), receiver = packet_socket();
    set(receiver, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
    attach(sender, out, 0);
    attach(receiver, in, ETH_P_ALL);
    unsigned came = 0;
    for (unsigned i = 0; i < count; i++) {
        double begin = now_s();
        if (send(sender, frame, bytes, 0) < 0) fail("send");
        struct pollfd wait = {.fd = receiver, .events = POLLIN};
        if (poll(&wait, 1, LOST_MS) != 1) continue;
        if (recv(receiver, back, sizeof back, 0) < 0) fail("recv");
        times[came++] = (now_s() - begin) * 1e6;
    }
    qsort(times, came, sizeof *times, ascending);
    double p50 = came ? times[came / 2] : 0, p99 = came ? times[came - 1 - came / 100] : 0;
    printf("%.1f %.1f %u\n", p50, p99, count - came);
}

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[1], "load") == 0)
        load(argv[2], argv[3], atof(argv[4]), atof(argv[5]));
    else if (argc == 5 && strcmp(argv[1], "forward") == 0)
        forward(argv[2], argv[3], strcmp(argv[4], "ring") == 0);
    else if (argc == 6 && strcmp(argv[1], "pingpong") == 0)
        pingpong(argv[2], argv[3], argv[4], (unsigned)atoi(argv[5]));
    else
        fprintf(stderr, "bench_io: wrong arguments; the source says which\n");
    return 0;
}
