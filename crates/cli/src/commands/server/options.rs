//! What `gantry server add`, `edit` and `grant` have in common: what a server may touch, and how it is kept.

use std::path::{Path, PathBuf};

use clap::Args;
use upstreams::spec::{
    CALL_TIMEOUT_MAX_SECONDS_MAX, CALL_TIMEOUT_SECONDS_MAX, EraChoice, RESULT_BYTES, RelayedQuestions, ServerReach,
    ServerSpec,
};

use crate::failure::CommandFailure;

/// More that a program may touch.
#[derive(Debug, Default, Args)]
pub(super) struct Grants {
    /// A path it may read, with everything below (repeatable)
    #[arg(long = "allow-read", value_name = "PATH")]
    pub(super) read: Vec<PathBuf>,
    /// A path it may write, with everything below (repeatable)
    #[arg(long = "allow-write", value_name = "PATH")]
    pub(super) write: Vec<PathBuf>,
    /// A host it may connect to: `api.example.com` by https, `host:port`, `http://host` (repeatable)
    #[arg(long = "allow-host", value_name = "HOST")]
    pub(super) hosts: Vec<String>,
    /// The same in the words of manifests, such as `filesystem:read:/srv` or `network:https://host` (repeatable)
    #[arg(long = "permission", value_name = "WORD")]
    pub(super) words: Vec<String>,
}

/// How a server is kept.
#[derive(Debug, Default, Args)]
pub(super) struct Keeping {
    /// Longest time from its start to its first answer, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) start_timeout: Option<u64>,
    /// Longest time a call of one of its tools may take unless the call asks for less, in seconds [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=i64::from(CALL_TIMEOUT_SECONDS_MAX)))]
    pub(super) timeout: Option<u32>,
    /// Longest time a call may ask for, or have as long as its tool reports progress, in seconds; 0 is the default [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=i64::from(CALL_TIMEOUT_MAX_SECONDS_MAX)))]
    pub(super) timeout_max: Option<u32>,
    /// Most bytes of a result of one of its tools, as JSON, from 1024; 0 is what the installation gives [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=i64::from(*RESULT_BYTES.end())))]
    pub(super) result_bytes: Option<u32>,
    /// Stop it when nobody has used it for so long, in seconds; 0 keeps it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=604_800))]
    pub(super) idle_stop: Option<u64>,
    /// The protocol it is met in: `legacy` with sessions, `modern` (2026-07-28) without; `auto` is what it and its caller speak
    /// [default: auto]
    #[arg(long, value_name = "ERA")]
    pub(super) era: Option<Era>,
    /// Kinds of its questions that reach the caller, besides those that do [default: elicitation]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(super) relay: Vec<Question>,
    /// Kinds of its questions that do not reach the caller
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(super) no_relay: Vec<Question>,
}

/// In which protocol a server is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Era {
    Auto,
    Legacy,
    Modern,
}

impl From<Era> for EraChoice {
    fn from(era: Era) -> Self {
        match era {
            Era::Auto => Self::Auto,
            Era::Legacy => Self::Legacy,
            Era::Modern => Self::Modern,
        }
    }
}

/// What a server may ask its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Question {
    Elicitation,
    Sampling,
    Roots,
}

impl Keeping {
    /// What is asked for and forbidden at once would be one of both.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        match self.relay.iter().find(|kind| self.no_relay.contains(kind)) {
            None => Ok(()),
            Some(kind) => {
                let name = format!("{kind:?}").to_lowercase();
                Err(CommandFailure::usage(format!("`{name}` is named by `--relay` and by `--no-relay`"))
                    .hint("leave one out"))
            }
        }
    }
}

impl Grants {
    pub(super) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty() && self.hosts.is_empty() && self.words.is_empty()
    }

    /// In the words of manifests. What may be written may be read.
    pub(super) fn permissions(&self) -> Result<Vec<String>, CommandFailure> {
        let mut words = Vec::new();
        for path in &self.read {
            words.push(format!("filesystem:read:{}", real(path)?));
        }
        for path in &self.write {
            let path = real(path)?;
            words.extend([format!("filesystem:read:{path}"), format!("filesystem:write:{path}")]);
        }
        for host in &self.hosts {
            words.push(format!("network:{}", place(host)?));
        }
        words.extend(self.words.iter().cloned());
        Ok(words)
    }

    /// Adds them to a server.
    pub(super) fn apply(&self, spec: &mut ServerSpec) -> Result<(), CommandFailure> {
        if self.is_empty() {
            return Ok(());
        }
        let ServerReach::Stdio { permissions, .. } = &mut spec.reach else {
            return Err(CommandFailure::usage(
                "permissions are for programs: an address touches nothing of this machine",
            ));
        };
        for word in self.permissions()? {
            if !permissions.contains(&word) {
                permissions.push(word);
            }
        }
        Ok(())
    }
}

impl Keeping {
    /// Changes what was named, and nothing else.
    pub(super) fn apply(&self, spec: &mut ServerSpec) {
        if let Some(seconds) = self.start_timeout {
            spec.upkeep.start_timeout_seconds = seconds;
        }
        if let Some(seconds) = self.timeout {
            spec.upkeep.call_timeout_seconds = seconds;
        }
        if let Some(seconds) = self.timeout_max {
            spec.upkeep.call_timeout_max_seconds = (seconds > 0).then_some(seconds);
        }
        if let Some(bytes) = self.result_bytes {
            spec.upkeep.result_bytes_max = (bytes > 0).then_some(bytes);
        }
        if let Some(seconds) = self.idle_stop {
            spec.upkeep.idle_stop_seconds = seconds;
        }
        if let Some(era) = self.era {
            spec.era = era.into();
        }
        for (kinds, passed_on) in [(&self.relay, true), (&self.no_relay, false)] {
            kinds.iter().for_each(|kind| kind.set(&mut spec.relay, passed_on));
        }
    }
}

impl Question {
    fn set(self, relay: &mut RelayedQuestions, passed_on: bool) {
        match self {
            Self::Elicitation => relay.elicitation = passed_on,
            Self::Sampling => relay.sampling = passed_on,
            Self::Roots => relay.roots = passed_on,
        }
    }
}

/// A path by its real name, because that is how a sandbox shows it. One in full may be on another machine.
fn real(path: &Path) -> Result<String, CommandFailure> {
    let found = match path.canonicalize() {
        Ok(found) => found,
        Err(_) if path.is_absolute() => path.to_owned(),
        Err(error) => return Err(CommandFailure::usage(format!("`{}` cannot be found: {error}", path.display()))),
    };
    let text = found.to_str().map(|text| text.replace(' ', "%20"));
    text.filter(|text| !text.contains(char::is_whitespace)).ok_or_else(|| {
        CommandFailure::usage(format!(
            "`{}` cannot be granted: a path must not have line breaks in it",
            found.display()
        ))
        .hint("grant the folder above it, or give it another name")
    })
}

/// A host in the words of permissions.
fn place(host: &str) -> Result<String, CommandFailure> {
    let wrong = || {
        CommandFailure::usage(format!("--allow-host: `{host}` is no host"))
            .hint("write `api.example.com`, `db.internal:5432`, `http://10.0.0.7:8080` or `*.example.com`")
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(wrong());
    }
    if host.starts_with("https://") || host.starts_with("http://") {
        let url = reqwest::Url::parse(host).map_err(|_| wrong())?;
        let name = url.host_str().ok_or_else(wrong)?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        return Ok(format!("{}://{name}{port}", url.scheme()));
    }
    if host.contains('/') {
        return Err(wrong());
    }
    match host.rsplit_once(':') {
        Some((name, "443")) => Ok(format!("https://{name}")),
        Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => Ok(host.to_owned()),
        Some(_) => Err(wrong()),
        None => Ok(format!("https://{host}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_become_words_of_permissions() {
        for (written, expected) in [
            ("api.example.com", "https://api.example.com"),
            ("api.example.com:443", "https://api.example.com"),
            ("db.internal:5432", "db.internal:5432"),
            ("http://10.0.0.7:8080/path", "http://10.0.0.7:8080"),
            ("*.example.com", "https://*.example.com"),
        ] {
            assert_eq!(place(written).unwrap(), expected, "{written}");
        }
        for wrong in ["", "a b", "host:port", "a/b", "https://"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_are_granted_by_their_real_names_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("notes")).unwrap();
        std::os::unix::fs::symlink(root.join("notes"), root.join("link")).unwrap();
        let notes = root.join("notes").display().to_string();
        let grants =
            Grants { write: vec![root.join("link")], words: vec!["network:https://x".into()], ..Grants::default() };
        let mut spec: ServerSpec =
            serde_json::from_value(serde_json::json!({ "reach": { "type": "stdio", "command": "x",
            "permissions": [format!("filesystem:read:{notes}")] } }))
            .unwrap();
        for _ in 0..2 {
            grants.apply(&mut spec).unwrap();
        }
        let ServerReach::Stdio { permissions, .. } = &spec.reach else { panic!("a program") };
        let expected =
            [format!("filesystem:read:{notes}"), format!("filesystem:write:{notes}"), "network:https://x".into()];
        assert_eq!(*permissions, expected);
        assert!(real(Path::new("nowhere/at/all")).is_err());
        assert_eq!(real(Path::new("/nowhere/at/all")).unwrap(), "/nowhere/at/all");
    }

    #[test]
    fn what_was_not_named_stays_as_it_is() {
        let mut spec: ServerSpec =
            serde_json::from_value(serde_json::json!({ "reach": { "type": "http", "url": "https://x.example" } }))
                .unwrap();
        Keeping { start_timeout: Some(90), relay: vec![Question::Sampling], ..Keeping::default() }.apply(&mut spec);
        assert_eq!((spec.upkeep.start_timeout_seconds, spec.upkeep.idle_stop_seconds), (90, 600));
        assert_eq!(spec.relay, RelayedQuestions { elicitation: true, sampling: true, roots: false });
        Keeping { era: Some(Era::Legacy), ..Keeping::default() }.apply(&mut spec);
        assert_eq!(spec.era, EraChoice::Legacy);
        Keeping { no_relay: vec![Question::Elicitation], ..Keeping::default() }.apply(&mut spec);
        assert_eq!(spec.relay, RelayedQuestions { elicitation: false, sampling: true, roots: false });
        assert!(Grants { read: vec!["/srv".into()], ..Grants::default() }.apply(&mut spec).is_err());
    }
}
