//! Meeting a server: which revision do both sides speak?
//!
//! Revision 2026-07-28 has no handshake. It is asked for first (`server/discover`); a server that answers with an error, or
//! not at all, is of the older kind and is met by `initialize`. What was found is remembered by whoever starts the server, so
//! that the question is asked once.
//!
//! Invariants
//! - MEET-1: a connection is used only with a revision that both sides have named (MCP-001).
//! - MEET-2: who we are is the product's name and version (MCP-016), and what we can do is what the operator lets through.

use std::time::Duration;

use ports::clock::Clock;
pub use ports::tool_companion::ProtocolEra;
use ports::tool_companion::{LogSeverity, QuestionKind};
use rmcp::model::ProtocolVersion;
use serde_json::{Map, Value, json};

use super::router::relayed;
use super::{ConnectionLine, RequestAsker, meta, within};
use crate::fault::{HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION, UpstreamFault};
use crate::spec::RelayedQuestions;
use crate::wire::{self, RpcError};

/// What a server may take to answer the question about its revision before it counts as old.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(5);
/// Where a request of 2026-07-28 says what its sender can be asked.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The least severity that the log of a call has, whatever its caller wants to hear.
pub(crate) const OPERATORS_LOG: LogSeverity = LogSeverity::Info;
/// Bytes of the details of one such thing; larger ones are left out.
const CAPABILITY_BYTES_MAX: usize = 4 << 10;
/// Codes that only servers of 2026-07-28 know. What they refuse is then not the revision.
const MODERN_REFUSALS: [i64; 2] = [HEADER_MISMATCH, MISSING_CAPABILITY];

/// What is known of a server's era before it is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedEra {
    Nothing,
    /// This one was found the last time.
    Found(ProtocolEra),
    /// It is to be met in this one, or not at all.
    Only(ProtocolEra),
}

/// What we say of ourselves.
#[derive(Debug, Clone)]
pub(crate) struct ClientIntroduction {
    client: Value,
    /// All that is ever passed on; said once where a server hears it once.
    capabilities: Value,
    relay: RelayedQuestions,
}

impl ClientIntroduction {
    pub(crate) fn new(relay: RelayedQuestions) -> Self {
        let mut capabilities = json!({});
        if let Some(members) = capabilities.as_object_mut() {
            for (name, passed_on, value) in [
                ("elicitation", relay.elicitation, json!({ "form": {}, "url": {} })),
                ("sampling", relay.sampling, json!({})),
                ("roots", relay.roots, json!({})),
            ] {
                if passed_on {
                    members.insert(name.to_owned(), value);
                }
            }
        }
        let client = json!({ "name": "gantry", "title": "Gantry", "version": env!("CARGO_PKG_VERSION") });
        Self { client, capabilities, relay }
    }

    /// Of what one caller can be asked that which is passed on.
    fn narrowed(&self, askable: Vec<(QuestionKind, Value)>) -> Value {
        let passed_on = askable.into_iter().filter(|(kind, _)| relayed(self.relay, *kind));
        let named = passed_on.map(|(kind, details)| {
            let small = details.is_object() && details.to_string().len() <= CAPABILITY_BYTES_MAX;
            (capability(kind).to_owned(), if small { details } else { json!({}) })
        });
        Value::Object(named.collect())
    }
}

/// What the protocol calls it that a client can be asked this.
fn capability(kind: QuestionKind) -> &'static str {
    match kind {
        QuestionKind::Elicitation => "elicitation",
        QuestionKind::Sampling => "sampling",
        QuestionKind::Roots => "roots",
    }
}

/// A server that was met.
#[derive(Debug, Clone)]
pub(crate) struct MetServer {
    pub(crate) era: ProtocolEra,
    /// The revision both speak.
    pub(crate) version: String,
    pub(crate) capabilities: Value,
    introduction: ClientIntroduction,
}

impl MetServer {
    /// Each request of 2026-07-28 says who sends it.
    pub(crate) fn introduce(&self, params: &mut Value) {
        if self.era == ProtocolEra::Modern {
            introduce(params, &self.version, &self.introduction);
        }
    }

    /// The same for a request with a caller: nothing is claimed that this caller cannot be asked (MEET-2).
    pub(crate) fn introduce_with(&self, params: &mut Value, askable: Vec<(QuestionKind, Value)>) {
        self.introduce(params);
        if self.era == ProtocolEra::Modern
            && let Some(meta) = meta(params)
        {
            meta.insert(CAPABILITIES.to_owned(), self.introduction.narrowed(askable));
        }
    }

    /// Servers of 2026-07-28 write a log for those requests that ask for one: as much as its caller wants, and what the operator's
    /// log has of every call.
    pub(crate) fn ask_for_log(&self, params: &mut Value, wanted: Option<LogSeverity>) {
        if self.era == ProtocolEra::Modern
            && let Some(meta) = meta(params)
        {
            let level = wanted.map_or(OPERATORS_LOG, |wanted| wanted.min(OPERATORS_LOG));
            meta.insert("io.modelcontextprotocol/logLevel".to_owned(), json!(level.as_str()));
        }
    }

    /// Older ones write one log for everybody, whose level can be set.
    pub(crate) fn lets_set_log(&self) -> bool {
        self.era == ProtocolEra::Legacy && self.capabilities.get("logging").is_some_and(Value::is_object)
    }

    /// Which changes it tells, in the words of a subscription; `None` if it tells none.
    pub(crate) fn told_changes(&self) -> Option<Value> {
        let kinds =
            [("tools", "toolsListChanged"), ("resources", "resourcesListChanged"), ("prompts", "promptsListChanged")];
        let told = |kind: &str| self.capabilities.pointer(&format!("/{kind}/listChanged")) == Some(&Value::Bool(true));
        let all: Map<String, Value> =
            kinds.into_iter().filter(|(kind, _)| told(kind)).map(|(_, word)| (word.to_owned(), json!(true))).collect();
        (!all.is_empty()).then_some(Value::Object(all))
    }

    /// Can its resources be watched?
    pub(crate) fn lets_watch(&self) -> bool {
        self.capabilities.pointer("/resources/subscribe") == Some(&Value::Bool(true))
    }
}

/// Finds out what the server speaks.
pub(super) async fn meet(
    line: ConnectionLine<'_>,
    clock: &dyn Clock,
    expected: ExpectedEra,
    introduction: &ClientIntroduction,
) -> Result<MetServer, UpstreamFault> {
    let mut unheard = false;
    if !matches!(expected, ExpectedEra::Found(ProtocolEra::Legacy) | ExpectedEra::Only(ProtocolEra::Legacy)) {
        match within(clock, DISCOVER_PATIENCE, discover(line, introduction)).await {
            Some(Ok(None)) | None if expected == ExpectedEra::Only(ProtocolEra::Modern) => {
                return Err(UpstreamFault::Version("none of the newer kind".to_owned()));
            }
            Some(Ok(Some(met))) => return Ok(met),
            Some(Err(fault)) => return Err(fault),
            Some(Ok(None)) => {}
            None => unheard = true,
        }
    }
    match initialize(line, introduction).await {
        // Not an old one, then: it was only slow to start, and is asked again now that it answers.
        Err(UpstreamFault::Refused { error, .. })
            if unheard && matches!(error.code, UNSUPPORTED_VERSION | METHOD_NOT_FOUND) =>
        {
            discover(line, introduction).await?.ok_or_else(|| UpstreamFault::from(error))
        }
        outcome => outcome,
    }
}

/// `None`: it is an old one.
async fn discover(
    line: ConnectionLine<'_>,
    introduction: &ClientIntroduction,
) -> Result<Option<MetServer>, UpstreamFault> {
    let version = ProtocolVersion::V_2026_07_28;
    let mut params = json!({});
    introduce(&mut params, version.as_str(), introduction);
    let answer = match line.request("server/discover", params, None, RequestAsker::default()).await {
        Ok(answer) => answer,
        Err(UpstreamFault::Refused { error, .. }) => return refused(error),
        // Over HTTP an old server turns away what it does not know by a status.
        Err(UpstreamFault::Status(400..=499) | UpstreamFault::Nonsense(_)) => return Ok(None),
        Err(fault) => return Err(fault),
    };
    let Some(supported) = answer.get("supportedVersions").and_then(Value::as_array) else {
        return Ok(None);
    };
    if supported.iter().any(|one| one.as_str() == Some(version.as_str())) {
        let capabilities = answer.get("capabilities").cloned().unwrap_or_default();
        let version = version.as_str().to_owned();
        let met = MetServer { era: ProtocolEra::Modern, version, capabilities, introduction: introduction.clone() };
        line.channel.agreed(&met);
        return Ok(Some(met));
    }
    // It knows the question and not the revision. An old one that both know will do.
    if supported.iter().filter_map(Value::as_str).any(is_old) {
        return Ok(None);
    }
    Err(UpstreamFault::Version(named(supported.iter().filter_map(Value::as_str))))
}

fn refused(error: RpcError) -> Result<Option<MetServer>, UpstreamFault> {
    if MODERN_REFUSALS.contains(&error.code) {
        return Err(error.into());
    }
    if error.code == UNSUPPORTED_VERSION {
        let supported = error.data.as_ref().and_then(|data| data.get("supported")).and_then(Value::as_array);
        let supported: Vec<&str> = supported.into_iter().flatten().filter_map(Value::as_str).collect();
        if !supported.is_empty() && !supported.iter().copied().any(is_old) {
            return Err(UpstreamFault::Version(named(supported.into_iter())));
        }
    }
    Ok(None)
}

async fn initialize(line: ConnectionLine<'_>, introduction: &ClientIntroduction) -> Result<MetServer, UpstreamFault> {
    let params = json!({
        "protocolVersion": ProtocolVersion::LATEST_WITH_INITIALIZE.as_str(),
        "capabilities": introduction.capabilities,
        "clientInfo": introduction.client,
    });
    let answer = line.request("initialize", params, None, RequestAsker::default()).await?;
    let version = answer.get("protocolVersion").and_then(Value::as_str).ok_or(UpstreamFault::Nonsense("greeting"))?;
    if !is_old(version) {
        return Err(UpstreamFault::Version(named([version].into_iter())));
    }
    let capabilities = answer.get("capabilities").cloned().unwrap_or_default();
    let version = version.to_owned();
    let met = MetServer { era: ProtocolEra::Legacy, version, capabilities, introduction: introduction.clone() };
    line.channel.agreed(&met);
    line.channel.tell(wire::notification("notifications/initialized", None)).await?;
    Ok(met)
}

fn introduce(params: &mut Value, version: &str, introduction: &ClientIntroduction) {
    let Some(meta) = meta(params) else { return };
    meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(version));
    meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), introduction.client.clone());
    meta.insert(CAPABILITIES.to_owned(), introduction.capabilities.clone());
}

/// A revision with a handshake that we know.
fn is_old(version: &str) -> bool {
    ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .any(|known| known.as_str() == version && *known < ProtocolVersion::NO_INITIALIZE)
}

/// What a server calls its revisions, fit to be shown.
fn named<'a>(versions: impl Iterator<Item = &'a str>) -> String {
    let clean =
        |text: &str| text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(20).collect::<String>();
    versions.take(5).map(clean).collect::<Vec<_>>().join(", ")
}
