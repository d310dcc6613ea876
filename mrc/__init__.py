# SPDX-License-Identifier: Apache-2.0
"""MRC (Multipath Reliable Connection): wire format and host agent."""
