// SPDX-License-Identifier: Apache-2.0
// Standard metadata handed to actions as a parameter, which copies it in and out; keys that are some
// bits of a field.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { }

#include "include/probe.p4"

action refuse(inout standard_metadata_t std) { mark_to_drop(std); }
action send(inout standard_metadata_t std, in bit<9> port) { std.egress_spec = port; }
action spread(inout standard_metadata_t std, bit<16> group) { std.mcast_grp = group; }

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    table exactly {
        key = { h.probe.c & 0x00ff00f0: exact; h.probe.x: exact; }
        actions = { refuse(std); send(std, 3); spread(std); NoAction; }
        default_action = NoAction();
        size = 32;
    }
    table masked {
        key = { h.probe.c & 0x0ff00ff0: ternary; h.probe.y & 0x1fe: ternary; }
        actions = { refuse(std); send(std, 4); NoAction; }
        default_action = NoAction();
        size = 32;
    }
    apply {
        // Fields of invalid headers are undefined; BMv2 leaves those of an earlier packet there.
        complete.apply(h, std);
        std.egress_spec = 2;
        if (h.probe.op[0:0] == 0) { exactly.apply(); } else { masked.apply(); }
        // The group is as it was before: a drop clears it, in the copy as well.
        if (h.probe.op[1:1] == 1) { refuse(std); send(std, 1); }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply { if (h.probe.isValid() && h.probe.op[2:2] == 1) { refuse(std); } }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
