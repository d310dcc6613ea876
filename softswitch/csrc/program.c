/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading a compiled program, and its state.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "engine.h"

/* splitmix64: spreads a seed over the generator's state. */
static uint64_t spread(uint64_t *seed) {
    uint64_t z = (*seed += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static void assertion_failed(void *engine, const char *text) {
    struct ss_switch *sw = engine;
    if (!sw->processing) {
        fprintf(stderr, "softswitch: assertion failed: %s\n", text);
        abort(); /* as BMv2 */
    }
    if (!sw->failed) snprintf(sw->failure, sizeof sw->failure, "%s", text);
    sw->failed = true;
}

static void destroy(struct ss_state *s) {
    if (s == NULL) return;
    const struct ss_program *program = s->program;
    for (uint32_t i = 0; s->tables && i < program->table_count; i++) ss_table_destroy(&s->tables[i]);
    for (uint32_t i = 0; s->profiles && i < program->profile_count; i++)
        ss_profile_destroy(&s->profiles[i]);
    for (uint32_t i = 0; s->counters && i < program->counter_count; i++) free(s->counters[i]);
    for (uint32_t i = 0; s->registers && i < program->register_count; i++) free(s->registers[i]);
    for (uint32_t i = 0; s->meters && i < program->meter_count; i++) free(s->meters[i]);
    for (uint32_t i = 0; s->value_sets && i < program->value_set_count; i++)
        free(s->value_sets[i].members);
    for (uint32_t i = 0; s->crcs && i < program->crc_count; i++) free(s->crcs[i]);
    free(s->crcs);
    free(s->meters);
    free(s->value_sets);
    free(s->tables);
    free(s->profiles);
    free(s->counters);
    free(s->registers);
    free(s);
}

/* At least one byte, so that NULL always means no memory. */
static void *zeroed(size_t count, size_t bytes) { return calloc(count ? count : 1, bytes); }

/* Register cells of 16 bytes are read as such, so that arrays start at multiples of it. */
static void *cells(const struct ss_register_desc *d) {
    size_t bytes = ((size_t)d->size * d->cell_bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes ? bytes : 64);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

static bool fill(struct ss_state *s) {
    const struct ss_program *program = s->program;
    s->tables = zeroed(program->table_count, sizeof s->tables[0]);
    s->profiles = zeroed(program->profile_count, sizeof s->profiles[0]);
    s->counters = zeroed(program->counter_count, sizeof s->counters[0]);
    s->registers = zeroed(program->register_count, sizeof s->registers[0]);
    s->meters = zeroed(program->meter_count, sizeof s->meters[0]);
    s->value_sets = zeroed(program->value_set_count, sizeof s->value_sets[0]);
    s->crcs = zeroed(program->crc_count, sizeof s->crcs[0]);
    bool good = s->tables && s->profiles && s->counters && s->registers && s->meters &&
                s->value_sets && s->crcs;
    for (uint32_t i = 0; good && i < program->table_count; i++)
        good = ss_table_init(&s->tables[i], &program->tables[i]) == SS_OK;
    for (uint32_t i = 0; good && i < program->profile_count; i++)
        good = ss_profile_init(&s->profiles[i]) == SS_OK;
    for (uint32_t i = 0; good && i < program->counter_count; i++)
        good = (s->counters[i] = zeroed(program->counters[i].size, sizeof **s->counters)) != NULL;
    for (uint32_t i = 0; good && i < program->register_count; i++)
        good = (s->registers[i] = cells(&program->registers[i])) != NULL;
    for (uint32_t i = 0; good && i < program->meter_count; i++)
        good = (s->meters[i] = zeroed(program->meters[i].size, sizeof **s->meters)) != NULL;
    for (uint32_t i = 0; good && i < program->value_set_count; i++)
        good = ss_value_set_init(&s->value_sets[i], &program->value_sets[i]) == SS_OK;
    for (uint32_t i = 0; good && i < program->crc_count; i++)
        good = (s->crcs[i] = ss_crc_new(&program->crcs[i])) != NULL;
    return good;
}

/* NULL: no memory. */
static struct ss_state *new_state(struct ss_switch *sw, const struct ss_program *program) {
    struct ss_state *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->program = program;
    s->drop_port = sw->options.drop_port;
    s->engine = sw;
    s->assertion_failed = assertion_failed;
    s->log_message = sw->log_message;
    uint64_t seed = sw->options.seed;
    if (!sw->options.has_seed && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed ^= ss_now_ns() ^ (uintptr_t)s;
    for (unsigned i = 0; i < 4; i++) s->random[i] = spread(&seed);
    if (fill(s)) return s;
    destroy(s);
    return NULL;
}

/* Room for the headers of a burst at every port, and of packets that go elsewhere. */
int ss_make_header_room(struct ss_switch *sw) {
    size_t bytes = sw->program->max_header_bytes ? sw->program->max_header_bytes : 1;
    free(sw->scratch);
    sw->scratch = malloc(bytes);
    if (sw->scratch == NULL) return SS_E_MEMORY;
    for (uint32_t i = 0; i < sw->port_count; i++)
        if (ss_port_make_header_room(sw->port_list[i], sw->program->max_header_bytes) != SS_OK)
            return SS_E_MEMORY;
    return SS_OK;
}

/* The forwarding thread is parked or not there: forgets the program, its state and its packets. */
void ss_unload(struct ss_switch *sw) {
    ss_drop_queues(sw);
    ss_packet_pool_free(sw);
    ss_reclaim_all(sw);
    ss_replicas_clear(&sw->multicast);
    ss_replicas_clear(&sw->clones);
    ss_events_clear(sw);
    destroy(sw->state);
    sw->state = NULL;
    sw->program = NULL;
    if (sw->library) dlclose(sw->library);
    sw->library = NULL;
}

/* Who gets the messages of log_msg, of programs that are loaded from now on; NULL: nobody. */
SS_API void ss_set_log(struct ss_switch *sw, ss_log_message *log_message) {
    sw->log_message = log_message;
}

/* Replaces the program by the one in a shared object; everything that was set is gone then. */
SS_API int ss_load(struct ss_switch *sw, const char *path, char *error) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return ss_fail(error, "%s", dlerror());
    const struct ss_program *program = dlsym(library, "ss_program");
    if (program == NULL || program->abi != SS_ABI) {
        dlclose(library);
        return ss_fail(error, "%s is not a program of this engine", path);
    }
    struct ss_state *state = new_state(sw, program);
    if (state == NULL) {
        dlclose(library);
        return ss_fail(error, "no memory for the program's tables");
    }
    pthread_mutex_lock(&sw->lock);
    ss_park(sw);
    ss_unload(sw);
    sw->library = library;
    sw->program = program;
    sw->state = state;
    int r = ss_make_header_room(sw);
    if (r != SS_OK) {
        ss_unload(sw);
        ss_fail(error, "no memory for the program's packets");
    }
    ss_unpark(sw);
    pthread_mutex_unlock(&sw->lock);
    return r;
}
