#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles p4src/*.p4 with the p4c on PATH into p4src/build/, and records the digest of the sources.
# p4c runs inside p4src/ with relative names, because its JSON repeats them.
set -euo pipefail
cd "$(dirname "$0")/../p4src"
command -v p4c >/dev/null || {
    echo "p4c is not on PATH. The committed output in p4src/build/ needs no p4c; only changed P4 does." >&2
    exit 1
}
out=.p4c
mkdir -p "$out"
trap 'rm -rf "$out"' EXIT
for program in fabric nic; do
    # Shared includes define more than either program uses; selectors have no default action on BMv2.
    p4c --target bmv2 --arch v1model --Wdisable=unused --Wdisable=unsupported \
        --p4runtime-files "$out/$program.p4info.txtpb" -o "$out" "$program.p4"
    install -m 0644 "$out/$program.json" "$out/$program.p4info.txtpb" build/
done
sha256sum fabric.p4 nic.p4 include/*.p4 >build/SHA256SUMS
echo "p4src/build: $(p4c --version | head -n 1)"
