/* SPDX-License-Identifier: Apache-2.0
 *
 * Action profiles: members and groups, and the arrays of counters and registers.
 *
 * Python keeps track of who refers to a member or group; here they are only published and retired.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define FIRST_ROOM 16

int ss_profile_init(struct ss_profile *p) {
    p->members = calloc(1, sizeof *p->members);
    p->groups = calloc(1, sizeof *p->groups);
    return p->members && p->groups ? SS_OK : SS_E_MEMORY;
}

void ss_profile_destroy(struct ss_profile *p) {
    for (uint32_t i = 0; p->members && i < p->members->count; i++) free(p->members->actions[i]);
    for (uint32_t i = 0; p->groups && i < p->groups->count; i++) free(p->groups->groups[i]);
    free(p->members);
    free(p->groups);
}

/*
 * The lowest free place of an array of pointers that starts with its length, after making room; both
 * ss_members and ss_groups are one. `room` is where to look from. Negative: no memory.
 */
static int free_place(struct ss_switch *sw, void **array, uint32_t *room) {
    struct ss_members *old = *array;
    uint32_t i = *room;
    while (i < old->count && old->actions[i] != NULL) i++;
    *room = i;
    if (i < old->count) return (int)i;
    uint32_t count = old->count ? old->count * 2 : FIRST_ROOM;
    struct ss_members *grown = calloc(1, sizeof *grown + count * sizeof grown->actions[0]);
    if (grown == NULL) return SS_E_MEMORY;
    memcpy(grown->actions, old->actions, old->count * sizeof grown->actions[0]);
    grown->count = count;
    SS_STORE(array, (void *)grown);
    ss_retire(sw, old);
    return (int)i;
}

_Static_assert(offsetof(struct ss_members, actions) == offsetof(struct ss_groups, groups),
               "free_place treats both alike");

/* A new member, or with `member` >= 0 another action for that one; the handle. */
SS_API int ss_profile_set_member(struct ss_switch *sw, uint32_t profile, int member, uint32_t id,
                                 const uint64_t *data, uint32_t data_words) {
    struct ss_action *action = ss_action_new(SS_DIRECT, id, data, data_words);
    if (action == NULL) return SS_E_MEMORY;
    pthread_mutex_lock(&sw->lock);
    struct ss_profile *p = &sw->state->profiles[profile];
    if (member < 0) member = free_place(sw, (void **)&p->members, &p->member_room);
    if (member >= 0) {
        struct ss_action *old = p->members->actions[member];
        SS_STORE(&p->members->actions[member], action);
        ss_retire(sw, old);
    } else {
        free(action);
    }
    pthread_mutex_unlock(&sw->lock);
    return member;
}

SS_API void ss_profile_delete_member(struct ss_switch *sw, uint32_t profile, uint32_t member) {
    pthread_mutex_lock(&sw->lock);
    struct ss_profile *p = &sw->state->profiles[profile];
    struct ss_action *old = p->members->actions[member];
    SS_STORE(&p->members->actions[member], NULL);
    if (member < p->member_room) p->member_room = member;
    ss_retire(sw, old);
    pthread_mutex_unlock(&sw->lock);
}

/* A new group, or with `group` >= 0 other members for that one; the handle. */
SS_API int ss_profile_set_group(struct ss_switch *sw, uint32_t profile, int group,
                                const uint32_t *members, uint32_t count, bool at_random) {
    struct ss_group *g = malloc(sizeof *g + count * sizeof g->members[0]);
    if (g == NULL) return SS_E_MEMORY;
    g->count = count;
    g->at_random = at_random;
    if (count) memcpy(g->members, members, count * sizeof g->members[0]);
    pthread_mutex_lock(&sw->lock);
    struct ss_profile *p = &sw->state->profiles[profile];
    if (group < 0) group = free_place(sw, (void **)&p->groups, &p->group_room);
    if (group >= 0) {
        struct ss_group *old = p->groups->groups[group];
        SS_STORE(&p->groups->groups[group], g);
        ss_retire(sw, old);
    } else {
        free(g);
    }
    pthread_mutex_unlock(&sw->lock);
    return group;
}

SS_API void ss_profile_delete_group(struct ss_switch *sw, uint32_t profile, uint32_t group) {
    pthread_mutex_lock(&sw->lock);
    struct ss_profile *p = &sw->state->profiles[profile];
    struct ss_group *old = p->groups->groups[group];
    SS_STORE(&p->groups->groups[group], NULL);
    if (group < p->group_room) p->group_room = group;
    ss_retire(sw, old);
    pthread_mutex_unlock(&sw->lock);
}

/* ----------------------------------------------------------------------- counters and registers */

SS_API void ss_counter_read(struct ss_switch *sw, uint32_t counter, uint32_t index, uint64_t out[2]) {
    pthread_mutex_lock(&sw->lock);
    struct ss_counter *c = &sw->state->counters[counter][index];
    out[0] = __atomic_load_n(&c->packets, __ATOMIC_RELAXED);
    out[1] = __atomic_load_n(&c->bytes, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&sw->lock);
}

SS_API void ss_counter_write(struct ss_switch *sw, uint32_t counter, uint32_t index,
                             uint64_t packets, uint64_t bytes) {
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    sw->state->counters[counter][index] = (struct ss_counter){packets, bytes};
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
}

static uint8_t *cell(struct ss_switch *sw, uint32_t number, uint32_t index, uint32_t *bytes) {
    *bytes = sw->program->registers[number].cell_bytes;
    return (uint8_t *)sw->state->registers[number] + (size_t)index * *bytes;
}

/* Cells are little-endian, lowest word first. The thread is parked, so that none is half-written. */
SS_API void ss_register_read(struct ss_switch *sw, uint32_t number, uint32_t index, uint8_t *out) {
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    uint32_t bytes;
    const uint8_t *from = cell(sw, number, index, &bytes);
    memcpy(out, from, bytes);
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
}

SS_API void ss_register_write(struct ss_switch *sw, uint32_t number, uint32_t index,
                              const uint8_t *value) {
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    uint32_t bytes;
    uint8_t *to = cell(sw, number, index, &bytes);
    memcpy(to, value, bytes);
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
}
