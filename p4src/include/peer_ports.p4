// SPDX-License-Identifier: Apache-2.0
// Planes on which a peer's NIC cannot be reached, as that NIC says itself (port status update, Endpoint
// Request op 0): they are left out for packets to that peer, and for nobody else. Included by nic.p4
// behind its headers and metadata.
//
// A peer is known by the CRC-32 of its address, of which the cell's number is one part and its tag the
// other: a CRC-32 tells all addresses apart that differ in 32 bits in a row, as those of hosts do. Only
// peers with a port down take a cell. The sender repeats its notice each second; a cell that has heard
// nothing for five is free, so a lost "all up" heals by itself.
#ifndef MRC_PEER_PORTS_P4
#define MRC_PEER_PORTS_P4

const bit<32> PEER_CELLS  = 1024;
const bit<32> NOTICE_LIFE = 4883;  // in units of 1.024 ms: 5 s

const bit<16> NOTICE_UDP_BYTES = UDP_HDR_BYTES + BTH_BYTES + ERTH_BYTES + ICRC_BYTES;

// tag(22) 0(2) planes down(8) time(32, in units of 1.024 ms, comes round every 50 days)
typedef bit<64> peer_cell_t;
#define PEER_TAG(cell)    (cell)[63:42]
#define PEER_DOWN(cell)   (cell)[39:32]
#define PEER_TIME(cell)   (cell)[31:0]
#define PEER_INDEX(name)  (name)[9:0]    // of the CRC-32 of an address
#define NAME_TAG(name)    (name)[31:10]

register<peer_cell_t>(PEER_CELLS) peer_ports;

// Index of the counter `port_notices`: what became of the notices that arrived. All go up to the host.
enum bit<8> notice_fate_t {
    STORED       = 0,  // or nothing to store: every plane is up
    COLLISION    = 1,  // the cell holds another peer
    MALFORMED    = 2,  // cut, to another QP than the end point's, or lengths that contradict it
    UNKNOWN_PEER = 3,  // no spray group leads to its sender
    NO_PLANE     = 4   // says that it cannot be reached at all, yet it got here: not believed
}
const bit<32> NOTICE_FATES = 5;

// What a cell holds, with its age instead of the time; 0 when it is free.
control ReadPeerCell(in bit<10> index, in bit<48> now, out peer_cell_t cell) {
    apply {
        peer_ports.read(cell, (bit<32>) index);
        bit<32> age = now[41:10] - PEER_TIME(cell);
        if (PEER_DOWN(cell) == 0 || age > NOTICE_LIFE) {
            cell = 0;
        } else {
            cell = cell[63:32] ++ age;
        }
    }
}

// Leaves the peer's dead planes out, too, unless that leaves none: then its own word is not worth more
// than a try.
control AvoidPeerPlanes(in bit<48> now, inout metadata_t meta) {
    ReadPeerCell() read_peer_cell;

    apply {
        bit<32> name;
        peer_cell_t cell;
        hash(name, HashAlgorithm.crc32, 32w0, { meta.peer }, 64w0x100000000);
        read_peer_cell.apply(PEER_INDEX(name), now, cell);
        meta.peer_down = 0;
        if (PEER_TAG(cell) == NAME_TAG(name)) {
            meta.peer_down = PEER_DOWN(cell) & meta.usable_planes;
        }
        if ((meta.usable_planes & ~(meta.down_planes | meta.peer_down)) != 0) {
            meta.down_planes = meta.down_planes | meta.peer_down;
        }
    }
}

// Takes in a notice, after its sender has been looked up as if something were to be sent there.
control LearnPeerPorts(in headers_t hdr, in bit<48> now, inout metadata_t meta) {
    @name("port_notices") counter(NOTICE_FATES, CounterType.packets_and_bytes) port_notices;

    ReadPeerCell() read_peer_cell;

    apply {
        notice_fate_t fate = notice_fate_t.STORED;
        if (!hdr.port_status.isValid() || hdr.bth.tver != 0
                || hdr.bth.dqp != (bit<24>) ENDPOINT_QP
                || hdr.ipv6.payload_len != NOTICE_UDP_BYTES
                || hdr.udp_length.len != NOTICE_UDP_BYTES) {
            fate = notice_fate_t.MALFORMED;
        } else if (hdr.port_status.mask[7:0] == 0) {
            fate = notice_fate_t.NO_PLANE;
        } else if (meta.drop_reason != drop_reason_t.NONE
                || meta.selection == selection_t.FLOW_HASH) {
            fate = notice_fate_t.UNKNOWN_PEER;
        } else {
            bit<32> name;
            peer_cell_t cell;
            plane_mask_t down = ~hdr.port_status.mask[7:0] & meta.usable_planes;
            hash(name, HashAlgorithm.crc32, 32w0, { meta.peer }, 64w0x100000000);
            read_peer_cell.apply(PEER_INDEX(name), now, cell);
            if (cell == 0 || PEER_TAG(cell) == NAME_TAG(name)) {
                peer_ports.write((bit<32>) PEER_INDEX(name),
                                 NAME_TAG(name) ++ 2w0 ++ down ++ now[41:10]);
            } else if (down != 0) {
                fate = notice_fate_t.COLLISION;
            }
        }
        port_notices.count((bit<32>) (bit<8>) fate);
    }
}

// READ_PEER_DOWN and WRITE_PEER_DOWN.
control AccessPeerCell(in bit<8> op, in bit<10> index, in bit<48> now, inout peer_cell_t value) {
    ReadPeerCell() read_peer_cell;

    apply {
        if (op == cpu_op_t.WRITE_PEER_DOWN) {
            peer_ports.write((bit<32>) index, PEER_TAG(value) ++ 2w0 ++ PEER_DOWN(value)
                                              ++ (now[41:10] - PEER_TIME(value)));
        }
        read_peer_cell.apply(index, now, value);
    }
}

#endif
