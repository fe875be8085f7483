#!/bin/sh
# Builds a `wasi:cli/command` component: build-component.sh SOURCES WORLD OUTPUT
# SOURCES is a directory with main.rs and WORLD.wit. Needs, on Debian 12:
#   apt-get install -y --no-install-recommends rustc libstd-rust-dev-wasm32 lld-14     (Rust 1.63, beside any other)
#   npm install @bytecodealliance/jco                                                  (in the directory $TOOLS, Node 24)
set -eu
sources=$1 world=$2 output=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/bin/rustc --edition 2021 -O -C strip=symbols -C panic=abort --target wasm32-wasi -C link-arg=--export=cabi_realloc "$sources/main.rs" -o "$work/core.wasm"
cd "${TOOLS:?the directory where jco is installed}"
# The types of the imports are attached by the library, because `jco embed` takes no WIT from a file of its own.
node --input-type=module - "$work" "$sources/$world.wit" "$world" <<'JS'
import { readFileSync, writeFileSync } from "node:fs";
import { componentEmbed } from "@bytecodealliance/jco-transpile/wasm-tools";
const [work, wit, worldName] = process.argv.slice(2);
const embedded = await componentEmbed({
  binary: readFileSync(`${work}/core.wasm`),
  witSource: readFileSync(wit, "utf8"),
  worldName,
});
writeFileSync(`${work}/embedded.wasm`, embedded);
JS
node_modules/.bin/jco new "$work/embedded.wasm" --wasi-command -o "$output"
