/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>

static FILE *file;

static void give_up(const char *what) {
    fprintf(stderr, "plan: %s\n", what);
    exit(2);
}

static uint32_t next(void) {
    uint32_t value;
    if (fread(&value, sizeof value, 1, file) != 1) give_up("it ends too early");
    return value;
}

static uint32_t at_most(uint32_t limit) {
    uint32_t value = next();
    if (value > limit) give_up("a program larger than the harness");
    return value;
}

static void *list(uint32_t *count, size_t bytes) {
    *count = next();
    void *memory = calloc(*count ? *count : 1, bytes);
    if (memory == NULL) give_up("no memory");
    return memory;
}

static struct choice read_choice(void) {
    struct choice c;
    c.actions = list(&c.count, sizeof c.actions[0]);
    for (uint32_t i = 0; i < c.count; i++) c.actions[i] = next();
    return c;
}

static void read_table(struct table *t) {
    t->kind = next();
    t->words = at_most(MAX_WORDS);
    t->profile = next();
    t->meters = next();
    t->timeouts = next();
    t->fixed = next();
    t->keys = at_most(MAX_KEYS);
    for (uint32_t i = 0; i < t->keys; i++) t->key[i] = (struct key){next(), next(), next()};
    t->choice = read_choice();
}

static struct cells *read_cells(uint32_t *count) {
    struct cells *cells = list(count, sizeof *cells);
    for (uint32_t i = 0; i < *count; i++) cells[i] = (struct cells){next(), next()};
    return cells;
}

void plan_read(struct plan *plan, const char *path) {
    file = fopen(path, "rb");
    if (file == NULL) give_up("cannot be opened");
    plan->cpu_port = next();
    plan->action = list(&plan->actions, sizeof plan->action[0]);
    for (uint32_t i = 0; i < plan->actions; i++) {
        struct action *a = &plan->action[i];
        a->id = next();
        a->params = at_most(MAX_PARAMS);
        uint32_t words = 0;
        for (uint32_t n = 0; n < a->params; n++) words += (63 + (a->widths[n] = next())) / 64;
        if (words + a->params > MAX_DATA) give_up("an action with too many parameters");
    }
    plan->table = list(&plan->tables, sizeof plan->table[0]);
    for (uint32_t i = 0; i < plan->tables; i++) read_table(&plan->table[i]);
    plan->profile = list(&plan->profiles, sizeof plan->profile[0]);
    for (uint32_t i = 0; i < plan->profiles; i++) plan->profile[i].choice = read_choice();
    plan->counter = read_cells(&plan->counters);
    plan->reg = read_cells(&plan->registers);
    plan->meter = read_cells(&plan->meters);
    plan->value_set = list(&plan->value_sets, sizeof plan->value_set[0]);
    for (uint32_t i = 0; i < plan->value_sets; i++) {
        struct value_set *set = &plan->value_set[i];
        set->keys = at_most(MAX_KEYS);
        for (uint32_t n = 0; n < set->keys; n++) set->words += (63 + (set->width[n] = next())) / 64;
        if (3 * set->words > MAX_DATA) give_up("a value set with too many keys");
    }
    plan->setup = list(&plan->setup_bytes, 1);
    if (fread(plan->setup, 1, plan->setup_bytes, file) != plan->setup_bytes) give_up("no set-up");
    fclose(file);
}
