/* SPDX-License-Identifier: Apache-2.0
 *
 * What the harness knows of a program: tests/softswitch/fuzzing.py writes it as 32-bit words, in the
 * order of the structures here, each list behind its length.
 */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_KEYS 64
#define MAX_PARAMS 64
#define MAX_WORDS 128 /* of a key */
#define MAX_DATA 512  /* of all parameters of an action */

enum key_type { KEY_EXACT, KEY_LPM, KEY_TERNARY, KEY_RANGE };

struct action {
    uint32_t id;
    uint32_t params;
    uint32_t widths[MAX_PARAMS];
};

struct key {
    uint32_t type; /* enum key_type */
    uint32_t width;
    uint32_t shift;
};

struct choice { /* of actions, by their place in plan.actions */
    uint32_t count;
    uint32_t *actions;
};

struct table {
    uint32_t kind; /* enum ss_match_kind */
    uint32_t words;
    uint32_t profile; /* UINT32_MAX: none */
    uint32_t meters;  /* whether entries have them */
    uint32_t fixed;   /* whether the program fixes the default action */
    uint32_t timeouts;
    uint32_t keys;
    struct key key[MAX_KEYS];
    struct choice choice;
};

struct profile {
    struct choice choice;
    uint32_t members; /* handles that were given out, ever */
    uint32_t groups;
};

struct cells {
    uint32_t size;
    uint32_t width; /* of a register's cell, in bits; 0: a counter or meter */
};

struct value_set {
    uint32_t keys;
    uint32_t width[MAX_KEYS];
    uint32_t words; /* of all keys, each in words of its own */
};

struct plan {
    uint32_t cpu_port;
    uint32_t actions, tables, profiles, counters, registers, meters, value_sets;
    struct action *action;
    struct table *table;
    struct profile *profile;
    struct cells *counter;
    struct cells *reg;
    struct cells *meter;
    struct value_set *value_set;
    uint8_t *setup; /* operations that come before every input */
    uint32_t setup_bytes;
};

/* Ends the process when the file is not a plan. */
void plan_read(struct plan *plan, const char *path);

/* harness.c; the switch in it */
extern bool harness_forwards;
void *harness_switch(void);
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#endif
