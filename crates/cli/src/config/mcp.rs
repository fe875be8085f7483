//! `[mcp]`: the door for MCP clients. How tools are shown to models is said in `[tools]`.
//!
//! The limits themselves, with their ranges, belong to the `server` crate; this section only names them for people.

use std::collections::BTreeMap;

use policy::ToolPattern;
use schemars::JsonSchema;
use serde::Deserialize;
use server::{McpConfig, McpMode};

use super::named_lists::NamedTools;
use super::problems::SectionProblems;
use super::section::ConfigSection;

/// The door for MCP clients.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct McpKeys {
    /// `full`: tools are found and called. `discovery`: they are found only; `tools/call` is not there.
    pub(super) mode: McpMode,
    /// Parts of the catalogue with a path of their own: `[mcp.toolsets.research]` with `tools = ["web.*", "calculator"]` is
    /// at `/mcp/research`. A toolset never gives more than the token. In the environment
    /// `research=web.*|calculator,other=…`.
    pub(super) toolsets: NamedTools,
    /// Web pages that may talk to the MCP door, besides those on a loopback address: `https://app.example.com`.
    pub(super) allowed_origins: Vec<String>,
    /// Names under which MCP clients find this server, besides the loopback ones and those of `[server] allowed_hosts`;
    /// without port. Asked for when the server listens on a loopback address, or when there is any.
    pub(super) allowed_hosts: Vec<String>,
    /// Tools above which `exposure = "auto"` becomes lazy.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) auto_tools_max: usize,
    /// Tokens of the whole list, estimated, above which `exposure = "auto"` becomes lazy.
    #[schemars(range(min = 100, max = 100_000_000))]
    pub(super) auto_tokens_max: usize,
    /// Tokens of one answer of `search_tools`. At the limit fewer hits are told.
    #[schemars(range(min = 200, max = 1_000_000))]
    pub(super) search_tokens_max: usize,
    /// Tools on one page of `tools/list`.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) page_size: usize,
    /// Milliseconds that clients may keep a list.
    #[schemars(range(min = 0, max = 86_400_000))]
    pub(super) list_ttl_ms: u64,
    /// Sessions of older clients, of one tenant alone three quarters. At the limit a new one is refused: E3001.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sessions_max: usize,
    /// Of these, those of one agent, names it made by token exchange included. At the limit a new one is refused: E3003.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) sessions_per_principal_max: usize,
    /// Milliseconds after which a session that nobody uses is closed.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub(super) session_idle_ms: u64,
    /// Streams that only listen, of one tenant alone three quarters. At the limit a new one is refused: E3001.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) listeners_max: usize,
    /// Of these, those of one agent, names it made by token exchange included. At the limit a new one is refused: E3003.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) listeners_per_principal_max: usize,
    /// Calls that wait for an answer of their caller. At the limit no more is asked: E3001.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) questions_max: usize,
    /// Milliseconds that a caller has to answer what a tool asks. At the limit the call is cancelled.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub(super) answer_ms: u64,
    /// Bytes of texts and structure of a result that are given at once. A part that does not fit becomes a preview and a
    /// link to the whole of it. A call can say another number (`_meta`, `dev.gantry/result_bytes`).
    #[schemars(range(min = 1_024, max = 67_108_864))]
    pub(super) result_bytes_max: usize,
    /// Bytes of pictures, sounds and files of a result, in base64 as they are sent, that are given at once. One that does
    /// not fit becomes a link to the whole of it, with its type; it is never cut.
    #[schemars(range(min = 0, max = 67_108_864), extend("x-since" = "0.3"))]
    pub(super) media_bytes_max: usize,
    /// Bytes of all results that wait to be fetched. At the limit the oldest of the agent that holds most, in the tenant
    /// that does, make room.
    #[schemars(range(min = 0, max = 17_179_869_184_u64))]
    pub(super) parked_bytes_max: usize,
    /// Milliseconds that such a result waits.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub(super) parked_ms: u64,
    /// Tools (`video.*`, `render`) whose calls are MCP tasks from the beginning, for clients that can take them. Other
    /// calls become tasks when they outlive `[jobs] promote_after_seconds`; tools of the timeout class `async` that are not
    /// of an MCP server are always here.
    pub(super) tasks_at_once: Vec<String>,
    /// The same, and an MCP client that cannot take a task is refused instead of kept waiting.
    pub(super) tasks_required: Vec<String>,
}

impl Default for McpKeys {
    fn default() -> Self {
        let usual = McpConfig::default();
        Self {
            mode: usual.mode,
            toolsets: NamedTools::default(),
            allowed_origins: usual.allowed_origins,
            allowed_hosts: usual.allowed_hosts,
            auto_tools_max: usual.auto_tools_max,
            auto_tokens_max: usual.auto_tokens_max,
            search_tokens_max: usual.search_tokens_max,
            page_size: usual.page_size,
            list_ttl_ms: usual.list_ttl_ms,
            sessions_max: usual.sessions_max,
            sessions_per_principal_max: usual.sessions_per_principal_max,
            session_idle_ms: usual.session_idle_ms,
            listeners_max: usual.listeners_max,
            listeners_per_principal_max: usual.listeners_per_principal_max,
            questions_max: usual.questions_max,
            answer_ms: usual.answer_ms,
            result_bytes_max: usual.result_bytes_max,
            media_bytes_max: usual.media_bytes_max,
            parked_bytes_max: usual.parked_bytes_max,
            parked_ms: usual.parked_ms,
            tasks_at_once: Vec::new(),
            tasks_required: Vec::new(),
        }
    }
}

impl ConfigSection for McpKeys {
    const NAME: &'static str = "mcp";
    type Checked = McpConfig;

    fn checked(self, problems: &mut SectionProblems<'_>) -> McpConfig {
        let config = McpConfig {
            mode: self.mode,
            auto_tools_max: self.auto_tools_max,
            auto_tokens_max: self.auto_tokens_max,
            search_tokens_max: self.search_tokens_max,
            page_size: self.page_size,
            list_ttl_ms: self.list_ttl_ms,
            sessions_max: self.sessions_max,
            sessions_per_principal_max: self.sessions_per_principal_max,
            session_idle_ms: self.session_idle_ms,
            listeners_max: self.listeners_max,
            listeners_per_principal_max: self.listeners_per_principal_max,
            questions_max: self.questions_max,
            answer_ms: self.answer_ms,
            result_bytes_max: self.result_bytes_max,
            media_bytes_max: self.media_bytes_max,
            parked_bytes_max: self.parked_bytes_max,
            parked_ms: self.parked_ms,
            allowed_origins: self.allowed_origins,
            allowed_hosts: self.allowed_hosts,
            toolsets: toolsets(&self.toolsets, problems),
            tasks_at_once: problems.each("tasks_at_once", &self.tasks_at_once),
            tasks_required: problems.each("tasks_required", &self.tasks_required),
            // It stands in `[tools]`.
            exposure: McpConfig::default().exposure,
        };
        if let Err(error) = config.validate() {
            problems.at_section(error.to_string());
        }
        config
    }
}

/// Each name with its patterns; each pattern that is none is a problem of its own.
fn toolsets(lists: &NamedTools, problems: &mut SectionProblems<'_>) -> BTreeMap<String, Vec<ToolPattern>> {
    let mut sets: BTreeMap<String, Vec<ToolPattern>> = BTreeMap::new();
    for (name, texts) in &lists.0 {
        let set = sets.entry(name.clone()).or_default();
        for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
            match text.parse() {
                Ok(pattern) => set.push(pattern),
                Err(error) => problems.at_place(format!("[mcp.toolsets.{name}] tools"), format!("`{text}`: {error}")),
            }
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::super::GantryConfig;
    use super::super::section_tests::{of_file, of_variables};
    use super::super::settings::ConfigFile;
    use super::*;

    #[test]
    fn what_is_unset_is_the_servers_own_default() {
        assert_eq!(of_file::<McpKeys>(""), (McpConfig::default(), Vec::new()));
    }

    #[test]
    fn toolsets_are_read_by_name() {
        let (read, problems) =
            of_file::<McpKeys>("[mcp.toolsets.research]\ntools = ['web.*', 'calculator']\n[mcp.toolsets]\nempty = []");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(read.toolsets.keys().collect::<Vec<_>>(), ["empty", "research"]);
        assert_eq!(read.toolsets["research"].len(), 2);
        let (read, _) = of_variables::<McpKeys>(&[("TOOLSETS", "a=web.*|calculator, b=demo.*")]);
        assert_eq!(read.toolsets["a"].len(), 2);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, word) in [
            ("[mcp.toolsets.a]\ntools = ['no pattern']", "[mcp.toolsets.a] tools: `no pattern`"),
            ("[mcp.toolsets.a]\ntool = ['x']", "[mcp] toolsets"),
            ("[mcp]\ntoolsets = ['a']", "[mcp] toolsets"),
            ("[mcp]\npage_sise = 3", "did you mean"),
            ("[mcp]\ntasks_at_once = ['no pattern']", "[mcp] tasks_at_once: `no pattern`"),
            ("[mcp]\nallowed_origins = ['nowhere']", "`nowhere` is no origin"),
            ("[tools]\nexposure = 'some'", "one of all, lazy, auto"),
        ] {
            let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: text.into() };
            let problems = GantryConfig::from_sources(Some(&file), &BTreeMap::new(), Vec::new()).unwrap_err();
            assert!(problems.len() == 1 && problems[0].to_string().contains(word), "{text}: {problems:?}");
        }
    }
}
