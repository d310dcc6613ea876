# SPDX-License-Identifier: Apache-2.0
"""softswitch: runs p4c's BMv2 JSON as native code under a P4Runtime server."""
