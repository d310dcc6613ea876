/* SPDX-License-Identifier: Apache-2.0
 *
 * Multicast groups and clone sessions: id to (port, replication id) pairs. Changed while the
 * forwarding thread is parked.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* NULL: no such group. */
const struct ss_replicas *ss_replicas_find(const struct ss_replica_table *t, uint32_t id) {
    const struct ss_replicas *r = t->buckets[id % SS_REPLICA_BUCKETS];
    while (r && r->id != id) r = r->next;
    return r;
}

static bool take_out(struct ss_replica_table *t, uint32_t id) {
    struct ss_replicas **link = &t->buckets[id % SS_REPLICA_BUCKETS];
    while (*link && (*link)->id != id) link = &(*link)->next;
    struct ss_replicas *r = *link;
    if (r == NULL) return false;
    *link = r->next;
    free(r);
    return true;
}

void ss_replicas_clear(struct ss_replica_table *t) {
    for (uint32_t i = 0; i < SS_REPLICA_BUCKETS; i++)
        while (t->buckets[i]) take_out(t, t->buckets[i]->id);
}

/* Makes or replaces a clone session (`clones`) or multicast group; `pairs` are port, rid, port... */
SS_API int ss_set_replicas(struct ss_switch *sw, bool clones, uint32_t id, const uint32_t *pairs,
                           uint32_t count, uint32_t truncate, uint32_t priority) {
    struct ss_replicas *r = malloc(sizeof *r + count * sizeof r->list[0]);
    if (r == NULL) return SS_E_MEMORY;
    r->id = id;
    r->truncate = truncate;
    r->priority = priority;
    r->count = count;
    for (uint32_t i = 0; i < count; i++) {
        r->list[i].port = pairs[2 * i];
        r->list[i].rid = pairs[2 * i + 1];
    }
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    struct ss_replica_table *t = clones ? &sw->clones : &sw->multicast;
    take_out(t, id);
    r->next = t->buckets[id % SS_REPLICA_BUCKETS];
    t->buckets[id % SS_REPLICA_BUCKETS] = r;
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
    return SS_OK;
}

SS_API int ss_delete_replicas(struct ss_switch *sw, bool clones, uint32_t id) {
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    bool found = take_out(clones ? &sw->clones : &sw->multicast, id);
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
    return found ? SS_OK : SS_E_NOT_FOUND;
}
