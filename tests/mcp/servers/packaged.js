#!/usr/bin/env node
// A small MCP server over stdio, as packages of npm have one. `echo` returns its text, `where` what the process was given.
const { version } = require("./package.json");
const fs = require("fs");

const text = (words) => ({ content: [{ type: "text", text: words }] });
const schema = (properties) => ({ type: "object", properties, required: Object.keys(properties) });
const tools = [
  { name: "echo", description: `Returns the text it was given, as of ${version}.`, inputSchema: schema({ text: { type: "string" } }) },
  { name: "where", description: "Says what the process was given.", inputSchema: schema({}) },
];

function where() {
  let written = "no";
  try {
    fs.writeFileSync(__dirname + "/mark", "x");
    written = "yes";
  } catch {}
  return JSON.stringify({ version, args: process.argv.slice(2), folder: __dirname, written, region: process.env.REGION });
}

function answer({ method, params }) {
  switch (method) {
    case "initialize":
      return { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "packaged", version } };
    case "tools/list":
      return { tools };
    case "tools/call":
      return text(params.name === "echo" ? params.arguments.text : where());
    case "ping":
      return {};
  }
}

require("readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const request = JSON.parse(line);
    if (request.id === undefined) return;
    const result = answer(request);
    const reply = result ? { result } : { error: { code: -32601, message: "there is no such method" } };
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: request.id, ...reply }) + "\n");
  });
