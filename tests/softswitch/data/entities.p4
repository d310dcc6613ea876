// SPDX-License-Identifier: Apache-2.0
// Every kind of P4Runtime entity that softswitch's server handles, in one small v1model program.
// Compiled by: p4c-bm2-ss --p4runtime-files entities.p4info.txtpb -o entities.json entities.p4

#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> pad;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> pad;
}

header ethernet_t {
    bit<48> dst_mac;
    bit<48> src_mac;
    bit<16> ether_type;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
}

struct learn_t {
    bit<48> src_mac;
    bit<9> port;
}

struct meta_t {
    bit<9> port;
}

parser EntitiesParser(packet_in pkt, out headers_t hdr, inout meta_t meta,
                      inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        pkt.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        pkt.extract(hdr.ethernet);
        transition accept;
    }
}

control EntitiesVerify(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control EntitiesIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    @name("exact_counter") direct_counter(CounterType.packets_and_bytes) exact_counter;
    @name("lpm_counter") direct_counter(CounterType.packets_and_bytes) lpm_counter;
    @name("port_in") counter(512, CounterType.packets_and_bytes) port_in;
    @name("cells") register<bit<48>>(16) cells;
    @name("selector") action_selector(HashAlgorithm.crc16, 32w64, 32w10) selector;
    @name("profile") action_profile(32w8) profile;

    @name("forward") action forward(bit<9> port, bit<48> dst_mac) {
        std.egress_spec = port;
        hdr.ethernet.dst_mac = dst_mac;
    }
    @name("drop") action drop() {
        mark_to_drop(std);
    }
    @name("to_cpu") action to_cpu() {
        std.egress_spec = CPU_PORT;
    }
    @name("flood") action flood(bit<16> group_id) {
        std.mcast_grp = group_id;
    }
    @name("learn") action learn() {
        digest<learn_t>(1, { hdr.ethernet.src_mac, std.ingress_port });
    }
    @name("mirror") action mirror() {
        clone(CloneType.I2E, 32w5);
    }

    @name("exact_table") table exact_table {
        key = { hdr.ethernet.dst_mac : exact @name("dst_mac"); }
        actions = { forward; to_cpu; flood; @tableonly drop; @defaultonly NoAction; }
        const default_action = NoAction();
        counters = exact_counter;
        size = 1024;
    }
    @name("two_keys") table two_keys {
        key = {
            std.ingress_port : exact @name("port");
            hdr.ethernet.ether_type : exact @name("ether_type");
        }
        actions = { forward; drop; @defaultonly NoAction; }
        default_action = NoAction();
        size = 64;
    }
    @name("lpm_table") table lpm_table {
        key = { hdr.ethernet.src_mac : lpm @name("src_mac"); }
        actions = { forward; drop; NoAction; }
        default_action = drop();
        counters = lpm_counter;
        size = 4;
    }
    @name("acl") table acl {
        key = {
            hdr.ethernet.dst_mac : ternary @name("dst_mac");
            hdr.ethernet.ether_type : range @name("ether_type");
            std.ingress_port : optional @name("port");
        }
        actions = { drop; mirror; learn; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    @name("const_table") table const_table {
        key = { hdr.ethernet.ether_type : exact @name("ether_type"); }
        actions = { to_cpu; drop; NoAction; }
        default_action = NoAction();
        const entries = {
            16w0x88cc : to_cpu();
            16w0x8808 : drop();
        }
    }
    @name("ecmp") table ecmp {
        key = {
            hdr.ethernet.ether_type : exact @name("ether_type");
            hdr.ethernet.src_mac : selector;
            hdr.ethernet.dst_mac : selector;
        }
        actions = { forward; drop; @defaultonly NoAction; }
        implementation = selector;
        size = 32;
    }
    @name("indirect") table indirect {
        key = { hdr.ethernet.ether_type : exact @name("ether_type"); }
        actions = { forward; drop; @defaultonly NoAction; }
        implementation = profile;
        size = 32;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
            exit;
        }
        port_in.count((bit<32>)std.ingress_port);
        bit<48> seen;
        cells.read(seen, (bit<32>)std.ingress_port & 15);
        cells.write((bit<32>)std.ingress_port & 15, seen + 1);
        lpm_table.apply();
        exact_table.apply();
        two_keys.apply();
        const_table.apply();
        ecmp.apply();
        indirect.apply();
        acl.apply();
    }
}

control EntitiesEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.pad = 0;
        }
    }
}

control EntitiesCompute(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control EntitiesDeparser(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.packet_in);
        pkt.emit(hdr.ethernet);
    }
}

V1Switch(EntitiesParser(), EntitiesVerify(), EntitiesIngress(), EntitiesEgress(),
         EntitiesCompute(), EntitiesDeparser()) main;
