# SPDX-License-Identifier: Apache-2.0
"""Experiments on whole fabrics: each makes a fault or congestion, and says whether MRC held."""
