#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the programs here with the p4c on PATH, and records the digests of the sources.
set -euo pipefail
cd "$(dirname "$0")"
command -v p4c-bm2-ss >/dev/null || {
    echo "p4c-bm2-ss is not on PATH. The tests use the committed output; only changed P4 needs it." >&2
    exit 1
}
mkdir -p build
for source in *.p4; do
    name=${source%.p4}
    p4c-bm2-ss --std p4-16 --arch v1model --Wdisable --p4runtime-files "build/$name.p4info.txtpb" \
        -o "build/$name.json" "$source"
done
sha256sum ./*.p4 include/*.p4 | sed 's| \./| |' >build/SHA256SUMS
p4c-bm2-ss --version | head -n 1
