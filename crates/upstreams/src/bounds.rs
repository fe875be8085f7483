//! Every bound of the supervision that is not the specification's own, with its default.

use std::time::Duration;

use crate::connection::StopGrace;
use crate::restarts::RestartBounds;
use crate::server_log::LogBounds;
use crate::spec::LifeBounds;

/// How much and how long.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamBounds {
    /// Calls on one server at once, three quarters of them of one tenant at most. Default 64.
    pub calls_max: usize,
    /// Calls that may wait for their turn, three quarters of them of one tenant at most; more are refused (E3701).
    /// Default 256.
    pub queue_max: usize,
    /// Servers that are kept at once, each tenant's counted. Default 1,000.
    pub units_max: usize,
    /// Servers that are programs of this machine and run at once, three quarters of them of one tenant at most; more are
    /// refused (E3701). Default 256.
    pub programs_max: usize,
    /// The first pause before a restart; it doubles. Default 0.5 s.
    pub pause_first: Duration,
    /// The longest. Default 30 s.
    pub pause_max: Duration,
    /// Between two probes of a server that was given up. Default one minute.
    pub probe_every: Duration,
    /// How long a heartbeat may take (MCP-013). Default 5 s.
    pub heartbeat_patience: Duration,
    /// How long calls may go on on a server that is replaced or stopped. Default 30 s.
    pub drain_max: Duration,
    /// How long a program may take to end by itself once its input has ended. Default 2 s.
    pub stop_patience: Duration,
    /// How long it may take once it was told to (SIGTERM), before it is ended with all it has started. Default 2 s.
    pub terminate_patience: Duration,
    /// How long all pages of one list may take. Default 30 s.
    pub list_patience: Duration,
    /// The logs of servers.
    pub log: LogBounds,
}

impl Default for UpstreamBounds {
    fn default() -> Self {
        Self {
            calls_max: 64,
            queue_max: 256,
            units_max: 1_000,
            programs_max: 256,
            pause_first: Duration::from_millis(500),
            pause_max: Duration::from_secs(30),
            probe_every: Duration::from_secs(60),
            heartbeat_patience: Duration::from_secs(5),
            drain_max: Duration::from_secs(30),
            stop_patience: Duration::from_secs(2),
            terminate_patience: Duration::from_secs(2),
            list_patience: Duration::from_secs(30),
            log: LogBounds::default(),
        }
    }
}

impl UpstreamBounds {
    /// How a server is ended in good order.
    pub(crate) fn ending(&self) -> StopGrace {
        StopGrace { asked: self.stop_patience, told: self.terminate_patience }
    }

    /// With what a specification says.
    pub(crate) fn restarts(&self, upkeep: &LifeBounds) -> RestartBounds {
        RestartBounds {
            restarts_max: upkeep.max_restarts,
            uptime_min: Duration::from_secs(upkeep.min_uptime_seconds),
            pause_first: self.pause_first,
            pause_max: self.pause_max,
            probe_every: self.probe_every,
        }
    }
}
