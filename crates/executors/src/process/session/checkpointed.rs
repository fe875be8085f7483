//! Checkpoints as `gantry/1` has them: what a tool wants kept, and what it is told to go on from. (CKPT-003, CKPT-014)
//!
//! ```text
//!   checkpoint { name?, state, counters? { name: number }, binaries? { name: base64 }, document_versions? { id: version } }
//!   resume     { checkpoint_id, invocation_id, state, progress_percent, phase, counters, binaries, document_versions }
//! ```
//!
//! Not here: the bounds of what is kept (the kernel's), which are smaller than those of a line.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ports::executor::ResumePoint;
use ports::tool_companion::ToolSnapshot;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// What a `checkpoint` wants kept, under a name that has been looked at; or what is wrong with it.
pub(super) fn snapshot(name: Option<String>, mut params: Value) -> Result<ToolSnapshot, &'static str> {
    let mut taken = |member: &str| params.get_mut(member).map(Value::take).filter(|value| !value.is_null());
    let counters = read(taken("counters"), "`counters` must be an object of numbers")?;
    let document_versions = read(taken("document_versions"), "`document_versions` must be an object of strings")?;
    let binaries: BTreeMap<String, String> = read(taken("binaries"), "`binaries` must be an object of base64 texts")?;
    let decoded = binaries.into_iter().map(|(name, text)| STANDARD.decode(text).map(|bytes| (name, bytes)));
    let binaries = decoded.collect::<Result<_, _>>().map_err(|_| "`binaries` must be an object of base64 texts")?;
    // A state may be null; only one that is not there is a mistake.
    let state = params.get_mut("state").map(Value::take).ok_or("`state` is missing")?;
    Ok(ToolSnapshot { name, state, counters, binaries, document_versions })
}

fn read<T: for<'de> Deserialize<'de> + Default>(member: Option<Value>, what: &'static str) -> Result<T, &'static str> {
    member.map_or_else(|| Ok(T::default()), |value| serde_json::from_value(value).map_err(|_| what))
}

/// What a tool goes on from, as `invoke` says it.
#[derive(Serialize)]
pub(super) struct Resume<'a> {
    checkpoint_id: &'a str,
    invocation_id: String,
    state: &'a Value,
    progress_percent: Option<f64>,
    phase: Option<&'a str>,
    counters: &'a BTreeMap<String, Number>,
    binaries: BTreeMap<&'a str, String>,
    document_versions: &'a BTreeMap<String, String>,
}

impl<'a> From<&'a ResumePoint> for Resume<'a> {
    fn from(point: &'a ResumePoint) -> Self {
        let saved = &point.saved;
        Self {
            checkpoint_id: &point.checkpoint_id,
            invocation_id: point.invocation_id.to_string(),
            state: &saved.custom_state,
            progress_percent: saved.progress_percent,
            phase: saved.phase.as_deref(),
            counters: &saved.counters,
            binaries: saved.binaries.iter().map(|(name, bytes)| (name.as_str(), STANDARD.encode(bytes))).collect(),
            document_versions: &saved.document_versions,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_tool_wants_kept_is_read_or_refused_by_name() {
        let whole = json!({
            "state": null, "counters": { "rows": 3, "share": 0.5 }, "binaries": { "bitmap": "AAEC" },
            "document_versions": { "spec": "7" },
        });
        let snapshot = snapshot(Some("half".into()), whole).unwrap();
        assert_eq!(snapshot.state, Value::Null);
        assert_eq!(serde_json::to_value(&snapshot.counters).unwrap(), json!({ "rows": 3, "share": 0.5 }));
        assert_eq!(snapshot.binaries["bitmap"], [0, 1, 2]);
        assert_eq!(snapshot.document_versions["spec"], "7");
        let wrong = [
            (json!({}), "state"),
            (json!([1]), "state"),
            (json!({ "state": 1, "counters": { "a": "b" } }), "counters"),
            (json!({ "state": 1, "counters": [] }), "counters"),
            (json!({ "state": 1, "binaries": { "a": "!" } }), "binaries"),
            (json!({ "state": 1, "binaries": { "a": 1 } }), "binaries"),
            (json!({ "state": 1, "document_versions": { "a": 1 } }), "document_versions"),
        ];
        for (params, named) in wrong {
            let error = super::snapshot(None, params.clone()).unwrap_err();
            assert!(error.contains(named), "{params}: {error}");
        }
    }
}
