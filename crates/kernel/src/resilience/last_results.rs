//! The last good results of tools that only read, for the time in which the service behind them is left alone. (RES-019)
//!
//! A manifest asks for it (`stale_results`) and says how old a result may be. What is kept is what the tool answered, before
//! anything was masked or cut: what the present caller may see of it is decided for the present call, as of any other.
//!
//! Invariants
//! - STA-1: a result is given only to a call of the same tenant, of the same version of the same tool, with the same
//!   parameters, under the same rights of the same caller; the last is left out only if the manifest says that its results are
//!   the same for everybody (`shared`).
//! - STA-2: of a tool with effects nothing is kept, nor of a call that went on from a checkpoint or asked its caller something: what
//!   came of it depends on more than is in the key.
//! - STA-3: no more than [`BYTES_MAX`] are kept, and nothing larger than [`RESULT_BYTES_MAX`]. Whatever is not kept is only
//!   not answered.
//!
//! They are in the memory of each server and end with it. Not here: when one is asked for (`phases::attempts`).

use std::sync::Arc;
use std::time::Duration;

use base::SaturatingFrom as _;
use contract::canonical::Digest;
use contract::ids::{InvocationId, TenantId};
use contract::manifest::SideEffectPolicy;
use policy::Caller;
use ports::observer::{Observer, StaleAnswer};
use ports::tool_version::ToolVersion;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use serde_json::Value;

/// What is kept altogether, in bytes of memory, more or less.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The largest result that is kept.
const RESULT_BYTES_MAX: u64 = 1024 * 1024;
/// What there is room for in each part of the memory must be more than the largest result.
const SHARDS: usize = 8;
/// Results of ordinary size that fit.
const RESULTS_EXPECTED: usize = 10_000;

/// What a result is given for (STA-1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResultKey {
    tenant: TenantId,
    owner: TenantId,
    /// The digest of the manifest, which holds id and version.
    tool: Digest,
    parameters: Digest,
    /// Everything the token says; `None` if it makes no difference to this tool.
    caller: Option<[u8; 32]>,
}

impl ResultKey {
    /// Of a call of a tool that asks for it; `None` for all others (STA-2).
    pub(crate) fn of(tool: &ToolVersion, caller: &Caller, parameters: Digest) -> Option<Self> {
        let wanted = tool.manifest.stale_results.as_ref()?;
        // Admission sees to it; here it is what everything else rests on.
        if tool.manifest.side_effect_policy != SideEffectPolicy::Pure {
            return None;
        }
        Some(Self {
            tenant: caller.tenant().clone(),
            owner: tool.tenant.clone(),
            tool: tool.digest,
            parameters,
            caller: (!wanted.shared).then(|| *caller.digest()),
        })
    }
}

/// A result that was good, and the call that it came of.
#[derive(Debug)]
pub(crate) struct LastResult {
    pub(crate) value: Value,
    pub(crate) invocation: InvocationId,
    pub(crate) started_at: String,
    pub(crate) completed_at: String,
    pub(crate) duration_ms: u64,
    /// When it came, by the monotonic clock.
    pub(crate) at: Duration,
}

/// The memory.
#[derive(Debug)]
pub(crate) struct LastResults {
    kept: Cache<ResultKey, Arc<LastResult>, ByBytes>,
    observer: Arc<dyn Observer>,
}

impl LastResults {
    pub(super) fn new(observer: Arc<dyn Observer>) -> Self {
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(RESULTS_EXPECTED).weight_capacity(BYTES_MAX).shards(SHARDS);
        // Both numbers are set, so this is never taken; it would keep less.
        let kept = match options.build() {
            Ok(options) => {
                Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), DefaultLifecycle::default())
            }
            Err(_) => Cache::with_weighter(RESULTS_EXPECTED, BYTES_MAX, ByBytes),
        };
        Self { kept, observer }
    }

    /// Keeps what a call came to, in place of what was kept for the same.
    pub(crate) fn keep(&self, key: ResultKey, result: LastResult) {
        if bytes_of(&result.value) > RESULT_BYTES_MAX {
            // An older one would pass for the last.
            self.kept.remove(&key);
        } else {
            self.kept.insert(key, Arc::new(result));
        }
        self.observer.last_results_kept(self.kept.weight());
    }

    /// The last result for this, if it is no older than that.
    pub(crate) fn find(&self, key: &ResultKey, age_max: Duration, now: Duration) -> Option<Arc<LastResult>> {
        let known = self.kept.get(key);
        let found = known.as_ref().filter(|last| now.saturating_sub(last.at) <= age_max).cloned();
        self.observer.stale_asked(match (&found, known) {
            (Some(_), _) => StaleAnswer::Given,
            (None, Some(_)) => StaleAnswer::TooOld,
            (None, None) => StaleAnswer::Unknown,
        });
        found
    }
}

/// Weighs results by the memory they take.
#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<ResultKey, Arc<LastResult>> for ByBytes {
    fn weight(&self, _: &ResultKey, result: &Arc<LastResult>) -> u64 {
        const BESIDE: u64 = (size_of::<ResultKey>() + size_of::<LastResult>()) as u64;
        bytes_of(&result.value).saturating_add(BESIDE)
    }
}

/// What a value takes, more or less. Values are not deep: the reader of JSON sees to that.
fn bytes_of(value: &Value) -> u64 {
    let of = |length: usize| u64::saturating_from(length);
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => of(text.len()),
        Value::Array(items) => items.iter().map(bytes_of).fold(0, u64::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| of(size_of::<String>() + name.len()).saturating_add(bytes_of(member)))
            .fold(0, u64::saturating_add),
    };
    of(size_of::<Value>()).saturating_add(inside)
}

#[cfg(test)]
mod tests {
    use contract::canonical;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use ports::observer::NoObserver;

    const HOUR: Duration = Duration::from_hours(1);

    fn key(name: &str) -> ResultKey {
        let digest = canonical::digest(&json!(name));
        ResultKey { tenant: TenantId::home(), owner: TenantId::home(), tool: digest, parameters: digest, caller: None }
    }

    fn result(value: Value, at: Duration) -> LastResult {
        let (started_at, completed_at) = (String::new(), String::new());
        LastResult { value, invocation: InvocationId(Uuid::nil()), started_at, completed_at, duration_ms: 1, at }
    }

    fn results() -> LastResults {
        LastResults::new(Arc::new(NoObserver))
    }

    #[test]
    fn the_last_is_found_until_it_is_too_old() {
        let results = results();
        results.keep(key("a"), result(json!(1), Duration::from_secs(5)));
        results.keep(key("a"), result(json!(2), Duration::from_secs(10)));
        let found = |age_s, now_s| {
            let (age, now) = (Duration::from_secs(age_s), Duration::from_secs(now_s));
            results.find(&key("a"), age, now).map(|last| last.value.clone())
        };
        assert_eq!(found(5, 15), Some(json!(2)));
        assert_eq!(found(5, 16), None);
        assert!(results.find(&key("b"), HOUR, HOUR).is_none());
    }

    #[test]
    fn what_is_too_large_is_not_kept_and_does_not_leave_an_older_one() {
        let results = results();
        let large = "x".repeat(usize::try_from(RESULT_BYTES_MAX).unwrap());
        results.keep(key("a"), result(json!("small"), Duration::ZERO));
        results.keep(key("a"), result(json!(large), Duration::ZERO));
        assert!(results.find(&key("a"), HOUR, Duration::ZERO).is_none());
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let results = results();
        let half_a_megabyte = "x".repeat(512 * 1024);
        for n in 0..400 {
            results.keep(key(&n.to_string()), result(json!([half_a_megabyte]), Duration::ZERO));
        }
        assert!(results.kept.weight() <= BYTES_MAX, "{}", results.kept.weight());
        assert!(results.kept.len() > 50, "{}", results.kept.len());
    }
}
