//! `gantry-xtask conformance-client URL`: what the client suite starts. It puts the scenario's server behind the running
//! gateway and does through Gantry's door what the scenario's reference client would do to the server directly.
//!
//! All tools are called once, with the arguments the scenario gives or with values that their schemas accept. A tool that
//! asks is answered after all others were called, so that a server sees whether calls are kept apart. Resources and
//! prompts are listed, and the first of each is read.

use anyhow::{Context, Result, anyhow};
use serde_json::{Map, Value, json};

use super::gateway::{ADMIN_VARIABLE, AGENT_VARIABLE, Rest, URL_VARIABLE};
use super::raw_client::{NEWEST, RawClient, agreeable, filled};
use test_servers::mcp::wire::OLD;

/// Where the scenario's tools stand while it runs.
const NAMESPACE: &str = "scenario";

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let url = arguments.last().context("conformance-client wants the address of a server")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(drive(url))
}

async fn drive(server: &str) -> Result<()> {
    let variable = |name: &str| {
        std::env::var(name)
            .with_context(|| format!("{name} is not set: the suite is started by `cargo xtask conformance`"))
    };
    let (url, agent) = (variable(URL_VARIABLE)?, variable(AGENT_VARIABLE)?);
    let rest = Rest::new(url.clone(), variable(ADMIN_VARIABLE)?)?;
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    rest.add_server(NAMESPACE, NAMESPACE, &json!({ "type": "http", "url": server })).await?;
    let door = format!("{url}/mcp");
    // The same era on both sides of the gateway; the mixed pairs are tests of our own.
    let client = match std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION") {
        Ok(revision) if revision == NEWEST => RawClient::new(&door, &agent, agreeable),
        _ => RawClient::old(&door, &agent, OLD, agreeable).await.map_err(|error| anyhow!(error))?,
    };
    let outcome = converse(&client, &context).await;
    println!("asked: {}, told: {}", Value::Array(client.asked()), Value::Array(client.told()));
    rest.remove_server(NAMESPACE).await?;
    outcome.map_err(|error| anyhow!(error))
}

async fn converse(client: &RawClient, context: &Value) -> Result<(), String> {
    let tools = client.list("tools").await?;
    let mut asking = Vec::new();
    for tool in tools.iter().filter(|tool| is_of_scenario(tool)) {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = arguments(tool, &tools, context);
        let reply = match client.request("tools/call", json!({ "name": name, "arguments": arguments })).await {
            Ok(reply) => reply,
            // The other tools are called all the same; the suite sees what is missing.
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        println!("{name}: {}", reply.text());
        if client.answered(name, &arguments, &reply).is_some() {
            asking.push((name, arguments));
        }
    }
    for (name, arguments) in asking {
        println!("{name}: {}", client.call(name, &arguments).await?.text());
    }
    // Not every server has these; a refusal is no failure of the scenario.
    for (what, method, key) in [("resources", "resources/read", "uri"), ("prompts", "prompts/get", "name")] {
        let listed = client.list(what).await.unwrap_or_default();
        if let Some(first) = listed.iter().find_map(|item| item.get(key)) {
            let _ = client.request(method, json!({ key: first })).await;
        }
    }
    Ok(())
}

fn is_of_scenario(tool: &Value) -> bool {
    tool.get("name").and_then(Value::as_str).is_some_and(|name| name.starts_with(&format!("{NAMESPACE}__")))
}

/// What the scenario says, or a value for everything the tool requires.
fn arguments(tool: &Value, tools: &[Value], context: &Value) -> Value {
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
    let given =
        context.get("toolCalls").and_then(Value::as_array).into_iter().flatten().find(|call| {
            call.get("name").and_then(Value::as_str).is_some_and(|its| name.ends_with(&format!("__{its}")))
        });
    if let Some(arguments) = given.and_then(|call| call.get("arguments")).and_then(Value::as_object) {
        // Parameters are checked strictly: what is nothing is left out, which says the same.
        let said = arguments.iter().filter(|(_, value)| !value.is_null());
        return said.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into();
    }
    let schema = tool.get("inputSchema");
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let required: Vec<&str> = schema
        .and_then(|schema| schema.get("required"))
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut arguments: Map<String, Value> = properties
        .into_iter()
        .flatten()
        .filter(|(name, _)| required.contains(&name.as_str()))
        .map(|(name, schema)| (name.clone(), filled(name, schema)))
        .collect();
    // A tool that wants a schema wants to see whether the other tool's came through whole.
    let echoed = tools.iter().find(|other| other.get("name") != tool.get("name") && is_of_scenario(other));
    if let (true, Some(schema)) =
        (properties.is_some_and(|all| all.contains_key("schema")), echoed.and_then(|other| other.get("inputSchema")))
    {
        arguments.insert("schema".into(), schema.clone());
    }
    Value::Object(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_the_scenario_or_fit_the_schema() {
        let adder = json!({ "name": "scenario__add", "inputSchema": { "type": "object", "required": ["a"],
            "properties": { "a": { "type": "number" }, "b": { "type": "number" } } } });
        let echo =
            json!({ "name": "scenario__echo", "inputSchema": { "properties": { "schema": { "type": "object" } } } });
        let tools = [adder.clone(), echo.clone()];
        assert_eq!(arguments(&adder, &tools, &Value::Null), json!({ "a": 3 }));
        let context = json!({ "toolCalls": [{ "name": "add", "arguments": { "a": 1, "b": null } }] });
        assert_eq!(arguments(&adder, &tools, &context), json!({ "a": 1 }));
        assert_eq!(arguments(&echo, &tools, &Value::Null), json!({ "schema": adder["inputSchema"] }));
    }
}
