#!/bin/sh
# Makes tool.wasm, a component of WASI 0.2, from src/main.rs.
set -eu
cd "$(dirname "$0")"
if ! rustc --print target-libdir --target wasm32-wasip2 >/dev/null 2>&1 || ! [ -d "$(rustc --print target-libdir --target wasm32-wasip2)" ]; then
    echo "the target wasm32-wasip2 is not installed (Rust 1.82 or later): rustup target add wasm32-wasip2" >&2
    exit 1
fi
cargo build --release --target wasm32-wasip2
cp "${CARGO_TARGET_DIR:-target}/wasm32-wasip2/release/@ID@.wasm" tool.wasm
echo "made tool.wasm"
