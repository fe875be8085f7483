//! The manifest's numbers: time, retries, breaker, resources, network, checkpoints (MAN-012…019, MAN-034).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long a caller may have to wait (MAN-013, LIFE-024). Mandatory, because everything else is capped by it (X-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutClass {
    /// Answers within 500 ms.
    Interactive,
    /// Answers within 5 s.
    Standard,
    /// Answers within 5 min and reports progress.
    LongRunning,
    /// Submitted and polled; up to 24 h.
    Async,
}

impl TimeoutClass {
    /// The ceiling of the class.
    pub fn max_ms(self) -> u64 {
        match self {
            Self::Interactive => 500,
            Self::Standard => 5_000,
            Self::LongRunning => 300_000,
            Self::Async => 86_400_000,
        }
    }
}

/// When and how often a failed attempt is repeated (MAN-014). Only for calls that are safe to repeat (DESIGN §8.10).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: u8,
    #[schemars(range(min = 1.0, max = 10.0))]
    pub backoff_multiplier: f64,
    #[schemars(range(min = 1, max = 300))]
    pub backoff_max_seconds: u16,
    #[schemars(length(max = 200), inner(range(min = 400, max = 599)))]
    pub retry_on_status_codes: Vec<u16>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            backoff_multiplier: 2.0,
            backoff_max_seconds: 60,
            retry_on_status_codes: vec![429, 500, 502, 503, 504],
        }
    }
}

/// When calls to an ailing service are held back (MAN-015).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: u8,
    #[schemars(range(min = 1, max = 100))]
    pub success_threshold: u8,
    /// Seconds until an open breaker lets probes through.
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: u16,
    #[schemars(range(min = 1, max = 100))]
    pub half_open_max_calls: u8,
    /// Seconds of history that count.
    #[schemars(range(min = 1, max = 3600))]
    pub window_seconds: u16,
    /// Percent of calls that failed from which on it opens, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_percent: Option<u8>,
    /// Percent of calls that were slow from which on it opens, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub slow_percent: Option<u8>,
    /// Milliseconds after which a call is slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub slow_after_ms: Option<u32>,
    /// Calls below which percentages mean nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub minimum_calls: Option<u16>,
    /// Hundredths of the tool's health score below which one failure opens it (RES-013).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub health_percent: Option<u8>,
    /// Percent of calls that are let through at first when it is tried again (RES-006).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub canary_percent: Option<u8>,
    /// By how much each success raises that share; default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub canary_step_percent: Option<u8>,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failure_threshold: 5,
            success_threshold: 3,
            timeout_seconds: 60,
            half_open_max_calls: 10,
            window_seconds: 60,
            failure_percent: None,
            slow_percent: None,
            slow_after_ms: None,
            minimum_calls: None,
            health_percent: None,
            canary_percent: None,
            canary_step_percent: None,
        }
    }
}

/// That a tool may answer with its last good result while the breaker of its service is open (RES-019). Pure tools only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaleResults {
    /// How old such a result may be, in seconds.
    #[schemars(range(min = 1, max = 86400))]
    pub max_age_seconds: u32,
    /// Results are the same for every caller of a tenant. Default false: each gets its own only.
    #[serde(default, skip_serializing_if = "super::execution::is_false")]
    pub shared: bool,
}

/// What one call may use (MAN-016), in the notation of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceLimits {
    /// Cores: `2`, or thousandths of one: `500m`.
    #[schemars(length(max = 12), regex(pattern = r"^\d+m?$"))]
    pub cpu: String,
    #[schemars(length(max = 12), regex(pattern = r"^\d+(Mi|Gi)$"))]
    pub memory: String,
    #[schemars(length(max = 12), regex(pattern = r"^\d+(Mi|Gi)$"))]
    pub ephemeral_storage: String,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { cpu: "1".into(), memory: "512Mi".into(), ephemeral_storage: "1Gi".into() }
    }
}

impl ResourceLimits {
    /// Thousandths of a core, as BC-1 counts them. `None` if the number does not fit.
    pub fn cpu_millicores(&self) -> Option<u64> {
        match self.cpu.strip_suffix('m') {
            Some(thousandths) => thousandths.parse().ok(),
            None => self.cpu.parse::<u64>().ok()?.checked_mul(1000),
        }
    }

    /// MiB, as BC-1 counts memory.
    pub fn memory_mb(&self) -> Option<u64> {
        mebibytes(&self.memory)
    }

    /// MiB of scratch space.
    pub fn ephemeral_storage_mb(&self) -> Option<u64> {
        mebibytes(&self.ephemeral_storage)
    }
}

fn mebibytes(text: &str) -> Option<u64> {
    if let Some(gib) = text.strip_suffix("Gi") {
        return gib.parse::<u64>().ok()?.checked_mul(1024);
    }
    text.strip_suffix("Mi")?.parse().ok()
}

/// Where a tool may connect to (MAN-017). Nothing is allowed unless it is listed (X-48).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkPolicy {
    /// Host names, or `*.example.com`.
    #[schemars(length(max = 256), inner(regex(pattern = r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")))]
    pub allowed_domains: Vec<String>,
    /// Default 80 and 443.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(range(min = 1, max = 65535)))]
    pub allowed_ports: Option<Vec<u16>>,
    /// Closes the network whatever else is declared.
    pub deny_all_egress: bool,
}

/// How often a tool may be called (MAN-034).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_per_minute: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_per_hour: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_per_day: Option<u32>,
}

/// When state is saved so that a call can be resumed (MAN-019).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    pub enabled: bool,
    #[schemars(range(min = 10, max = 300))]
    pub micro_interval_seconds: u16,
    #[schemars(length(max = 64))]
    pub macro_events: Vec<String>,
    /// Bytes from which state is compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_threshold_bytes: Option<u32>,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { enabled: false, micro_interval_seconds: 30, macro_events: Vec::new(), compression_threshold_bytes: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_notation_converts_to_the_units_of_the_envelopes() {
        let limits =
            |cpu: &str, memory: &str| ResourceLimits { cpu: cpu.into(), memory: memory.into(), ..Default::default() };
        assert_eq!(limits("2", "512Mi").cpu_millicores(), Some(2000));
        assert_eq!(limits("500m", "2Gi").cpu_millicores(), Some(500));
        assert_eq!(limits("500m", "2Gi").memory_mb(), Some(2048));
        assert_eq!(limits("99999999999999999999", "2Gi").cpu_millicores(), None);
        assert_eq!(ResourceLimits::default().ephemeral_storage_mb(), Some(1024));
    }
}
