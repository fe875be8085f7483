// The client libraries of JavaScript, each used as its documentation says, against the server of this folder: directly over
// stdio, or through Gantry's door.
//
// Arguments: the folder with the library, its name here, and a plan as JSON: `stdio` (command and arguments), or `http` and
// `token`. Prints what each feature came to, as JSON. What the library has no way to do is `null`.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, name, text] = process.argv.slice(2);
const plan = JSON.parse(text);
const headers = { Authorization: `Bearer ${plan.token ?? ""}` };
const elicited = { action: "accept", content: { name: "yes from the client" } };
const told = [];
const onProgress = ({ progress, total, message }) => told.push([progress, total, message ?? null]);
const require = createRequire(join(folder, "package.json"));

/// A module of the kit, as whoever imports it gets it.
async function load(specifier) {
  const path = join(folder, "node_modules", specifier.split("/").slice(0, specifier.startsWith("@") ? 2 : 1).join("/"));
  const about = JSON.parse(readFileSync(join(path, "package.json"), "utf8"));
  const inner = "." + specifier.slice(about.name.length);
  let target = about.exports?.[inner] ?? about.exports?.["./*"];
  while (target && typeof target === "object") target = target.import ?? target.node ?? target.default;
  if (!target) return import(pathToFileURL(require.resolve(specifier)).href);
  return import(pathToFileURL(join(path, target.replace("*", inner.slice(2)))).href);
}

const versionOf = (packageName) => JSON.parse(readFileSync(join(folder, "node_modules", packageName, "package.json"), "utf8")).version;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const texts = (result) => result.content.map((block) => block.text ?? "").join(" ");
const images = (result) => result.content.filter((block) => block.type === "image").map((block) => [block.data, block.mimeType]);

async function outcome(feature) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("not done in 40 s")), 40_000); });
  try {
    return await Promise.race([feature(), late]);
  } catch (error) {
    return `failed: ${error?.name}: ${String(error?.message).slice(0, 200)}`;
  } finally {
    clearTimeout(timer);
  }
}

async function cancelled(client) {
  const ending = new AbortController();
  const waiting = client.call("wait", { signal: ending.signal }).catch(() => undefined);
  for (let n = 0; n < 100 && texts(await client.call("cancelled")) !== "waits"; n++) await pause(100);
  ending.abort();
  await Promise.race([waiting, pause(5_000)]);
  let said = "waits";
  for (let n = 0; n < 50 && said === "waits"; n++) {
    said = texts(await client.call("cancelled"));
    await pause(100);
  }
  return said;
}

async function progressed(client) {
  told.length = 0;
  await client.call("steps", { onprogress: onProgress });
  for (let n = 0; n < 20 && told.length < 3; n++) await pause(100);
  return told;
}

async function use(client, version, revision) {
  const found = { version, revision: revision ?? null };
  found.tools = (await client.tools()).sort();
  found.structured = await outcome(async () => (await client.call("shape")).structuredContent);
  found.image = await outcome(async () => images(await client.call("picture")));
  found.progress = client.hasProgress ? await outcome(() => progressed(client)) : null;
  found.elicitation = client.hasElicitation ? await outcome(async () => texts(await client.call("ask"))) : null;
  // The last: a call that was abandoned may hold what comes after it.
  found.cancel = client.hasCancel ? await outcome(() => cancelled(client)) : null;
  console.log("FOUND " + JSON.stringify(found));
}

const everything = { hasProgress: true, hasElicitation: true, hasCancel: true };
const about = { name: "clients", version: "1.0.0" };

async function typescript1() {
  const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
  const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { ElicitRequestSchema } = await load("@modelcontextprotocol/sdk/types.js");
  const client = new Client(about, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, async () => elicited);
  const transport = plan.stdio
    ? new StdioClientTransport({ command: plan.stdio[0], args: plan.stdio.slice(1) })
    : new StreamableHTTPClientTransport(new URL(plan.http), { requestInit: { headers } });
  await client.connect(transport);
  await use(
    {
      ...everything,
      tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
      call: (tool, options) => client.callTool({ name: tool, arguments: {} }, undefined, options),
    },
    versionOf("@modelcontextprotocol/sdk"),
    transport.protocolVersion,
  );
  await client.close();
}

async function typescript2() {
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
  const client = new Client(about, { capabilities: { elicitation: {} }, versionNegotiation: { mode: "auto" } });
  client.setRequestHandler("elicitation/create", async () => elicited);
  const transport = plan.stdio
    ? new StdioClientTransport({ command: plan.stdio[0], args: plan.stdio.slice(1) })
    : new StreamableHTTPClientTransport(new URL(plan.http), { requestInit: { headers } });
  await client.connect(transport);
  await use(
    {
      ...everything,
      tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
      call: (tool, options) => client.callTool({ name: tool, arguments: {} }, options),
    },
    versionOf("@modelcontextprotocol/client"),
    client.getNegotiatedProtocolVersion?.(),
  );
  await client.close();
}

async function aiSdk() {
  const { createMCPClient, ElicitationRequestSchema } = await load("@ai-sdk/mcp");
  let transport = { type: "http", url: plan.http, headers };
  if (plan.stdio) {
    const { Experimental_StdioMCPTransport } = await load("@ai-sdk/mcp/mcp-stdio");
    transport = new Experimental_StdioMCPTransport({ command: plan.stdio[0], args: plan.stdio.slice(1) });
  }
  const client = await createMCPClient({ transport, capabilities: { elicitation: {} } });
  client.onElicitationRequest(ElicitationRequestSchema, async () => elicited);
  const tools = await client.tools();
  await use(
    {
      ...everything,
      hasProgress: false,
      tools: async () => Object.keys(tools),
      call: (tool, options) => tools[tool].execute({}, { toolCallId: "1", messages: [], abortSignal: options?.signal }),
    },
    versionOf("@ai-sdk/mcp"),
    client.initializeResult?.protocolVersion,
  );
  await client.close();
}

async function langchain() {
  const { MultiServerMCPClient } = await load("@langchain/mcp-adapters");
  const gantry = plan.stdio
    ? { transport: "stdio", command: plan.stdio[0], args: plan.stdio.slice(1) }
    : { transport: "http", url: plan.http, headers };
  const client = new MultiServerMCPClient({ mcpServers: { gantry }, useStandardContentBlocks: true, onProgress });
  const tools = Object.fromEntries((await client.getTools()).map((tool) => [tool.name, tool]));
  await use(
    {
      hasProgress: true,
      hasElicitation: false,
      hasCancel: true,
      tools: async () => Object.keys(tools),
      call: async (tool, options) => {
        const said = await tools[tool].invoke({ type: "tool_call", id: "1", name: tool, args: {} }, { signal: options?.signal });
        // Beside structure or `_meta` the library gives a text as its block, written as JSON.
        const words = (content) => (content.startsWith('{"type":"text"') ? JSON.parse(content).text : content);
        const blocks = typeof said.content === "string" ? [{ type: "text", text: words(said.content) }] : said.content;
        const structured = [said.artifact].flat().find((one) => one?.type === "mcp_structured_content")?.data;
        return {
          content: blocks.map((block) => (block.type === "image" ? { type: "image", data: block.data, mimeType: block.mime_type ?? block.mimeType } : block)),
          structuredContent: structured,
        };
      },
    },
    versionOf("@langchain/mcp-adapters"),
  );
  await client.close();
}

async function openaiAgents() {
  const { MCPServerStdio, MCPServerStreamableHttp } = await load("@openai/agents");
  const server = plan.stdio
    ? new MCPServerStdio({ command: plan.stdio[0], args: plan.stdio.slice(1), name: "gantry" })
    : new MCPServerStreamableHttp({ url: plan.http, name: "gantry", requestInit: { headers } });
  await server.connect();
  await use(
    {
      hasProgress: false,
      hasElicitation: false,
      hasCancel: false,
      tools: async () => (await server.listTools()).map((tool) => tool.name),
      call: async (tool) => {
        const said = await server.callTool(tool, {});
        const whole = Array.isArray(said) ? { content: said } : said;
        return { ...whole, structuredContent: whole.structuredContent ?? said.structuredContent ?? (tool === "shape" ? JSON.parse(whole.content[0].text) : undefined) };
      },
    },
    versionOf("@openai/agents"),
  );
  await server.close();
}

const clients = { "typescript-1": typescript1, "typescript-2": typescript2, "ai-sdk": aiSdk, "langchain-js": langchain, "openai-agents-js": openaiAgents };
await clients[name]();
process.exit(0);
