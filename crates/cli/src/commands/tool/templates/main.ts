// Parameters come as JSON on stdin, the result goes as JSON to stdout, stderr is the log, a non-zero exit is an error.
// Node.js takes the types away and runs the rest (22.18 or later): types are fine, `enum` and `namespace` are not.
import { readFileSync } from "node:fs";

interface Parameters {
  name: string;
}

interface Result {
  greeting: string;
}

function run(parameters: Parameters): Result {
  return { greeting: `Hello, ${parameters.name}!` };
}

const parameters = JSON.parse(readFileSync(0, "utf8")) as Parameters;
process.stdout.write(JSON.stringify(run(parameters)));
