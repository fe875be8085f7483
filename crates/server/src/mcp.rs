//! The MCP door: `/mcp` and `/mcp/{toolset}` over Streamable HTTP, and standard input and output for clients that start
//! their servers themselves. (MCP-017, VIS-010…014, LAZY, API-010)
//!
//! `rmcp` knows the protocol and its revisions; this knows who is calling, what it is offered and how a call is carried.
//!
//! ```text
//! front (token, origin, session, body) ─▶ rmcp (revision, headers, streams) ─▶ handler ─┬▶ tool_list, resources, lazy
//!                                                                                       ├▶ tools_call, offering_rounds ─▶ rounds ─▶ running_call ─▶ kernel
//!                                                                                       ├▶ earlier_tasks ─▶ tasks ─▶ jobs
//!                                                                                       └▶ subscriptions ─▶ changes of the catalogue and of servers
//! ```
//!
//! The native model is revision 2026-07-28, without sessions: every request stands for itself. Older revisions have sessions,
//! which are bounded and bound to whoever made them (`sessions`) and may go on at another instance (`session_transfer`). What a tool asks while it runs goes back as a request
//! (older) or as a result that says "input required", and the call waits for the answer (`waiting_calls`).
//!
//! Invariants
//! - MCP-A: nobody without a token sees anything, and each request shows its own; a session proves nothing.
//! - MCP-B: what is listed is a function of credential and path. What is called goes through `Kernel::invoke`, whatever it
//!   was called by.
//! - MCP-C: tokens meant for Gantry end here: `rmcp` and everything behind never sees one.
//! - MCP-D: every table (sessions, listeners, waiting calls, parked results, remembered lists) has a bound with a name.
//!
//! Not here: MCP servers behind Gantry (`upstreams`).

use std::sync::{Arc, OnceLock};

use contract::canonical::Digest;
use fair_places::PlaceUsage;
use kernel::{Kernel, Principal};
use tokio_util::sync::CancellationToken;

use crate::incoming_request::CallerCredential;

mod addresses;
mod call_logs;
mod call_meta;
mod call_status;
mod change_notifier;
mod client_state;
pub(crate) mod config;
mod detached_calls;
mod earlier_tasks;
pub(crate) mod front;
mod handler;
mod lazy;
mod names;
mod offering_relay;
mod offering_rounds;
mod pages;
mod quota;
mod resources;
mod result_fit;
mod result_presenter;
mod results;
mod rounds;
mod running_call;
mod seal;
mod session_ids;
mod session_transfer;
mod sessions;
mod stdio;
mod stdio_transport;
mod strict_message;
mod subscriptions;
mod tasks;
mod to_wire;
mod tool_list;
mod tools_call;
mod waiting_calls;

pub use session_ids::SessionKey;
pub use stdio::{StdioError, serve_stdio};

use change_notifier::ChangeNotifier;
use config::McpConfig;
use quota::McpQuota;
use results::ParkedResults;
use seal::StateSeal;
use session_ids::SessionIds;
use sessions::SessionTable;
use tasks::TaskQuestions;
use tool_list::{ListingCache, ToolListing};
use waiting_calls::WaitingCalls;

/// What the door remembers between two requests.
#[derive(Debug)]
pub(crate) struct McpDoor {
    pub(crate) config: McpConfig,
    listings: ListingCache,
    sessions: Arc<SessionTable>,
    waiting: Arc<WaitingCalls>,
    task_questions: Arc<TaskQuestions>,
    results: ParkedResults,
    changes: Arc<ChangeNotifier>,
    seal: StateSeal,
    /// There if sessions may go on at other instances.
    session_ids: Option<SessionIds>,
    listeners: McpQuota,
    /// Ends streams that only listen.
    ending: CancellationToken,
}

/// Who asks, and through which door.
#[derive(Debug, Clone)]
pub(crate) struct McpVisit {
    pub(crate) who: CallerCredential,
    pub(crate) caller: Arc<Principal>,
    pub(crate) toolset: Option<Arc<str>>,
    /// Does an older client ask for a task (`task` in its call)?
    pub(crate) as_task: bool,
    /// The scope that a refused call lacked, for the challenge in the answer.
    pub(crate) lacks: Arc<OnceLock<String>>,
    /// What it was offered when it began to listen: changes are told from there.
    pub(crate) seen: Arc<OnceLock<Digest>>,
}

/// How much the door holds at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpState {
    /// Sessions of older clients.
    pub sessions: usize,
    /// Clients that wait to be told of changes.
    pub listeners: usize,
    /// Calls that wait for an answer of their caller.
    pub waiting_calls: usize,
    /// Results that wait to be fetched.
    pub parked_results: usize,
    /// Their bytes.
    pub parked_bytes: usize,
    /// How many had to make room for others before their time was over, since the start.
    pub parked_evicted: u64,
    /// Lists that are remembered.
    pub listings: usize,
}

impl McpState {
    /// As Prometheus reads it.
    pub(crate) fn text(&self) -> String {
        let gauges = [
            ("sessions", "Sessions of older MCP clients.", self.sessions),
            ("listeners", "MCP clients that wait to be told of changes.", self.listeners),
            ("waiting_calls", "Calls that wait for an answer of their caller.", self.waiting_calls),
            ("parked_results", "Large results that wait to be fetched.", self.parked_results),
            ("parked_result_bytes", "Bytes of large results that wait to be fetched.", self.parked_bytes),
            ("listings", "Lists of tools that are remembered.", self.listings),
        ];
        let line = |(name, about, value): (&str, &str, usize)| {
            format!("# HELP gantry_mcp_{name} {about}\n# TYPE gantry_mcp_{name} gauge\ngantry_mcp_{name} {value}\n")
        };
        let evicted = format!(
            "# HELP gantry_mcp_parked_results_evicted Large results that made room before their time was over.\n\
             # TYPE gantry_mcp_parked_results_evicted counter\ngantry_mcp_parked_results_evicted_total {}\n",
            self.parked_evicted
        );
        gauges.into_iter().map(line).collect::<String>() + &evicted
    }
}

impl McpDoor {
    /// Whose sessions may go on at every instance with this key, if there is one.
    pub(crate) fn new(config: McpConfig, key: Option<&SessionKey>, kernel: &Kernel) -> Self {
        Self {
            listings: ListingCache::default(),
            sessions: Arc::new(SessionTable::new(&config)),
            waiting: Arc::default(),
            task_questions: Arc::default(),
            results: ParkedResults::default(),
            changes: Arc::default(),
            seal: StateSeal::new(kernel.entropy()),
            session_ids: key.map(SessionIds::new),
            listeners: McpQuota::new(config.listeners_max, config.listeners_per_principal_max),
            ending: CancellationToken::new(),
            config,
        }
    }

    fn session_ids(&self) -> Option<&SessionIds> {
        self.session_ids.as_ref()
    }

    /// Ends everything that would otherwise never end. Calls go on.
    pub(crate) fn end(&self) {
        self.ending.cancel();
    }

    pub(crate) async fn state(&self) -> McpState {
        let (parked_results, parked_bytes) = self.results.held();
        McpState {
            sessions: self.sessions.count().await,
            listeners: self.changes.listeners(),
            waiting_calls: self.waiting.count(),
            parked_results,
            parked_bytes,
            parked_evicted: self.results.evicted(),
            listings: self.listings.remembered().0,
        }
    }

    /// How many of the places for sessions and for listeners are taken.
    pub(crate) fn places(&self) -> (PlaceUsage, PlaceUsage) {
        (self.sessions.usage(), self.listeners.usage())
    }

    fn listing(&self, kernel: &Kernel, visit: &McpVisit) -> Arc<ToolListing> {
        self.listings.get(kernel, &self.config, visit.caller.caller(), visit.toolset.as_ref())
    }
}
