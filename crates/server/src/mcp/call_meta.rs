//! What a caller says about one call in its `_meta`, under names of ours: a key, how long the call may take, how much of its result
//! is wanted at once.
//!
//! What stands there under a name of ours is understood or refused: a key that is overlooked is an act that happens twice.

use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use rmcp::model::JsonObject;
use serde_json::Value;

/// A key that makes two calls one (LIFE-11).
pub(crate) const IDEMPOTENCY_KEY: &str = "dev.gantry/idempotency_key";
/// Seconds that the call may take, within the `timeout_max` of the tool.
const TIMEOUT_SECONDS: &str = "dev.gantry/timeout_seconds";
/// Seconds that the caller waits; then the call goes on in the background.
const WAIT_SECONDS: &str = "dev.gantry/wait_seconds";
/// Bytes of the result that are wanted at once.
const RESULT_BYTES: &str = "dev.gantry/result_bytes";
/// For whom a Gantry in front of this one calls. It is told, and decides nothing here.
const USER: &str = "dev.gantry/user";
/// What members of `_meta` begin with that are ours to understand.
const OWN_META: &str = "dev.gantry/";

/// Seconds that can be asked for.
const SECONDS_MAX: f64 = 86_400.0;
/// Bytes that can be asked for.
const BYTES: std::ops::RangeInclusive<u64> = 1_024..=67_108_864;

/// What the caller says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CallMeta {
    pub(crate) idempotency_key: Option<String>,
    pub(crate) timeout_seconds: Option<f64>,
    pub(crate) wait: Option<Duration>,
    pub(crate) result_bytes: Option<usize>,
}

impl CallMeta {
    /// Reads it.
    pub(crate) fn of(meta: &JsonObject) -> Result<Self, Refusal> {
        let known = [IDEMPOTENCY_KEY, TIMEOUT_SECONDS, WAIT_SECONDS, RESULT_BYTES, USER];
        if let Some(unknown) = meta.keys().find(|name| name.starts_with(OWN_META) && !known.contains(&name.as_str())) {
            let shown: String = unknown.chars().filter(|c| !c.is_control()).take(80).collect();
            return Err(Refusal::new(ErrorCode::E3004, format!("`_meta` of a call has no member `{shown}`")).hint(
                format!(
                    "`{IDEMPOTENCY_KEY}`, `{TIMEOUT_SECONDS}`, `{WAIT_SECONDS}` and `{RESULT_BYTES}` are understood; nothing was run"
                ),
            ));
        }
        let said = |name: &str| meta.get(name).filter(|value| !value.is_null());
        let idempotency_key = match said(IDEMPOTENCY_KEY) {
            None => None,
            Some(Value::String(key)) => Some(key.clone()),
            Some(_) => return Err(wrong(IDEMPOTENCY_KEY, "a text")),
        };
        let seconds = |name: &'static str| match said(name).map(Value::as_f64) {
            None => Ok(None),
            Some(Some(seconds)) if (0.001..=SECONDS_MAX).contains(&seconds) => Ok(Some(seconds)),
            Some(_) => Err(wrong(name, "a number of seconds from 0.001 to 86400")),
        };
        let timeout_seconds = seconds(TIMEOUT_SECONDS)?;
        let wait = seconds(WAIT_SECONDS)?.map(Duration::from_secs_f64);
        let result_bytes = match said(RESULT_BYTES).map(Value::as_u64) {
            None => None,
            Some(Some(bytes)) if BYTES.contains(&bytes) => usize::try_from(bytes).ok(),
            Some(_) => return Err(wrong(RESULT_BYTES, "a whole number of bytes from 1024 to 67108864")),
        };
        Ok(Self { idempotency_key, timeout_seconds, wait, result_bytes })
    }
}

fn wrong(name: &str, expected: &str) -> Refusal {
    Refusal::new(ErrorCode::E3004, format!("`_meta[\"{name}\"]` is not {expected}")).hint("nothing was run")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_ours_is_understood_or_refused() {
        let read = |value: Value| CallMeta::of(value.as_object().unwrap());
        let all = read(json!({
            "dev.gantry/idempotency_key": "k", "dev.gantry/timeout_seconds": 2.5, "dev.gantry/result_bytes": 2048,
            "dev.gantry/wait_seconds": 1,
            "dev.gantry/user": "did:web:x", "progressToken": 7, "example.com/x": {}
        }));
        let expected = CallMeta {
            idempotency_key: Some("k".into()),
            timeout_seconds: Some(2.5),
            wait: Some(Duration::from_secs(1)),
            result_bytes: Some(2_048),
        };
        assert_eq!(all.unwrap(), expected);
        assert_eq!(read(json!({ "dev.gantry/idempotency_key": null })).unwrap(), CallMeta::default());
        for (meta, words) in [
            (json!({ "dev.gantry/timeout": 3 }), "has no member `dev.gantry/timeout`"),
            (json!({ "dev.gantry/idempotency_key": 3 }), "is not a text"),
            (json!({ "dev.gantry/timeout_seconds": "3" }), "is not a number of seconds"),
            (json!({ "dev.gantry/timeout_seconds": 0 }), "is not a number of seconds"),
            (json!({ "dev.gantry/timeout_seconds": 86_401 }), "is not a number of seconds"),
            (json!({ "dev.gantry/wait_seconds": -1 }), "is not a number of seconds"),
            (json!({ "dev.gantry/result_bytes": 1.5 }), "is not a whole number of bytes"),
            (json!({ "dev.gantry/result_bytes": 1_023 }), "is not a whole number of bytes"),
        ] {
            let refusal = read(meta.clone()).unwrap_err();
            assert!(refusal.code == ErrorCode::E3004 && refusal.message.contains(words), "{meta}: {}", refusal.message);
        }
    }
}
