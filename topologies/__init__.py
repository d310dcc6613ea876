# SPDX-License-Identifier: Apache-2.0
"""Fabrics as YAML, and the Mininet builder that brings them up."""
