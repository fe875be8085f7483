#!/usr/bin/env bash
# Parameters come as JSON on stdin, the result goes as JSON to stdout, stderr is the log, a non-zero exit is an error.
# Needs jq, which reads and writes JSON safely; do not build JSON by hand.
set -euo pipefail

jq -c '{ greeting: "Hello, \(.name)!" }'
