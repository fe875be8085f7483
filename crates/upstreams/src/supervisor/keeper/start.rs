//! One start of a server, and what is remembered and told of it.

use std::sync::Arc;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};

use super::UnitKeeper;
use crate::connection::{ExpectedEra, ProtocolEra, within};
use crate::fault::UpstreamFault;
use crate::observer::{ReconnectKind, UpstreamEvent};
use crate::starter::StartTarget;
use crate::supervisor::live::LiveConnection;

impl UnitKeeper {
    /// One start, within its time.
    pub(super) async fn start(&mut self) -> Result<Arc<LiveConnection>, Arc<Refusal>> {
        let context = Arc::clone(&self.unit.context);
        self.starts += 1;
        let patience = Duration::from_secs(self.spec.upkeep.start_timeout_seconds.max(1));
        let wanted = StartTarget {
            name: &self.unit.name,
            tenant: &self.unit.tenant,
            owner: &self.unit.owner,
            spec: &self.spec,
            expected: self.expected(),
            hearing: Arc::clone(&self.unit) as _,
            log: &self.unit.log,
        };
        let outcome = tokio::select! {
            outcome = within(&*context.clock, patience, context.starter.start(wanted)) => outcome.unwrap_or(Err(UpstreamFault::Late)),
            () = self.unit.closing.cancelled() => Err(UpstreamFault::NotSent("the server is being stopped")),
        };
        self.tell_start(outcome.is_ok());
        let mut facts = self.unit.facts();
        facts.restarts = self.starts.saturating_sub(1);
        match outcome {
            Ok(started) => {
                let era = started.connection.met().era;
                self.era = Some(era);
                facts.era = Some(era);
                facts.forget_error();
                facts.lets_watch = Some(started.connection.met().lets_watch());
                Ok(LiveConnection::new(started, Arc::clone(&context.clock)))
            }
            Err(fault) => {
                // A program that dies of a question it does not know is asked in the old way the next time; one that was
                // thought to be of either kind and did not start is asked anew.
                let died = matches!(fault, UpstreamFault::Lost(_) | UpstreamFault::NotSent(_));
                self.era = if self.era.is_none() && died { Some(ProtocolEra::Legacy) } else { None };
                tracing::warn!(server = %self.unit.name, tenant = %self.unit.tenant, %fault, "a server did not start");
                self.unit.log.line(&format!("[gantry] it did not start: {fault}"));
                facts.remember_error(fault.to_string(), fault.hint().map(str::to_owned));
                Err(Arc::new(not_started(fault, &self.unit.name)))
            }
        }
    }

    /// What its operator, its unit or the last start says of the protocol it speaks.
    fn expected(&self) -> ExpectedEra {
        match (self.unit.meeting.only().or_else(|| self.spec.era.only()), self.era) {
            (Some(only), _) => ExpectedEra::Only(only),
            (None, Some(found)) => ExpectedEra::Found(found),
            (None, None) => ExpectedEra::Nothing,
        }
    }

    fn tell_start(&mut self, done: bool) {
        let event = match (std::mem::take(&mut self.forgotten), done) {
            (true, true) => UpstreamEvent::Reconnected(ReconnectKind::Session),
            _ => UpstreamEvent::Started { done, again: self.starts > 1 },
        };
        self.unit.teller.tell(event);
    }
}

/// A start that failed, for those who waited for it: nothing of their calls was done.
fn not_started(fault: UpstreamFault, server: &str) -> Refusal {
    match fault {
        UpstreamFault::Ours(error) => error.refusal,
        UpstreamFault::Denied(_) | UpstreamFault::Busy { .. } => fault.refusal(server, true),
        UpstreamFault::Late => {
            Refusal::new(ErrorCode::E3503, format!("the server `{server}` did not start in time")).retryable(true)
        }
        other => Refusal::new(ErrorCode::E3502, format!("the server `{server}` could not be started: {other}"))
            .retryable(true),
    }
}
