#!/usr/bin/env bash
# Text digest: a tool in plain Bash.
#
# The parameters are one JSON object on stdin. Bash cannot read JSON, so python3 takes the text out of it; `jq -j .text`
# does the same where it is installed. stdout is kept for the result and the log takes its place, so whatever a command
# prints by accident is a line of the log and no damage.
set -euo pipefail

exec {result}>&1 1>&2

text_of() {
    python3 -c 'import json, sys; sys.stdout.write(json.load(sys.stdin)["text"])'
}

# A trailing character keeps the newlines that command substitution would take away.
text="$(text_of && printf x)"
text="${text%x}"

echo "digesting ${#text} characters"
digest="$(printf '%s' "$text" | sha256sum | cut -d ' ' -f 1)"
bytes="$(printf '%s' "$text" | wc -c)"
lines="$(printf '%s' "$text" | wc -l)"
printf '{"sha256": "%s", "bytes": %d, "lines": %d}\n' "$digest" "$bytes" "$lines" >&"$result"
