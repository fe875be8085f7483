//! `[shared_state]`: fast state that several servers would share. This build has one server, so it is in memory.

use super::key::{Key, Kind};
use super::settings::{Problem, Settings};

/// Which shared state.
pub(crate) const URL: Key = Key {
    section: "shared_state",
    name: "url",
    kind: Kind::Text,
    default: Some("memory:"),
    unset: "",
    doc: "`memory:`. `redis://…` is not in this build and is refused.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&URL];

/// Refuses what this build does not have: silently keeping state apart would break limits that people rely on.
pub(super) fn check(settings: &Settings, problems: &mut Vec<Problem>) {
    match settings.text(&URL) {
        None | Some("memory:") => {}
        Some(url) if url.starts_with("redis://") || url.starts_with("rediss://") => {
            problems.push(Problem::new(URL.title(), "Redis is not in this build; use memory: with one server"));
        }
        Some(_) => problems.push(Problem::new(URL.title(), "must be memory:")),
    }
}
