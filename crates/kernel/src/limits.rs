//! How much one call may use: `tool ≤ request ≤ parent` (BC-1, EXEC-004, EXEC-005, X-11). Pure.
//!
//! The parent envelope is the operator's. A manifest or a request that asks for more than the parent is refused, because
//! giving less than was asked for silently would make the tool fail in ways nobody understands. A request below the
//! manifest narrows; one above it changes nothing, because a caller's limit is the most it allows, not a wish.
//!
//! Invariants
//! - LIM-1: no effective limit is above the manifest's, the request's or the parent's.
//! - LIM-2: a manifest that says nothing never refuses: the defaults (MAN-016) are cut to the parent. A number that equals
//!   its default counts as unsaid, because one limit that is written fills in the others.
//!
//! Not here: time (`deadline`), keeping the limits (the executors), counting how many calls run at once (`concurrency`).

use contract::envelope::CallLimits;
use contract::error::{ErrorCode, Refusal};
use contract::manifest::{Execution, Manifest, ResourceLimits};
use ports::resolved_limits::ResolvedLimits;
use serde_json::json;

/// The most that any call may use, and that run at once, as the operator has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceEnvelope {
    /// Thousandths of a core.
    pub cpu_millicores: u64,
    /// MiB.
    pub memory_mb: u64,
    /// Megabits a second; `None` is no bound.
    pub network_mbps: Option<u64>,
    /// MiB of scratch space.
    pub scratch_mb: u64,
    /// Bytes of a result, as JSON, of a tool that says nothing about it (VALID-013).
    pub result_bytes: u64,
    /// The most of them that a manifest may ask for, and what tools of MCP servers have that say nothing.
    pub result_bytes_ceiling: u64,
    /// Calls of one agent that run code of a tool's author at once.
    pub concurrent_calls_per_agent: u32,
}

impl Default for ResourceEnvelope {
    /// EXEC-005 and EXEC-006: four cores, 8 GiB, 100 Mbit/s, 10 GiB; four calls at once. VALID-013: results of 1 MiB. Those of MCP
    /// servers have 16 MiB, because they answer with pictures (decision 0099).
    fn default() -> Self {
        Self {
            cpu_millicores: 4_000,
            memory_mb: 8_192,
            network_mbps: Some(100),
            scratch_mb: 10_240,
            result_bytes: 1 << 20,
            result_bytes_ceiling: 16 << 20,
            concurrent_calls_per_agent: 4,
        }
    }
}

impl ResourceEnvelope {
    /// What a call may use, or why it asks for too much.
    ///
    /// ```
    /// # use gantry_kernel::ResourceEnvelope;
    /// # use contract::envelope::CallLimits;
    /// let asked = CallLimits { memory_mb_limit: Some(64), ..CallLimits::default() };
    /// let limits = ResourceEnvelope::default().resolve(None, &asked).unwrap();
    /// assert_eq!((limits.cpu_millicores, limits.memory_mb), (1_000, 64));
    /// ```
    pub fn resolve(&self, declared: Option<&ResourceLimits>, asked: &CallLimits) -> Result<ResolvedLimits, Refusal> {
        let usual = ResourceLimits::default();
        let CallLimits { timeout_seconds: _, cpu_millicore_limit, memory_mb_limit, network_bandwidth_mbps } = asked;
        for (name, number) in [
            ("cpu_millicore_limit", cpu_millicore_limit),
            ("memory_mb_limit", memory_mb_limit),
            ("network_bandwidth_mbps", network_bandwidth_mbps),
        ] {
            if *number == Some(0) {
                return Err(Refusal::new(
                    ErrorCode::E3004,
                    format!("resource_limits.{name} is 0, with which nothing can run"),
                )
                .hint("leave it out, or ask for at least 1"));
            }
        }
        let nested = |what: &'static str, read: fn(&ResourceLimits) -> Option<u64>, asked: Option<u32>, parent: u64| {
            // Admission has read the same text, so a number that does not fit is above every parent.
            let said =
                declared.map(|declared| read(declared).unwrap_or(u64::MAX)).filter(|said| Some(*said) != read(&usual));
            let manifest = within("the manifest", what, said, parent)?.or_else(|| read(&usual)).unwrap_or(parent);
            let asked = within("the request", what, asked.map(u64::from), parent)?;
            Ok(manifest.min(asked.unwrap_or(parent)).min(parent))
        };
        let parent_mbps = self.network_mbps.unwrap_or(u64::MAX);
        let mbps = within("the request", NETWORK, network_bandwidth_mbps.map(u64::from), parent_mbps)?;
        Ok(ResolvedLimits {
            cpu_millicores: nested(CPU, ResourceLimits::cpu_millicores, *cpu_millicore_limit, self.cpu_millicores)?,
            memory_mb: nested(MEMORY, ResourceLimits::memory_mb, *memory_mb_limit, self.memory_mb)?,
            network_mbps: mbps.or(self.network_mbps),
            scratch_mb: nested(SCRATCH, ResourceLimits::ephemeral_storage_mb, None, self.scratch_mb)?,
            result_bytes: self.result_bytes.min(self.result_bytes_ceiling),
            asked_by_caller: cpu_millicore_limit.is_some()
                || memory_mb_limit.is_some()
                || network_bandwidth_mbps.is_some(),
        })
    }

    /// Bytes that a result of this tool may have, or why its manifest asks for too much. (VALID-013, decision 0099)
    pub(crate) fn result_bytes_of(&self, manifest: &Manifest) -> Result<u64, Refusal> {
        let said = within("the manifest", RESULT, manifest.result_bytes_max.map(u64::from), self.result_bytes_ceiling)?;
        let usual = match manifest.execution {
            Some(Execution::Mcp { .. }) => self.result_bytes_ceiling,
            _ => self.result_bytes,
        };
        Ok(said.unwrap_or(usual).min(self.result_bytes_ceiling))
    }
}

const CPU: &str = "millicores of CPU";
const MEMORY: &str = "MB of memory";
const NETWORK: &str = "Mbit/s of network";
const SCRATCH: &str = "MB of scratch space";
const RESULT: &str = "bytes of a result";

/// The number itself, if it is not above the parent's.
fn within(who: &str, what: &str, number: Option<u64>, parent: u64) -> Result<Option<u64>, Refusal> {
    match number {
        Some(number) if number > parent => Err(Refusal::new(
            ErrorCode::E3407,
            format!("{who} asks for {number} {what}, and this server allows {parent}"),
        )
        .hint("ask for less, or let the operator raise the envelope of the server")
        .details(json!({ "asked": number, "allowed": parent, "unit": what }))
        .retryable(false)),
        fine => Ok(fine),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn declared(cpu: u64, memory: u64, scratch: u64) -> ResourceLimits {
        ResourceLimits {
            cpu: format!("{cpu}m"),
            memory: format!("{memory}Mi"),
            ephemeral_storage: format!("{scratch}Mi"),
        }
    }

    fn asked(cpu: Option<u32>, memory: Option<u32>, mbps: Option<u32>) -> CallLimits {
        CallLimits {
            timeout_seconds: None,
            cpu_millicore_limit: cpu,
            memory_mb_limit: memory,
            network_bandwidth_mbps: mbps,
        }
    }

    #[test]
    fn whoever_asks_for_more_than_the_parent_is_refused_with_both_numbers() {
        let parent = ResourceEnvelope::default();
        let small = declared(100, 64, 10);
        for (manifest, request, text) in [
            (
                declared(4_001, 64, 10),
                asked(None, None, None),
                "the manifest asks for 4001 millicores of CPU, and this server allows 4000",
            ),
            (
                declared(1, 9_000, 10),
                asked(None, None, None),
                "the manifest asks for 9000 MB of memory, and this server allows 8192",
            ),
            (declared(1, 64, 10_241), asked(None, None, None), "10241 MB of scratch space"),
            (small.clone(), asked(Some(5_000), None, None), "the request asks for 5000 millicores"),
            (small.clone(), asked(None, Some(8_193), None), "the request asks for 8193 MB"),
            (small, asked(None, None, Some(101)), "101 Mbit/s of network, and this server allows 100"),
        ] {
            let refusal = parent.resolve(Some(&manifest), &request).unwrap_err();
            assert_eq!((refusal.code, refusal.retryable), (ErrorCode::E3407, Some(false)));
            assert!(refusal.message.contains(text), "{}", refusal.message);
        }
    }

    #[test]
    fn a_manifest_that_says_nothing_fits_every_parent() {
        let parent = ResourceEnvelope {
            cpu_millicores: 250,
            memory_mb: 128,
            network_mbps: None,
            scratch_mb: 16,
            ..ResourceEnvelope::default()
        };
        let limits = parent.resolve(None, &CallLimits::default()).unwrap();
        assert_eq!((limits.cpu_millicores, limits.memory_mb, limits.scratch_mb), (250, 128, 16));
        assert_eq!((limits.network_mbps, limits.asked_by_caller), (None, false));
        let memory_only = ResourceLimits { memory: "64Mi".into(), ..ResourceLimits::default() };
        let limits = parent.resolve(Some(&memory_only), &CallLimits::default()).unwrap();
        assert_eq!((limits.cpu_millicores, limits.memory_mb, limits.scratch_mb), (250, 64, 16));
        let usual = ResourceEnvelope::default().resolve(None, &CallLimits::default()).unwrap();
        assert_eq!(usual, ResolvedLimits::default());
    }

    #[test]
    fn a_result_has_what_its_manifest_says_and_tools_of_mcp_servers_have_room_for_pictures() {
        let parent =
            ResourceEnvelope { result_bytes: 2_048, result_bytes_ceiling: 4_096, ..ResourceEnvelope::default() };
        let manifest = |said: Option<u32>, execution: serde_json::Value| {
            let document = json!({
                "tool_id": "greet", "version": "1.0.0", "name": "Greeter", "description": "Greets somebody by name.",
                "provider": "Demo", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
                "parameters": { "type": "object" }, "result_schema": {}, "execution": execution,
            });
            Manifest { result_bytes_max: said, ..Manifest::from_value(document).unwrap() }
        };
        let here = json!({ "type": "builtin", "handler": "calculator" });
        let behind = json!({ "type": "mcp", "server": "files", "tool": "read" });
        for (said, execution, allowed) in [
            (None, &here, Some(2_048)),
            (None, &behind, Some(4_096)),
            (Some(1_024), &behind, Some(1_024)),
            (Some(4_096), &here, Some(4_096)),
            (Some(4_097), &here, None),
        ] {
            let found = parent.result_bytes_of(&manifest(said, execution.clone()));
            assert_eq!(found.as_ref().ok().copied(), allowed, "{said:?} {execution}");
            assert!(found.err().is_none_or(|refusal| refusal.message.contains("4097 bytes of a result")));
        }
        let low = ResourceEnvelope { result_bytes_ceiling: 1_024, ..parent };
        assert_eq!(low.result_bytes_of(&manifest(None, here)).unwrap(), 1_024, "a manifest that says nothing fits");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// LIM-1.
        #[test]
        fn the_effective_limit_is_the_smallest_of_the_three(
            parent in (1_u64..5_000, 1_u64..5_000, 1_u64..5_000, prop::option::of(1_u64..500)),
            manifest in (1_u64..6_000, 1_u64..6_000, 1_u64..6_000),
            request in (prop::option::of(1_u32..6_000), prop::option::of(1_u32..6_000), prop::option::of(1_u32..600)),
        ) {
            let envelope = ResourceEnvelope {
                cpu_millicores: parent.0, memory_mb: parent.1, scratch_mb: parent.2, network_mbps: parent.3,
                ..ResourceEnvelope::default()
            };
            let limits = envelope.resolve(Some(&declared(manifest.0, manifest.1, manifest.2)), &asked(request.0, request.1, request.2));
            // What equals a default counts as unsaid.
            let said = |number: u64, usual: u64| if number == usual { 0 } else { number };
            let above = |number: Option<u32>, parent: u64| number.is_some_and(|number| u64::from(number) > parent);
            let too_much = said(manifest.0, 1_000) > parent.0 || said(manifest.1, 512) > parent.1 || said(manifest.2, 1_024) > parent.2
                || above(request.0, parent.0) || above(request.1, parent.1)
                || parent.3.is_some_and(|most| above(request.2, most));
            prop_assert_eq!(limits.is_err(), too_much);
            if let Ok(limits) = limits {
                let smaller = |own: u64, request: Option<u32>| own.min(request.map_or(u64::MAX, u64::from));
                prop_assert_eq!(limits.cpu_millicores, smaller(manifest.0.min(parent.0), request.0));
                prop_assert_eq!(limits.memory_mb, smaller(manifest.1.min(parent.1), request.1));
                prop_assert_eq!(limits.scratch_mb, manifest.2.min(parent.2));
                prop_assert_eq!(limits.network_mbps, request.2.map(u64::from).or(parent.3));
            }
        }
    }
}
