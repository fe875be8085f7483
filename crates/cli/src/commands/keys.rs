//! `gantry keys …`: the keys that sign tokens.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::visible;

/// Replace the key that signs tokens
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Sign with a new key from now on
    ///
    /// Tokens of the former keys stay valid until they expire. If a key has leaked, also remove its file from
    /// keys/retired in the data directory and restart the server.
    Rotate,
}

impl KeysCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let Self::Rotate = self;
        let answer = context.client()?.post("/v1/keys/rotate", &json!({})).await?;
        let kid = answer.get("kid").and_then(Value::as_str).unwrap_or_default();
        context.printer.answer(&answer, |_| visible(kid).into_owned());
        context.printer.note("tokens are signed with this key from now on; those of the former keys stay valid");
        Ok(())
    }
}
