#!/bin/sh
# Builds ../hostile.wasm from the sources here, and ../tables.wasm and ../imports.wasm from their text. What it needs:
# testdata/wasm/build-component.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
"$here/../../../testdata/wasm/build-component.sh" "$here" hostile "$here/../hostile.wasm"
cd "${TOOLS:?the directory where jco is installed}"
for text in tables imports; do
  node_modules/.bin/jco parse "$here/$text.wat" -o "$here/../$text.wasm"
done
