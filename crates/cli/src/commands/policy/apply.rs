//! `gantry policy apply`: put policies in force. Checked here first, because here their files are known.

use std::path::PathBuf;

use clap::Args;
use contract::ids::TenantId;
use serde_json::{Value, json};

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::policy_files::PolicyText;

/// Put policies in force for the next call; they take the place of all that were there
///
/// A server with `[policy] file` takes its files again when they change or when it starts.
#[derive(Debug, Args)]
pub(crate) struct PolicyApplyCommand {
    /// A .cedar file, or a folder of them (repeatable: read together)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Whose [default: the platform's for the home tenant, otherwise the token's own tenant's]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Also if there is no policy in them, with which every call it applies to is refused
    #[arg(long)]
    allow_empty: bool,
}

impl PolicyApplyCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let text = PolicyText::read(&self.files)?;
        let policies = text.compile().map_err(|problems| {
            CommandFailure::new("the policies cannot be used; nothing was changed")
                .reasons(problems.iter().map(ToString::to_string).collect())
        })?;
        if policies.is_empty() && !self.allow_empty {
            return Err(CommandFailure::new("there is no policy in there, and without one that permits it every call is refused; nothing was changed")
                .hint("write `permit (principal, action, resource);` to allow what nothing forbids, or give --allow-empty"));
        }
        for warning in policies.warnings() {
            context.printer.warn(&text.place(warning).to_string());
        }
        let mut body = json!({ "policies": text.text });
        if let (Some(members), Some(tenant)) = (body.as_object_mut(), &self.tenant) {
            members.insert("tenant".to_owned(), json!(tenant));
        }
        let answer = context.client()?.put("/v1/policies", &body).await?;
        let version = answer.get("version").and_then(Value::as_u64).unwrap_or_default();
        context.printer.answer(&answer, |_| format!("policies in force: {}, version {version}", policies.len()));
        if policies.is_empty() {
            context
                .printer
                .warn("there is no policy in force that permits anything: every call it applies to is refused");
        }
        Ok(())
    }
}
