/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for libFuzzer where the compiler has none: runs files as they are, and then a number of
 * mutations of them that a seed determines, each of the file itself.
 *
 *     harness SEED MUTATIONS FILE...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUT 65536
#define MAX_EXTRA 512

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static uint64_t state;
static uint8_t input[MAX_INPUT + MAX_EXTRA];

/* xorshift64* */
static uint32_t below(uint32_t limit) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 0x2545f4914f6cdd1dull) >> 32) % limit;
}

/* Where the operations start, so that most mutations leave their lengths alone. */
static size_t some_operation(size_t count, size_t *length) {
    size_t at = 0, chosen = 0, seen = 0;
    *length = 0;
    while (at + 3 <= count) {
        size_t bytes = input[at + 1] | (size_t)input[at + 2] << 8;
        if (bytes > count - at - 3) bytes = count - at - 3;
        if (below((uint32_t)++seen) == 0) {
            chosen = at + 3;
            *length = bytes;
        }
        at += 3 + bytes;
    }
    return chosen;
}

static void set_length(size_t start, size_t length) {
    if (start < 3) return;
    input[start - 2] = (uint8_t)length;
    input[start - 1] = (uint8_t)(length >> 8);
}

static size_t mutate(size_t count) {
    size_t length, start = some_operation(count, &length);
    if (length == 0) return count;
    size_t at = start + below((uint32_t)length);
    size_t left = start + length - at;
    switch (below(7)) {
    case 0: input[at] ^= (uint8_t)(1u << below(8)); break;
    case 1: input[at] = (uint8_t)(below(3) ? below(256) : below(2) ? 0 : 0xff); break;
    case 2:
        for (size_t i = 0; i < left && i < 8; i++) input[at + i] = (uint8_t)below(256);
        break;
    case 3: /* cut */
        memmove(input + at, input + at + left, count - at - left);
        set_length(start, length - left);
        return count - left;
    case 4: { /* take some out */
        size_t gone = 1 + below((uint32_t)(left < 8 ? left : 8));
        memmove(input + at, input + at + gone, count - at - gone);
        set_length(start, length - gone);
        return count - gone;
    }
    case 5: { /* double some */
        size_t more = 1 + below((uint32_t)(left < 300 ? left : 300));
        if (count + more > MAX_INPUT) return count;
        memmove(input + at + more, input + at, count - at);
        set_length(start, length + more);
        return count + more;
    }
    default:
        if (start >= 3) input[start - 3] = (uint8_t)below(20); /* another operation */
    }
    return count;
}

static size_t load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s cannot be opened\n", path);
        exit(2);
    }
    size_t count = fread(input, 1, MAX_INPUT, file);
    fclose(file);
    return count;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: %s SEED MUTATIONS FILE...\n", argv[0]);
        return 2;
    }
    state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
    unsigned long mutations = strtoul(argv[2], NULL, 10);
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 3; i < argc; i++) {
        size_t count = load(argv[i]);
        LLVMFuzzerTestOneInput(input, count);
    }
    for (unsigned long n = 0; n < mutations; n++) {
        size_t count = load(argv[3 + n % (unsigned)(argc - 3)]);
        for (uint32_t times = 1 + below(4); times > 0; times--) count = mutate(count);
        LLVMFuzzerTestOneInput(input, count);
    }
    printf("%d files, %lu mutations\n", argc - 3, mutations);
    return 0;
}
