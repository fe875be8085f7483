//! `[mcp]`: the door for MCP clients, and how tools are shown to models (`[tools] exposure`).
//!
//! The limits themselves, with their ranges, belong to the `server` crate; this section only names them for people.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use base::SaturatingFrom as _;
use policy::ToolPattern;
use server::{McpConfig, McpMode, ToolExposure};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "mcp";
const DAY_MS: u64 = 86_400_000;

const MODE: ConfigKey = ConfigKey {
    section: SECTION,
    name: "mode",
    kind: KeyKind::Choice(&["full", "discovery"]),
    default: Some("full"),
    unset: "",
    doc: "`full`: tools are found and called. `discovery`: they are found only; `tools/call` is not there.",
    since: "0.1",
};

/// Stands in `[tools]`.
pub(super) const EXPOSURE: ConfigKey = ConfigKey {
    section: "tools",
    name: "exposure",
    kind: KeyKind::Choice(&["all", "lazy", "auto"]),
    default: Some("auto"),
    unset: "",
    doc: "How MCP clients see tools: `all` lists each of them, `lazy` lists three that search, describe and call the others, \
          `auto` is `all` until the list is too long (`[mcp] auto_tools_max`, `auto_tokens_max`).",
    since: "0.1",
};

const TOOLSETS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "toolsets",
    kind: KeyKind::Named("tools"),
    default: Some(""),
    unset: "",
    doc: "Parts of the catalogue with a path of their own: `[mcp.toolsets.research]` with `tools = [\"web.*\", \"calculator\"]` is \
          at `/mcp/research`. A toolset never gives more than the token. In the environment `research=web.*|calculator,other=…`.",
    since: "0.1",
};

const ALLOWED_ORIGINS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "allowed_origins",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Web pages that may talk to the MCP door, besides those on a loopback address: `https://app.example.com`.",
    since: "0.1",
};

const ALLOWED_HOSTS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "allowed_hosts",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Names under which MCP clients find this server, besides the loopback ones and those of `[server] allowed_hosts`; without \
          port. Asked for when the server listens on a loopback address, or when there is any.",
    since: "0.1",
};

const AUTO_TOOLS_MAX: ConfigKey =
    limit("auto_tools_max", 1..=100_000, "60", "Tools above which `exposure = \"auto\"` becomes lazy.");
const AUTO_TOKENS_MAX: ConfigKey = limit(
    "auto_tokens_max",
    100..=100_000_000,
    "20000",
    "Tokens of the whole list, estimated, above which `exposure = \"auto\"` becomes lazy.",
);
const SEARCH_TOKENS_MAX: ConfigKey = limit(
    "search_tokens_max",
    200..=1_000_000,
    "2000",
    "Tokens of one answer of `search_tools`. At the limit fewer hits are told.",
);
const PAGE_SIZE: ConfigKey = limit("page_size", 1..=100_000, "5000", "Tools on one page of `tools/list`.");
const LIST_TTL_MS: ConfigKey = limit("list_ttl_ms", 0..=DAY_MS, "60000", "Milliseconds that clients may keep a list.");
const SESSIONS_MAX: ConfigKey = limit(
    "sessions_max",
    1..=1_000_000,
    "1000",
    "Sessions of older clients, of one tenant alone three quarters. At the limit a new one is refused: E3001.",
);
const SESSIONS_PER_PRINCIPAL_MAX: ConfigKey = limit(
    "sessions_per_principal_max",
    1..=1_000_000,
    "100",
    "Of these, those of one agent, names it made by token exchange included. At the limit a new one is refused: E3003.",
);
const SESSION_IDLE_MS: ConfigKey =
    limit("session_idle_ms", 100..=DAY_MS, "1800000", "Milliseconds after which a session that nobody uses is closed.");
const LISTENERS_MAX: ConfigKey = limit(
    "listeners_max",
    1..=1_000_000,
    "1000",
    "Streams that only listen, of one tenant alone three quarters. At the limit a new one is refused: E3001.",
);
const LISTENERS_PER_PRINCIPAL_MAX: ConfigKey = limit(
    "listeners_per_principal_max",
    1..=1_000_000,
    "100",
    "Of these, those of one agent, names it made by token exchange included. At the limit a new one is refused: E3003.",
);
const QUESTIONS_MAX: ConfigKey = limit(
    "questions_max",
    1..=100_000,
    "256",
    "Calls that wait for an answer of their caller. At the limit no more is asked: E3001.",
);
const ANSWER_MS: ConfigKey = limit(
    "answer_ms",
    100..=DAY_MS,
    "300000",
    "Milliseconds that a caller has to answer what a tool asks. At the limit the call is cancelled.",
);
const RESULT_BYTES_MAX: ConfigKey = limit(
    "result_bytes_max",
    1024..=67_108_864,
    "262144",
    "Bytes of texts and structure of a result that are given at once. A part that does not fit becomes a preview and a link to the \
     whole of it. A call can say another number (`_meta`, `dev.gantry/result_bytes`).",
);
const MEDIA_BYTES_MAX: ConfigKey = ConfigKey {
    since: "0.3",
    ..limit(
        "media_bytes_max",
        0..=67_108_864,
        "16777216",
        "Bytes of pictures, sounds and files of a result, in base64 as they are sent, that are given at once. One that does not fit \
         becomes a link to the whole of it, with its type; it is never cut.",
    )
};
const PARKED_BYTES_MAX: ConfigKey = limit(
    "parked_bytes_max",
    0..=17_179_869_184,
    "67108864",
    "Bytes of all results that wait to be fetched. At the limit the oldest of the agent that holds most, in the tenant that \
     does, make room.",
);
const PARKED_MS: ConfigKey = limit("parked_ms", 100..=DAY_MS, "900000", "Milliseconds that such a result waits.");

const TASKS_AT_ONCE: ConfigKey = ConfigKey {
    section: SECTION,
    name: "tasks_at_once",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Tools (`video.*`, `render`) whose calls are MCP tasks from the beginning, for clients that can take them. Other calls \
          become tasks when they outlive `[jobs] promote_after_seconds`; tools of the timeout class `async` that \
          are not of an MCP server are always here.",
    since: "0.1",
};
const TASKS_REQUIRED: ConfigKey = ConfigKey {
    section: SECTION,
    name: "tasks_required",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "The same, and an MCP client that cannot take a task is refused instead of kept waiting.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &MODE,
    &TOOLSETS,
    &ALLOWED_ORIGINS,
    &ALLOWED_HOSTS,
    &AUTO_TOOLS_MAX,
    &AUTO_TOKENS_MAX,
    &SEARCH_TOKENS_MAX,
    &PAGE_SIZE,
    &LIST_TTL_MS,
    &SESSIONS_MAX,
    &SESSIONS_PER_PRINCIPAL_MAX,
    &SESSION_IDLE_MS,
    &LISTENERS_MAX,
    &LISTENERS_PER_PRINCIPAL_MAX,
    &QUESTIONS_MAX,
    &ANSWER_MS,
    &RESULT_BYTES_MAX,
    &MEDIA_BYTES_MAX,
    &PARKED_BYTES_MAX,
    &PARKED_MS,
    &TASKS_AT_ONCE,
    &TASKS_REQUIRED,
];

const fn limit(name: &'static str, range: RangeInclusive<u64>, default: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey {
        section: SECTION,
        name,
        kind: KeyKind::Integer(range),
        default: Some(default),
        unset: "",
        doc,
        since: "0.1",
    }
}

/// The section's values.
pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> McpConfig {
    let size = |key: &ConfigKey| usize::saturating_from(settings.integer(key));
    let config = McpConfig {
        mode: if settings.text(&MODE) == Some("discovery") { McpMode::Discovery } else { McpMode::Full },
        exposure: match settings.text(&EXPOSURE) {
            Some("all") => ToolExposure::All,
            Some("lazy") => ToolExposure::Lazy,
            _ => ToolExposure::Auto,
        },
        auto_tools_max: size(&AUTO_TOOLS_MAX),
        auto_tokens_max: size(&AUTO_TOKENS_MAX),
        search_tokens_max: size(&SEARCH_TOKENS_MAX),
        page_size: size(&PAGE_SIZE),
        list_ttl_ms: settings.integer(&LIST_TTL_MS),
        sessions_max: size(&SESSIONS_MAX),
        sessions_per_principal_max: size(&SESSIONS_PER_PRINCIPAL_MAX),
        session_idle_ms: settings.integer(&SESSION_IDLE_MS),
        listeners_max: size(&LISTENERS_MAX),
        listeners_per_principal_max: size(&LISTENERS_PER_PRINCIPAL_MAX),
        questions_max: size(&QUESTIONS_MAX),
        answer_ms: settings.integer(&ANSWER_MS),
        result_bytes_max: size(&RESULT_BYTES_MAX),
        media_bytes_max: size(&MEDIA_BYTES_MAX),
        parked_bytes_max: size(&PARKED_BYTES_MAX),
        parked_ms: settings.integer(&PARKED_MS),
        allowed_origins: settings.list(&ALLOWED_ORIGINS).to_vec(),
        allowed_hosts: settings.list(&ALLOWED_HOSTS).to_vec(),
        toolsets: toolsets(settings, problems),
        tasks_at_once: patterns(settings, &TASKS_AT_ONCE, problems),
        tasks_required: patterns(settings, &TASKS_REQUIRED, problems),
    };
    if let Err(error) = config.validate() {
        problems.push(ConfigProblem::new(format!("[{SECTION}]"), error.to_string()));
    }
    config
}

/// The patterns of a list; each that is none is a problem of its own.
fn patterns(settings: &EffectiveSettings, key: &ConfigKey, problems: &mut Vec<ConfigProblem>) -> Vec<ToolPattern> {
    let mut patterns = Vec::new();
    for text in settings.list(key) {
        match text.parse() {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => {
                problems.push(ConfigProblem::new(format!("[{SECTION}] {}", key.name), format!("`{text}`: {error}")))
            }
        }
    }
    patterns
}

/// Each name with its patterns; each pattern that is none is a problem of its own.
fn toolsets(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> BTreeMap<String, Vec<ToolPattern>> {
    let mut sets: BTreeMap<String, Vec<ToolPattern>> = BTreeMap::new();
    for entry in settings.list(&TOOLSETS) {
        let (name, patterns) = entry.split_once('=').unwrap_or((entry, ""));
        let set = sets.entry(name.to_owned()).or_default();
        for text in patterns.split('|').map(str::trim).filter(|text| !text.is_empty()) {
            match text.parse() {
                Ok(pattern) => set.push(pattern),
                Err(error) => problems
                    .push(ConfigProblem::new(format!("[mcp.toolsets.{name}] tools"), format!("`{text}`: {error}"))),
            }
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::super::settings::ConfigFile;
    use super::*;

    fn config(text: &str) -> (McpConfig, Vec<String>) {
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: text.into() };
        let settings = match EffectiveSettings::gather(Some(&file), &BTreeMap::new(), Vec::new()) {
            Ok(settings) => settings,
            Err(problems) => return (McpConfig::default(), problems.iter().map(ToString::to_string).collect()),
        };
        let mut problems = Vec::new();
        let config = read(&settings, &mut problems);
        (config, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_unset_is_the_servers_own_default() {
        assert_eq!(config(""), (McpConfig::default(), Vec::new()));
    }

    #[test]
    fn toolsets_are_read_by_name() {
        let (read, problems) =
            config("[mcp.toolsets.research]\ntools = ['web.*', 'calculator']\n[mcp.toolsets]\nempty = []");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(read.toolsets.keys().collect::<Vec<_>>(), ["empty", "research"]);
        assert_eq!(read.toolsets["research"].len(), 2);
        let environment =
            BTreeMap::from([("GANTRY_MCP__TOOLSETS".to_owned(), "a=web.*|calculator, b=demo.*".to_owned())]);
        let settings = EffectiveSettings::gather(None, &environment, Vec::new()).unwrap();
        assert_eq!(toolsets(&settings, &mut Vec::new())["a"].len(), 2);
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
            let (_, problems) = config(text);
            assert!(problems.len() == 1 && problems[0].contains(word), "{text}: {problems:?}");
        }
    }
}
