/* SPDX-License-Identifier: Apache-2.0
 *
 * Capture files in libpcap's format (pcap-savefile(5)), with nanosecond time stamps.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "engine.h"

#define PCAP_MAGIC_NS 0xa1b23c4du
#define LINKTYPE_ETHERNET 1

/* NULL: it cannot be written; `error` says why. */
FILE *ss_pcap_open(const char *path, char *error) {
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        ss_fail(error, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct {
        uint32_t magic;
        uint16_t major, minor;
        uint32_t zone, accuracy, snap_length, link_type;
    } header = {PCAP_MAGIC_NS, 2, 4, 0, 0, SS_MAX_PACKET, LINKTYPE_ETHERNET};
    fwrite(&header, sizeof header, 1, file);
    fflush(file);
    return file;
}

void ss_pcap_write(FILE *file, const uint8_t *a, uint32_t a_bytes, const uint8_t *b, uint32_t b_bytes) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint32_t length = a_bytes + b_bytes;
    uint32_t header[4] = {(uint32_t)now.tv_sec, (uint32_t)now.tv_nsec, length, length};
    fwrite(header, sizeof header, 1, file);
    fwrite(a, 1, a_bytes, file);
    fwrite(b, 1, b_bytes, file);
}
