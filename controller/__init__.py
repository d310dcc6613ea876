# SPDX-License-Identifier: Apache-2.0
"""Control plane of an MRC fabric: addressing, static routes, policies, path quality, `mrcctl`."""
