//! `gantry call`: one call of one tool, for people at a terminal.
//!
//! `key=value` is typed by the tool's own schema, so that `expression=2` stays text where text is wanted and `count=2`
//! becomes a number where a number is. The schema is asked for first; a call with `--params` alone needs no such question.

use std::time::Duration;

use clap::Args;
use contract::error::ErrorCode;
use kernel::MISSING_KEY;
use serde_json::{Map, Value, json};

use super::jobs;
use crate::client::{ServerClient, segment};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, TextStyle, pretty, visible};
use crate::tool_reference::ToolReference;

mod parameters;
mod refused_path;

/// What a call may take longer on the way than in the tool.
const ON_THE_WAY: Duration = Duration::from_secs(30);

/// Call a tool
///
/// gantry call calculator expression='sqrt(16) + 2^3'
/// gantry call demo.word_stats@^1 --params '{"text": "a b"}'
/// gantry call text_transform operation=keywords text='a b' options:='{"count": 3}'
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_version_flag = true)]
pub(crate) struct CallCommand {
    #[command(flatten)]
    what: WhatToCall,
    /// Seconds the call may take
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Names this call, so that a repetition is recognised and answered with the same outcome
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Submit it and come back at once; `gantry jobs show ID` says where it stands
    #[arg(long)]
    r#async: bool,
    /// Submit it, then wait for its end
    #[arg(long, conflicts_with = "async")]
    wait: bool,
}

/// A tool and its parameters.
#[derive(Debug, Args)]
pub(crate) struct WhatToCall {
    /// The tool: `id`, `namespace.id` or an alias; `id@range` picks a version
    tool: ToolReference,
    /// Parameters: `key=value` typed by the tool's schema, `key:=JSON` taken literally
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// All parameters as a JSON object; `@FILE` reads a file, `-` reads stdin
    #[arg(long, short, value_name = "JSON|@FILE|-")]
    params: Option<String>,
    /// Version or range, such as `^1.0.0`, `1.x` or LATEST
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
}

impl CallCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        if self.timeout.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 86_400.0)) {
            return Err(CommandFailure::usage("--timeout must be more than 0 and at most 86400 seconds"));
        }
        let client = context.client()?;
        let request = self.request(self.what.request(&client).await?);
        let patience = self.timeout.map_or(kernel::SYNC_MAX, Duration::from_secs_f64) + ON_THE_WAY;
        let answer = client.post_patiently("/v1/tools/invoke", &request, patience).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let failure = say_where_keys_go(error.into());
                return Err(refused_path::explained(context, &client, &self.what.tool.tool, failure).await);
            }
        };
        let id = answer.get("polling_info").and_then(|_| answer.get("invocation_id")).and_then(Value::as_str);
        match id {
            None => show(&context.printer, &answer),
            Some(id) if self.r#async && !self.wait => jobs::submitted(&context.printer, &answer, id),
            Some(id) => {
                if !jobs::has_ended(&answer) {
                    context.printer.note(&format!("it goes on in the background as {id}"));
                }
                show(&context.printer, &jobs::wait_for_end(&client, id).await?);
            }
        }
        Ok(())
    }

    fn request(&self, mut request: Value) -> Value {
        let mut options = Map::new();
        options.extend(self.idempotency_key.as_ref().map(|key| ("idempotency_key".to_owned(), json!(key))));
        options.extend((self.r#async || self.wait).then(|| ("async_mode".to_owned(), json!(true))));
        let members = [
            ("execution_options", (!options.is_empty()).then_some(Value::Object(options))),
            ("resource_limits", self.timeout.map(|seconds| json!({ "timeout_seconds": seconds }))),
        ];
        if let Some(object) = request.as_object_mut() {
            object.extend(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        }
        request
    }
}

impl WhatToCall {
    /// The body that names tool, version and parameters. The server is asked for the tool's schema where that matters.
    pub(crate) async fn request(&self, client: &ServerClient) -> Result<Value, CommandFailure> {
        let version = match (&self.version, &self.tool.version) {
            (Some(_), Some(_)) => {
                return Err(
                    CommandFailure::usage("the version is given twice").hint("give either id@RANGE or --version RANGE")
                );
            }
            (flag, inline) => flag.as_ref().or(inline.as_ref()).cloned(),
        };
        let given = self.params.as_deref().map(parameters::document).transpose()?.unwrap_or_default();
        let pairs = self.pairs.iter().map(|text| parameters::Pair::parse(text)).collect::<Result<Vec<_>, _>>()?;
        let schema = if pairs.iter().any(parameters::Pair::needs_schema) {
            schema_of(client, &self.tool.tool, version.as_deref()).await?
        } else {
            Value::Null
        };
        let parameters = parameters::merge(given, &pairs, &schema)?;
        Ok(self.body(version.as_deref(), &parameters))
    }

    fn body(&self, version: Option<&str>, parameters: &Map<String, Value>) -> Value {
        let mut body = json!({ "tool_id": self.tool.tool, "parameters": parameters });
        if let (Some(members), Some(version)) = (body.as_object_mut(), version) {
            members.insert("tool_version".to_owned(), version.into());
        }
        body
    }
}

/// A key that is missing is asked for by the name it has here.
fn say_where_keys_go(failure: CommandFailure) -> CommandFailure {
    if !failure.misses(MISSING_KEY) {
        return failure;
    }
    failure.hint("give `--idempotency-key KEY`, the same whenever you mean the same act; nothing was run")
}

async fn schema_of(client: &ServerClient, tool: &str, version: Option<&str>) -> Result<Value, CommandFailure> {
    let path = format!("/v1/tools/{}/versions/{}", segment(tool), segment(version.unwrap_or("LATEST")));
    let mut answer = match client.get(&path).await.map_err(CommandFailure::from) {
        Ok(answer) => answer,
        // A tool this token may not know has no schema for us; the call itself will say what is wrong.
        Err(failure) if failure.code.as_deref() == Some(ErrorCode::E3101.as_str()) => return Ok(Value::Null),
        Err(failure) => return Err(failure),
    };
    Ok(answer.pointer_mut("/manifest/parameters").map(Value::take).unwrap_or_default())
}

fn show(printer: &Printer, answer: &Value) {
    printer.answer(answer, |printer| {
        let result = answer.get("result").unwrap_or(answer);
        let text = visible(&pretty(result)).into_owned();
        match headline(result) {
            // Only for people: whatever reads a pipe wants the JSON alone.
            Some(headline) if printer.is_for_people() => {
                format!(
                    "{}\n{}",
                    printer.style(&visible(&headline), TextStyle::Bold),
                    printer.style(&text, TextStyle::Dim)
                )
            }
            _ => text,
        }
    });
    if let Some(notice) = answer.pointer("/execution_metadata/deprecation").filter(|notice| !notice.is_null()) {
        printer.warn(&deprecation(answer, notice));
    }
    printer.note(&printer.on_stderr(&footer(answer), TextStyle::Dim));
}

/// The one value that matters, where a result has one by the name `result`.
fn headline(result: &Value) -> Option<String> {
    match result.get("result")? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn footer(answer: &Value) -> String {
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or("?");
    let milliseconds = answer.get("execution_time_ms").and_then(Value::as_u64).unwrap_or_default();
    let (tool, version, status, id) = (text("tool_id"), text("tool_version"), text("status"), text("invocation_id"));
    visible(&format!("{tool} {version} · {status} in {milliseconds} ms · invocation {id}")).into_owned()
}

fn deprecation(answer: &Value, notice: &Value) -> String {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut said = format!(
        "{} {} is deprecated and may be removed from {} on",
        text(answer, "tool_id").unwrap_or_default(),
        text(answer, "tool_version").unwrap_or_default(),
        text(notice, "removal_at").unwrap_or_default(),
    );
    if let Some(successor) = text(notice, "successor") {
        said.push_str(&format!("; use `{successor}`"));
    }
    if let Some(guide) = text(notice, "migration_guide") {
        said.push_str(&format!("; see {guide}"));
    }
    visible(&said).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_by_that_name_is_the_headline() {
        for (result, expected) in [
            (json!({ "expression": "1+1", "result": 2 }), Some("2")),
            (json!({ "result": "text" }), Some("text")),
            (json!({ "result": { "deep": 1 } }), None),
            (json!({ "words": 2 }), None),
            (json!([1]), None),
        ] {
            assert_eq!(headline(&result).as_deref(), expected, "{result}");
        }
    }

    #[test]
    fn a_missing_key_is_asked_for_by_its_flag() {
        let problem = json!({ "error": { "code": "E3004", "message": "calls need an idempotency key",
            "resolution": "set `execution_options.idempotency_key`", "details": { "missing": MISSING_KEY } } });
        let told = say_where_keys_go(CommandFailure::from_problem(problem.clone()).unwrap()).hint.unwrap();
        assert!(told.contains("--idempotency-key") && !told.contains("execution_options"), "{told}");
        let mut other = problem;
        other["error"]["details"]["missing"] = json!("something else");
        let told = say_where_keys_go(CommandFailure::from_problem(other).unwrap()).hint.unwrap();
        assert!(told.contains("execution_options"), "{told}");
    }

    #[test]
    fn the_request_carries_only_what_was_asked_for() {
        let what = WhatToCall { tool: "calculator".parse().unwrap(), pairs: Vec::new(), params: None, version: None };
        let body = what.body(None, &Map::new());
        let call = CallCommand { what, timeout: Some(1.5), idempotency_key: None, r#async: false, wait: false };
        let request = call.request(body);
        assert_eq!(
            request,
            json!({ "tool_id": "calculator", "parameters": {}, "resource_limits": { "timeout_seconds": 1.5 } })
        );
    }
}
