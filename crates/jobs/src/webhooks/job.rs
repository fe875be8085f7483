//! Deliveries as jobs of the queue. The queue brings the turn, [`Webhooks::deliver`] takes it.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use ports::entropy::new_trace_id;
use serde_json::{Value, json};

use super::Webhooks;
use super::deliver::{DELIVERY_JOB, DeliveryOutcome, DeliveryTurn};
use crate::{JobFailure, JobHandler, RunningJob};

/// Does jobs of the kind `webhook`.
#[derive(Debug)]
pub struct DeliveryJobs(pub Arc<Webhooks>);

#[async_trait]
impl JobHandler for DeliveryJobs {
    fn kind(&self) -> &'static str {
        DELIVERY_JOB
    }

    /// Receivers know a delivery by its id (WHK-2).
    fn may_repeat(&self, _: &Value) -> bool {
        true
    }

    async fn run(&self, job: &RunningJob) -> Result<Value, JobFailure> {
        let failed =
            |refusal: &Refusal, safe| JobFailure::of(refusal, &job.record, new_trace_id(&*self.0.parts.entropy), safe);
        let Some(turn) = DeliveryTurn::of_payload(&job.payload) else {
            return Err(failed(&Refusal::new(ErrorCode::E3000, "the job names no delivery"), false));
        };
        let delivery = turn.delivery;
        let delivering = self.0.deliver(&job.record.key.tenant, turn);
        let delivered = tokio::select! {
            delivered = delivering => delivered,
            () = job.cancellation.cancelled() => {
                return Err(failed(&Refusal::new(ErrorCode::E3703, "the delivery was interrupted"), true));
            }
        };
        match delivered.map_err(|refusal| failed(&refusal, true))? {
            DeliveryOutcome::Done => Ok(json!({ "state": "delivered" })),
            DeliveryOutcome::Again { after, error } => {
                Ok(json!({ "state": "pending", "error": error, "again_in_seconds": after.as_secs() }))
            }
            DeliveryOutcome::Nothing => Ok(json!({ "state": "nothing" })),
            // WHK-3: the end of the job, and so of the audit record, is E3704.
            DeliveryOutcome::Dead { error } => {
                let text = format!("delivery `{}` was given up: {error}", delivery.0);
                let refusal = Refusal::new(ErrorCode::E3704, text).hint("`gantry webhook resend` sends it again");
                Err(failed(&refusal, false))
            }
        }
    }
}
