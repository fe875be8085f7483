//! `gantry log-level [LEVEL]`: how much a running server says in its log.

use clap::Args;
use serde_json::{Value, json};

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::visible;

/// Show or change how much a running server says in its log
///
/// The change holds until the server ends; `[log] level` is what it starts with.
#[derive(Debug, Args)]
pub(crate) struct LogLevelCommand {
    /// `error`, `warn`, `info`, `debug` or `trace`, or per module: `info,gantry_calls=debug`
    level: Option<String>,
}

impl LogLevelCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let client = context.client()?;
        let answer = match self.level {
            None => client.get("/v1/admin/log-level").await?,
            Some(level) => client.put("/v1/admin/log-level", &json!({ "level": level })).await?,
        };
        let level = answer.get("level").and_then(Value::as_str).unwrap_or_default();
        context.printer.answer(&answer, |_| visible(level).into_owned());
        Ok(())
    }
}
