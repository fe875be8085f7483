//! A connection to one server behind Gantry: requests that are multiplexed over it, and how to begin and end it.
//!
//! ```text
//! ConnectionLine ──▶ stdio │ streamable │ legacy_sse ──▶ server
//!      ▲                  │ what comes back
//!      └── router ◀───────┘ answers, progress, log lines, questions
//! ```
//!
//! Invariants
//! - UCONN-1: dropping the future of a request ends it for the server too, and leaves the connection as good as before. One
//!   that has not left yet never does (`departure`).
//! - UCONN-2: a caller's own token is nowhere on this side; what a server is shown comes from its own specification.
//!
//! Not here: when to connect and when to give up (`supervisor`), what a result means (`executor`).

mod call_traffic;
mod departure;
pub(crate) mod handshake;
pub(crate) mod legacy_sse;
mod long_line;
pub(crate) mod outbound;
mod process_tree;
pub(crate) mod router;
mod server_usage;
pub(crate) mod stdio;
pub(crate) mod streamable;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use ports::clock::Clock;
use ports::executor::CallDispatch;
use ports::tool_companion::{LogSeverity, ToolCompanion};
use serde_json::{Map, Value, json};

use crate::fault::UpstreamFault;
use crate::wire::{self, CallId};
pub(crate) use call_traffic::CallTraffic;
use handshake::OPERATORS_LOG;
pub use handshake::ProtocolEra;
pub(crate) use handshake::{ExpectedEra, MetServer};
use router::{MessageRouter, QuestionAnswers};
pub(crate) use server_usage::CallMeter;
use server_usage::ServerMeter;

/// Longest message of a server, in bytes: the largest result that any tool may have, and what stands around it. A longer one
/// is not kept, and the call whose answer it was is told so; if nobody can say whose it was, it ends the connection.
pub(crate) const MESSAGE_BYTES_MAX: usize = 33 << 20;

/// What a server may take to set the level of its log; the call that wants it goes on after that.
const LOG_PATIENCE: Duration = Duration::from_secs(5);

/// How long a server may take to go, step by step; each comes only if the one before was ignored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopGrace {
    /// By itself, once it has been asked: its input has ended.
    pub(crate) asked: Duration,
    /// Once it has been told: by SIGTERM. None: it is not told.
    pub(crate) told: Duration,
}

impl StopGrace {
    /// By force, without a word.
    pub(crate) const AT_ONCE: Self = Self { asked: Duration::ZERO, told: Duration::ZERO };
}

/// One request as a channel sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) id: CallId,
    pub(crate) method: &'a str,
    pub(crate) params: &'a Value,
    /// Of the tool that is called, for the headers that repeat its arguments.
    pub(crate) schema: Option<&'a Value>,
}

impl OutgoingRequest<'_> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        wire::request(self.id, self.method, self.params)
    }
}

/// A way to a server and back.
#[async_trait]
pub(crate) trait ServerChannel: Send + Sync + fmt::Debug {
    /// Sends a request and waits for its answer. Dropping the future must leave the channel usable.
    async fn exchange(&self, router: &MessageRouter, request: OutgoingRequest<'_>) -> Result<Value, UpstreamFault>;

    /// Sends what wants no answer: a notification, or our answer to a question.
    async fn tell(&self, message: Vec<u8>) -> Result<(), UpstreamFault>;

    /// Tells the server that a request is over. Never waits, and may fail silently.
    fn cancelled(&self, message: Vec<u8>);

    /// What the handshake found out: the revision both sides speak.
    fn agreed(&self, _met: &MetServer) {}

    /// From here on what the server says by itself is heard, if that needs anything to be done.
    fn listen(&self, _router: &Arc<MessageRouter>) {}

    /// Ends it, by asking, by telling, by force. Comes back when nothing is left.
    async fn close(&self, ending: StopGrace);

    /// The process behind it, if there is one here.
    fn process(&self) -> Option<u32> {
        None
    }

    /// Who counts what calls use of that process.
    fn meter(&self) -> Option<&ServerMeter> {
        None
    }
}

/// A server that has been met.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    router: Arc<MessageRouter>,
    channel: Arc<dyn ServerChannel>,
    met: MetServer,
    clock: Arc<dyn Clock>,
    /// The least severity that a server of the older kind was asked for.
    log: Mutex<Option<LogSeverity>>,
}

impl ServerConnection {
    /// Meets the server at the other end of a channel.
    pub(crate) async fn meet(
        (router, answers): (Arc<MessageRouter>, QuestionAnswers),
        channel: Arc<dyn ServerChannel>,
        clock: Arc<dyn Clock>,
        expected: ExpectedEra,
        introduction: &handshake::ClientIntroduction,
    ) -> Result<Self, UpstreamFault> {
        tokio::spawn(answers.leave_through(Arc::downgrade(&channel)));
        let line = ConnectionLine { router: &router, channel: &*channel };
        let met = handshake::meet(line, &*clock, expected, introduction).await?;
        channel.listen(&router);
        Ok(Self { router, channel, met, clock, log: Mutex::default() })
    }

    /// What the server said of itself.
    pub(crate) fn met(&self) -> &MetServer {
        &self.met
    }

    pub(crate) fn process(&self) -> Option<u32> {
        self.channel.process()
    }

    /// Counts a call from here on, if the server is a program of ours.
    pub(crate) fn metered(&self) -> Option<Arc<CallMeter>> {
        self.channel.meter().map(ServerMeter::begin)
    }

    /// Asks and waits. The wait is bounded by whoever drops the future.
    pub(crate) async fn request(&self, method: &str, mut params: Value) -> Result<Value, UpstreamFault> {
        self.met.introduce(&mut params);
        self.line().request(method, params, None, RequestAsker::default()).await
    }

    /// The same within a time of its own.
    pub(crate) async fn request_within(
        &self,
        span: Duration,
        method: &str,
        params: Value,
    ) -> Result<Value, UpstreamFault> {
        within(&*self.clock, span, self.request(method, params)).await.unwrap_or(Err(UpstreamFault::Late))
    }

    /// Calls a tool once. Its progress, log lines and questions go to the companion.
    pub(crate) async fn call(
        &self,
        mut params: Value,
        schema: Option<&Value>,
        companion: &Arc<dyn ToolCompanion>,
        (traffic, dispatch): (&Arc<CallTraffic>, Option<&Arc<CallDispatch>>),
    ) -> Result<Value, UpstreamFault> {
        self.met.introduce_with(&mut params, companion.can_be_asked());
        let wanted = companion.wanted_log();
        self.met.ask_for_log(&mut params, wanted);
        if let Some(wanted) = wanted {
            self.lower_log(wanted).await;
        }
        let (traffic, dispatch) = (Some(Arc::clone(traffic)), dispatch.map(Arc::clone));
        let asker = RequestAsker { companion: Some(Arc::clone(companion)), traffic, dispatch };
        self.line().request("tools/call", params, schema, asker).await
    }

    /// Has a server that writes one log for everybody write what this caller wants to hear, too.
    async fn lower_log(&self, wanted: LogSeverity) {
        let level = wanted.min(OPERATORS_LOG);
        {
            let mut asked = self.log.lock_unpoisoned();
            if !self.met.lets_set_log() || asked.is_some_and(|asked| asked <= level) {
                return;
            }
            *asked = Some(level);
        }
        let params = json!({ "level": level.as_str() });
        if let Err(fault) = self.request_within(LOG_PATIENCE, "logging/setLevel", params).await {
            tracing::debug!(%fault, "a server does not let the level of its log be set");
        }
    }

    /// Asks something else once; questions go to the companion.
    pub(crate) async fn ask(
        &self,
        method: &str,
        mut params: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, UpstreamFault> {
        self.met.introduce_with(&mut params, companion.can_be_asked());
        let asker = RequestAsker { companion: Some(Arc::clone(companion)), ..RequestAsker::default() };
        self.line().request(method, params, None, asker).await
    }

    /// Is it there (MCP-013)?
    pub(crate) async fn heartbeat(&self, patience: Duration) -> Result<(), UpstreamFault> {
        let method = match self.met.era {
            ProtocolEra::Modern => "server/discover",
            ProtocolEra::Legacy => "ping",
        };
        match self.request_within(patience, method, json!({})).await {
            // It knows no ping, and says so: it is there.
            Ok(_) | Err(UpstreamFault::Refused { .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Follows changes of the lists of a server that tells them only to those who ask (2026-07-28). Ends with the connection.
    pub(crate) async fn follow_changes(&self) {
        if self.met.era == ProtocolEra::Modern
            && let Some(changes) = self.met.told_changes()
        {
            let params = json!({ "notifications": changes });
            if let Err(fault) = self.request("subscriptions/listen", params).await {
                tracing::debug!(%fault, "changes of what a server offers are not told");
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.router.why_ended().is_none()
    }

    pub(crate) fn why_ended(&self) -> Option<&'static str> {
        self.router.why_ended()
    }

    pub(crate) async fn ended(&self) {
        self.router.ended().await;
    }

    /// It is of no more use.
    pub(crate) fn give_up(&self, why: &'static str) {
        self.router.end(why);
    }

    pub(crate) async fn close(&self, ending: StopGrace) {
        self.channel.close(ending).await;
        self.router.end("the connection was closed");
    }

    fn line(&self) -> ConnectionLine<'_> {
        ConnectionLine { router: &self.router, channel: &*self.channel }
    }
}

/// On whose behalf something is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestAsker {
    /// Hears progress, log lines and questions.
    pub(crate) companion: Option<Arc<dyn ToolCompanion>>,
    /// Counts what goes out and comes back.
    pub(crate) traffic: Option<Arc<CallTraffic>>,
    /// Released when the first byte leaves.
    pub(crate) dispatch: Option<Arc<CallDispatch>>,
}

/// A router and its channel, for as long as something is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLine<'a> {
    pub(crate) router: &'a MessageRouter,
    pub(crate) channel: &'a dyn ServerChannel,
}

impl ConnectionLine<'_> {
    pub(crate) async fn request(
        self,
        method: &str,
        mut params: Value,
        schema: Option<&Value>,
        asker: RequestAsker,
    ) -> Result<Value, UpstreamFault> {
        let has_companion = asker.companion.is_some();
        let id = self.router.begin(asker)?;
        // These two are never taken back: a server that does not know the first would hear of a request it has forgotten, and
        // the second must not be.
        let mut asking =
            PendingRequest { line: self, id, answered: matches!(method, "server/discover" | "initialize") };
        if has_companion && let Some(meta) = meta(&mut params) {
            meta.insert("progressToken".to_owned(), json!(id));
        }
        let outcome = self.channel.exchange(self.router, OutgoingRequest { id, method, params: &params, schema }).await;
        // After a fault the other side has nothing more to say about it either.
        asking.answered = true;
        outcome
    }
}

/// UCONN-1: a request that is dropped before its answer came is taken back.
struct PendingRequest<'a> {
    line: ConnectionLine<'a>,
    id: CallId,
    answered: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let was_sent = self.line.router.over(self.id);
        if !self.answered && was_sent {
            let params = json!({ "requestId": self.id, "reason": "the caller does not wait any more" });
            self.line.channel.cancelled(wire::notification("notifications/cancelled", Some(&params)));
        }
    }
}

/// The `_meta` of some parameters.
pub(crate) fn meta(params: &mut Value) -> Option<&mut Map<String, Value>> {
    let meta = params.as_object_mut()?.entry("_meta").or_insert_with(|| json!({}));
    meta.as_object_mut()
}

/// The outcome of a future, if it comes in time.
pub(crate) async fn within<T>(clock: &dyn Clock, span: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        outcome = future => Some(outcome),
        () = clock.sleep(span) => None,
    }
}
