//! Checkpoints through the kernel's door: when they are written, what becomes of them, who goes on from them, and what
//! happens when the store or what is in it fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use contract::envelope::CheckpointKind;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use policy::CallOwner;
use ports::audit_sink::AuditAction;
use ports::checkpoint_store::{
    CheckpointEnding, CheckpointId, CheckpointStore, ListPage, ListedCheckpoint, PromoteOutcome, SaveOutcome,
    SealedCheckpoint,
};
use ports::registry_store::StoreError;
use ports::tool_companion::ToolSnapshot;
use serde_json::{Value, json};
use store::memory::MemoryStore;
use test_kernel::{ADMIN, TestKernel, TestKernelOptions, ToolMove, ToolScript, admin, as_holder, greet};

const CALL: &str = "019b0000-0000-7000-8000-000000000001";

/// A store that fails, and damages, as the test wants.
#[derive(Debug, Default)]
struct Shelf {
    inner: MemoryStore,
    is_down: AtomicBool,
    /// What is read differently than it was written.
    spoiled: Mutex<BTreeMap<CheckpointId, Spoil>>,
}

#[derive(Debug, Clone, Copy)]
enum Spoil {
    Bit,
    Truncated,
    Version,
}

impl Shelf {
    fn answers(&self) -> Result<(), StoreError> {
        if self.is_down.load(Ordering::SeqCst) { Err(StoreError::Unavailable("disk full".into())) } else { Ok(()) }
    }

    fn spoil(&self, id: &str, how: Spoil) {
        self.spoiled.lock().unwrap().insert(id.parse().unwrap(), how);
    }
}

#[async_trait]
impl CheckpointStore for Shelf {
    async fn save(
        &self,
        checkpoint: &SealedCheckpoint,
        fence: Option<u64>,
        keep: Option<Duration>,
    ) -> Result<SaveOutcome, StoreError> {
        self.answers()?;
        self.inner.save(checkpoint, fence, keep).await
    }
    async fn chain(&self, tenant: &TenantId, id: CheckpointId) -> Result<Vec<SealedCheckpoint>, StoreError> {
        let mut chain = self.inner.chain(tenant, id).await?;
        for one in &mut chain {
            match self.spoiled.lock().unwrap().get(&one.head.id) {
                None => {}
                Some(Spoil::Bit) => {
                    let mut payload = one.payload.to_vec();
                    payload[3] ^= 1;
                    one.payload = payload.into();
                }
                Some(Spoil::Truncated) => one.payload = one.payload[..one.payload.len() / 2].into(),
                Some(Spoil::Version) => one.schema_version = "9.9".into(),
            }
        }
        Ok(chain)
    }
    async fn claim(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        fence: Option<u64>,
        span: Duration,
    ) -> Result<Option<u64>, StoreError> {
        self.inner.claim(tenant, invocation, fence, span).await
    }
    async fn is_claimed(&self, tenant: &TenantId, invocation: InvocationId) -> Result<bool, StoreError> {
        self.inner.is_claimed(tenant, invocation).await
    }
    async fn list(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        page: ListPage,
    ) -> Result<Vec<ListedCheckpoint>, StoreError> {
        self.inner.list(tenant, invocation, page).await
    }
    async fn promote(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        id: CheckpointId,
        keep: Duration,
        if_idle: bool,
    ) -> Result<PromoteOutcome, StoreError> {
        self.answers()?;
        self.inner.promote(tenant, invocation, id, keep, if_idle).await
    }
    async fn settle(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        owner: &CallOwner,
        fence: Option<u64>,
        ending: CheckpointEnding,
    ) -> Result<(), StoreError> {
        self.answers()?;
        self.inner.settle(tenant, invocation, owner, fence, ending).await
    }
    async fn delete(&self, tenant: &TenantId, invocation: InvocationId, id: CheckpointId) -> Result<bool, StoreError> {
        self.inner.delete(tenant, invocation, id).await
    }
    async fn prune(&self, batch: usize) -> Result<usize, StoreError> {
        self.inner.prune(batch).await
    }
}

struct Scene {
    stage: TestKernel,
    shelf: Arc<Shelf>,
}

impl Scene {
    async fn new() -> Self {
        Self::with(TestKernelOptions::default()).await
    }

    /// With `greet` as a tool that takes long, and declares an event.
    async fn with(props: TestKernelOptions) -> Self {
        let shelf = Arc::new(Shelf::default());
        let stage = TestKernel::with(TestKernelOptions { checkpoints: Some(Arc::clone(&shelf) as _), ..props }).await;
        let config = json!({ "enabled": true, "macro_events": ["parsed"] });
        stage.publish(json!({ "timeout_class": "long_running", "checkpoint_config": config })).await;
        Self { stage, shelf }
    }

    fn act(&self, moves: Vec<ToolMove>, then: ToolScript) {
        self.stage.tool.saved.lock().unwrap().clear();
        *self.stage.tool.act.lock().unwrap() = ToolScript::Keep(moves, Box::new(then));
    }

    /// Runs a call that saves and then fails; gives what it was answered when it saved.
    async fn failing(&self, moves: Vec<ToolMove>) -> Vec<String> {
        self.act(moves, failure());
        self.stage.call(call(json!({}))).await.unwrap_err();
        self.saved().into_iter().map(Result::unwrap).collect()
    }

    fn saved(&self) -> Vec<Result<String, ErrorCode>> {
        self.stage.tool.saved.lock().unwrap().clone()
    }

    async fn listed(&self) -> Vec<(String, CheckpointKind)> {
        let page = ListPage { after: None, limit: 100 };
        let list = self.shelf.list(&TenantId::home(), CALL.parse().unwrap(), page).await.unwrap();
        list.into_iter().map(|one| (one.head.id.to_string(), one.head.kind)).collect()
    }

    /// Resumes, and gives the state the tool was told.
    async fn resumed_from(&self, id: &str) -> Result<Value, ErrorCode> {
        self.act(vec![], answer());
        let wish = json!({ "checkpoint_config": { "resume_from_checkpoint_id": id }, "invocation_id": null });
        self.stage.call(call(wish)).await.map_err(|failed| failed.refusal.code)?;
        let point = self.stage.tool.resumed.lock().unwrap().clone().unwrap();
        Ok(point.saved.custom_state.clone())
    }
}

fn call(change: Value) -> Value {
    let mut request = greet();
    request["invocation_id"] = json!(CALL);
    for (member, value) in change.as_object().unwrap() {
        request[member] = value.clone();
    }
    request
}

fn save(name: Option<&str>, state: Value) -> ToolMove {
    ToolMove::Save(ToolSnapshot::of(name, state))
}

fn answer() -> ToolScript {
    ToolScript::Answer(json!({ "text": "hi" }))
}

fn failure() -> ToolScript {
    ToolScript::Fail(Refusal::new(ErrorCode::E3401, "it fell over"))
}

// ----------------------------------------------------------------------------------------------------------- saving

#[tokio::test]
async fn of_many_micro_checkpoints_the_newest_of_each_interval_is_written() {
    let scene = Scene::new().await;
    let moves = vec![
        save(None, json!(1)),
        ToolMove::Work(10),
        save(None, json!(2)),
        ToolMove::Work(25),
        save(None, json!(3)), // 35 s after the start: written
        ToolMove::Work(1),
        save(None, json!(4)),
        ToolMove::Work(5),
        save(None, json!(5)), // written at the end, because the call fails
    ];
    let ids = scene.failing(moves).await;
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[3] == ids[4] && ids[2] != ids[3], "{ids:?}");
    let micro = |id: &String| (id.clone(), CheckpointKind::Micro);
    assert_eq!(scene.listed().await, [micro(&ids[4]), micro(&ids[2])]);
    assert_eq!(scene.resumed_from(&ids[4]).await, Ok(json!(5)));
    assert_eq!(scene.resumed_from(&ids[2]).await, Ok(json!(3)));
}

#[tokio::test]
async fn what_waits_is_written_when_its_time_has_come_while_the_tool_works_on() {
    // Sleeps of this clock end as soon as everybody has had a turn, the deadline's too: a hanging tool is timed out.
    let scene = Scene::with(TestKernelOptions { impatient: true, ..TestKernelOptions::default() }).await;
    scene.act(vec![save(None, json!("late"))], ToolScript::Hang);
    let failed = scene.stage.call(call(json!({}))).await.unwrap_err();
    assert_eq!(failed.refusal.code, ErrorCode::E3402);
    let id = scene.saved()[0].clone().unwrap();
    assert_eq!(scene.listed().await, [(id.clone(), CheckpointKind::Micro)]);
    assert_eq!(failed.refusal.details.unwrap()["checkpoint_ref"], json!(id), "X-41: kept on a timeout");
}

#[tokio::test]
async fn success_leaves_milestones_and_names_and_says_which() {
    let scene = Scene::new().await;
    let moves = vec![
        ToolMove::Progress(40.0, "parse"),
        ToolMove::Work(31),
        save(None, json!({ "n": 1 })),
        save(Some("parsed"), json!({ "n": 2 })),
        save(Some("before lunch"), json!({ "n": 3 })),
        save(None, json!({ "n": 4 })),
    ];
    scene.act(moves, answer());
    let response = scene.stage.call(call(json!({}))).await.unwrap();
    let ids: Vec<String> = scene.saved().into_iter().map(Result::unwrap).collect();
    assert_eq!(
        scene.listed().await,
        [(ids[2].clone(), CheckpointKind::Named), (ids[1].clone(), CheckpointKind::Macro)]
    );
    assert_eq!(response.checkpoint_ref.as_ref(), Some(&ids[2]));
    let created: Vec<_> =
        response.execution_metadata.checkpoints_created.iter().map(|note| note.checkpoint_type).collect();
    assert_eq!(created, [CheckpointKind::Micro, CheckpointKind::Macro, CheckpointKind::Named]);
    assert_eq!(response.execution_metadata.checkpoints_created[2].checkpoint_id, ids[2]);
    scene.resumed_from(&ids[2]).await.unwrap();
    let point = scene.stage.tool.resumed.lock().unwrap().clone().unwrap();
    assert_eq!((point.saved.progress_percent, point.saved.phase.as_deref()), (Some(40.0), Some("parse")));
    assert_eq!(point.invocation_id.to_string(), CALL);
}

#[tokio::test]
async fn a_resumed_call_links_to_where_it_came_from_and_a_second_attempt_goes_on_with_the_chain() {
    let scene = Scene::new().await;
    let ballast = |n: u32| json!({ "n": n, "ballast": (0..2_000).collect::<Vec<_>>() });
    let first = scene.failing(vec![save(None, ballast(1))]).await.remove(0);
    // Another attempt of the same invocation, as a job makes it.
    let newest = scene.stage.kernel.newest_checkpoint(&TenantId::home(), CALL.parse().unwrap()).await.unwrap();
    assert_eq!(newest.map(|id| id.to_string()), Some(first.clone()));
    scene.act(vec![save(None, ballast(2))], failure());
    let wish = json!({ "checkpoint_config": { "resume_from_checkpoint_id": first } });
    scene.stage.call(call(wish)).await.unwrap_err();
    let second = scene.saved()[0].clone().unwrap();
    let chain = scene.shelf.chain(&TenantId::home(), second.parse().unwrap()).await.unwrap();
    assert_eq!(chain.len(), 2, "a delta");
    assert_eq!(chain[0].head.parent.map(|id| id.to_string()), Some(first.clone()));
    // A third one that succeeds without saving anything takes the micro-checkpoints of the others with it.
    scene.act(vec![], answer());
    let wish = json!({ "checkpoint_config": { "resume_from_checkpoint_id": second } });
    scene.stage.call(call(wish)).await.unwrap();
    assert!(scene.listed().await.is_empty());
    assert_eq!(scene.resumed_from(&second).await, Err(ErrorCode::E3903), "a finished call has nothing to go on from");
}

#[tokio::test]
async fn a_store_that_fails_troubles_the_tool_only_where_it_was_promised_something() {
    let scene = Scene::new().await;
    scene.shelf.is_down.store(true, Ordering::SeqCst);
    let moves =
        vec![ToolMove::Work(31), save(None, json!(1)), save(Some("x"), json!(2)), save(Some("parsed"), json!(3))];
    scene.act(moves, answer());
    let response = scene.stage.call(call(json!({}))).await.unwrap();
    assert!(matches!(scene.saved()[..], [Ok(_), Err(ErrorCode::E3902), Err(ErrorCode::E3902)]), "{:?}", scene.saved());
    assert_eq!((response.checkpoint_ref, response.execution_metadata.checkpoints_created), (None, vec![]));
    // Back again: the one that waited is written in the next interval.
    scene.shelf.is_down.store(false, Ordering::SeqCst);
    let ids = scene.failing(vec![ToolMove::Work(31), save(None, json!(1))]).await;
    assert_eq!(scene.listed().await, [(ids[0].clone(), CheckpointKind::Micro)]);
}

#[tokio::test]
async fn too_much_state_is_refused_and_the_call_goes_on() {
    let scene = Scene::new().await;
    let large = json!("x".repeat(4 << 20));
    let binary =
        ToolSnapshot { binaries: BTreeMap::from([("b".into(), vec![0; 1 << 20])]), ..ToolSnapshot::of(None, json!(1)) };
    scene.act(vec![save(None, large.clone()), save(Some("n"), large), ToolMove::Save(binary)], answer());
    scene.stage.call(call(json!({}))).await.unwrap();
    assert_eq!(scene.saved(), vec![Err(ErrorCode::E3906); 3]);
    scene.act((0..257).map(|n| save(Some("n"), json!(n))).collect(), answer());
    scene.stage.call(call(json!({}))).await.unwrap();
    assert_eq!(scene.saved().last(), Some(&Err(ErrorCode::E3906)), "names live long, so there are not many");
}

#[tokio::test]
async fn only_calls_that_want_it_save() {
    let scene = Scene::new().await;
    scene.stage.publish(json!({ "tool_id": "quick" })).await;
    let cases = [
        ("greet", json!({}), true),
        ("greet", json!({ "enable_checkpointing": false }), false),
        ("quick", json!({}), false),
        ("quick", json!({ "enable_checkpointing": true }), true),
    ];
    for (tool, config, kept) in cases {
        scene.act(vec![save(Some("n"), json!(1))], answer());
        let wish = json!({ "tool_id": tool, "checkpoint_config": config, "invocation_id": null });
        scene.stage.call(call(wish)).await.unwrap();
        assert_eq!(scene.saved()[0].is_ok(), kept, "{tool} {config}");
        assert!(kept || scene.saved()[0] == Err(ErrorCode::E3010));
    }
    let bare = TestKernel::new().await;
    bare.publish(json!({})).await;
    for config in [json!({ "enable_checkpointing": true }), json!({ "resume_from_checkpoint_id": CALL })] {
        assert_eq!(bare.refusal(call(json!({ "checkpoint_config": config }))).await, ErrorCode::E3010);
    }
    assert_eq!(bare.runs(), 0);
}

// --------------------------------------------------------------------------------------------------------- resuming

#[tokio::test]
async fn a_damaged_checkpoint_is_passed_over_and_an_unknown_version_is_not() {
    let scene = Scene::new().await;
    let moves = vec![
        save(Some("parsed"), json!("macro")),
        ToolMove::Work(31),
        save(None, json!("older")),
        ToolMove::Work(31),
        save(None, json!("newer")),
    ];
    let ids = scene.failing(moves).await;
    let newest = async || {
        let found = scene.stage.kernel.newest_checkpoint(&TenantId::home(), CALL.parse().unwrap()).await;
        found.map(|id| id.map(|id| id.to_string())).map_err(|refusal| refusal.code)
    };
    assert_eq!(newest().await, Ok(Some(ids[2].clone())));
    scene.shelf.spoil(&ids[2], Spoil::Bit);
    assert_eq!(scene.resumed_from(&ids[2]).await, Ok(json!("older")));
    assert_eq!(newest().await, Ok(Some(ids[1].clone())));
    scene.shelf.spoil(&ids[1], Spoil::Truncated);
    assert_eq!(scene.resumed_from(&ids[2]).await, Ok(json!("macro")), "CKPT-013");
    scene.shelf.spoil(&ids[0], Spoil::Bit);
    assert_eq!(scene.resumed_from(&ids[2]).await, Err(ErrorCode::E3904));
    assert_eq!(newest().await, Ok(None));
    scene.shelf.spoil(&ids[1], Spoil::Version);
    assert_eq!(scene.resumed_from(&ids[1]).await, Err(ErrorCode::E3905));
    assert_eq!(scene.resumed_from(&ids[2]).await, Err(ErrorCode::E3905));
    assert_eq!(newest().await, Err(ErrorCode::E3905));
}

#[tokio::test]
async fn nobody_goes_on_from_what_is_not_theirs() {
    let scene = Scene::new().await;
    let stage = &scene.stage;
    let tools = json!([{ "tool_id": "*" }]);
    let local = |sub: &str| json!({ "tenant": "local", "sub": sub, "tools": tools });
    let mine = stage.mint(local("agent-1")).await;
    let theirs = stage.mint(local("agent-2")).await;
    let elsewhere = stage.mint(json!({ "tenant": "acme", "sub": "agent-1", "tools": tools })).await;
    stage.publish(json!({ "tool_id": "other", "timeout_class": "long_running" })).await;
    stage.publish(json!({ "version": "1.1.0", "timeout_class": "long_running" })).await;
    let wider = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    stage.publish(json!({ "version": "2.0.0", "timeout_class": "long_running", "parameters": wider })).await;
    scene.act(vec![save(Some("n"), json!("secret"))], answer());
    let id =
        stage.call_as(Some(&mine), call(json!({ "tool_version": "1.0.0" }))).await.unwrap().checkpoint_ref.unwrap();
    scene.act(vec![], answer());
    let cases = [
        (&mine, "greet", "1.0.0", id.as_str(), None),
        (&mine, "greet", "1.1.0", &id, None),
        (&mine, "greet", "2.0.0", &id, Some(ErrorCode::E3905)),
        (&mine, "other", "1.0.0", &id, Some(ErrorCode::E3903)),
        (&theirs, "greet", "1.0.0", &id, Some(ErrorCode::E3903)),
        (&elsewhere, "greet", "1.0.0", &id, Some(ErrorCode::E3903)),
        (&mine, "greet", "1.0.0", CALL, Some(ErrorCode::E3903)),
        (&mine, "greet", "1.0.0", "not an id", Some(ErrorCode::E3903)),
    ];
    for (token, tool, version, id, expected) in cases {
        let runs = stage.runs();
        let wish = json!({ "tool_id": tool, "tool_version": version, "invocation_id": null,
            "checkpoint_config": { "resume_from_checkpoint_id": id } });
        let outcome = stage.call_as(Some(token), call(wish)).await;
        assert_eq!(outcome.err().map(|failed| failed.refusal.code), expected, "{tool} {version}");
        assert_eq!(stage.runs() > runs, expected.is_none());
    }
}

#[tokio::test]
async fn another_caller_can_neither_put_a_state_into_an_invocation_nor_end_it() {
    let scene = Scene::new().await;
    let ids = scene.failing(vec![save(None, json!("honest"))]).await;
    let token = scene.stage.mint(json!({ "tenant": "local", "sub": "mallory", "tools": [{ "tool_id": "*" }] })).await;
    scene.act(vec![save(Some("n"), json!("forged")), ToolMove::Work(31), save(None, json!("forged"))], answer());
    scene.stage.call_as(Some(&token), call(json!({}))).await.unwrap();
    assert_eq!(scene.saved()[0], Err(ErrorCode::E3902));
    assert_eq!(scene.listed().await, [(ids[0].clone(), CheckpointKind::Micro)]);
    assert_eq!(scene.resumed_from(&ids[0]).await, Ok(json!("honest")));
}

// ------------------------------------------------------------------------------------------------------------- acts

#[tokio::test]
async fn people_name_roll_back_and_delete_and_it_is_recorded() {
    let scene = Scene::new().await;
    let kernel = &scene.stage.kernel;
    let invocation = CALL.parse().unwrap();
    let moves = vec![save(Some("parsed"), json!("one")), ToolMove::Work(31), save(None, json!("two"))];
    let ids = scene.failing(moves).await;
    let named = kernel.name_checkpoint(admin(), None, invocation, "keep me").await.unwrap();
    assert_eq!((named.kind, named.label.as_deref()), (CheckpointKind::Named, Some("keep me")));
    assert_eq!(scene.resumed_from(&named.id.to_string()).await, Ok(json!("two")));
    kernel.roll_back(admin(), None, invocation, &ids[0]).await.unwrap();
    let newest = kernel.newest_checkpoint(&TenantId::home(), invocation).await.unwrap();
    assert_eq!(newest.map(|id| id.to_string()), Some(ids[0].clone()));
    assert_eq!(scene.listed().await.len(), 3, "nothing is taken away");
    kernel.delete_checkpoint(admin(), None, invocation, &ids[0]).await.unwrap();
    let page = kernel.checkpoints(admin(), None, invocation, ListPage { after: None, limit: 1 }).await.unwrap();
    assert_eq!((page.checkpoints[0].head.id, page.next), (named.id, Some(named.id)));

    let token = scene.stage.mint(json!({ "tenant": "local", "sub": "mallory", "tools": [{ "tool_id": "*" }] })).await;
    let mallory = as_holder(&token);
    let page = kernel.checkpoints(mallory, None, invocation, ListPage { after: None, limit: 9 }).await.unwrap();
    assert!(page.checkpoints.is_empty() && page.next.is_none());
    let id = named.id.to_string();
    let refused = [
        kernel.name_checkpoint(mallory, None, invocation, "mine").await.err(),
        kernel.roll_back(mallory, None, invocation, &id).await.err(),
        kernel.delete_checkpoint(mallory, None, invocation, &id).await.err(),
        kernel
            .delete_checkpoint(admin(), None, "019b0000-0000-7000-8000-00000000ffff".parse().unwrap(), &id)
            .await
            .err(),
        kernel.roll_back(admin(), Some(&"acme".parse().unwrap()), invocation, &id).await.err(),
    ];
    assert!(refused.iter().flatten().all(|refusal| refusal.code == ErrorCode::E3903), "{refused:?}");
    assert_eq!(refused.iter().flatten().count(), 5);
    for label in ["", " ", "a\nb", &"x".repeat(256)] {
        let refusal = kernel.name_checkpoint(admin(), None, invocation, label).await.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::E3004);
    }
    let records = scene.stage.all_records().await;
    let notes: Vec<_> = records.iter().filter(|record| record.action == AuditAction::CheckpointsChanged).collect();
    let words: Vec<_> = notes.iter().filter_map(|record| record.note.as_deref()?.split(' ').next()).collect();
    assert_eq!(words, ["named", "rolled", "deleted"]);
    assert!(notes.iter().all(|record| record.invocation_id == Some(invocation) && record.tool.is_some()));
}

#[tokio::test]
async fn what_runs_is_neither_rolled_back_nor_gone_on_from() {
    let scene = Scene::new().await;
    scene.act(vec![save(Some("n"), json!(1))], ToolScript::Hang);
    let running = scene.stage.call(call(json!({})));
    tokio::pin!(running);
    // Until it has saved.
    loop {
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut running).await.is_err());
        if !scene.saved().is_empty() {
            break;
        }
    }
    let id = scene.saved()[0].clone().unwrap();
    let refusal = scene.stage.kernel.roll_back(admin(), None, CALL.parse().unwrap(), &id).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3908);
    let wish = json!({ "checkpoint_config": { "resume_from_checkpoint_id": id }, "invocation_id": null });
    let failed = scene.stage.call_as(Some(ADMIN), call(wish)).await.unwrap_err();
    assert_eq!(failed.refusal.code, ErrorCode::E3908);
}
