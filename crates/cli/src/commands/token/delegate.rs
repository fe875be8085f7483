//! `gantry token delegate`: narrow a token and hand it on (RFC 8693 token exchange at `/oauth/token`).
//!
//! The token that is narrowed is the credential; no administrator is needed, and nothing can be asked for that it does not
//! have. The admin token cannot be handed on, so it is never taken by default.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use base::SaturatingFrom as _;
use clap::Args;
use contract::ids::Subject;
use policy::{Role, TOKEN_BYTES_MAX};
use serde_json::{Map, Value, json};

use super::rights::{RightsFlags, role};
use crate::context::{self, CommandContext};
use crate::failure::CommandFailure;
use crate::lifespan;

const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// Narrow a token and hand it on; the new one is printed alone on stdout
///
/// The token to narrow comes from --parent-file, from --token or GANTRY_TOKEN, or from stdin. What is not asked for is
/// inherited; what it does not have cannot be asked for.
///
/// GANTRY_TOKEN=$PARENT gantry token delegate --sub did:key:z6Mk… --tool crm.find_contact --budget-calls 10 --ttl 5m
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct TokenDelegateCommand {
    /// Who will hold it [default: the same subject, for a narrower purpose]
    #[arg(long)]
    sub: Option<Subject>,
    #[command(flatten)]
    rights: RightsFlags,
    /// A role it keeps, of those the parent has (repeatable) [default: agent]
    #[arg(long = "role", value_name = "ROLE", value_parser = role)]
    roles: Vec<Role>,
    /// How long it lives: 90s, 15m, 1h, 7d [default: as long as the parent]
    #[arg(long, value_name = "SPAN", value_parser = lifespan::seconds)]
    ttl: Option<u64>,
    /// The session it belongs to
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// File with the token to narrow; - for stdin
    #[arg(long, value_name = "FILE|-")]
    parent_file: Option<PathBuf>,
}

impl TokenDelegateCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let parent = self.parent(context)?;
        let answer = context.anonymous_client()?.post("/oauth/token", &self.body(&parent)).await?;
        let token = answer.get("access_token").and_then(Value::as_str).unwrap_or_default();
        context.printer.answer(&answer, |_| token.to_owned());
        if let Some(seconds) = answer.get("expires_in").and_then(Value::as_i64) {
            context.printer.note(&format!("expires {}", lifespan::from_now(seconds)));
        }
        Ok(())
    }

    fn parent(&self, context: &CommandContext) -> Result<String, CommandFailure> {
        match &self.parent_file {
            Some(path) if path.as_os_str() == "-" => from_stdin(),
            Some(path) => context::token_in(path),
            None => match context.given_token()? {
                Some(token) => Ok(token),
                None if std::io::stdin().is_terminal() => Err(CommandFailure::usage("there is no token to narrow")
                    .hint("set GANTRY_TOKEN, give --parent-file FILE, or pipe the token in")),
                None => from_stdin(),
            },
        }
    }

    fn body(&self, parent: &str) -> Value {
        let rights = &self.rights;
        let scopes: Vec<String> = rights.scopes.iter().map(ToString::to_string).collect();
        let members = [
            ("grant_type", Some(json!(TOKEN_EXCHANGE))),
            ("subject_token", Some(json!(parent))),
            ("subject_token_type", Some(json!(JWT))),
            ("sub", self.sub.as_ref().map(|sub| json!(sub))),
            ("tools", (!rights.tools.is_empty()).then(|| json!(rights.tools))),
            ("scope", (!scopes.is_empty()).then(|| json!(scopes.join(" ")))),
            ("limits", (!rights.limits.is_empty()).then(|| json!(rights.limits))),
            ("budget", rights.budget().map(|budget| json!(budget))),
            ("roles", (!self.roles.is_empty()).then(|| json!(self.roles))),
            ("ttl_seconds", self.ttl.map(Value::from)),
            ("session_id", self.session.as_ref().map(|id| json!(id))),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>().into()
    }
}

fn from_stdin() -> Result<String, CommandFailure> {
    let mut text = String::new();
    let most = u64::saturating_from(TOKEN_BYTES_MAX).saturating_add(64);
    std::io::stdin()
        .lock()
        .take(most)
        .read_to_string(&mut text)
        .map_err(|error| CommandFailure::new(format!("stdin cannot be read: {error}")))?;
    match text.trim() {
        "" => {
            Err(CommandFailure::usage("there is no token on stdin")
                .hint("set GANTRY_TOKEN, or give --parent-file FILE"))
        }
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_not_sent_and_so_inherited() {
        let delegate = TokenDelegateCommand {
            sub: Some("did:key:z6Mk".parse().unwrap()),
            rights: RightsFlags::default(),
            roles: Vec::new(),
            ttl: Some(60),
            session: None,
            parent_file: None,
        };
        assert_eq!(
            delegate.body("a.b.c"),
            json!({
                "grant_type": TOKEN_EXCHANGE, "subject_token": "a.b.c", "subject_token_type": JWT,
                "sub": "did:key:z6Mk", "ttl_seconds": 60,
            })
        );
    }
}
