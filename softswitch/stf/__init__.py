# SPDX-License-Identifier: Apache-2.0
"""Runs p4c's STF tests on softswitch: packets in, packets expected, entries, counters."""
