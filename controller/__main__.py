# SPDX-License-Identifier: Apache-2.0
"""``python -m controller`` is ``mrcctl``."""

from controller.cli import main

main()
