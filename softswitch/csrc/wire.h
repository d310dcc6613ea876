/* SPDX-License-Identifier: Apache-2.0
 *
 * Protobuf's wire format, as far as table entries need it.
 */
#ifndef SS_WIRE_H
#define SS_WIRE_H

#include <string.h>

#include "ss.h"

/* Tags of fields: numbers, and messages, strings or bytes. */
#define VARINT(field) ((field) << 3)
#define BYTES(field) ((field) << 3 | 2)

#define SS_VARINT_BYTES 10 /* at most */

/* A message that is being read; what is wrong with it makes `at` NULL. */
struct reader {
    const uint8_t *at, *end;
};

SS_INLINE uint64_t varint(struct reader *r) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->at == NULL || r->at == r->end) break;
        uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    r->at = NULL;
    return 0;
}

/* The next field's tag; 0 at the end, or when something is wrong. */
SS_INLINE uint32_t next_tag(struct reader *r) {
    if (r->at == NULL || r->at == r->end) return 0;
    uint64_t tag = varint(r);
    if (tag == 0 || tag > UINT32_MAX) r->at = NULL;
    return r->at ? (uint32_t)tag : 0;
}

/* The content of a length-delimited field, which `r` passes over. */
SS_INLINE struct reader content(struct reader *r) {
    uint64_t length = varint(r);
    struct reader inner = {NULL, NULL};
    if (r->at == NULL || length > (uint64_t)(r->end - r->at)) {
        r->at = NULL;
        return inner;
    }
    inner = (struct reader){r->at, r->at + length};
    r->at += length;
    return inner;
}

/* These give the place behind what they wrote. */
SS_INLINE uint8_t *put_varint(uint8_t *o, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *o++ = (uint8_t)(value | 0x80);
    *o++ = (uint8_t)value;
    return o;
}

SS_INLINE uint8_t *put_bytes(uint8_t *o, const uint8_t *bytes, size_t count) {
    memcpy(o, bytes, count);
    return o + count;
}

SS_INLINE uint8_t *put_field(uint8_t *o, uint32_t field, const uint8_t *bytes, size_t count) {
    *o++ = (uint8_t)BYTES(field); /* fields below 16 */
    return put_bytes(put_varint(o, count), bytes, count);
}

#endif
