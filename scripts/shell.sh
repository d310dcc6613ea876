#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# p4runtime-shell on one device of the running fabric: shell.sh DEVICE (`make shell DEVICE=p0t0-0`).
set -euo pipefail
cd "$(dirname "$0")/.."
found=$(.venv/bin/python - "${1:-}" <<'PY'
import sys

from controller.inventory import InventoryError, default_run_dir, running_fabric

try:
    devices = running_fabric(default_run_dir()).devices
except InventoryError as error:
    sys.exit(str(error))
if sys.argv[1] not in devices:
    sys.exit(f"no device '{sys.argv[1]}': make shell DEVICE=NAME, NAME one of {' '.join(devices)}")
device = devices[sys.argv[1]]
print(device.address, device.device_id)
PY
)
read -r address device_id <<<"$found"
exec .venv-shell/bin/python -m p4runtime_sh --grpc-addr "$address" --device-id "$device_id" \
    --election-id 0,1
