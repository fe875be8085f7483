//! Settings of the MCP door: every limit has a name, a unit and a default here, and nowhere else.
//!
//! `cli` fills this from file, environment and flags; [`McpConfig::validate`] names the first key that makes no sense.
//!
//! Not here: limits that both doors share, as those of bodies, headers and concurrent calls ([`crate::ServerConfig`]).

use std::collections::BTreeMap;
use std::time::Duration;

use base::SaturatingFrom as _;
use policy::ToolPattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the door does at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpMode {
    /// Tools can be found and called.
    #[default]
    Full,
    /// Tools can be found; `tools/call` is not there (DESIGN §8.2).
    Discovery,
}

/// How tools are shown to models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolExposure {
    /// Each tool is a tool.
    All,
    /// Three tools that find, describe and call the others.
    Lazy,
    /// `All` for a catalogue that fits, `Lazy` for one that does not.
    #[default]
    Auto,
}

/// Settings of the door. What happens at each limit is said with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpConfig {
    /// Default [`McpMode::Full`].
    pub mode: McpMode,
    /// Default [`ToolExposure::Auto`].
    pub exposure: ToolExposure,
    /// Tools above which `Auto` becomes lazy. Default 60, 1 to 100,000.
    pub auto_tools_max: usize,
    /// Tokens (estimated) of the whole list above which `Auto` becomes lazy. Default 20,000, 100 to 100,000,000.
    pub auto_tokens_max: usize,
    /// Tokens of one answer of `search_tools`. Default 2,000, 200 to 1,000,000. At the limit fewer hits are told.
    pub search_tokens_max: usize,
    /// Tools on one page of `tools/list`. Default 5,000, 1 to 100,000.
    pub page_size: usize,
    /// Milliseconds that clients may keep a list. Default 60,000, 0 to 86,400,000.
    pub list_ttl_ms: u64,
    /// Sessions of older clients. Default 1,000, 1 to 1,000,000. At the limit a new one is refused: 503, E3001.
    pub sessions_max: usize,
    /// Of these, those of one principal. Default 100, 1 to 1,000,000. At the limit a new one is refused: 429, E3003.
    pub sessions_per_principal_max: usize,
    /// Milliseconds after which a session nobody uses is closed. Default 1,800,000, 100 to 86,400,000.
    pub session_idle_ms: u64,
    /// Streams that only listen (`GET`, `subscriptions/listen`). Default 1,000, 1 to 1,000,000. At the limit: 503, E3001.
    pub listeners_max: usize,
    /// Of these, those of one principal. Default 100, 1 to 1,000,000. At the limit: 429, E3003.
    pub listeners_per_principal_max: usize,
    /// Calls that wait for an answer of their caller. Default 256, 1 to 100,000. At the limit the tool is told that nobody
    /// can be asked.
    pub questions_max: usize,
    /// Milliseconds that a caller has to answer. Default 300,000, 100 to 86,400,000. At the limit the call is cancelled.
    pub answer_ms: u64,
    /// Bytes of texts and structure of a result that are given at once. Default 262,144, 1,024 to 67,108,864. What is more
    /// becomes a preview and a link.
    pub result_bytes_max: usize,
    /// Bytes of pictures, sounds and files of a result, as they are sent, that are given at once. Default 16,777,216, 0 to
    /// 67,108,864. What is more becomes a link.
    pub media_bytes_max: usize,
    /// Bytes of all results that wait to be fetched. Default 67,108,864, 0 to 17,179,869,184. At the limit the oldest make room.
    pub parked_bytes_max: usize,
    /// Milliseconds that such a result waits. Default 900,000, 100 to 86,400,000.
    pub parked_ms: u64,
    /// Origins of browsers besides those on a loopback address, for example `https://app.example.com`. At most 100.
    pub allowed_origins: Vec<String>,
    /// Names besides the loopback ones under which clients find this server. Asked for when it listens on a loopback
    /// address, or when there is any. At most 100.
    pub allowed_hosts: Vec<String>,
    /// Which tools are behind `/mcp/{name}`. At most 1,000.
    pub toolsets: BTreeMap<String, Vec<ToolPattern>>,
    /// Tools whose calls are tasks from the beginning, for clients that can take them. At most 1,000.
    pub tasks_at_once: Vec<ToolPattern>,
    /// The same, and clients that cannot take a task are refused. At most 1,000.
    pub tasks_required: Vec<ToolPattern>,
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpConfigError {
    /// A number out of range.
    #[error("mcp.{key} is `{given}`: use {least} to {most}")]
    Range { key: &'static str, given: u64, least: u64, most: u64 },
    /// A list too long.
    #[error("mcp.{key} has {given} entries: use at most {most}")]
    TooMany { key: &'static str, given: usize, most: usize },
    /// A name that cannot stand in a path.
    #[error("mcp.toolsets: `{name}` is no name for a toolset: use `a` to `z`, digits, `-` and `_`, at most 64")]
    Toolset { name: String },
    /// An origin that is none.
    #[error("mcp.allowed_origins: `{given}` is no origin: use `https://host` or `https://host:port`")]
    Origin { given: String },
    /// A host that is none.
    #[error("mcp.allowed_hosts: `{given}` is no host: use a name or address without scheme, port and path")]
    Host { given: String },
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            mode: McpMode::default(),
            exposure: ToolExposure::default(),
            auto_tools_max: 60,
            auto_tokens_max: 20_000,
            search_tokens_max: 2_000,
            page_size: 5_000,
            list_ttl_ms: 60_000,
            sessions_max: 1_000,
            sessions_per_principal_max: 100,
            session_idle_ms: 1_800_000,
            listeners_max: 1_000,
            listeners_per_principal_max: 100,
            questions_max: 256,
            answer_ms: 300_000,
            result_bytes_max: 256 * 1024,
            media_bytes_max: 16 << 20,
            parked_bytes_max: 64 << 20,
            parked_ms: 900_000,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            toolsets: BTreeMap::new(),
            tasks_at_once: Vec::new(),
            tasks_required: Vec::new(),
        }
    }
}

impl McpConfig {
    /// Checks every key against its range.
    pub fn validate(&self) -> Result<(), McpConfigError> {
        const DAY_MS: u64 = 86_400_000;
        let wide = |size: usize| u64::saturating_from(size);
        let ranges = [
            ("auto_tools_max", wide(self.auto_tools_max), 1, 100_000),
            ("auto_tokens_max", wide(self.auto_tokens_max), 100, 100_000_000),
            ("search_tokens_max", wide(self.search_tokens_max), 200, 1_000_000),
            ("page_size", wide(self.page_size), 1, 100_000),
            ("list_ttl_ms", self.list_ttl_ms, 0, DAY_MS),
            ("sessions_max", wide(self.sessions_max), 1, 1_000_000),
            ("sessions_per_principal_max", wide(self.sessions_per_principal_max), 1, 1_000_000),
            ("session_idle_ms", self.session_idle_ms, 100, DAY_MS),
            ("listeners_max", wide(self.listeners_max), 1, 1_000_000),
            ("listeners_per_principal_max", wide(self.listeners_per_principal_max), 1, 1_000_000),
            ("questions_max", wide(self.questions_max), 1, 100_000),
            ("answer_ms", self.answer_ms, 100, DAY_MS),
            ("result_bytes_max", wide(self.result_bytes_max), 1024, 64 << 20),
            ("media_bytes_max", wide(self.media_bytes_max), 0, 64 << 20),
            ("parked_bytes_max", wide(self.parked_bytes_max), 0, 16 << 30),
            ("parked_ms", self.parked_ms, 100, DAY_MS),
        ];
        if let Some((key, given, least, most)) =
            ranges.into_iter().find(|(_, given, least, most)| given < least || given > most)
        {
            return Err(McpConfigError::Range { key, given, least, most });
        }
        let lengths = [
            ("allowed_origins", self.allowed_origins.len(), 100),
            ("allowed_hosts", self.allowed_hosts.len(), 100),
            ("toolsets", self.toolsets.len(), 1_000),
            ("tasks_at_once", self.tasks_at_once.len(), 1_000),
            ("tasks_required", self.tasks_required.len(), 1_000),
        ];
        if let Some((key, given, most)) = lengths.into_iter().find(|(_, given, most)| given > most) {
            return Err(McpConfigError::TooMany { key, given, most });
        }
        if let Some(name) = self.toolsets.keys().find(|name| !is_toolset_name(name)) {
            return Err(McpConfigError::Toolset { name: name.clone() });
        }
        if let Some(given) = self.allowed_origins.iter().find(|text| crate::origin::origin(text).is_none()) {
            return Err(McpConfigError::Origin { given: given.clone() });
        }
        if let Some(given) =
            self.allowed_hosts.iter().find(|text| crate::origin::host_of(text).as_deref() != Some(text.as_str()))
        {
            return Err(McpConfigError::Host { given: given.clone() });
        }
        Ok(())
    }

    pub(crate) fn session_idle(&self) -> Duration {
        Duration::from_millis(self.session_idle_ms)
    }

    pub(crate) fn answer_time(&self) -> Duration {
        Duration::from_millis(self.answer_ms)
    }

    pub(crate) fn parked_for(&self) -> Duration {
        Duration::from_millis(self.parked_ms)
    }
}

/// May this stand in `/mcp/{name}`?
pub(super) fn is_toolset_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_their_own_ranges() {
        assert_eq!(McpConfig::default().validate(), Ok(()));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let set = |change: fn(&mut McpConfig)| {
            let mut config = McpConfig::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert_eq!(set(|c| c.page_size = 0), "mcp.page_size is `0`: use 1 to 100000");
        assert!(set(|c| c.allowed_origins = vec!["example.com".into()]).contains("`example.com` is no origin"));
        assert!(set(|c| c.allowed_origins = vec!["https://a/b".into()]).contains("`https://a/b` is no origin"));
        assert!(set(|c| c.allowed_hosts = vec!["a.example:80".into()]).contains("no host"));
        assert!(set(|c| drop(c.toolsets.insert("a/b".into(), Vec::new()))).contains("`a/b`"));
    }
}
