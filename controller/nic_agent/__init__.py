# SPDX-License-Identifier: Apache-2.0
"""What a NIC's firmware does beside its data plane: carrier, probes, notices to peers."""
