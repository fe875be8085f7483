//! Whether and how often a call saves: what the caller wishes, else what the manifest says, else what its class does.

use std::time::Duration;

use contract::envelope::{CheckpointKind, CheckpointOptions};
use contract::error::{ErrorCode, Refusal};
use contract::manifest::{CheckpointConfig, Manifest, TimeoutClass};
use ports::checkpoint_store::CheckpointId;

use super::codec::GZIP_FROM_BYTES;

/// Seconds between two micro-checkpoints unless somebody says otherwise.
const INTERVAL_SECONDS: u32 = 30;
/// Most seconds that may be asked for.
const INTERVAL_SECONDS_MAX: u32 = 3_600;

/// How one call saves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckpointPlan {
    pub(super) interval: Duration,
    pub(super) gzip_from: usize,
    macro_events: Vec<String>,
}

impl CheckpointPlan {
    /// `None` if the call does not save.
    pub(crate) fn of(wish: &CheckpointOptions, manifest: &Manifest) -> Option<Self> {
        let config = manifest.checkpoint_config.as_ref();
        let by_class = matches!(manifest.timeout_class, TimeoutClass::LongRunning | TimeoutClass::Async);
        let wanted = wish.enable_checkpointing.or_else(|| config.map(|config| config.enabled)).unwrap_or(by_class);
        if !wanted {
            return None;
        }
        let declared = config.map(|config| u32::from(config.micro_interval_seconds));
        let seconds = wish.checkpoint_interval_seconds.or(declared).unwrap_or(INTERVAL_SECONDS);
        let threshold = config.and_then(|config: &CheckpointConfig| config.compression_threshold_bytes);
        let threshold = threshold.and_then(|bytes| usize::try_from(bytes).ok());
        Some(Self {
            interval: Duration::from_secs(u64::from(seconds)),
            gzip_from: threshold.unwrap_or(GZIP_FROM_BYTES),
            macro_events: config.map(|config| config.macro_events.clone()).unwrap_or_default(),
        })
    }

    /// What a name makes of a checkpoint.
    pub(super) fn kind(&self, name: Option<&str>) -> CheckpointKind {
        match name {
            None => CheckpointKind::Micro,
            Some(name) if self.macro_events.iter().any(|event| event == name) => CheckpointKind::Macro,
            Some(_) => CheckpointKind::Named,
        }
    }
}

/// Is a wish within its bounds? Gives the checkpoint it wants to go on from.
pub(crate) fn wish_shape(wish: &CheckpointOptions) -> Result<Option<CheckpointId>, Refusal> {
    if wish.checkpoint_interval_seconds.is_some_and(|seconds| !(1..=INTERVAL_SECONDS_MAX).contains(&seconds)) {
        return Err(Refusal::new(ErrorCode::E3004, "checkpoint_config.checkpoint_interval_seconds is out of range")
            .hint(format!("use 1 to {INTERVAL_SECONDS_MAX} seconds")));
    }
    let named = wish.resume_from_checkpoint_id.as_deref();
    // What is no id at all is there as little as an id that nobody has.
    named.map(|text| text.parse().map_err(|_| super::not_there(text))).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(class: &str, config: Value) -> Manifest {
        let mut document = json!({
            "tool_id": "dig", "version": "1.0.0", "name": "Dig", "description": "Digs for a long time.", "provider": "T",
            "protocol": "native", "side_effect_policy": "pure", "timeout_class": class,
            "parameters": { "type": "object" }, "result_schema": { "type": "object" },
        });
        if !config.is_null() {
            document["checkpoint_config"] = config;
        }
        Manifest::from_value(document).unwrap()
    }

    #[test]
    fn the_caller_comes_before_the_manifest_and_that_before_the_class() {
        let off = json!({ "enabled": false });
        let on = json!({ "enabled": true, "micro_interval_seconds": 60 });
        let cases = [
            ("long_running", Value::Null, None, None, Some(30)),
            ("async", Value::Null, None, None, Some(30)),
            ("standard", Value::Null, None, None, None),
            ("standard", Value::Null, Some(true), Some(5), Some(5)),
            ("long_running", off.clone(), None, None, None),
            ("long_running", off, Some(true), None, Some(30)),
            ("standard", on.clone(), None, None, Some(60)),
            ("standard", on.clone(), None, Some(1), Some(1)),
            ("long_running", on, Some(false), None, None),
        ];
        for (class, config, enable, interval, expected) in cases {
            let wish = CheckpointOptions {
                enable_checkpointing: enable,
                checkpoint_interval_seconds: interval,
                resume_from_checkpoint_id: None,
            };
            let plan = CheckpointPlan::of(&wish, &manifest(class, config.clone()));
            assert_eq!(plan.map(|plan| plan.interval.as_secs()), expected, "{class} {config} {enable:?} {interval:?}");
        }
    }

    #[test]
    fn a_name_that_is_a_declared_event_makes_a_macro_checkpoint() {
        let config = json!({ "enabled": true, "macro_events": ["file_parsed"] });
        let plan = CheckpointPlan::of(&CheckpointOptions::default(), &manifest("async", config)).unwrap();
        assert_eq!(plan.kind(None), CheckpointKind::Micro);
        assert_eq!(plan.kind(Some("file_parsed")), CheckpointKind::Macro);
        assert_eq!(plan.kind(Some("before lunch")), CheckpointKind::Named);
    }

    #[test]
    fn a_manifest_says_from_which_size_on_its_states_are_compressed() {
        let from =
            |config| CheckpointPlan::of(&CheckpointOptions::default(), &manifest("async", config)).unwrap().gzip_from;
        assert_eq!(from(json!({ "enabled": true })), GZIP_FROM_BYTES);
        assert_eq!(from(json!({ "enabled": true, "compression_threshold_bytes": 4_096 })), 4_096);
    }

    #[test]
    fn a_wish_out_of_bounds_is_refused() {
        let interval = |seconds| CheckpointOptions { checkpoint_interval_seconds: Some(seconds), ..Default::default() };
        for seconds in [0, 3_601, u32::MAX] {
            assert_eq!(wish_shape(&interval(seconds)).unwrap_err().code, ErrorCode::E3004);
        }
        let from = |id: &str| CheckpointOptions { resume_from_checkpoint_id: Some(id.into()), ..Default::default() };
        for id in ["", "x", "2026-01-01T00:00:00Z", &"1".repeat(500)] {
            assert_eq!(wish_shape(&from(id)).unwrap_err().code, ErrorCode::E3903, "{id}");
        }
        assert!(wish_shape(&from("019b0000-0000-7000-8000-000000000001")).unwrap().is_some());
    }
}
