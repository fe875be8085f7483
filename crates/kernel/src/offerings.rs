//! Resources and prompts of servers behind Gantry: who may see and ask for them.
//!
//! They are governed as if each server had two pure tools, `NAMESPACE.resources` and `NAMESPACE.prompts`: the tenant must have
//! them, a token must name them, the agent must reach them, and whoever asks for one goes through what a call goes through
//! (`phases::offering`). Every reading leaves a record, and so does the beginning of a watch; listings do not, like those of
//! tools, and are answered from memory (`lists`).
//!
//! Not here: what servers are and how they are asked (`upstreams`), under which names they are shown (the door).

mod lists;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use contract::canonical;
use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::manifest::{Manifest, SideEffectPolicy};
use policy::Caller;
use ports::actor::Actor;
use ports::clock::UnixMillis;
use ports::lifecycle::Lifecycle;
use ports::offerings::{
    OfferedItem, OfferingCaller, OfferingKind, OfferingNotice, OfferingRequest, OfferingServer, ResourceWatch,
    unknown_server,
};
use ports::registry_store::StoredVersion;
use ports::tool_companion::{
    CallListener, CallerAnswer, LogLevel, ProtocolEra, QuestionKind, SilentCompanion, ToolCompanion, ToolProgress,
    ToolQuestion, ToolSnapshot, no_checkpoints, no_documents,
};
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use crate::call_companion::{asks_too_much, is_too_much};
use crate::invoke::Kernel;
use crate::phases::{OfferedTool, OfferingAsked, OfferingCall};

pub(crate) use lists::OfferedLists;

/// Longest time a server may take over one of these. The time that its caller takes to answer is not the server's.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Most of a server's name that a record tells.
const NAME_CHARS_MAX: usize = 128;
/// Servers that are asked for a list at once.
const LISTED_AT_ONCE: usize = 16;

/// What a server's resources, or its prompts, are called where tools are named.
pub fn offering_id(namespace: &str, what: OfferingKind) -> Option<ToolId> {
    let word = match what {
        OfferingKind::Resources | OfferingKind::ResourceTemplates => "resources",
        OfferingKind::Prompts => "prompts",
    };
    ToolId::new((!namespace.is_empty()).then_some(namespace), word).ok()
}

impl Kernel {
    /// The servers that offer something to this caller, in a stable order; each says only what the caller may have of it.
    pub fn offering_servers(&self, caller: &Caller) -> Vec<OfferingServer> {
        let mut servers = self.parts.offerings.servers(caller.tenant());
        for server in &mut servers {
            server.resources = server.resources && self.may_ask(caller, server, OfferingKind::Resources);
            server.prompts = server.prompts && self.may_ask(caller, server, OfferingKind::Prompts);
        }
        servers.retain(|server| server.resources || server.prompts);
        servers.sort();
        servers
    }

    /// Everything of a kind that the caller may see of the servers that are `wanted`, server by server in a stable order. A
    /// server that does not answer is left out: its neighbours are not to blame.
    pub async fn offered(
        &self,
        actor: Actor<'_>,
        what: OfferingKind,
        wanted: impl Fn(&OfferingServer) -> bool + Send,
    ) -> Result<Vec<OfferedItem>, Refusal> {
        let caller = self.recognise(actor).await?;
        let mut servers = self.offering_servers(&caller);
        servers.retain(|server| server.offers(what) && wanted(server));
        let mut listing = JoinSet::new();
        let mut listed = Vec::with_capacity(servers.len());
        for server in servers {
            if listing.len() >= LISTED_AT_ONCE
                && let Some(Ok(one)) = listing.join_next().await
            {
                listed.push(one);
            }
            let (lists, tenant) = (Arc::clone(&self.lists), caller.tenant().clone());
            listing.spawn(async move {
                let items = lists.list(&tenant, &server, what).await;
                (server, items)
            });
        }
        while let Some(one) = listing.join_next().await {
            listed.extend(one.ok());
        }
        listed.sort_by(|left, right| left.0.cmp(&right.0));
        let mut all = Vec::new();
        for (OfferingServer { name: server, namespace, .. }, items) in listed {
            match items {
                Ok(items) => all.extend(items.iter().map(|item| OfferedItem {
                    server: server.clone(),
                    namespace: namespace.clone(),
                    item: item.clone(),
                })),
                Err(refusal) => {
                    tracing::warn!(%server, code = %refusal.code, error = &refusal as &dyn std::error::Error, "what this server offers cannot be listed");
                }
            }
        }
        Ok(all)
    }

    /// Asks one server for a resource, a prompt or a completion, and records that it was asked. What the server asks back
    /// goes to the audience, if there is one.
    pub async fn ask_offering(
        &self,
        actor: Actor<'_>,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        audience: Option<Arc<dyn CallListener>>,
    ) -> Result<Value, Refusal> {
        let caller = self.recognise(actor).await?;
        let asked = self.asked(server, request.method(), judged(&parameters));
        let found = self.offered_by(&caller, server, request.of());
        let asker = asking(&caller);
        let call = OfferingCall::begin(self, actor, Arc::clone(&caller), found, asked).await?;
        let answer = match call.admitted(self) {
            Ok(most) => {
                let moves = Arc::new(AtomicU64::new(0));
                let companion: Arc<dyn ToolCompanion> = match audience {
                    Some(audience) => Arc::new(Questioner { audience, moves: Arc::clone(&moves) }),
                    None => SilentCompanion::new(),
                };
                tokio::select! {
                    answer = self.parts.offerings.ask(&asker, server, request, parameters, &companion) => answer,
                    () = self.run_out_of_patience(&moves) => Err(too_slow(server)),
                    () = self.time_is_up(most) => Err(out_of_time(server)),
                }
            }
            Err(refusal) => Err(refusal),
        };
        call.end(self, answer).await
    }

    /// Watches one resource of a server for the caller, and records that it does.
    pub async fn watch_resource(&self, actor: Actor<'_>, server: &str, uri: &str) -> Result<ResourceWatch, Refusal> {
        let caller = self.recognise(actor).await?;
        let asked = self.asked(server, "resources/subscribe", json!({ "uri": uri }));
        let found = self.offered_by(&caller, server, OfferingKind::Resources);
        let asker = asking(&caller);
        let call = OfferingCall::begin(self, actor, Arc::clone(&caller), found, asked).await?;
        let watch = match call.admitted(self) {
            Ok(most) => tokio::select! {
                watch = self.parts.offerings.watch(&asker, server, uri) => watch,
                () = self.clock().sleep(PATIENCE) => Err(too_slow(server)),
                () = self.time_is_up(most) => Err(out_of_time(server)),
            },
            Err(refusal) => Err(refusal),
        };
        let (watch, ended) = match watch {
            Ok(watch) => (Some(watch), Ok(Value::Null)),
            Err(refusal) => (None, Err(refusal)),
        };
        call.end(self, ended).await?;
        watch.ok_or_else(|| unknown_server(server))
    }

    /// What changes on any server from now on. Whoever follows holds it against what its own caller may see.
    pub fn offering_notices(&self) -> broadcast::Receiver<OfferingNotice> {
        self.parts.offerings.notices()
    }

    /// Comes back when the server has done nothing for [`PATIENCE`]. `moves` is odd while its caller is asked.
    async fn run_out_of_patience(&self, moves: &AtomicU64) {
        loop {
            let before = moves.load(Ordering::Acquire);
            self.clock().sleep(PATIENCE).await;
            if before.is_multiple_of(2) && moves.load(Ordering::Acquire) == before {
                return;
            }
        }
    }

    /// Comes back when so much time is over, if there is such a bound.
    async fn time_is_up(&self, most: Option<Duration>) {
        match most {
            Some(most) => self.clock().sleep(most).await,
            None => std::future::pending().await,
        }
    }

    /// How the record tells of it. What somebody calls a server may be something that must not be seen.
    fn asked(&self, server: &str, method: &str, arguments: Value) -> OfferingAsked {
        let server: String = server.chars().take(NAME_CHARS_MAX).collect();
        let note = self.parts.redactor.text(&format!("{method} of server {server}")).into_owned();
        OfferingAsked { note, arguments }
    }

    /// What a server offers, as the tool it stands for, if it is there for this caller.
    fn offered_by(&self, caller: &Caller, server: &str, what: OfferingKind) -> Result<OfferedTool, Refusal> {
        // The same words whether there is none or it is not for this caller.
        let known = self.parts.offerings.servers(caller.tenant()).into_iter().find(|known| known.name == server);
        let known = known
            .filter(|known| known.offers(what) && self.may_ask(caller, known, what))
            .ok_or_else(|| unknown_server(server))?;
        Ok(OfferedTool {
            tool: Arc::new(offering_tool(&known, what)?),
            origin: self.parts.offerings.origin(caller.tenant(), &known.name)?,
            access: self.access().snapshot().clone(),
        })
    }

    fn may_ask(&self, caller: &Caller, server: &OfferingServer, what: OfferingKind) -> bool {
        let Some(id) = offering_id(&server.namespace, what) else { return false };
        let access = self.access().snapshot().clone();
        let subjects = std::iter::once(caller.subject()).chain(caller.chain().iter().map(|link| &link.sub));
        caller.names(&id)
            && subjects
                .map(|subject| access.view(caller.tenant(), subject))
                .all(|view| view.has(&server.owner, &id) && view.reach(&id, &[], || SideEffectPolicy::Pure).is_ok())
    }
}

/// What a server's resources, or its prompts, are to policies: a tool of that server that changes nothing.
fn offering_tool(server: &OfferingServer, what: OfferingKind) -> Result<ToolVersion, Refusal> {
    let unusable = || Refusal::new(ErrorCode::E3000, format!("what `{}` offers cannot be judged", server.name));
    let id = offering_id(&server.namespace, what).ok_or_else(unusable)?;
    let mut document = json!({
        "tool_id": id.local(), "version": "1.0.0", "name": id, "provider": server.name, "protocol": "mcp",
        "description": "What an MCP server offers besides its tools.",
        "tags": ["mcp", format!("server:{}", server.name)], "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object" }, "result_schema": {},
    });
    if let (Some(namespace), Some(members)) = (id.namespace(), document.as_object_mut()) {
        members.insert("namespace".to_owned(), json!(namespace));
    }
    let digest = canonical::digest(&document);
    let manifest = Manifest::from_value(document).map_err(|error| {
        tracing::error!(server = server.name, %error, "what a server offers has no manifest");
        unusable()
    })?;
    Ok(ToolVersion::new(StoredVersion {
        tenant: server.owner.clone(),
        tool: id,
        version: manifest.version.clone(),
        manifest,
        digest,
        lifecycle: Lifecycle::default(),
        published_at: UnixMillis::default(),
        published_by: server.owner.as_str().parse().map_err(|_| unusable())?,
    }))
}

/// What is asked, as limits of tokens and policies hear of it: a completion is about what it names.
fn judged(parameters: &Value) -> Value {
    let mut arguments = parameters.clone();
    if let (Some(members), Some(about)) = (arguments.as_object_mut(), parameters.get("ref")) {
        for word in ["uri", "name"] {
            if let Some(named) = about.get(word) {
                members.insert(word.to_owned(), named.clone());
            }
        }
    }
    arguments
}

/// Whose turn it is at the server.
fn asking(caller: &Caller) -> OfferingCaller {
    OfferingCaller { tenant: caller.tenant().clone(), agent: caller.root_subject().clone() }
}

fn out_of_time(server: &str) -> Refusal {
    Refusal::new(ErrorCode::E3402, format!("server `{server}` did not answer in the time that was left"))
        .hint("a policy or the end of the token leaves no more time")
}

fn too_slow(server: &str) -> Refusal {
    Refusal::new(ErrorCode::E3503, format!("server `{server}` did not answer within {} s", PATIENCE.as_secs()))
        .hint(format!("`gantry server logs {server}` may tell why"))
}

/// Passes on what a server asks, within the bounds of every tool; what it says besides is not passed on.
#[derive(Debug)]
struct Questioner {
    audience: Arc<dyn CallListener>,
    /// Counts beginnings and ends of questions.
    moves: Arc<AtomicU64>,
}

#[async_trait]
impl ToolCompanion for Questioner {
    fn progress(&self, _: ToolProgress) {}
    fn log(&self, _: LogLevel, _: &str) {}
    async fn checkpoint(&self, _: ToolSnapshot) -> Result<String, Refusal> {
        Err(no_checkpoints())
    }
    async fn document(&self, _: &str) -> Result<Value, Refusal> {
        Err(no_documents())
    }
    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        self.audience.can_be_asked()
    }
    fn era(&self) -> Option<ProtocolEra> {
        self.audience.era()
    }
    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        if is_too_much(&questions) {
            return Err(asks_too_much());
        }
        self.moves.fetch_add(1, Ordering::AcqRel);
        let answers = self.audience.ask(questions).await;
        self.moves.fetch_add(1, Ordering::AcqRel);
        answers
    }
}
