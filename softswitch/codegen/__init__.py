# SPDX-License-Identifier: Apache-2.0
"""From a BMv2 JSON to one C file: no interpretation is left for the packet's time."""

from softswitch.codegen.translation import Translation, translate

__all__ = ["Translation", "translate"]
