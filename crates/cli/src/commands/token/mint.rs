//! `gantry token mint`: a capability token. Asked of the running server; if none runs, signed here with the data
//! directory's key and recorded in the data directory's audit log, because a token that was never recorded must not exist.

use clap::Args;
use contract::ids::{HOME_TENANT, Subject, TenantId};
use contract::version::VersionRange;
use kernel::ports::audit_sink::{AuditAction, AuditRecord, AuditSink as _};
use kernel::ports::clock::{Clock as _, UnixMillis};
use kernel::ports::entropy::{new_token_id, new_trace_id};
use policy::{Claims, MintRequest, Role, Scope, ToolGrant, ToolPattern};
use serde_json::{Value, json};
use store::sqlite::{Options, SqliteStore};

use crate::client::ClientError;
use crate::context::Context;
use crate::failure::Failure;
use crate::lifespan;
use crate::machine::{OsEntropy, SystemClock};

/// Mint a capability token; it is printed alone on stdout
///
/// gantry token mint --sub did:key:z6Mk… --tool 'demo.*' --tool calculator@^1 --ttl 1h
#[derive(Debug, Args)]
pub(crate) struct Mint {
    /// Who will hold it: an agent, person or service
    #[arg(long)]
    sub: Subject,
    /// On whose ground
    #[arg(long, default_value = HOME_TENANT)]
    tenant: TenantId,
    /// A tool it may call: `id`, `namespace.*` or `*`, each with `@RANGE` if wanted (repeatable)
    #[arg(long = "tool", value_name = "PATTERN[@RANGE]", value_parser = grant)]
    tools: Vec<ToolGrant>,
    /// A scope it holds, such as `tool:*` or `network:https://api.example.com` (repeatable)
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<Scope>,
    /// A role it has: admin, tool_author, operator, approver, auditor or agent (repeatable) [default: agent]
    #[arg(long = "role", value_name = "ROLE", value_parser = role)]
    roles: Vec<Role>,
    /// How long it lives: 90s, 15m, 1h, 7d
    #[arg(long, value_name = "SPAN", value_parser = lifespan::seconds, default_value = "1h")]
    ttl: u64,
}

impl Mint {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let request = self.request();
        let answer = match context.client()?.post("/v1/tokens", &body(&request)).await {
            Ok(answer) => answer,
            Err(ClientError::NotRunning { .. }) if context.may_go_offline() => offline(context, &request).await?,
            Err(error) => return Err(error.into()),
        };
        let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        context.printer.answer(&answer, |_| text("token"));
        context.printer.note(&format!("jti {}, expires {}", text("jti"), text("expires_at")));
        if request.tools.is_empty() && request.roles == [Role::Agent] {
            context.printer.warn("this token names no tools, so it can call none: add --tool PATTERN");
        }
        Ok(())
    }

    fn request(self) -> MintRequest {
        MintRequest {
            sub: self.sub,
            tenant: self.tenant,
            roles: if self.roles.is_empty() { vec![Role::Agent] } else { self.roles },
            tools: self.tools,
            scopes: self.scopes,
            user_did: None,
            session_id: None,
            ttl_seconds: self.ttl,
        }
    }
}

fn body(request: &MintRequest) -> Value {
    json!({
        "sub": request.sub, "tenant": request.tenant, "roles": request.roles, "tools": request.tools,
        "scopes": request.scopes, "ttl_seconds": request.ttl_seconds,
    })
}

async fn offline(context: &Context, request: &MintRequest) -> Result<Value, Failure> {
    let data_dir = context.data_dir();
    let Some(key) = data_dir.signing_key()? else {
        return Err(Failure::new(format!(
            "no server answers at {}, and `{}` holds no signing key",
            context.server_url(),
            data_dir.path().display()
        ))
        .hint("start a server once with `gantry serve`, or name one with --server or --data-dir"));
    };
    let config = context.config(Vec::new())?;
    // Held while the audit log is written: a server that runs but does not answer must not be written beside.
    let store = SqliteStore::open(&config.store.file(data_dir.path()), &Options::default())
        .map_err(|error| Failure::new(error.to_string()).hint("no token was made"))?;
    let (clock, entropy) = (SystemClock::start(), OsEntropy::open()?);
    let token_id = new_token_id(&entropy).to_string();
    let (token, claims) = policy::mint(request, &key.value, token_id, clock.now().0)
        .map_err(|error| Failure::new(error.to_string()).hint("mend the request; no token was made"))?;
    let log = audit::FileLog::open(&config.audit.dir(data_dir.path()))
        .map_err(|error| Failure::new(error.to_string()).hint("a token that cannot be recorded is not made"))?;
    let record = record(&claims, clock.now(), new_trace_id(&entropy));
    log.append(&[record])
        .await
        .map_err(|error| Failure::new(error.to_string()).hint("a token that cannot be recorded is not made"))?;
    store.close().await;
    context.printer.note("no server is running: signed with the data directory's key");
    let expires_at = UnixMillis(claims.exp.saturating_mul(1000)).to_string();
    Ok(json!({ "token": token, "expires_at": expires_at, "jti": claims.jti }))
}

fn record(claims: &Claims, at: UnixMillis, trace_id: contract::ids::TraceId) -> AuditRecord {
    AuditRecord {
        at,
        action: AuditAction::TokenMinted,
        trace_id,
        invocation_id: None,
        tenant: Some(claims.tenant.clone()),
        // Whoever can read the signing key acts as the administrator.
        subject: "admin".parse().ok(),
        tool: None,
        version: None,
        status: None,
        code: None,
        parameters_digest: None,
        duration_ms: None,
        note: Some(format!("jti {} (signed on the command line)", claims.jti)),
    }
}

fn grant(text: &str) -> Result<ToolGrant, String> {
    let (pattern, range) = match text.split_once('@') {
        Some((pattern, range)) => (pattern, Some(VersionRange::parse(range).map_err(|error| error.to_string())?)),
        None => (text, None),
    };
    let tool_id = pattern.parse::<ToolPattern>().map_err(|error| error.to_string())?;
    Ok(ToolGrant { tool_id, version_range: range })
}

fn role(text: &str) -> Result<Role, String> {
    serde_json::from_value(Value::String(text.to_owned()))
        .map_err(|_| "use admin, tool_author, operator, approver, auditor or agent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_patterns_with_an_optional_range() {
        for (text, fine) in [
            ("calculator", true),
            ("demo.*@^1", true),
            ("*", true),
            ("calculator@>=1 <2", true),
            ("calculator@", true),
            ("de*", false),
            ("calculator@^x^", false),
        ] {
            assert_eq!(grant(text).is_ok(), fine, "{text}");
        }
    }

    #[test]
    fn every_role_has_the_name_the_help_gives_it() {
        for name in ["admin", "tool_author", "operator", "approver", "auditor", "agent"] {
            assert!(role(name).is_ok(), "{name}");
        }
        assert!(role("root").is_err());
    }
}
