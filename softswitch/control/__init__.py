# SPDX-License-Identifier: Apache-2.0
"""The control socket of a running switch and the commands that it takes (`softswitch-ctl`)."""
