//! A synchronous call that outlives its caller's patience goes on in the background as a job. (ASYNC-001, LIFE-024)
//!
//! The call is the very same one: it is neither stopped nor begun again. It has the time it was given when it began, and
//! from here on everything a job has: status, progress, cancel, a kept end. If it cannot become a job (no room, the token
//! has ended meanwhile, the store does not answer), the caller simply waits on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::envelope::InvokeRequest;
use contract::ids::{InvocationId, TenantId};
use contract::trace_context::TraceContext;
use contract::version::VersionSpec;
use fair_places::FairPermit;
use kernel::phases::Returned;
use kernel::{FailedCall, IncomingCall, Kernel, Principal};
use policy::BearerSecret;
use ports::actor::Actor;
use ports::entropy::new_invocation_id;
use ports::job_store::{AdoptOutcome, FencingToken, JobKey, JobRecord};
use ports::tool_companion::CallListener;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::Jobs;
use super::progress_report::{Reporter, heard_by};
use super::queued_call::QueuedCall;
use super::submission::{Call, foreground, tool_seconds};
use super::tool_call::call_end;
use super::view::AcceptedCall;

/// What became of a call while its caller waited.
#[derive(Debug)]
pub enum CallOutcome {
    Returned(Box<Returned>),
    /// It goes on in the background.
    Promoted(AcceptedCall),
}

type Work = Pin<Box<dyn Future<Output = Result<Returned, Box<FailedCall>>> + Send>>;

impl Jobs {
    /// Runs a call. The caller waits for `patience` at most, or as long as the configuration says.
    pub async fn call(
        self: &Arc<Self>,
        actor: Actor<'_>,
        trace: TraceContext,
        request: InvokeRequest,
        patience: Option<Duration>,
    ) -> Result<CallOutcome, Box<FailedCall>> {
        if patience.is_none() && !self.could_outlive(&request) {
            let arrival = IncomingCall {
                credential: actor.credential,
                source: actor.source,
                request,
                trace: Some(trace),
                parent_left: None,
                audience: None,
                cancellation: self.kernel.drain_cancellation().child_token(),
            };
            return self.kernel.invoke(arrival).await.map(|returned| CallOutcome::Returned(Box::new(returned)));
        }
        let patience = patience.unwrap_or(self.queue.settings.promote_after);
        // Apart, because most calls have no use for the room it takes.
        let cancellation = self.kernel.drain_cancellation().child_token();
        Box::pin(self.call_for_long(actor, trace, request, patience, None, cancellation)).await
    }

    /// Runs a call whose caller hears it and can take a job for an answer. The caller is heard on after its call has
    /// become one; `cancellation` ends the call as long as it has not, and the job afterwards. The caller waits for `patience`, or as
    /// long as the configuration says.
    pub async fn call_heard(
        self: &Arc<Self>,
        actor: Actor<'_>,
        trace: TraceContext,
        request: InvokeRequest,
        audience: Arc<dyn CallListener>,
        patience: Option<Duration>,
        cancellation: CancellationToken,
    ) -> Result<CallOutcome, Box<FailedCall>> {
        if patience.is_none() && !self.could_outlive(&request) {
            let arrival = IncomingCall {
                credential: actor.credential,
                source: actor.source,
                request,
                trace: Some(trace),
                parent_left: None,
                audience: Some(audience),
                cancellation,
            };
            return self.kernel.invoke(arrival).await.map(|returned| CallOutcome::Returned(Box::new(returned)));
        }
        let patience = patience.unwrap_or(self.queue.settings.promote_after);
        Box::pin(self.call_for_long(actor, trace, request, patience, Some(audience), cancellation)).await
    }

    async fn call_for_long(
        self: &Arc<Self>,
        actor: Actor<'_>,
        trace: TraceContext,
        mut request: InvokeRequest,
        patience: Duration,
        listener: Option<Arc<dyn CallListener>>,
        cancellation: CancellationToken,
    ) -> Result<CallOutcome, Box<FailedCall>> {
        let clock = self.kernel.clock();
        foreground(&mut request);
        let made = match request.invocation_id {
            Some(_) => None,
            None => Some(new_invocation_id(self.kernel.entropy(), clock.now())),
        };
        let reporter = Arc::new(Reporter::default());
        let kernel = Arc::clone(&self.kernel);
        let audience = heard_by(&reporter, listener);
        let own = CancellationToken::new();
        let mut work = begin(kernel, actor, trace.clone(), (request.clone(), made), audience, own.clone());
        let ended = tokio::select! {
            biased;
            ended = cancelled_with(&mut work, &cancellation, &own) => Some(ended),
            () = clock.sleep(patience) => None,
        };
        if let Some(ended) = ended {
            return ended.map(|returned| CallOutcome::Returned(Box::new(returned)));
        }
        let promoted = match self.kernel.recognise(actor).await {
            Ok(principal) => self.adopt(&principal, (request, made), &trace).await,
            Err(_) => None,
        };
        let Some((record, repeatable, fence, accepted, room)) = promoted else {
            let ended = cancelled_with(&mut work, &cancellation, &own).await;
            return ended.map(|returned| CallOutcome::Returned(Box::new(returned)));
        };
        self.kernel.running_jobs().begin(&record.key, own.clone());
        self.queue.changed(&record.key);
        let jobs = Arc::clone(self);
        self.tasks.spawn(async move {
            let _room = room;
            // From here on the end of the doors is not its end: workers end jobs, in a time of their own.
            let forwarded = async {
                cancellation.cancelled().await;
                if !jobs.kernel.drain_cancellation().is_cancelled() {
                    own.cancel();
                }
                std::future::pending::<()>().await;
            };
            let outcome = tokio::select! {
                biased;
                outcome = &mut work => outcome,
                () = reporter.write(&jobs, &record.key, fence) => return,
                () = forwarded => return,
            };
            let outcome = call_end(&jobs.kernel, outcome, &record, repeatable);
            let why = jobs.kernel.running_jobs().end(&record.key);
            let end = jobs.judge(&record, fence, outcome, why, repeatable);
            jobs.keep_end(&record.key, fence, end).await;
        });
        Ok(CallOutcome::Promoted(accepted))
    }

    /// Can a call of this tool take longer than its caller waits? Most cannot, and are spared the price of the question. A
    /// tenant's own tool by the name of a shared one is taken for the shared one; then its caller just waits.
    fn could_outlive(&self, request: &InvokeRequest) -> bool {
        let registry = self.kernel.registry().snapshot();
        let now = self.kernel.clock().now();
        let shared = registry.find(&TenantId::home(), &request.tool_id);
        let tool = shared.and_then(|tool| tool.resolve(&VersionSpec::Latest, now).ok());
        tool.is_none_or(|tool| {
            Duration::from_millis(tool.manifest.timeout_max_ms()) > self.queue.settings.promote_after
        })
    }

    /// Keeps the running call as a job, if that is possible.
    async fn adopt(
        &self,
        principal: &Principal,
        (mut request, made): (InvokeRequest, Option<InvocationId>),
        trace: &TraceContext,
    ) -> Option<(JobRecord, bool, FencingToken, AcceptedCall, FairPermit)> {
        let room = self.promotions.take(principal.tenant(), principal.root_subject().as_str())?;
        let now = self.kernel.clock().now();
        let spec = VersionSpec::parse(request.tool_version.as_deref().unwrap_or_default()).ok()?;
        let registry = self.kernel.registry().snapshot();
        let named = registry.find(principal.tenant(), &request.tool_id)?;
        let tool = named.resolve_named(&spec, now, |version| principal.may_call(&named.id, version)).ok()?;
        let tool = Arc::clone(tool);
        let key = JobKey { tenant: principal.tenant().clone(), id: request.invocation_id.or(made)? };
        // A call without effects has asked about the id it brought as it began, and has no line that would keep it for it. As a
        // job it would stand before a call that the ledger knows under it by now.
        if made.is_none() && !tool.manifest.side_effect_policy.has_effects() {
            let line = self.kernel.books().ledger().find(&key.tenant, key.id).await;
            if !matches!(line, Ok(None)) {
                return None;
            }
        }
        request.invocation_id = Some(key.id);
        let parameters = self.kernel.prepared(principal, &tool, request.parameters.clone()).await?;
        let call_key = self.kernel.call_key(&request);
        let queued_call = QueuedCall::new(principal, &tool, request, trace, now);
        // With its key: whoever submits the same call now is told of this one. If another job has the key, that is the one
        // which the answer is about, and the caller waits on for it.
        let call = Call { principal, tool: &tool, parameters: &parameters, key: &call_key };
        let job = self.call_job(key.clone(), &queued_call, call).ok()?;
        let AdoptOutcome::Running(fence) = self.queue.store.adopt(job, self.owner).await.ok()? else { return None };
        self.kernel.note_spent_by_job(principal, key.id).await;
        let record = self.queue.store.find(&key).await.ok()??.record;
        let accepted = AcceptedCall {
            status: contract::envelope::InvocationStatus::Running,
            ..AcceptedCall::pending(key.id, tool_seconds(&tool), trace.trace_id)
        };
        Some((record, queued_call.repeatable, fence, accepted, room))
    }
}

/// The end of the work, which `cancellation` brings about too.
async fn cancelled_with(
    work: &mut Work,
    cancellation: &CancellationToken,
    own: &CancellationToken,
) -> Result<Returned, Box<FailedCall>> {
    tokio::select! {
        biased;
        () = cancellation.cancelled() => own.cancel(),
        ended = &mut *work => return ended,
    }
    work.await
}

/// The call as a future that owns everything it needs.
fn begin(
    kernel: Arc<Kernel>,
    actor: Actor<'_>,
    trace: TraceContext,
    (request, made): (InvokeRequest, Option<InvocationId>),
    audience: Arc<dyn CallListener>,
    cancellation: CancellationToken,
) -> Work {
    let credential = actor.credential.map(|BearerSecret(text)| Zeroizing::new(text.to_owned()));
    let source = actor.source;
    Box::pin(async move {
        let arrival = IncomingCall {
            credential: credential.as_ref().map(|text| BearerSecret(text)),
            source,
            request,
            trace: Some(trace),
            parent_left: None,
            audience: Some(audience),
            cancellation,
        };
        kernel.invoke_under(made, arrival).await
    })
}
