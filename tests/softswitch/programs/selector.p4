// SPDX-License-Identifier: Apache-2.0
// An action profile, and an action selector with groups and weights.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    action mark(bit<8> value) { h.probe.a = value; }
    action to(bit<9> port, bit<128> value) { std.egress_spec = port; h.probe.e = value; }
    action drop() { mark_to_drop(std); }

    action_profile(32) marks;
    @name("choices") action_selector(HashAlgorithm.crc16, 64, 16) choices;

    table marking {
        key = { h.probe.op: exact; }
        actions = { mark; NoAction; }
        implementation = marks;
        size = 64;
    }
    table choosing {
        key = { h.probe.x: exact; h.probe.c: selector; h.probe.d: selector; h.probe.y: selector; }
        actions = { to; drop; NoAction; }
        implementation = choices;
        size = 16;
    }
    apply {
        std.egress_spec = 1;
        if (!marking.apply().hit) { h.probe.a = 0; }
        choosing.apply();
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
