#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# SONAMEs, link flags, symbols and versions of the built libraries.
exec "$(dirname "$0")/../../scripts/check-abi" "$BUILD"
