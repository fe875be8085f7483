// Parameters come as JSON on stdin, the result goes as JSON to stdout, stderr is the log, a non-zero exit is an error.
import { readFileSync } from "node:fs";

function run(parameters) {
  return { greeting: `Hello, ${parameters.name}!` };
}

process.stdout.write(JSON.stringify(run(JSON.parse(readFileSync(0, "utf8")))));
