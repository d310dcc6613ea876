// SPDX-License-Identifier: Apache-2.0
// Packets to and from the controller, as the packet itself, as clones, and as one of many copies.
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<7> reason; bit<16> length; }
@controller_header("packet_out")
header packet_out_t { bit<9> egress_port; bit<1> as_if_arrived; bit<6> pad; }
header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }

struct headers_t { packet_in_t packet_in; packet_out_t packet_out; ethernet_t ethernet; }
struct metadata_t { @field_list(1) bit<7> reason; }

parser parse(packet_in packet, out headers_t h, inout metadata_t m,
             inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            CPU_PORT: packet_out;
            default: ethernet;
        }
    }
    state packet_out { packet.extract(h.packet_out); transition ethernet; }
    state ethernet { packet.extract(h.ethernet); transition accept; }
}
control verify_nothing(inout headers_t h, inout metadata_t m) { apply { } }
control update_nothing(inout headers_t h, inout metadata_t m) { apply { } }

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    action punt(bit<7> reason) { m.reason = reason; std.egress_spec = CPU_PORT; }
    action copy(bit<7> reason) { m.reason = reason; clone_preserving_field_list(CloneType.I2E, 5, 1); }
    action forward(bit<9> port) { std.egress_spec = port; }
    action spread(bit<16> group) { std.mcast_grp = group; }
    action drop() { mark_to_drop(std); }
    direct_counter(CounterType.packets_and_bytes) seen;
    table decide {
        key = { h.ethernet.dst[3:0]: exact @name("kind"); h.ethernet.isValid(): exact @name("whole"); }
        actions = { punt; copy; forward; spread; drop; }
        default_action = punt(100);
        counters = seen;
        size = 64;
    }
    apply {
        std.egress_spec = 1;
        if (h.packet_out.isValid()) {
            std.egress_spec = h.packet_out.egress_port;
            bool again = h.packet_out.as_if_arrived == 1;
            h.packet_out.setInvalid();
            if (!again) { return; }
        }
        if (!h.ethernet.isValid()) { h.ethernet = { 7, 7, 7 }; }
        decide.apply();
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == CPU_PORT) {
            h.packet_in.setValid();
            h.packet_in.ingress_port = std.ingress_port;
            h.packet_in.reason = m.reason;
            h.packet_in.length = (bit<16>)std.packet_length;
            if (h.ethernet.src[0:0] == 1) { truncate(20); }
        }
        if (h.ethernet.src[2:0] == 7 && std.instance_type == 0) {
            m.reason = 33;
            clone_preserving_field_list(CloneType.E2E, 5, 1);
        }
    }
}
control deparse(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(parse(), verify_nothing(), ingress(), egress(), update_nothing(), deparse()) main;
