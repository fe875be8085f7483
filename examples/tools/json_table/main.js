// JSON table: a tool in JavaScript, without packages.
//
// Simple mode: the parameters come as one JSON object on stdin, the result goes as JSON to stdout, console.error is the
// log, and a non-zero exit code says that the tool failed.
"use strict";

const fs = require("node:fs");

function cell(value) {
  const text = value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
  return text.replaceAll("\\", "\\\\").replaceAll("|", "\\|").replaceAll(/\r?\n/g, "<br>");
}

function main() {
  const { records } = JSON.parse(fs.readFileSync(0, "utf8"));
  const columns = [...new Set(records.flatMap((record) => Object.keys(record)))];
  console.error(`${records.length} records, ${columns.length} columns`);
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const body = records.map((record) => line(columns.map((column) => cell(record[column]))));
  const table = [line(columns.map(cell)), line(columns.map(() => "---")), ...body].join("\n");
  process.stdout.write(JSON.stringify({ table: columns.length > 0 ? table : "", rows: records.length, columns }));
}

main();
