//! `gantry token mint`: a capability token. Asked of the running server; if none runs, signed here with the data
//! directory's key and recorded in the data directory's audit log, because a token that was never recorded must not exist.

use std::sync::Arc;

use clap::Args;
use contract::ids::{Subject, TenantId};
use kernel::new_token_id_in;
use policy::{MintRequest, Role, TokenClaims, ToolPattern};
use ports::access_store::{AccessStore, AgentRecord, TenantRecord};
use ports::audit_sink::{AuditAction, AuditRecord, AuditSink as _, RecordedActor};
use ports::clock::{Clock as _, UnixMillis};
use ports::entropy::new_trace_id;
use ports::registry_store::StoreError;
use serde_json::{Value, json};

use super::rights::{RightsFlags, role};
use crate::audit_log;
use crate::client::ClientError;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::lifespan;
use crate::machine::{OsEntropy, SystemClock};
use crate::open_store::OpenStore;

/// Mint a capability token; it is printed alone on stdout
///
/// gantry token mint --sub did:key:z6Mk… --tool 'demo.*' --tool calculator@^1 --ttl 1h
#[derive(Debug, Args)]
pub(crate) struct TokenMintCommand {
    /// Who will hold it: an agent, person or service
    #[arg(long)]
    sub: Subject,
    /// On whose ground [default: that of the token in use]
    #[arg(long)]
    tenant: Option<TenantId>,
    #[command(flatten)]
    rights: RightsFlags,
    /// A role it has: admin, tool_author, operator, approver, auditor or agent (repeatable) [default: agent]
    #[arg(long = "role", value_name = "ROLE", value_parser = role)]
    roles: Vec<Role>,
    /// For a person, who may hand it on to agents: without any role
    #[arg(long, conflicts_with = "roles")]
    person: bool,
    /// How long it lives: 90s, 15m, 1h, 7d
    #[arg(long, value_name = "SPAN", value_parser = lifespan::seconds, default_value = "1h")]
    ttl: u64,
}

impl TokenMintCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let tenant = self.tenant.clone();
        let request = self.request();
        let answer = match context.client()?.post("/v1/tokens", &body(&request, tenant.as_ref())).await {
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
            tenant: self.tenant.unwrap_or_else(TenantId::home),
            roles: if self.roles.is_empty() && !self.person { vec![Role::Agent] } else { self.roles },
            budget: self.rights.budget(),
            tools: self.rights.tools,
            scopes: self.rights.scopes,
            limits: self.rights.limits,
            user_did: None,
            session_id: None,
            ttl_seconds: self.ttl,
            act: None,
        }
    }
}

/// Without a tenant the server takes that of the token in use.
fn body(request: &MintRequest, tenant: Option<&TenantId>) -> Value {
    json!({
        "sub": request.sub, "tenant": tenant, "roles": request.roles, "tools": request.tools,
        "scopes": request.scopes, "limits": request.limits, "budget": request.budget,
        "ttl_seconds": request.ttl_seconds,
    })
}

async fn offline(context: &CommandContext, request: &MintRequest) -> Result<Value, CommandFailure> {
    let data_dir = context.data_dir();
    let Some(key) = data_dir.signing_key()? else {
        return Err(CommandFailure::new(format!(
            "no server answers at {}, and `{}` holds no signing key",
            context.server_url(),
            data_dir.path().display()
        ))
        .hint("start a server once with `gantry serve`, or name one with --server or --data-dir"));
    };
    let config = context.config(Vec::new())?;
    // Held while the audit log is written: a server that runs but does not answer must not be written beside.
    let store =
        OpenStore::open(&config.store, data_dir.path()).await.map_err(|error| error.hint("no token was made"))?;
    let (clock, entropy) = (Arc::new(SystemClock::start()), Arc::new(OsEntropy::open()?));
    let token_id = new_token_id_in(&request.tenant, &*entropy);
    let (token, claims) = config
        .identity
        .minter()
        .mint(request, &key.value, token_id, clock.now().0)
        .map_err(|error| CommandFailure::new(error.to_string()).hint("mend the request; no token was made"))?;
    let options = audit_log::options(&config, data_dir.path(), Arc::clone(&clock) as _, Arc::clone(&entropy) as _);
    let log = audit::FileLog::open(&config.audit.dir(data_dir.path()), &options)
        .map_err(|error| CommandFailure::new(error.to_string()).hint("a token that cannot be recorded is not made"))?;
    let record = record(&claims, clock.now(), new_trace_id(&*entropy));
    log.append([record].into())
        .await
        .map_err(|error| CommandFailure::new(error.to_string()).hint("a token that cannot be recorded is not made"))?;
    // The record is durable; a checkpoint that is missing is made when the log is opened again.
    let _ = log.close().await;
    introduce(&*store.access, request, clock.now()).await?;
    store.close().await;
    context.printer.note("no server is running: signed with the data directory's key");
    let expires_at = UnixMillis(claims.exp.saturating_mul(1000)).to_string();
    Ok(json!({ "token": token, "expires_at": expires_at, "jti": claims.jti }))
}

/// Whoever a token is for is thereby introduced to its tenant, as the server does it.
async fn introduce(store: &dyn AccessStore, request: &MintRequest, now: UnixMillis) -> Result<(), CommandFailure> {
    let broken =
        |error: StoreError| CommandFailure::new(error.to_string()).hint("`gantry doctor` looks at the data directory");
    let Some(added_by) = administrator() else { return Ok(()) };
    let state = store.load().await.map_err(broken)?;
    if !request.tenant.is_home() && !state.tenants.iter().any(|record| record.tenant == request.tenant) {
        let tenant = TenantRecord {
            tenant: request.tenant.clone(),
            name: request.tenant.to_string(),
            visibility: None,
            tools: vec![ToolPattern::All],
            enabled: true,
        };
        store.put_tenants(&[tenant]).await.map_err(broken)?;
    }
    let is_it = |record: &AgentRecord| record.tenant == request.tenant && record.agent == request.sub;
    if !state.agents.iter().any(is_it) {
        let agent = AgentRecord {
            tenant: request.tenant.clone(),
            agent: request.sub.clone(),
            document: None,
            added_at: now,
            added_by,
        };
        store.put_agents(&[agent]).await.map_err(broken)?;
    }
    Ok(())
}

fn administrator() -> Option<Subject> {
    "admin".parse().ok()
}

fn record(claims: &TokenClaims, at: UnixMillis, trace_id: contract::ids::TraceId) -> AuditRecord {
    AuditRecord {
        at,
        action: AuditAction::TokenMinted,
        trace_id,
        invocation_id: None,
        // Whoever can read the signing key acts as the administrator.
        who: administrator().map(|subject| {
            Arc::new(RecordedActor {
                tenant: claims.tenant.clone(),
                subject,
                user: None,
                token_id: None,
                chain: Vec::new(),
            })
        }),
        tool: None,
        version: None,
        status: None,
        code: None,
        parameters_digest: None,
        parameters: None,
        judged: None,
        duration_ms: None,
        usage: None,
        cost: None,
        note: Some(format!("jti {} (signed on the command line)", claims.jti)),
    }
}
