//! A synchronous call that outlives its caller's patience goes on in the background as a job. (ASYNC-001, LIFE-024)
//!
//! The call is the very same one: it is neither stopped nor begun again. It has the time it was given when it began, and
//! from here on everything a job has: status, progress, cancel, a kept end. If it cannot become a job (no room, the token
//! has ended meanwhile, the store does not answer), the caller simply waits on.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::envelope::InvokeRequest;
use contract::ids::TraceId;
use contract::version::VersionSpec;
use policy::BearerSecret;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::reporting::Reporter;
use super::tool_call::call_end;
use super::view::Accepted;
use super::warrant::Errand;
use super::{Jobs, foreground, tool_seconds};
use crate::administration::Actor;
use crate::identity::Principal;
use crate::invoke::{Arrival, Failed, Kernel};
use crate::phases::Returned;
use crate::ports::companion::Audience;
use crate::ports::entropy::new_invocation_id;
use crate::ports::job_store::{Adopted, Fence, JobKey, JobRecord};

/// What became of a call while its caller waited.
#[derive(Debug)]
pub enum Called {
    Returned(Box<Returned>),
    /// It goes on in the background.
    Promoted(Accepted),
}

/// A call that may go on without its request, so it owns what it needs.
#[derive(Debug)]
pub struct OwnedArrival {
    credential: Option<Zeroizing<String>>,
    source: Option<IpAddr>,
    request: InvokeRequest,
    trace_id: TraceId,
}

impl OwnedArrival {
    /// A call by whoever this is.
    pub fn new(actor: Actor<'_>, request: InvokeRequest) -> Self {
        let credential = actor.credential.map(|BearerSecret(text)| Zeroizing::new(text.to_owned()));
        Self { credential, source: actor.source, request, trace_id: actor.trace_id }
    }
}

type Work = Pin<Box<dyn Future<Output = Result<Returned, Box<Failed>>> + Send>>;

impl Jobs {
    /// Runs a call. The caller waits for `patience` at most, or as long as the configuration says.
    pub async fn call(
        self: &Arc<Self>,
        mut owned: OwnedArrival,
        patience: Option<Duration>,
    ) -> Result<Called, Box<Failed>> {
        let clock = self.kernel.clock();
        let id =
            *owned.request.invocation_id.get_or_insert_with(|| new_invocation_id(self.kernel.entropy(), clock.now()));
        foreground(&mut owned.request);
        let (reporter, cancellation) = (Arc::new(Reporter::default()), CancellationToken::new());
        let request = owned.request.clone();
        let trace_id = owned.trace_id;
        let credential = owned.credential.clone();
        let source = owned.source;
        let mut work = begin(Arc::clone(&self.kernel), owned, Arc::clone(&reporter), cancellation.clone());
        let ended = tokio::select! {
            biased;
            ended = &mut work => Some(ended),
            () = clock.sleep(patience.unwrap_or(self.settings.promote_after)) => None,
        };
        if let Some(ended) = ended {
            return ended.map(|returned| Called::Returned(Box::new(returned)));
        }
        let secret = credential.as_ref().map(|text| BearerSecret(text));
        let known = self.kernel.identity().recognise(self.kernel.access(), secret, source, clock.now()).await;
        let promoted = match known {
            Ok(principal) => self.adopt(&principal, id_request(request, id), trace_id).await,
            Err(_) => None,
        };
        let Some((record, repeatable, fence, accepted, room)) = promoted else {
            return work.await.map(|returned| Called::Returned(Box::new(returned)));
        };
        self.running.begin(&record.key, cancellation);
        self.tell(&record.key);
        let jobs = Arc::clone(self);
        self.tasks.spawn(async move {
            let _room = room;
            let outcome = tokio::select! {
                biased;
                outcome = &mut work => outcome,
                () = reporter.write(&jobs, &record.key, fence) => return,
            };
            let outcome = call_end(outcome, &record, repeatable);
            let why = jobs.running.end(&record.key);
            let end = jobs.judge(&record, outcome, why, repeatable);
            jobs.keep_end(&record.key, fence, end).await;
        });
        Ok(Called::Promoted(accepted))
    }

    /// Keeps the running call as a job, if that is possible.
    async fn adopt(
        &self,
        principal: &Principal,
        request: InvokeRequest,
        trace_id: TraceId,
    ) -> Option<(JobRecord, bool, Fence, Accepted, tokio::sync::OwnedSemaphorePermit)> {
        let room = Arc::clone(&self.promotions).try_acquire_owned().ok()?;
        let now = self.kernel.clock().now();
        let spec = VersionSpec::parse(request.tool_version.as_deref().unwrap_or_default()).ok()?;
        let registry = self.kernel.registry().snapshot();
        let tool = Arc::clone(registry.find(principal.tenant(), &request.tool_id)?.resolve(&spec, now).ok()?);
        let key = JobKey { tenant: principal.tenant().clone(), id: request.invocation_id? };
        let errand = Errand::new(principal, &tool, request, trace_id, now);
        let parameters = serde_json::Value::Object(errand.request.parameters.clone());
        let mut job = self.call_job(key.clone(), &errand, principal, &tool, &parameters).ok()?;
        // The call has begun: what its key means is settled where calls run.
        job.dedupe = None;
        let Adopted::Running(fence) = self.store.adopt(job, self.owner).await.ok()? else { return None };
        let record = self.store.find(&key).await.ok()??.record;
        let accepted = Accepted {
            status: contract::envelope::InvocationStatus::Running,
            ..Accepted::pending(key.id, tool_seconds(&tool), trace_id)
        };
        Some((record, errand.repeatable, fence, accepted, room))
    }
}

fn id_request(request: InvokeRequest, id: contract::ids::InvocationId) -> InvokeRequest {
    InvokeRequest { invocation_id: Some(id), ..request }
}

/// The call as a future that owns everything it needs.
fn begin(kernel: Arc<Kernel>, owned: OwnedArrival, reporter: Arc<Reporter>, cancellation: CancellationToken) -> Work {
    Box::pin(async move {
        let arrival = Arrival {
            credential: owned.credential.as_ref().map(|text| BearerSecret(text)),
            source: owned.source,
            request: owned.request,
            trace_id: Some(owned.trace_id),
            parent_left: None,
            audience: Some(reporter as Arc<dyn Audience>),
            cancellation,
        };
        kernel.invoke(arrival).await
    })
}
