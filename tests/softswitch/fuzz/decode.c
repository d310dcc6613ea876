/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes what comes from the network before anything else has looked at it: csrc/batch.c decodes bytes
 * that should be a WriteRequest, for the tables of a plan. Every buffer is as large as the caller makes
 * it and no larger, so that the address sanitizer sees the first byte that is too much.
 *
 * An input has three bytes before the request, as the operations of harness.c have, for standalone.c.
 */
#include <stdio.h>

#include "../../../softswitch/csrc/batch.c"

#define HEAD 3
#define MOST_UPDATES 40

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static struct ss_plan plan;
static uint32_t longest_key, longest_data;

/* Only decoding is looked at. */
int ss_table_add(struct ss_switch *sw, struct ss_table *t, const uint64_t *key, uint32_t prefix_len,
                 int32_t priority, struct ss_action *action) {
    (void)sw, (void)t, (void)key, (void)prefix_len, (void)priority, (void)action;
    abort();
}

int ss_table_act(struct ss_switch *sw, struct ss_table *t, uint32_t handle,
                 struct ss_action *action) {
    (void)sw, (void)t, (void)handle, (void)action;
    abort();
}

int ss_table_remove(struct ss_switch *sw, struct ss_table *t, uint32_t handle) {
    (void)sw, (void)t, (void)handle;
    abort();
}

struct ss_action *ss_action_new(uint32_t kind, uint32_t id, const uint64_t *data, uint32_t words) {
    (void)kind, (void)id, (void)data, (void)words;
    abort();
}

SS_API uint64_t ss_time_us(const struct ss_switch *sw) {
    (void)sw;
    abort();
}

static void need(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "decode: %s\n", what);
    abort();
}

/* What Python relies on when it looks at the result. */
static void check(const struct ss_update *updates, uint32_t count, const struct ss_run *runs,
                  int run_count, uint32_t length) {
    uint32_t next = 0;
    for (int i = 0; i < run_count; i++) {
        need(runs[i].first == next && runs[i].count > 0, "runs follow one another");
        next += runs[i].count;
    }
    need(next == count, "runs are all of the updates");
    uint64_t keys = 0, data = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ss_update *u = &updates[i];
        if (u->kind == NOT_PLAIN) continue;
        need(u->kind <= DELETE && u->table < plan.table_count, "kind and table are known");
        need(u->entry <= length && u->entry_bytes <= length - u->entry, "the entry is in the request");
        need(u->key == keys && u->data == data, "keys and data follow one another");
        keys += key_words(&plan.tables[u->table]) + 1;
        data += u->data_words;
    }
    need(keys <= (uint64_t)count * longest_key && data <= (uint64_t)count * longest_data, "they fit");
}

static void decode(const uint8_t *bytes, size_t length, uint32_t count) {
    struct ss_update *updates = malloc(count * sizeof *updates + 1);
    struct ss_run *runs = malloc(count * sizeof *runs + 1);
    uint64_t *keys = malloc((size_t)count * longest_key * sizeof *keys + 1);
    uint64_t *data = malloc((size_t)count * longest_data * sizeof *data + 1);
    if (!updates || !runs || !keys || !data) exit(2);
    int found = ss_batch_decode(&plan, bytes, length, count, updates, keys, data, runs);
    if (found >= 0) check(updates, count, runs, found, (uint32_t)length);
    free(updates);
    free(runs);
    free(keys);
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    size_t length = count > HEAD ? count - HEAD : 0;
    uint8_t *request = malloc(length ? length : 1);
    if (request == NULL) exit(2);
    if (length) memcpy(request, bytes + HEAD, length);
    for (uint32_t updates = 0; updates < MOST_UPDATES; updates++) decode(request, length, updates);
    free(request);
    return 0;
}

/* Sizes of the arrays in numbers, the longest key and data, then the arrays: all 32 bits. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *path = getenv("SS_FUZZ_TABLES");
    FILE *file = path ? fopen(path, "rb") : NULL;
    uint32_t head[6];
    if (file == NULL || fread(head, sizeof head, 1, file) != 1) {
        fprintf(stderr, "SS_FUZZ_TABLES cannot be read\n");
        exit(2);
    }
    uint32_t *arrays[4];
    for (int i = 0; i < 4; i++) {
        arrays[i] = malloc(head[i] * sizeof arrays[i][0] + 1);
        if (!arrays[i] || fread(arrays[i], sizeof arrays[i][0], head[i], file) != head[i]) exit(2);
    }
    fclose(file);
    longest_key = head[4];
    longest_data = head[5];
    plan = (struct ss_plan){(void *)arrays[0], (void *)arrays[1], (void *)arrays[2],
                            (void *)arrays[3], head[0] * 4 / sizeof(struct plan_table)};
    return 0;
}
