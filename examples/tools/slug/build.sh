#!/bin/sh
# Builds slug.wasm from tool.js. Needs Node 24 and, in the directory $TOOLS:
#   npm install @bytecodealliance/jco @bytecodealliance/componentize-js
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${TOOLS:?the directory where jco is installed}"
node_modules/.bin/jco componentize "$here/tool.js" --wit "$here/../../../wit/gantry-tool/tool.wit" -n tool -o "$here/slug.wasm" \
  --backend quickjs --backend-qjs-stub-wasi --backend-qjs-disable-async
