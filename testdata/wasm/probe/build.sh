#!/bin/sh
# Builds ../probe.wasm from main.rs and probe.wit. What it needs: ../build-component.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
"$here/../build-component.sh" "$here" probe "$here/../probe.wasm"
