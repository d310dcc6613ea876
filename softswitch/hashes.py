# SPDX-License-Identifier: Apache-2.0
"""Hashes whose parameters can be set, as Python sets them."""

from __future__ import annotations

import ctypes
from typing import Any

from softswitch.codegen.layout import CrcLayout
from softswitch.engine import CrcParameters, check
from softswitch.errors import InvalidArgument


class CustomCrc:
    """A CRC of HashAlgorithm.crc16_custom or crc32_custom.

    Attributes:
        name: of the calculation in the JSON, or of the action selector.
        bits: its width.
        parameters: those in force; `name` and `bits` of it never change.
    """

    def __init__(self, engine: Any, switch: int, index: int, layout: CrcLayout) -> None:
        self.name = layout.name
        self.bits = layout.bits
        self.parameters = layout
        self._engine = engine
        self._switch = switch
        self._index = index

    def set_crc(
        self,
        polynomial: int,
        initial: int,
        final_xor: int,
        *,
        reflect_data: bool,
        reflect_remainder: bool,
    ) -> None:
        """Set the parameters, in the order of simple_switch_CLI's set_crc16_parameters.

        `initial` is the remainder before the first byte; polynomial and remainder have their most
        significant bit first, reflected or not.

        Raises:
            InvalidArgument: one does not fit `bits`.
        """
        named = {"polynomial": polynomial, "initial": initial, "final_xor": final_xor}
        for name, value in named.items():
            if not 0 <= value < 1 << self.bits:
                raise InvalidArgument(
                    f"{self.name}: {name} {value:#x} does not fit {self.bits} bits"
                )
        given = CrcParameters(
            polynomial, initial, final_xor, self.bits, reflect_data, reflect_remainder
        )
        result = self._engine.ss_crc_set(self._switch, self._index, ctypes.byref(given))
        check(result, self.name)
        self.parameters = CrcLayout(
            self.name, self.bits, polynomial, initial, final_xor, reflect_data, reflect_remainder
        )
