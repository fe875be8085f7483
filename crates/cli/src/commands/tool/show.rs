//! `gantry tool show`: one tool, its parameters and its versions, or one version of it.

use clap::Args;
use policy::WhyUnavailable;
use serde_json::Value;

use crate::catalogue;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, TextStyle, visible};
use crate::tool_reference::ToolReference;

/// Show one tool, or one version of it
#[derive(Debug, Args)]
pub(crate) struct ToolShowCommand {
    /// `id`, or `id@version`
    tool: ToolReference,
}

impl ToolShowCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let mut answer = catalogue::show(context, &self.tool).await?;
        if let (Some(members), Some(health)) = (answer.as_object_mut(), catalogue::health(context, &self.tool).await) {
            members.insert("health".into(), health);
        }
        context.printer.answer(&answer, |printer| page(printer, &answer));
        Ok(())
    }
}

fn page(printer: &Printer, tool: &Value) -> String {
    let text = |pointer: &str| visible(tool.pointer(pointer).and_then(Value::as_str).unwrap_or_default()).into_owned();
    let version = if tool.get("version").is_some() { text("/version") } else { text("/current_version") };
    let mut parts = vec![
        printer.style(&format!("{} {version}", text("/tool_id")), TextStyle::Bold),
        format!("{} – {}", text("/manifest/name"), text("/manifest/description")),
        String::new(),
        format!("state     {}{}", text("/lifecycle_state"), unavailable(tool)),
        format!("effects   {}", text("/manifest/side_effect_policy")),
        format!("timeouts  {}", text("/manifest/timeout_class")),
        format!(
            "runs as   {}",
            Some(text("/manifest/execution/type"))
                .filter(|t| !t.is_empty())
                .unwrap_or_else(|| "nothing: it can be found but not called".into())
        ),
        format!("provider  {}", text("/manifest/provider")),
    ];
    if let Some(health) = tool.get("health").and_then(Value::as_array) {
        parts.extend(health.iter().map(fares));
    }
    if let Some(successor) = tool.pointer("/deprecation/successor").and_then(Value::as_str) {
        parts.push(format!("use       {} instead", visible(successor)));
    }
    parts.push(String::new());
    parts.push(parameters(printer, tool));
    if let Some(versions) = tool.get("versions").and_then(Value::as_array) {
        parts.push(String::new());
        parts.push(printer.table(["VERSION", "STATE", "PUBLISHED"], versions.iter().rev().map(version_row)));
    }
    parts.join("\n")
}

/// Why nobody can call it, if so.
fn unavailable(tool: &Value) -> String {
    let why = tool.get("why_unavailable").and_then(|why| serde_json::from_value::<WhyUnavailable>(why.clone()).ok());
    why.map(|why| format!(", but cannot be called: {}", why.as_str())).unwrap_or_default()
}

/// How one version fares, in a line.
fn fares(version: &Value) -> String {
    let text = |name: &str| visible(version.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned();
    let score = version.get("score").and_then(Value::as_f64).map(|score| format!(" {score:.2}")).unwrap_or_default();
    let alerts = version.get("alerts").and_then(Value::as_array).into_iter().flatten();
    let alerts: Vec<&str> = alerts.filter_map(|alert| alert.get("alert").and_then(Value::as_str)).collect();
    let alerts = if alerts.is_empty() { String::new() } else { format!(", {}", alerts.join(", ")) };
    format!("health    {}{score} ({}{alerts})", text("status"), text("version"))
}

fn parameters(printer: &Printer, tool: &Value) -> String {
    let required: Vec<&str> = tool
        .pointer("/manifest/parameters/required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = tool.pointer("/manifest/parameters/properties").and_then(Value::as_object);
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        return "takes no parameters".to_owned();
    };
    let rows = properties.iter().map(|(name, schema)| {
        let needed = if required.contains(&name.as_str()) { "yes" } else { "" };
        let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        [name.clone(), kind(schema), needed.to_owned(), about.to_owned()]
    });
    printer.table(["PARAMETER", "TYPE", "REQUIRED", "ABOUT"], rows)
}

fn kind(schema: &Value) -> String {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let words: Vec<String> =
            choices.iter().map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned)).collect();
        return words.join(" | ");
    }
    match schema.get("type") {
        Some(Value::String(one)) => one.clone(),
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
        _ => "any".to_owned(),
    }
}

fn version_row(version: &Value) -> [String; 3] {
    ["version", "lifecycle_state", "published_at"]
        .map(|name| version.get(name).and_then(Value::as_str).unwrap_or_default().to_owned())
}
