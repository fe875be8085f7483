#!/bin/sh
# Builds checksum.wasm from main.rs. Needs, on Debian 12:
#   apt-get install -y --no-install-recommends rustc libstd-rust-dev-wasm32 lld-14     (Rust 1.63, beside any other)
#   npm install @bytecodealliance/jco                                                  (in the directory $TOOLS, Node 24)
# A newer Rust with the target wasm32-wasip2 makes the component by itself.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/bin/rustc --edition 2021 -O -C strip=symbols -C panic=abort --target wasm32-wasi "$here/main.rs" -o "$work/core.wasm"
cd "${TOOLS:?the directory where jco is installed}"
node_modules/.bin/jco new "$work/core.wasm" --wasi-command -o "$here/checksum.wasm"
