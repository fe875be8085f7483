//! Calls that are let in now and done later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contract::envelope::{InvocationStatus, InvokeRequest};
use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use gantry_jobs::{
    AcceptedCall, InvocationView, JobFailure, JobHandler, JobQueue, JobQueueParts, Jobs, JobsParts, JobsSettings,
    RunningJob, SystemJob, Workers,
};
use kernel::resilience::ResilienceSettings;
use kernel::{DelegationRequest, FailedCall, IncomingCall, ResourceEnvelope, RevocationRequest};
use policy::BearerSecret;
use ports::actor::SYSTEM_SUBJECT;
use ports::audit_sink::AuditAction;
use ports::job_store::{
    EnqueueOutcome, JobFilter, JobKey, JobPriority, JobState, JobStore, OwnerId, QueueBounds, TakeRules,
};
use ports::resilience::ManualMove;
use ports::tool_companion::{CallListener, CallerAnswer, LogLevel, QuestionKind, ToolProgress, ToolQuestion};
use serde_json::{Value, json};
use store::memory::MemoryStore;
use test_kernel::{
    ADMIN, MemoryAudit, ScriptedTool, TestKernel, TestKernelOptions, ToolScript, admin, arrival, as_holder, greet,
    manifest,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Nothing here takes longer; a passing test never waits that long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stage with a queue behind it.
pub(crate) struct TestJobs {
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) store: Arc<MemoryStore>,
    tool: Arc<ScriptedTool>,
    pub(crate) audit: Arc<MemoryAudit>,
    pub(crate) kernel: Arc<kernel::Kernel>,
    clock: Arc<test_kernel::HeldClock>,
    entropy: Arc<test_kernel::CountingEntropy>,
    stop: CancellationToken,
}

impl TestJobs {
    pub(crate) async fn new() -> Self {
        Self::with(JobsSettings::default(), json!({}), Vec::new()).await
    }

    pub(crate) async fn with(settings: JobsSettings, change: Value, handlers: Vec<Arc<dyn JobHandler>>) -> Self {
        Self::on(TestKernel::new().await, settings, change, handlers).await
    }

    async fn on(stage: TestKernel, settings: JobsSettings, change: Value, handlers: Vec<Arc<dyn JobHandler>>) -> Self {
        stage.publish(change).await;
        let TestKernel { kernel, clock, tool, audit, entropy, jobs: store, .. } = stage;
        let kernel = Arc::new(kernel);
        let parts = JobQueueParts {
            store: Arc::clone(&store) as _,
            clock: Arc::clone(&clock) as _,
            entropy: Arc::clone(&entropy) as _,
            settings,
        };
        let queue = JobQueue::new(parts);
        let parts = JobsParts { kernel: Arc::clone(&kernel), queue, handlers, webhooks: None };
        let jobs = Jobs::open(parts).await.unwrap();
        Self { jobs, store, tool, audit, kernel, clock, entropy, stop: CancellationToken::new() }
    }

    /// Sets workers to work until the test ends.
    pub(crate) fn work(&self) {
        tokio::spawn(Workers::new(Arc::clone(&self.jobs)).run(self.stop.clone()));
    }

    /// The same in a new process, after the former one is gone.
    pub(crate) async fn work_anew(&self) {
        let queue = JobQueue::new(JobQueueParts {
            store: Arc::clone(&self.store) as _,
            clock: Arc::clone(&self.clock) as _,
            entropy: Arc::clone(&self.entropy) as _,
            settings: JobsSettings::default(),
        });
        let parts = JobsParts { kernel: Arc::clone(&self.kernel), queue, handlers: Vec::new(), webhooks: None };
        let jobs = Jobs::open(parts).await.unwrap();
        tokio::spawn(Workers::new(jobs).run(self.stop.clone()));
    }

    pub(crate) async fn submit_as(&self, secret: &str, change: Value) -> Result<AcceptedCall, Box<FailedCall>> {
        let mut request = greet();
        request["execution_options"] = json!({ "async_mode": true });
        for (member, value) in change.as_object().unwrap() {
            request[member] = value.clone();
        }
        let request: InvokeRequest = serde_json::from_value(request).unwrap();
        assert!(Jobs::wants_background(&request));
        let arrival = IncomingCall {
            credential: Some(BearerSecret(secret)),
            source: None,
            request,
            trace: None,
            parent_left: None,
            audience: None,
            cancellation: CancellationToken::new(),
        };
        self.jobs.submit(arrival).await
    }

    /// Begins a call as a job, for a caller that is there to be asked.
    async fn start(&self, parameters: Value, audience: Arc<dyn CallListener>) -> Result<AcceptedCall, Box<FailedCall>> {
        self.start_as(ADMIN, parameters, audience).await
    }

    async fn start_as(
        &self,
        secret: &str,
        parameters: Value,
        audience: Arc<dyn CallListener>,
    ) -> Result<AcceptedCall, Box<FailedCall>> {
        let mut request = greet();
        request["parameters"] = parameters;
        let arrival = IncomingCall {
            credential: Some(BearerSecret(secret)),
            source: None,
            request: serde_json::from_value(request).unwrap(),
            trace: None,
            parent_left: None,
            audience: Some(audience),
            cancellation: CancellationToken::new(),
        };
        self.jobs.start(arrival).await
    }

    pub(crate) async fn submit(&self, change: Value) -> InvocationId {
        self.submit_as(ADMIN, change).await.unwrap().invocation_id
    }

    pub(crate) async fn status(&self, id: InvocationId) -> InvocationView {
        self.jobs.status(admin(), None, id).await.unwrap()
    }

    /// Waits until `wanted` holds of the job.
    pub(crate) async fn until(&self, id: InvocationId, wanted: impl Fn(&InvocationView) -> bool) -> InvocationView {
        self.until_in(None, id, wanted).await
    }

    async fn until_in(
        &self,
        tenant: Option<&str>,
        id: InvocationId,
        wanted: impl Fn(&InvocationView) -> bool,
    ) -> InvocationView {
        let tenant = tenant.map(|tenant| tenant.parse().unwrap());
        let looking = async {
            loop {
                let view = self.jobs.status(admin(), tenant.as_ref(), id).await.unwrap();
                if wanted(&view) {
                    return view;
                }
                // Looking without a pause would take the time of the workers that it waits for.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.unwrap()
    }

    pub(crate) fn runs(&self) -> usize {
        self.tool.calls.lock().unwrap().len()
    }

    pub(crate) fn act(&self, act: ToolScript) {
        *self.tool.act.lock().unwrap() = act;
    }

    fn step(&self, seconds: i64) {
        self.clock.now.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    pub(crate) async fn mint(&self, wish: Value) -> String {
        self.kernel.mint_token(admin(), &test_kernel::mint_request(wish)).await.unwrap().token
    }
}

impl Drop for TestJobs {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn ended(view: &InvocationView) -> bool {
    view.record.state.is_end()
}

pub(crate) fn code(view: &InvocationView) -> &str {
    view.record.error.as_ref().and_then(|error| error["code"].as_str()).unwrap_or("")
}

fn refused(outcome: Result<AcceptedCall, Box<FailedCall>>) -> ErrorCode {
    outcome.unwrap_err().refusal.code
}

#[tokio::test]
async fn a_submitted_call_is_done_later_and_its_end_is_kept() {
    let stage = TestJobs::new().await;
    let accepted = stage.submit_as(ADMIN, json!({})).await.unwrap();
    assert_eq!(accepted.status, InvocationStatus::Pending);
    assert_eq!(stage.runs(), 0);
    assert_eq!(stage.status(accepted.invocation_id).await.status, InvocationStatus::Pending);
    stage.work();
    let view = stage.until(accepted.invocation_id, ended).await;
    assert_eq!((view.status, view.record.attempts), (InvocationStatus::Success, 1));
    let result = view.result.clone().unwrap();
    assert_eq!((&result["result"]["text"], &result["tool_version"]), (&json!("hi"), &json!("1.0.0")));
    assert_eq!(result["invocation_id"], json!(accepted.invocation_id), "the call has the id of its job");
    assert_eq!(stage.runs(), 1);
    let payload = stage.store.find(&view.record.key).await.unwrap().unwrap().payload.to_string();
    assert!(!payload.contains(ADMIN), "no token is kept");
}

#[tokio::test]
async fn what_a_call_would_be_refused_for_is_refused_at_submission() {
    let stage = TestJobs::new().await;
    let narrow = stage.mint(json!({ "tools": [{ "tool_id": "other" }] })).await;
    assert_eq!(refused(stage.submit_as(ADMIN, json!({ "parameters": {} })).await), ErrorCode::E3301);
    assert_eq!(refused(stage.submit_as(ADMIN, json!({ "tool_id": "nothing" })).await), ErrorCode::E3101);
    assert_eq!(refused(stage.submit_as(&narrow, json!({})).await), ErrorCode::E3204);
    assert_eq!(refused(stage.submit_as("nobody", json!({})).await), ErrorCode::E3203);
    assert_eq!(stage.store.counts().await.unwrap().waiting, 0);
}

#[tokio::test]
async fn the_end_of_the_token_is_not_asked_again_but_its_revocation_is() {
    let stage = TestJobs::new().await;
    let outlived = stage.mint(json!({ "ttl_seconds": 60 })).await;
    let revoked = stage.mint(json!({ "sub": "agent-2", "ttl_seconds": 60 })).await;
    let first = stage.submit_as(&outlived, json!({})).await.unwrap().invocation_id;
    let second = stage.submit_as(&revoked, json!({})).await.unwrap().invocation_id;
    stage.step(3_600);
    assert_eq!(refused(stage.submit_as(&outlived, json!({})).await), ErrorCode::E3201);
    let request = RevocationRequest {
        sub: Some("agent-2".parse().unwrap()),
        tenant: Some("acme".parse().unwrap()),
        ..RevocationRequest::default()
    };
    stage.kernel.revoke_tokens(admin(), &request).await.unwrap();
    stage.work_anew().await;
    assert_eq!(stage.until_in(Some("acme"), first, ended).await.status, InvocationStatus::Success);
    let void = stage.until_in(Some("acme"), second, ended).await;
    assert_eq!((void.status, code(&void)), (InvocationStatus::PermissionDenied, "E3201"));
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_call_that_waited_longer_than_it_may_is_not_begun() {
    let stage = TestJobs::new().await;
    let id = stage.submit(json!({})).await;
    stage.step(25 * 3_600);
    stage.work_anew().await;
    let view = stage.until(id, ended).await;
    assert_eq!((view.status, code(&view), stage.runs()), (InvocationStatus::Timeout, "E3002", 0));
}

#[tokio::test]
async fn one_idempotency_key_is_one_job_and_other_parameters_are_a_conflict() {
    let stage = TestJobs::new().await;
    let keyed = |parameters: Value| {
        json!({ "parameters": parameters,
        "execution_options": { "async_mode": true, "idempotency_key": "k" } })
    };
    let first = stage.submit(keyed(json!({ "name": "Ada" }))).await;
    assert_eq!(stage.submit(keyed(json!({ "name": "Ada", "times": 1 }))).await, first, "a default is the same call");
    assert_eq!(refused(stage.submit_as(ADMIN, keyed(json!({ "name": "Bob" }))).await), ErrorCode::E3410);
    let other = stage.mint(json!({ "sub": "agent-2" })).await;
    let theirs = stage.submit_as(&other, keyed(json!({ "name": "Bob" }))).await.unwrap().invocation_id;
    assert_ne!(theirs, first, "a key means something within its tenant and session only");
    stage.work();
    stage.until(first, ended).await;
    let again = stage.submit_as(ADMIN, keyed(json!({ "name": "Ada" }))).await.unwrap();
    assert_eq!((again.invocation_id, again.status), (first, InvocationStatus::Success));
}

/// Answers whatever it is asked with its own name.
#[derive(Debug)]
struct Willing;

#[async_trait::async_trait]
impl CallListener for Willing {
    fn progress(&self, _: &ToolProgress) {}
    fn log(&self, _: LogLevel, _: &str) {}
    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        vec![(QuestionKind::Elicitation, json!({}))]
    }
    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        Ok(questions
            .into_iter()
            .map(|question| CallerAnswer { value: json!(question.key), key: question.key })
            .collect())
    }
}

#[tokio::test]
async fn a_call_that_is_a_job_from_its_beginning_needs_no_worker_and_can_ask_its_caller() {
    let stage = TestJobs::new().await;
    let question = ToolQuestion { key: "colour".into(), kind: QuestionKind::Elicitation, parameters: json!({}) };
    stage.act(ToolScript::Ask(vec![question]));
    let accepted = stage.start(json!({ "name": "Ada" }), Arc::new(Willing)).await.unwrap();
    assert_eq!(accepted.status, InvocationStatus::Running);
    let view = stage.until(accepted.invocation_id, ended).await;
    assert_eq!((view.status, view.record.attempts, stage.runs()), (InvocationStatus::Success, 1, 1), "{view:?}");
    assert!(view.result.unwrap()["result"].to_string().contains("colour"));
    assert_eq!(refused(stage.start(json!({}), Arc::new(Willing)).await), ErrorCode::E3301, "no job was made of it");
    let listed = stage.jobs.list(admin(), JobFilter::default(), None, 10).await.unwrap();
    assert_eq!(listed.jobs.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_begun() {
    let settings = JobsSettings { promoted_max: 0, ..JobsSettings::default() };
    let stage = TestJobs::with(settings, json!({}), Vec::new()).await;
    assert_eq!(refused(stage.start(json!({ "name": "Ada" }), Arc::new(Willing)).await), ErrorCode::E3701);
    assert_eq!((stage.runs(), stage.store.counts().await.unwrap().running), (0, 0));
}

#[tokio::test]
async fn calls_that_go_on_in_the_background_for_one_tenant_leave_room_for_others() {
    let settings = JobsSettings { promoted_max: 8, ..JobsSettings::default() };
    let stage = TestJobs::with(settings, json!({}), Vec::new()).await;
    stage.act(ToolScript::Hang);
    let begin = async |tenant: &str, number: usize| {
        let secret = stage.mint(json!({ "sub": format!("{tenant}-{number}"), "tenant": tenant })).await;
        stage.start_as(&secret, json!({ "name": "Ada" }), Arc::new(Willing)).await
    };
    for number in 0..6 {
        begin("mallory", number).await.unwrap();
    }
    assert_eq!(refused(begin("mallory", 6).await), ErrorCode::E3701, "three quarters");
    for other in ["acme", "zeta"] {
        begin(other, 0).await.unwrap();
    }
    let [_, (name, usage)] = stage.jobs.places();
    assert_eq!((name, usage.held, usage.refused), ("background_calls", 8, 1));
}

#[tokio::test]
async fn a_full_queue_refuses_and_keeps_nothing() {
    let settings =
        JobsSettings { bounds: QueueBounds { per_flow: 2, per_tenant: 2, total: 100 }, ..JobsSettings::default() };
    let stage = TestJobs::with(settings, json!({}), Vec::new()).await;
    stage.submit(json!({})).await;
    stage.submit(json!({})).await;
    let failed = stage.submit_as(ADMIN, json!({})).await.unwrap_err();
    assert_eq!(failed.refusal.code, ErrorCode::E3701);
    assert!(failed.refusal.retry_after_ms.is_some());
    let other = stage.mint(json!({})).await;
    stage.submit_as(&other, json!({})).await.unwrap();
}

#[tokio::test]
async fn a_waiting_call_that_is_cancelled_never_starts_and_a_running_one_is_ended() {
    let stage = TestJobs::new().await;
    let waiting = stage.submit(json!({})).await;
    for _ in 0..2 {
        let state = stage.jobs.cancel(admin(), None, waiting, Some("changed my mind")).await.unwrap();
        assert_eq!(state, JobState::Cancelled);
    }
    stage.act(ToolScript::Hang);
    stage.work();
    let running = stage.submit(json!({})).await;
    stage.until(running, |view| view.status == InvocationStatus::Running).await;
    assert_eq!(stage.jobs.cancel(admin(), None, running, None).await.unwrap(), JobState::Running);
    let view = stage.until(running, ended).await;
    assert_eq!((view.status, code(&view)), (InvocationStatus::Cancelled, "E3703"));
    assert_eq!(stage.jobs.cancel(admin(), None, running, None).await.unwrap(), JobState::Cancelled);
    stage.act(ToolScript::Answer(json!({ "text": "hi" })));
    let done = stage.submit(json!({})).await;
    stage.until(done, ended).await;
    assert_eq!(stage.jobs.cancel(admin(), None, done, None).await.unwrap(), JobState::Done, "its end stays");
    assert_eq!(stage.status(waiting).await.status, InvocationStatus::Cancelled);
    assert_eq!(stage.runs(), 2);
}

#[tokio::test]
async fn a_failure_that_may_pass_is_tried_again_after_a_pause_and_dies_in_the_end() {
    let settings = JobsSettings { attempts_max: 2, ..JobsSettings::default() };
    let stage = TestJobs::with(settings, json!({}), Vec::new()).await;
    stage.act(ToolScript::Fail(Refusal::new(ErrorCode::E3502, "it is down")));
    stage.work();
    let id = stage.submit(json!({})).await;
    let view = stage.until(id, |view| view.record.state == JobState::Delayed).await;
    assert_eq!((view.status, code(&view), view.record.attempts), (InvocationStatus::Pending, "E3502", 1));
    stage.step(20);
    stage.submit(json!({})).await;
    let view = stage.until(id, ended).await;
    assert_eq!((view.record.state, view.status), (JobState::Dead, InvocationStatus::Error));
    assert_eq!(view.record.attempts, 2);
    // Before it is begun again: a worker may have it before its caller hears of it.
    stage.act(ToolScript::Answer(json!({ "text": "hi" })));
    let again = stage.jobs.retry(admin(), None, id).await.unwrap().invocation_id;
    assert_ne!(again, id);
    assert_eq!(stage.status(id).await.record.state, JobState::Dead, "what has ended does not change");
    let view = stage.until(again, ended).await;
    assert_eq!(view.status, InvocationStatus::Success);
    assert_eq!(stage.jobs.retry(admin(), None, again).await.unwrap_err().code, ErrorCode::E3408);
}

#[tokio::test]
async fn a_job_that_is_begun_again_takes_the_turns_of_its_root_and_stays_its_owner_s() {
    let stage = TestJobs::new().await;
    let mallory = stage.mint(json!({ "sub": "mallory" })).await;
    let wish = DelegationRequest { sub: Some("alice".parse().unwrap()), ..DelegationRequest::default() };
    let taken = stage.kernel.delegate_token(as_holder(&mallory), &wish).await.unwrap().token;
    let id = stage.submit_as(&taken, json!({})).await.unwrap().invocation_id;
    assert_eq!(stage.jobs.cancel(as_holder(&taken), None, id, None).await.unwrap(), JobState::Cancelled);
    let again = stage.jobs.retry(as_holder(&taken), None, id).await.unwrap().invocation_id;
    let found = stage.store.find(&JobKey { tenant: "acme".parse().unwrap(), id: again }).await.unwrap().unwrap();
    assert_eq!((found.flow.as_str(), found.record.owner.as_str()), ("mallory", "mallory alice"));
    // Nobody else has it: not the agent whose name was taken, and not the one that took it.
    for other in [stage.mint(json!({ "sub": "alice" })).await, mallory] {
        let told = stage.jobs.status(as_holder(&other), None, again).await.unwrap_err();
        assert_eq!(told.code, ErrorCode::E3702);
    }
}

#[tokio::test]
async fn what_is_not_safe_to_repeat_is_tried_once() {
    let stage = TestJobs::with(
        JobsSettings::default(),
        json!({ "side_effect_policy": "unclassified", "protocol": "custom" }),
        Vec::new(),
    )
    .await;
    stage.act(ToolScript::Fail(Refusal::new(ErrorCode::E3502, "it is down")));
    stage.work();
    let id = stage.submit(json!({})).await;
    let view = stage.until(id, ended).await;
    assert_eq!((view.record.state, view.record.attempts, stage.runs()), (JobState::Failed, 1, 1));
}

/// DESIGN §8.19: it counts as irreversible.
#[tokio::test]
async fn a_tool_that_nobody_has_classified_is_unknown_where_nobody_can_know_and_says_so_alike_everywhere() {
    let change = json!({ "side_effect_policy": "unclassified", "protocol": "custom" });
    let stage = TestJobs::with(JobsSettings::default(), change, Vec::new()).await;
    stage.act(ToolScript::Fail(Refusal::new(ErrorCode::E3503, "it did not answer")));
    stage.work();
    let told = stage.kernel.invoke(arrival(Some(ADMIN), greet())).await.unwrap_err().refusal;
    let id = stage.submit(json!({})).await;
    let view = stage.until(id, ended).await;
    assert_eq!(view.status, InvocationStatus::Indeterminate);
    let told: (Value, Value) = (told.code.as_str().into(), *told.details.unwrap());
    let mut kept = view.record.error.unwrap();
    for (code, details) in [told, (kept["code"].take(), kept["details"].take())] {
        let seen = (code, &details["code"], &details["cause"]);
        assert_eq!(seen, (json!("E3413"), &json!("E3503"), &json!("answer_lost")), "{details}");
    }
}

#[tokio::test]
async fn jobs_of_a_process_that_is_gone_run_if_the_ledger_has_nothing_of_them() {
    for policy in ["pure", "unclassified"] {
        let stage = TestJobs::with(
            JobsSettings::default(),
            json!({ "side_effect_policy": policy, "protocol": "custom" }),
            Vec::new(),
        )
        .await;
        let id = stage.submit(json!({})).await;
        let gone = OwnerId(id.0);
        stage.store.enlist(gone, Duration::from_secs(3_600), false).await.unwrap();
        let rules = TakeRules { most: 10, running_per_tenant: 10, running_per_flow: 1_000 };
        assert_eq!(stage.store.take(gone, rules).await.unwrap().jobs.len(), 1);
        stage.work_anew().await;
        let view = stage.until(id, ended).await;
        assert_eq!((view.status, stage.runs()), (InvocationStatus::Success, 1), "{policy}");
    }
}

#[tokio::test]
async fn a_job_of_somebody_else_is_answered_like_none() {
    let stage = TestJobs::new().await;
    let (mine, theirs) = (stage.mint(json!({})).await, stage.mint(json!({ "sub": "agent-2" })).await);
    let foreign = stage.mint(json!({ "tenant": "other" })).await;
    let operator = stage.mint(json!({ "sub": "desk", "roles": ["operator"] })).await;
    let auditor = stage.mint(json!({ "sub": "eye", "roles": ["auditor"] })).await;
    let id = stage.submit_as(&mine, json!({})).await.unwrap().invocation_id;
    let unknown: InvocationId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
    for stranger in [&theirs, &foreign] {
        let told = stage.jobs.status(as_holder(stranger), None, id).await.unwrap_err();
        let nothing = stage.jobs.status(as_holder(stranger), None, unknown).await.unwrap_err();
        assert_eq!((told.code, told.hint), (ErrorCode::E3702, nothing.hint));
        assert_eq!(told.message, nothing.message.replace(&unknown.to_string(), &id.to_string()));
        assert_eq!(stage.jobs.cancel(as_holder(stranger), None, id, None).await.unwrap_err().code, ErrorCode::E3702);
        let named = Some("acme".parse().unwrap());
        let told = stage.jobs.status(as_holder(&foreign), named.as_ref(), id).await.unwrap_err();
        assert_eq!(told.code, ErrorCode::E3206, "naming a tenant helps nobody");
        let listed = stage.jobs.list(as_holder(stranger), JobFilter::default(), None, 100).await.unwrap();
        assert!(listed.jobs.is_empty());
    }
    for looker in [&mine, &operator, &auditor] {
        stage.jobs.status(as_holder(looker), None, id).await.unwrap();
        assert_eq!(stage.jobs.list(as_holder(looker), JobFilter::default(), None, 100).await.unwrap().jobs.len(), 1);
    }
    assert_eq!(stage.jobs.cancel(as_holder(&auditor), None, id, None).await.unwrap_err().code, ErrorCode::E3206);
    assert_eq!(stage.jobs.cancel(as_holder(&operator), None, id, None).await.unwrap(), JobState::Cancelled);
}

/// Fails as often as it is told to, then answers.
#[derive(Debug, Default)]
struct Errands {
    runs: AtomicUsize,
    panics: AtomicUsize,
}

#[async_trait::async_trait]
impl JobHandler for Errands {
    fn kind(&self) -> &'static str {
        "errand"
    }
    fn may_repeat(&self, _: &Value) -> bool {
        true
    }
    async fn run(&self, job: &RunningJob) -> Result<Value, JobFailure> {
        job.progress.report(Some(50.0), Some("on the way"));
        self.runs.fetch_add(1, Ordering::SeqCst);
        assert!(self.panics.fetch_add(1, Ordering::SeqCst) > 0, "as a fault of ours would");
        Ok(json!({ "carried": job.payload["what"] }))
    }
}

/// Work that must not be begun again once it has begun.
pub(crate) fn unrepeatable() -> Arc<dyn JobHandler> {
    #[derive(Debug)]
    struct Once;

    #[async_trait::async_trait]
    impl JobHandler for Once {
        fn kind(&self) -> &'static str {
            "once"
        }
        fn may_repeat(&self, _: &Value) -> bool {
            false
        }
        async fn run(&self, _: &RunningJob) -> Result<Value, JobFailure> {
            Ok(json!({}))
        }
    }
    Arc::new(Once)
}

#[tokio::test]
async fn what_follows_from_accepted_work_finds_room_in_a_queue_that_is_full_of_new_work() {
    let bounds = QueueBounds { per_flow: 1, per_tenant: 1, total: 1 };
    let settings = JobsSettings { bounds, ..JobsSettings::default() };
    let stage = TestJobs::with(settings, json!({}), vec![Arc::new(Errands::default())]).await;
    let enqueue = async |is_follow_up| {
        let job = SystemJob {
            kind: "errand",
            flow: "agent-1".into(),
            tenant: "acme".parse().unwrap(),
            label: "a letter".into(),
            payload: json!({}),
            priority: JobPriority::near(5),
            delay: Duration::ZERO,
            attempts_max: 1,
            dedupe: None,
            is_follow_up,
        };
        stage.jobs.enqueue(job).await.unwrap()
    };
    assert_eq!((enqueue(false).await, enqueue(false).await), (EnqueueOutcome::New, EnqueueOutcome::Full));
    assert_eq!(
        (enqueue(true).await, enqueue(true).await),
        (EnqueueOutcome::New, EnqueueOutcome::Full),
        "and that room has an end"
    );
}

#[tokio::test]
async fn other_kinds_are_done_by_their_handlers_under_the_server_s_own_name() {
    let errands = Arc::new(Errands::default());
    let stage = TestJobs::with(JobsSettings::default(), json!({}), vec![Arc::clone(&errands) as _]).await;
    let job = |kind| SystemJob {
        kind,
        flow: "system".into(),
        tenant: "acme".parse().unwrap(),
        label: "a letter".into(),
        payload: json!({ "what": "a letter" }),
        priority: JobPriority::near(5),
        delay: Duration::ZERO,
        attempts_max: 5,
        dedupe: None,
        is_follow_up: false,
    };
    assert_eq!(stage.jobs.enqueue(job("unheard_of")).await.unwrap_err().code, ErrorCode::E3010);
    stage.work();
    assert_eq!(stage.jobs.enqueue(job("errand")).await.unwrap(), EnqueueOutcome::New);
    let acme = JobFilter { tenant: Some("acme".parse().unwrap()), ..JobFilter::default() };
    let listed = stage.jobs.list(admin(), acme, None, 10).await.unwrap();
    let id = listed.jobs[0].1.key.id;
    assert_eq!(listed.jobs[0].1.owner.as_str(), SYSTEM_SUBJECT);
    let interrupted = stage.until_in(Some("acme"), id, |view| view.record.state == JobState::Delayed).await;
    assert_eq!(code(&interrupted), "E3404", "a panic is an end of the attempt, not of the worker");
    stage.step(20);
    stage.submit(json!({})).await;
    let view = stage.until_in(Some("acme"), id, ended).await;
    assert_eq!((view.status, view.result.clone()), (InvocationStatus::Success, Some(json!({ "carried": "a letter" }))));
    assert_eq!(errands.runs.load(Ordering::SeqCst), 2);
    let recorded = || {
        let records = stage.audit.records.lock().unwrap();
        records.iter().any(|r| {
            r.action == AuditAction::JobFinished
                && r.who.as_ref().is_some_and(|who| who.subject.as_str() == SYSTEM_SUBJECT)
        })
    };
    let looking = async {
        while !recorded() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap();
}

#[tokio::test]
async fn progress_and_every_change_of_state_are_told() {
    let stage = TestJobs::new().await;
    stage.act(ToolScript::Chat);
    let mut news = stage.jobs.changes();
    let id = stage.submit(json!({})).await;
    assert_eq!(news.recv().await.unwrap().id, id);
    stage.work();
    let view = stage.until(id, ended).await;
    let events = stage.jobs.events(admin(), &view.record.key, 0, 200).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!((kinds.first(), kinds.get(1), kinds.last()), (Some(&"queued"), Some(&"started"), Some(&"done")));
}

#[tokio::test]
async fn many_jobs_of_a_loud_tenant_do_not_keep_a_quiet_one_waiting() {
    let settings = JobsSettings { concurrency: 4, ..JobsSettings::default() };
    let stage = TestJobs::with(settings, json!({}), Vec::new()).await;
    let (loud, quiet) = (stage.mint(json!({ "tenant": "loud" })).await, stage.mint(json!({ "tenant": "quiet" })).await);
    for _ in 0..200 {
        stage
            .submit_as(&loud, json!({ "execution_options": { "async_mode": true, "priority": "high" } }))
            .await
            .unwrap();
    }
    let mut few = Vec::new();
    for _ in 0..10 {
        few.push(stage.submit_as(&quiet, json!({})).await.unwrap().invocation_id);
    }
    stage.work();
    for id in few {
        stage.until_in(Some("quiet"), id, ended).await;
    }
    let runs = stage.runs();
    assert!(runs < 100, "{runs} calls ran before the ten of the quiet tenant had ended");
}

// ---------------------------------------------------------------------------------------------- what waits for its time

/// A stage on which greeting runs in a process of its own, so that an agent has so many at once.
async fn boxed(places: u32, change: Value, props: TestKernelOptions) -> TestJobs {
    let envelope = ResourceEnvelope { concurrent_calls_per_agent: places, ..ResourceEnvelope::default() };
    let mut manifest = json!({ "execution": { "type": "process", "command": ["a"] } });
    for (member, value) in change.as_object().unwrap() {
        manifest[member] = value.clone();
    }
    TestJobs::on(
        TestKernel::with(TestKernelOptions { envelope, ..props }).await,
        JobsSettings::default(),
        manifest,
        Vec::new(),
    )
    .await
}

/// What a tool says of itself whose calls must not be made twice.
fn with_effects() -> Value {
    json!({ "side_effect_policy": "unclassified", "protocol": "custom" })
}

impl TestJobs {
    /// The same as [`TestJobs::until`] while time passes.
    async fn until_in_time(&self, id: InvocationId, wanted: impl Fn(&InvocationView) -> bool) -> InvocationView {
        // Everybody has their turns between two seconds.
        const LOOKS_PER_SECOND: usize = 50;
        let looks = AtomicUsize::new(0);
        self.until(id, |view| {
            let found = wanted(view);
            if !found && looks.fetch_add(1, Ordering::SeqCst) % LOOKS_PER_SECOND == LOOKS_PER_SECOND - 1 {
                self.step(1);
            }
            found
        })
        .await
    }

    /// Waits until so many calls have been begun in all.
    async fn until_runs(&self, number: usize) {
        let looking = async {
            while self.runs() < number {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.unwrap();
    }
}

/// EXEC-005 and JOBS-6: the queue takes more of one agent's jobs than the agent has places.
#[tokio::test]
async fn accepted_jobs_wait_for_a_place_of_their_agent_and_none_is_lost() {
    for effects in [json!({}), with_effects()] {
        let stage = boxed(4, effects.clone(), TestKernelOptions::default()).await;
        let go = Arc::new(Notify::new());
        stage.act(ToolScript::Wait(Arc::clone(&go), json!({ "text": "hi" })));
        let mut ids = Vec::new();
        for _ in 0..12 {
            ids.push(stage.submit(json!({})).await);
        }
        stage.work();
        stage.until_runs(4).await;
        // Others' jobs are done while these wait.
        let other = stage.mint(json!({ "sub": "other" })).await;
        stage.act(ToolScript::Answer(json!({ "text": "hello" })));
        let wave = json!({ "tool_id": "wave", "execution": { "type": "process", "command": ["a"] } });
        stage.kernel.publish(admin(), manifest(wave)).await.unwrap();
        let quick = stage.submit_as(&other, json!({ "tool_id": "wave" })).await.unwrap().invocation_id;
        let view = stage.until_in(Some("acme"), quick, ended).await;
        assert_eq!(view.status, InvocationStatus::Success);
        assert_eq!(stage.runs(), 5, "four of the first agent run, and no more");
        go.notify_waiters();
        for id in ids {
            let view = stage.until(id, ended).await;
            assert_eq!((view.status, view.record.attempts), (InvocationStatus::Success, 1), "{effects}: {view:?}");
        }
        assert_eq!(stage.runs(), 13);
    }
}

#[tokio::test]
async fn a_job_without_a_place_is_put_back_after_a_while_and_uses_up_no_try() {
    let mut change = with_effects();
    change["timeout_class"] = json!("long_running");
    change["timeout_default"] = json!(120);
    let stage = boxed(1, change, TestKernelOptions { stepped: true, ..TestKernelOptions::default() }).await;
    // Somebody's call that is no job has the only place.
    let (go, kernel) = (Arc::new(Notify::new()), Arc::clone(&stage.kernel));
    stage.act(ToolScript::Wait(Arc::clone(&go), json!({ "text": "hi" })));
    let first = tokio::spawn(async move { kernel.invoke(arrival(Some(ADMIN), greet())).await.is_ok() });
    stage.until_runs(1).await;
    let id = stage.submit(json!({})).await;
    stage.work();
    for in_vain in 1..=3 {
        stage.until_in_time(id, |view| view.record.state == JobState::Running).await;
        let view = stage.until_in_time(id, |view| view.record.state == JobState::Delayed).await;
        assert_eq!((view.status, code(&view), view.record.attempts), (InvocationStatus::Pending, "E3003", 0));
        let events = stage.store.events(&view.record.key, 0, 100).await.unwrap();
        let back: Vec<_> = events.iter().filter(|event| event.kind == "put_back").collect();
        assert_eq!(back.len(), in_vain, "it waits, and does not spin");
        assert!(back.iter().all(|event| event.data["after_ms"].as_u64() > Some(0)), "{back:?}");
    }
    stage.act(ToolScript::Answer(json!({ "text": "hello" })));
    go.notify_one();
    assert!(first.await.unwrap());
    let view = stage.until_in_time(id, ended).await;
    assert_eq!((view.status, view.record.attempts), (InvocationStatus::Success, 1));
    assert_eq!(stage.runs(), 2);
}

#[tokio::test]
async fn a_job_whose_service_is_left_alone_is_put_back_with_the_pause_that_was_asked_for() {
    let props = TestKernelOptions {
        resilience: Some(ResilienceSettings::default()),
        stepped: true,
        ..TestKernelOptions::default()
    };
    let mut change = with_effects();
    change["external_service"] = json!("mail");
    let stage = TestJobs::on(TestKernel::with(props).await, JobsSettings::default(), change, Vec::new()).await;
    let breaker = "mail".parse().unwrap();
    stage.kernel.move_breaker(admin(), &breaker, ManualMove::ForceOpen).await.unwrap();
    let id = stage.submit(json!({})).await;
    stage.work();
    let view = stage.until_in_time(id, |view| view.record.state == JobState::Delayed).await;
    assert_eq!((code(&view), view.record.attempts), ("E3501", 0));
    let error = view.record.error.as_ref().unwrap();
    assert!(error["message"].as_str().unwrap().contains("by hand"), "{error}");
    let asked = error["retry_after_ms"].as_i64().unwrap();
    assert!(view.record.due_at.0 - stage.clock.now.load(Ordering::SeqCst) >= asked, "at least the pause asked for");
    stage.kernel.move_breaker(admin(), &breaker, ManualMove::Close).await.unwrap();
    let view = stage.until_in_time(id, ended).await;
    assert_eq!((view.status, view.record.attempts), (InvocationStatus::Success, 1));
    assert_eq!(view.result.unwrap()["invocation_id"], json!(id), "under its own id");
    assert_eq!(stage.runs(), 1);
}

/// A job whose time does not come within its age ends, and says so.
#[tokio::test]
async fn what_is_put_back_again_and_again_ends_with_its_age() {
    let stage = boxed(0, json!({}), TestKernelOptions { stepped: true, ..TestKernelOptions::default() }).await;
    let id = stage.submit(json!({})).await;
    stage.work();
    stage.until_in_time(id, |view| view.record.state == JobState::Delayed).await;
    stage.step(25 * 60 * 60);
    let view = stage.until_in_time(id, ended).await;
    assert_eq!((view.status, code(&view)), (InvocationStatus::Timeout, "E3002"));
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_job_that_waits_for_a_place_can_be_cancelled_and_nothing_is_unknown() {
    let stage = boxed(1, with_effects(), TestKernelOptions::default()).await;
    let go = Arc::new(Notify::new());
    stage.act(ToolScript::Wait(Arc::clone(&go), json!({ "text": "hi" })));
    let first = stage.submit(json!({})).await;
    stage.work();
    stage.until_runs(1).await;
    let second = stage.submit(json!({})).await;
    stage.until(second, |view| view.record.state == JobState::Running).await;
    stage.jobs.cancel(admin(), None, second, Some("not wanted")).await.unwrap();
    let view = stage.until(second, ended).await;
    assert_eq!((view.status, code(&view)), (InvocationStatus::Cancelled, "E3703"));
    go.notify_one();
    assert_eq!(stage.until(first, ended).await.status, InvocationStatus::Success);
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_job_that_waits_for_a_place_goes_back_when_its_process_ends() {
    let stage = boxed(1, with_effects(), TestKernelOptions::default()).await;
    let go = Arc::new(Notify::new());
    stage.act(ToolScript::Wait(Arc::clone(&go), json!({ "text": "hi" })));
    let first = stage.submit(json!({})).await;
    stage.work();
    stage.until_runs(1).await;
    let second = stage.submit(json!({})).await;
    stage.until(second, |view| view.record.state == JobState::Running).await;
    stage.stop.cancel();
    let view = stage.until(second, |view| view.record.state == JobState::Delayed).await;
    assert_eq!(view.record.attempts, 0);
    go.notify_one();
    assert_eq!(stage.until(first, ended).await.status, InvocationStatus::Success);
    assert_eq!(stage.runs(), 1, "nothing is begun while the process ends");
}
