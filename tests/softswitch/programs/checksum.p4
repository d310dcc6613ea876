// SPDX-License-Identifier: Apache-2.0
// Checksums: verified and updated, with conditions, and with the payload.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { }

#include "include/probe.p4"

control verify_both(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.probe.isValid() && h.probe.op == 1, { h.probe.c, h.probe.d, h.probe.e }, h.probe.b,
                        HashAlgorithm.csum16);
        verify_checksum_with_payload(h.probe.isValid() && h.probe.op == 2, { h.probe.d }, h.probe.b,
                                     HashAlgorithm.csum16);
    }
}
control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        h.probe.a = (bit<8>)std.checksum_error;
        h.probe.c = h.probe.c + 1;
        if (h.probe.x == 3) { h.probe.setInvalid(); }
        std.egress_spec = 2;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }
control update_both(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.probe.isValid() && h.probe.op != 2, { h.probe.c, h.probe.d, h.probe.e, h.probe.x, h.probe.y },
                        h.probe.b, HashAlgorithm.csum16);
        update_checksum_with_payload(h.probe.isValid() && h.probe.op == 2, { h.probe.d, h.probe.b }, h.probe.c,
                                     HashAlgorithm.crc32);
        update_checksum(true, { h.ethernet.dst }, h.ethernet.ether_type, HashAlgorithm.crc16);
    }
}

V1Switch(probe_parser(), verify_both(), ingress(), egress(), update_both(),
         probe_deparser()) main;
