/* SPDX-License-Identifier: Apache-2.0
 *
 * CRCs whose parameters can be set while packets pass.
 */
#include <stdlib.h>

#include "engine.h"

/* NULL: no memory. */
struct ss_crc *ss_crc_new(const struct ss_crc_desc *desc) {
    struct ss_crc *c = malloc(sizeof *c);
    if (c == NULL) return NULL;
    c->desc = *desc;
    uint64_t top = 1ull << (desc->bits - 1);
    for (unsigned i = 0; i < 256; i++) {
        uint64_t remainder = (uint64_t)i << (desc->bits - 8);
        for (unsigned bit = 0; bit < 8; bit++)
            remainder = (remainder << 1) ^ ((remainder & top) ? desc->polynomial : 0);
        c->table[i] = remainder & (top | (top - 1));
    }
    return c;
}

/* `desc->bits` is that of the program's own. */
SS_API int ss_crc_set(struct ss_switch *sw, uint32_t index, const struct ss_crc_desc *desc) {
    struct ss_crc *c = ss_crc_new(desc);
    if (c == NULL) return SS_E_MEMORY;
    pthread_mutex_lock(&sw->lock);
    struct ss_crc *old = sw->state->crcs[index];
    SS_STORE(&sw->state->crcs[index], c);
    ss_retire(sw, old);
    pthread_mutex_unlock(&sw->lock);
    return SS_OK;
}
