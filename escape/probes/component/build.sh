#!/bin/sh
# Builds ../hostile.wasm from the sources here, and ../tables.wasm and ../imports.wasm from their text. Needs, on Debian 12:
#   apt-get install -y --no-install-recommends rustc libstd-rust-dev-wasm32 lld-14     (Rust 1.63, beside any other)
#   npm install @bytecodealliance/jco                                                  (in the directory $TOOLS, Node 24)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/bin/rustc --edition 2021 -O -C strip=symbols -C panic=abort --target wasm32-wasi -C link-arg=--export=cabi_realloc "$here/main.rs" -o "$work/core.wasm"
cd "${TOOLS:?the directory where jco is installed}"
# The types of the imports are attached by the library, because `jco embed` takes no WIT from a file of its own.
node --input-type=module - "$work" "$here" <<'JS'
import { readFileSync, writeFileSync } from "node:fs";
import { componentEmbed } from "@bytecodealliance/jco-transpile/wasm-tools";
const [work, here] = process.argv.slice(2);
const embedded = await componentEmbed({
  binary: readFileSync(`${work}/core.wasm`),
  witSource: readFileSync(`${here}/hostile.wit`, "utf8"),
  worldName: "hostile",
});
writeFileSync(`${work}/embedded.wasm`, embedded);
JS
node_modules/.bin/jco new "$work/embedded.wasm" --wasi-command -o "$here/../hostile.wasm"
for text in tables imports; do
  node_modules/.bin/jco parse "$here/$text.wat" -o "$here/../$text.wasm"
done
