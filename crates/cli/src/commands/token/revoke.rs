//! `gantry token revoke`: make one token void, or all tokens a subject has so far. In force before it is answered.

use clap::Args;
use contract::ids::{Subject, TenantId};
use serde_json::{Value, json};

use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// What is said about a token or subject that the tenant is not known to have.
const UNKNOWN: &str = "no such token or subject is known in this tenant; if one is shown, it is refused from now on";

/// Make one token void, or all tokens a subject has so far, and everything delegated from them
///
/// gantry token revoke 0190b6d4-…
/// gantry token revoke --sub did:key:z6Mk… --tenant acme
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct TokenRevokeCommand {
    /// One token, by its id (`gantry token inspect` shows it)
    #[arg(value_name = "ID", conflicts_with_all = ["jti", "sub", "tenant"])]
    id: Option<String>,
    /// The same, by the name that the id has in the token
    #[arg(long, value_name = "ID", conflicts_with_all = ["sub", "tenant"])]
    jti: Option<String>,
    /// Who issued it [default: whoever did]
    #[arg(long, value_name = "ISSUER", conflicts_with_all = ["sub", "tenant"])]
    issuer: Option<String>,
    /// All tokens of this subject that were issued so far
    #[arg(long)]
    sub: Option<Subject>,
    /// The subject's tenant [default: the token's own]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl TokenRevokeCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let jti = self.id.or(self.jti);
        let what = match (&jti, &self.sub) {
            (Some(jti), _) => format!("token {jti} is void"),
            (None, Some(sub)) => format!("every token that {sub} has had so far is void"),
            (None, None) => return Err(CommandFailure::usage("name a token by its id, or a subject with --sub")),
        };
        let mut body = json!({});
        if let Some(members) = body.as_object_mut() {
            let given = [
                ("jti", jti.map(Value::from)),
                ("issuer", self.issuer.map(Value::from)),
                ("sub", self.sub.map(|sub| json!(sub))),
                ("tenant", self.tenant.map(|t| json!(t))),
            ];
            members.extend(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        }
        let answer = context.client()?.post("/v1/tokens/revoke", &body).await?;
        let known = answer.get("revoked").and_then(Value::as_bool) == Some(true);
        context.printer.answer(&answer, |_| if known { what } else { UNKNOWN.to_owned() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn read(words: &[&str]) -> Result<TokenRevokeCommand, clap::Error> {
        let command = TokenRevokeCommand::augment_args(Command::new("revoke"));
        let matches = command.try_get_matches_from(std::iter::once(&"revoke").chain(words))?;
        TokenRevokeCommand::from_arg_matches(&matches)
    }

    #[test]
    fn a_token_is_named_by_its_id_alone_or_with_the_flag() {
        assert_eq!(read(&["0190"]).unwrap().id.as_deref(), Some("0190"));
        assert_eq!(read(&["--jti", "0190", "--issuer", "x"]).unwrap().jti.as_deref(), Some("0190"));
        for words in [&["0190", "--jti", "0190"][..], &["0190", "--sub", "ada"], &["--sub", "ada", "--issuer", "x"]] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
