/* SPDX-License-Identifier: Apache-2.0
 *
 * For the thread sanitizer: a switch forwards between interfaces while one thread does the operations
 * of input files on it, programs it afresh now and then, and reads what can be read, one takes its
 * events, and one sends packets to it. These are the threads that a running softswitch has.
 *
 *     race SECONDS SEED SWITCH_INTERFACE TESTER_INTERFACE FILE...
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "plan.h"

#define MAX_INPUT 65536
#define ERROR_BYTES 256
#define PORTS 4
#define STATS 16

static bool over; /* atomic */
static char **files;
static unsigned file_count;
static int tester;
static uint64_t packets_sent;

static bool is_over(void) { return __atomic_load_n(&over, __ATOMIC_RELAXED); }

static size_t load(const char *path, uint8_t *to) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) exit(2);
    size_t count = fread(to, 1, MAX_INPUT, file);
    fclose(file);
    return count;
}

/* The packets among a file's operations go to the interface. */
static void *sender(void *unused) {
    static uint8_t input[MAX_INPUT];
    (void)unused;
    for (unsigned n = 0; !is_over(); n++) {
        size_t count = load(files[n % file_count], input);
        for (size_t at = 0; at + 3 <= count;) {
            size_t length = input[at + 1] | (size_t)input[at + 2] << 8;
            if (length > count - at - 3) length = count - at - 3;
            if (input[at] == 0 && length > 16)
                packets_sent += send(tester, input + at + 5, length - 2, MSG_DONTWAIT) > 0;
            at += 3 + length;
        }
        usleep(200);
    }
    return NULL;
}

static void *receiver(void *unused) {
    (void)unused;
    while (!is_over()) {
        void *event = ss_next_event(harness_switch(), 10000000);
        if (event) ss_event_free(event);
    }
    return NULL;
}

/* What the other operations do not do: statistics, queues with and without rates, a freeze. */
static void look_and_turn(unsigned *state) {
    uint64_t stats[STATS];
    uint32_t priority = (uint32_t)rand_r(state) % 8;
    uint64_t rate = rand_r(state) % 4 ? 0 : 1000 + (uint64_t)rand_r(state) % 100000;
    ss_port_read_stats(harness_switch(), 1, stats);
    ss_set_queue(harness_switch(), 1, priority, 1 + (uint32_t)rand_r(state) % 100, rate);
    ss_queue_read(harness_switch(), 1, priority, stats);
    if (rand_r(state) % 8 == 0 && ss_freeze(harness_switch(), 10000000) == 0)
        ss_thaw(harness_switch());
}

static void writer(unsigned seed, unsigned seconds) {
    static uint8_t input[MAX_INPUT];
    time_t end = time(NULL) + (time_t)seconds;
    unsigned state = seed;
    while (time(NULL) < end) {
        size_t count = load(files[(unsigned)rand_r(&state) % file_count], input);
        /* Packets become other operations, and nothing is as it was. */
        for (size_t at = 0; at + 3 <= count;) {
            size_t length = input[at + 1] | (size_t)input[at + 2] << 8;
            if (length > count - at - 3) length = count - at - 3;
            if (rand_r(&state) % 4) input[at] = (uint8_t)(rand_r(&state) % 20);
            for (size_t i = 0; i < length; i++)
                if (rand_r(&state) % 8 == 0) input[at + 3 + i] = (uint8_t)rand_r(&state);
            at += 3 + length;
        }
        LLVMFuzzerTestOneInput(input, count);
        look_and_turn(&state);
    }
}

static int open_tester(const char *name) {
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = (int)if_nametoindex(name),
    };
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0) exit(2);
    return fd;
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: %s SECONDS SEED SWITCH_INTERFACE TESTER_INTERFACE FILE...\n", argv[0]);
        return 2;
    }
    files = argv + 5;
    file_count = (unsigned)argc - 5;
    LLVMFuzzerInitialize(&argc, &argv);
    char error[ERROR_BYTES] = "";
    if (ss_add_port(harness_switch(), 1, argv[3], NULL, NULL, error) < 0 ||
        ss_start(harness_switch(), error) < 0) {
        fprintf(stderr, "%s\n", error);
        return 2;
    }
    harness_forwards = true;
    tester = open_tester(argv[4]);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, sender, NULL);
    pthread_create(&threads[1], NULL, receiver, NULL);
    writer((unsigned)atoi(argv[2]), (unsigned)atoi(argv[1]));
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    ss_stop(harness_switch());
    ss_destroy(harness_switch());
    printf("%lu packets in\n", (unsigned long)packets_sent);
    return 0;
}
