//! Nothing is done twice, and nothing is claimed that nobody knows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::InvocationId;
use futures_util::future::join_all;
use gantry_kernel::RecoveryReport;
use ports::executor::{ExecutionReach, ExecutorError};
use ports::ledger::{EntryFilter, EntryState, Ledger as _, Settlement};
use serde_json::{Value, json};
use test_kernel::{FailingLedger, TestKernel, TestKernelOptions, ToolScript, admin, as_holder};
use tokio::sync::Notify;

const EVERY_END: [ErrorCode; 3] = [ErrorCode::E3402, ErrorCode::E3404, ErrorCode::E3503];

/// A stage with a tool of each kind: `pay` must not happen twice, `set_it` may, `guess` nobody has classified.
async fn stage(props: TestKernelOptions) -> TestKernel {
    let stage = TestKernel::with(props).await;
    let effects = json!([{ "resource": "money", "op": "CREATE", "scope": "account" }]);
    let result = json!({ "type": ["object", "null", "array"] });
    let tool = |id: &str, policy: &str| {
        json!({ "tool_id": id, "side_effect_policy": policy, "side_effects": effects, "idempotency": {},
            "result_schema": result, "compensation_tool_id": if policy == "compensatable" { json!("set_it") } else { Value::Null } })
    };
    stage.publish(tool("set_it", "idempotent")).await;
    stage.publish(tool("pay", "compensatable")).await;
    let turns = json!({ "key_fields": ["name"] });
    let mut pay_for = tool("pay_for", "compensatable");
    pay_for["idempotency"] = turns;
    stage.publish(pay_for).await;
    stage
}

fn call(tool: &str, key: &str) -> Value {
    json!({ "tool_id": tool, "parameters": { "name": "Ada" }, "execution_options": { "idempotency_key": key } })
}

fn says(stage: &TestKernel, act: ToolScript) {
    *stage.tool.act.lock().unwrap() = act;
}

fn fails(stage: &TestKernel, code: ErrorCode) {
    says(stage, ToolScript::Fail(Refusal::new(code, "it went wrong")));
}

#[tokio::test]
async fn the_same_call_twice_runs_once_and_both_get_the_same_answer() {
    let stage = stage(TestKernelOptions::default()).await;
    for (number, result) in [json!({ "paid": 5 }), json!({}), json!(null), json!([])].into_iter().enumerate() {
        says(&stage, ToolScript::Answer(result.clone()));
        let key = format!("k{number}");
        let first = stage.call(call("pay", &key)).await.unwrap();
        says(&stage, ToolScript::Answer(json!({ "paid": "again" })));
        let mut second = stage.call(call("pay", &key)).await.unwrap();
        assert_eq!(first.result, result, "also what is empty is an answer");
        assert!(!first.cached && second.cached, "a replay is marked as one");
        assert_ne!(first.source, second.source, "and says where it comes from");
        second.cached = false;
        second.source = first.source;
        second.trace_id = first.trace_id;
        assert_eq!(first, second);
        assert_eq!(stage.runs(), number + 1);
    }
    let records = stage.records().await;
    let replay = records.last().unwrap();
    assert!(replay.note.as_deref().unwrap().starts_with("answered with the outcome of "), "{replay:?}");
}

#[tokio::test]
async fn a_hundred_at_once_run_once() {
    let stage = stage(TestKernelOptions::default()).await;
    let go = Arc::new(Notify::new());
    says(&stage, ToolScript::Wait(Arc::clone(&go), json!({ "paid": 5 })));
    let calls = (0..100).map(|_| stage.call(call("pay", "k")));
    let release = async {
        while stage.runs() == 0 {
            tokio::task::yield_now().await;
        }
        go.notify_waiters();
    };
    let (answers, ()) = tokio::join!(join_all(calls), release);
    assert_eq!(stage.runs(), 1);
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|answer| answer.cached).count(), 99);
    assert!(answers.iter().all(|answer| answer.result == json!({ "paid": 5 })));
    assert!(answers.iter().all(|answer| answer.invocation_id == answers[0].invocation_id));
}

#[tokio::test]
async fn who_does_not_want_to_wait_is_told_where_the_first_call_is() {
    let stage = stage(TestKernelOptions::default()).await;
    says(&stage, ToolScript::Hang);
    let mut first = Box::pin(stage.call(call("pay", "k")));
    while stage.runs() == 0 {
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(first.as_mut().poll(cx).is_pending())).await);
        tokio::task::yield_now().await;
    }
    let mut impatient = call("pay", "k");
    impatient["execution_options"]["wait_for_duplicate"] = json!(false);
    let refused = stage.call(impatient).await.unwrap_err();
    assert_eq!(refused.refusal.code, ErrorCode::E3409);
    let handle = refused.refusal.details.unwrap();
    let running = stage.kernel.ledger_lines(admin(), EntryFilter::default(), 10).await.unwrap();
    assert_eq!(handle["invocation_id"], json!(running[0].intent.invocation));
    assert_eq!(running[0].state, EntryState::InFlight);
}

#[tokio::test]
async fn a_key_is_of_one_tool_one_caller_one_session_and_one_set_of_parameters() {
    let stage = stage(TestKernelOptions::default()).await;
    says(&stage, ToolScript::Answer(json!({})));
    stage.call(call("pay", "k")).await.unwrap();
    let mut other = call("pay", "k");
    other["parameters"]["name"] = json!("Bob");
    assert_eq!(stage.refusal(other).await, ErrorCode::E3410);
    let mut spelt = call("pay", "k");
    spelt["parameters"] = json!({ "times": "1", "name": "Ada" });
    assert!(stage.call(spelt).await.unwrap().cached, "the same parameters, spelt otherwise");
    assert_eq!(stage.runs(), 1);
    stage.call(call("set_it", "k")).await.unwrap();
    let mut session = call("pay", "k");
    session["agent_context"] = json!({ "session_id": "another" });
    assert!(!stage.call(session).await.unwrap().cached);
    let agent = stage.mint(json!({ "sub": "agent-1", "tenant": "local" })).await;
    assert!(!stage.call_as(Some(&agent), call("pay", "k")).await.unwrap().cached);
    assert_eq!(stage.runs(), 4);
}

#[tokio::test]
async fn what_must_not_happen_twice_needs_a_key_and_a_turn_is_one() {
    let stage = stage(TestKernelOptions::default()).await;
    says(&stage, ToolScript::Answer(json!({})));
    let bare = json!({ "tool_id": "pay", "parameters": { "name": "Ada" } });
    let refused = stage.call(bare).await.unwrap_err();
    assert_eq!(refused.refusal.code, ErrorCode::E3004);
    assert!(refused.refusal.message.contains("idempotency key"), "{}", refused.refusal.message);
    assert_eq!(
        refused.refusal.details.unwrap()["missing"],
        gantry_kernel::MISSING_KEY,
        "so that a door can say where it goes"
    );
    let turn = |name: &str, times: u32, group: &str| {
        json!({ "tool_id": "pay_for", "parameters": { "name": name, "times": times },
            "execution_options": { "turn_group_id": group } })
    };
    assert!(!stage.call(turn("Ada", 1, "g")).await.unwrap().cached);
    assert!(stage.call(turn("Ada", 1, "g")).await.unwrap().cached, "a superseded turn keeps its group");
    assert_eq!(stage.refusal(turn("Ada", 2, "g")).await, ErrorCode::E3410, "the same act, done otherwise");
    assert!(!stage.call(turn("Ada", 1, "next")).await.unwrap().cached);
    assert!(!stage.call(turn("Bob", 1, "g")).await.unwrap().cached);
    assert_eq!(stage.runs(), 3);
}

#[tokio::test]
async fn a_failure_that_is_certain_is_told_again_and_one_before_the_start_is_not() {
    let stage = stage(TestKernelOptions::default()).await;
    fails(&stage, ErrorCode::E3401);
    assert_eq!(stage.refusal(call("pay", "declined")).await, ErrorCode::E3401);
    says(&stage, ToolScript::Answer(json!({})));
    let again = stage.call(call("pay", "declined")).await.unwrap_err();
    assert_eq!((again.refusal.code, again.refusal.message.as_str()), (ErrorCode::E3401, "it went wrong"));
    assert_eq!(stage.runs(), 1, "it was not tried a second time");

    fails(&stage, ErrorCode::E3405);
    assert_eq!(stage.refusal(call("pay", "no-sandbox")).await, ErrorCode::E3405);
    says(&stage, ToolScript::Answer(json!({})));
    assert!(!stage.call(call("pay", "no-sandbox")).await.unwrap().cached, "nothing had happened");
}

#[tokio::test]
async fn what_the_executor_knows_decides_whether_a_key_is_free_and_no_code_does() {
    let stage = stage(TestKernelOptions::default()).await;
    let codes =
        [ErrorCode::E3401, ErrorCode::E3404, ErrorCode::E3502, ErrorCode::E3504, ErrorCode::E3603, ErrorCode::E3701];
    let mut runs = 0;
    for code in codes {
        for reach in ExecutionReach::ALL {
            let key = format!("{code} {reach:?}");
            says(&stage, ToolScript::FailAs(ExecutorError::new(Refusal::new(code, "it went wrong"), reach)));
            let first = stage.refusal(call("pay", &key)).await;
            says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
            let second = stage.call(call("pay", &key)).await.map(|answer| answer.cached).map_err(|f| f.refusal.code);
            let (told, again, times) = match reach {
                ExecutionReach::NotSent | ExecutionReach::Refused => (code, Ok(false), 2),
                ExecutionReach::Answered => (code, Err(code), 1),
                ExecutionReach::MayHaveRun => (ErrorCode::E3413, Err(ErrorCode::E3413), 1),
            };
            runs += times;
            assert_eq!((first, second, stage.runs()), (told, again, runs), "{key}");
        }
    }
}

#[tokio::test]
async fn a_call_that_is_ended_before_it_was_sent_leaves_its_key_free() {
    let stage = stage(TestKernelOptions { impatient: true, ..TestKernelOptions::default() }).await;
    says(&stage, ToolScript::HangUnsent);
    assert_eq!(
        stage.refusal(call("pay", "waits")).await,
        ErrorCode::E3402,
        "it waited for its turn until its time was over"
    );
    says(&stage, ToolScript::Hang);
    assert_eq!(stage.refusal(call("pay", "hangs")).await, ErrorCode::E3413);
    says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
    assert!(!stage.call(call("pay", "waits")).await.unwrap().cached);
    assert_eq!(stage.refusal(call("pay", "hangs")).await, ErrorCode::E3413);
}

#[tokio::test]
async fn a_call_that_is_dropped_before_it_was_sent_leaves_its_key_free_and_another_does_not() {
    let stage = stage(TestKernelOptions::default()).await;
    for (number, (act, key)) in [(ToolScript::HangUnsent, "waits"), (ToolScript::Hang, "hangs")].into_iter().enumerate()
    {
        says(&stage, act);
        let mut calling = Box::pin(stage.call(call("pay", key)));
        while stage.runs() <= number {
            tokio::select! {
                biased;
                ended = &mut calling => panic!("{key} has ended: {:?}", ended.is_ok()),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(calling);
    }
    // The orderly end of the process, and the start of the next.
    stage.kernel.books().retire().await;
    let recovered = stage.kernel.recover().await.unwrap();
    assert_eq!((recovered.indeterminate, recovered.set_free), (1, 0));
    says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
    assert!(!stage.call(call("pay", "waits")).await.unwrap().cached);
    assert_eq!(stage.refusal(call("pay", "hangs")).await, ErrorCode::E3413);
}

#[tokio::test]
async fn a_call_that_is_ended_or_dropped_while_its_claim_is_written_leaves_its_key_free() {
    for impatient in [true, false] {
        let failing = Arc::new(FailingLedger::telling_late());
        let stage =
            stage(TestKernelOptions { impatient, ledger: Some(Arc::clone(&failing)), ..TestKernelOptions::default() })
                .await;
        let told = failing.tells_late.as_ref().unwrap();
        stage.kernel.books().renew().await.unwrap();
        says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
        if impatient {
            assert_eq!(stage.refusal(call("pay", "k")).await, ErrorCode::E3402, "no other call has its key");
        } else {
            let mut calling = Box::pin(stage.call(call("pay", "k")));
            while stage.kernel.ledger_lines(admin(), EntryFilter::default(), 10).await.unwrap().is_empty() {
                tokio::select! {
                    biased;
                    ended = &mut calling => panic!("it has ended: {:?}", ended.is_ok()),
                    () = tokio::task::yield_now() => {}
                }
            }
            drop(calling);
        }
        // One for the claim that nobody waits for, and the others for what comes.
        told.add_permits(8);
        stage.kernel.books().retire().await;
        assert_eq!(stage.runs(), 0);
        assert!(!stage.call(call("pay", "k")).await.unwrap().cached);
        assert_eq!(stage.runs(), 1);
    }
}

/// Of a job that was begun again, the word decides: what still runs is looked at again, what took too long has failed.
#[tokio::test]
async fn a_call_that_waits_for_another_says_so_also_if_its_time_ends_while_the_ledger_is_asked() {
    let failing = Arc::new(FailingLedger::telling_late());
    let options =
        TestKernelOptions { stepped: true, ledger: Some(Arc::clone(&failing)), ..TestKernelOptions::default() };
    let stage = stage(options).await;
    let told = failing.tells_late.as_ref().unwrap();
    stage.kernel.books().renew().await.unwrap();
    told.add_permits(2);
    lose(&stage, call("pay", "k")).await;
    let mut waiting = Box::pin(stage.refusal(call("pay", "k")));
    // Its first look finds the lost call in flight, and its second is not answered.
    while told.available_permits() > 0 {
        tokio::select! {
            biased;
            code = &mut waiting => panic!("it has ended: {code:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    stage.step(3_600);
    assert_eq!(waiting.await, ErrorCode::E3409);
    told.add_permits(8);
    stage.kernel.books().retire().await;
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn the_key_that_travels_is_the_same_whenever_the_same_act_is_tried() {
    let stage = stage(TestKernelOptions::default()).await;
    let told = |stage: &TestKernel| stage.tool.keys.lock().unwrap().last().unwrap().to_string();
    says(&stage, ToolScript::FailAs(ExecutorError::not_sent(Refusal::new(ErrorCode::E3502, "it is away"))));
    stage.refusal(call("pay", "order-7")).await;
    let first = told(&stage);
    says(&stage, ToolScript::Answer(json!({})));
    stage.call(call("pay", "order-7")).await.unwrap();
    assert_eq!(told(&stage), first);
    assert!(!first.contains("order-7"), "what the caller calls its key is not handed on");
    stage.call(call("pay", "order-8")).await.unwrap();
    assert_ne!(told(&stage), first);
    let agent = stage.mint(json!({ "sub": "agent-1", "tenant": "local" })).await;
    stage.call_as(Some(&agent), call("pay", "order-7")).await.unwrap();
    assert_ne!(told(&stage), first, "another caller's key by the same name is another key");
}

#[tokio::test]
async fn when_nobody_knows_gantry_says_so_and_repeats_nothing_until_a_person_has_looked() {
    let stage = stage(TestKernelOptions::default()).await;
    for (number, code) in EVERY_END.into_iter().enumerate() {
        let key = format!("k{number}");
        fails(&stage, code);
        let failed = stage.call(call("pay", &key)).await.unwrap_err();
        assert_eq!((failed.refusal.code, failed.status), (ErrorCode::E3413, InvocationStatus::Indeterminate));
        // What it was is known to whoever decides by it, and to the log.
        let reason = RefusalReason::OutcomeUnknown { code, behind: None };
        assert_eq!(failed.refusal.reason.as_deref(), Some(&reason));
        let source = std::error::Error::source(&failed.refusal).unwrap().to_string();
        assert!(source.starts_with(&code.to_string()), "{source}");
        assert_eq!(failed.refusal.details.unwrap()["code"], code.to_string());
        says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
        let again = stage.call(call("pay", &key)).await.unwrap_err();
        assert_eq!(again.refusal.code, ErrorCode::E3413);
        assert_eq!(stage.runs(), number + 1);
        assert_eq!(again.refusal.details.unwrap()["invocation_id"], json!(failed.invocation_id));
    }
    let unknown = EntryFilter { state: Some(EntryState::Unknown), ..EntryFilter::default() };
    let mut lines = stage.kernel.ledger_lines(admin(), unknown.clone(), 10).await.unwrap();
    assert_eq!(lines.len(), EVERY_END.len());
    lines.reverse();
    let ids: Vec<InvocationId> = lines.iter().map(|line| line.intent.invocation).collect();

    let agent = stage.mint(json!({ "sub": "agent-1", "tenant": "local" })).await;
    let refused = stage.kernel.resolve_invocation(as_holder(&agent), None, ids[0], None).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3206, "an agent does not resolve");
    stage.kernel.resolve_invocation(admin(), None, ids[0], Some(json!({ "paid": 9 }))).await.unwrap();
    stage.kernel.resolve_invocation(admin(), None, ids[1], None).await.unwrap();
    let twice = stage.kernel.resolve_invocation(admin(), None, ids[1], None).await.unwrap_err();
    assert_eq!(twice.code, ErrorCode::E3908);

    let happened = stage.call(call("pay", "k0")).await.unwrap();
    assert_eq!((happened.cached, happened.result), (true, json!({ "paid": 9 })));
    let repeated = stage.call(call("pay", "k1")).await.unwrap();
    assert_eq!((repeated.cached, repeated.result), (false, json!({ "paid": 5 })));
    assert_eq!(stage.kernel.ledger_lines(admin(), unknown, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_safe_to_repeat_is_repeated_after_any_failure() {
    let stage = stage(TestKernelOptions::default()).await;
    for (number, code) in EVERY_END.into_iter().chain([ErrorCode::E3401]).enumerate() {
        let key = format!("k{number}");
        fails(&stage, code);
        assert_eq!(stage.refusal(call("set_it", &key)).await, code);
        says(&stage, ToolScript::Answer(json!({})));
        assert!(!stage.call(call("set_it", &key)).await.unwrap().cached);
        assert!(stage.call(call("set_it", &key)).await.unwrap().cached);
    }
}

/// Starts a call and loses it while its tool runs, as the end of a process does.
async fn lose(stage: &TestKernel, request: Value) {
    says(stage, ToolScript::Hang);
    let (before, mut running) = (stage.runs(), Box::pin(stage.call(request)));
    while stage.runs() == before {
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(running.as_mut().poll(cx).is_pending())).await);
        tokio::task::yield_now().await;
    }
    drop(running);
}

#[tokio::test]
async fn a_call_whose_process_died_is_repeated_if_that_is_safe_and_shown_to_people_if_not() {
    let stage = stage(TestKernelOptions::default()).await;
    lose(&stage, call("pay", "k")).await;
    lose(&stage, call("set_it", "k")).await;
    let recovered = stage.kernel.recover().await.unwrap();
    assert_eq!((recovered.indeterminate, recovered.set_free), (0, 0), "this process still lives");
    stage.step(60);
    let recovered = stage.kernel.recover().await.unwrap();
    assert_eq!((recovered.indeterminate, recovered.set_free), (1, 1));
    says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
    assert_eq!(stage.refusal(call("pay", "k")).await, ErrorCode::E3413);
    assert!(!stage.call(call("set_it", "k")).await.unwrap().cached);
    assert_eq!(stage.runs(), 3);
    let records = stage.records().await;
    let interrupted: Vec<_> =
        records.iter().filter(|r| r.note.as_deref().is_some_and(|n| n.starts_with("interrupted"))).collect();
    assert_eq!(interrupted.len(), 2);
    assert_eq!(interrupted[0].status, Some(InvocationStatus::Indeterminate));
}

#[tokio::test]
async fn an_intent_that_cannot_be_written_keeps_the_tool_from_starting() {
    let failing = Arc::new(FailingLedger::default());
    let stage = stage(TestKernelOptions { ledger: Some(Arc::clone(&failing)), ..TestKernelOptions::default() }).await;
    failing.cannot_begin.store(true, Ordering::SeqCst);
    assert_eq!(stage.refusal(call("pay", "k")).await, ErrorCode::E3001);
    assert_eq!(stage.refusal(call("set_it", "k")).await, ErrorCode::E3001);
    assert_eq!(stage.runs(), 0);
    failing.cannot_begin.store(false, Ordering::SeqCst);
    says(&stage, ToolScript::Answer(json!({})));
    assert!(!stage.call(call("pay", "k")).await.unwrap().cached);
}

#[tokio::test]
async fn an_end_that_cannot_be_written_is_not_told_as_if_it_had_been() {
    let failing = Arc::new(FailingLedger::default());
    let props =
        TestKernelOptions { ledger: Some(Arc::clone(&failing)), impatient: true, ..TestKernelOptions::default() };
    let stage = stage(props).await;
    says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
    failing.cannot_settle.store(true, Ordering::SeqCst);
    let failed = stage.call(call("pay", "k")).await.unwrap_err();
    assert_eq!((failed.refusal.code, failed.status), (ErrorCode::E3413, InvocationStatus::Indeterminate));
    let mut impatient = call("pay", "k");
    impatient["execution_options"]["wait_for_duplicate"] = json!(false);
    assert_eq!(stage.refusal(impatient).await, ErrorCode::E3409, "as long as it is not written");
    assert_eq!(stage.runs(), 1);
}

/// The store was away for longer than a caller is kept waiting: the instance that knows the end writes it when it can.
#[tokio::test]
async fn an_end_that_could_not_be_written_is_written_later_and_then_told() {
    let failing = Arc::new(FailingLedger::default());
    let props =
        TestKernelOptions { ledger: Some(Arc::clone(&failing)), impatient: true, ..TestKernelOptions::default() };
    let stage = stage(props).await;
    for (key, effects) in [("k", "pay"), ("l", "set_it")] {
        says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
        failing.cannot_settle.store(true, Ordering::SeqCst);
        let runs = stage.runs();
        assert_eq!(stage.refusal(call(effects, key)).await, ErrorCode::E3413);
        says(&stage, ToolScript::Answer(json!({ "paid": "again" })));
        let again = async {
            // Tried in vain for a while; then the store is back.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            failing.cannot_settle.store(false, Ordering::SeqCst);
            let open = EntryFilter { state: Some(EntryState::InFlight), ..EntryFilter::default() };
            while !stage.kernel.ledger_lines(admin(), open.clone(), 10).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            stage.call(call(effects, key)).await.unwrap()
        };
        let again = tokio::select! {
            again = again => again,
            () = stage.kernel.books().keep_alive() => unreachable!("it never ends"),
        };
        assert_eq!((&again.result, again.cached), (&json!({ "paid": 5 }), true), "the true result, not another one");
        assert_eq!(stage.runs(), runs + 1);
    }
}

/// Its lease ran out meanwhile, and somebody else has settled it by the rule: that stands.
#[tokio::test]
async fn an_end_that_comes_after_its_call_was_given_up_is_dropped() {
    let failing = Arc::new(FailingLedger::default());
    let props =
        TestKernelOptions { ledger: Some(Arc::clone(&failing)), impatient: true, ..TestKernelOptions::default() };
    let stage = stage(props).await;
    says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
    failing.cannot_settle.store(true, Ordering::SeqCst);
    let failed = stage.call(call("pay", "k")).await.unwrap_err();
    stage.step(60);
    // Another instance finds a lease that is over.
    let lapsed = stage.store.lapsed(10).await.unwrap();
    assert_eq!(lapsed.len(), 1);
    let outcome = json!({ "unknown": { "code": "E3413", "cause": "interrupted", "message": "it ended" } });
    let unknown = Settlement { state: EntryState::Unknown, outcome };
    stage.store.settle(failed.invocation_id, lapsed[0].fence, unknown).await.unwrap();
    failing.cannot_settle.store(false, Ordering::SeqCst);
    assert_eq!(stage.kernel.recover().await.unwrap(), RecoveryReport::default());
    let line = stage.kernel.ledger_line(admin(), failed.invocation_id).await.unwrap();
    assert_eq!(line.state, EntryState::Unknown);
    assert_eq!(stage.refusal(call("pay", "k")).await, ErrorCode::E3413);
    assert_eq!(stage.runs(), 1);
}

/// A store that was away was away from others too: their leases are over, and they are not gone.
#[tokio::test]
async fn whoever_could_not_reach_the_store_gives_others_the_time_of_a_lease() {
    let failing = Arc::new(FailingLedger::default());
    let stage = stage(TestKernelOptions { ledger: Some(Arc::clone(&failing)), ..TestKernelOptions::default() }).await;
    says(&stage, ToolScript::Hang);
    let hanging = stage.call(call("pay", "k"));
    let others = async {
        while stage.runs() == 0 {
            tokio::task::yield_now().await;
        }
        failing.cannot_renew.store(true, Ordering::SeqCst);
        stage.step(60);
        assert!(stage.kernel.books().renew().await.is_err());
        failing.cannot_renew.store(false, Ordering::SeqCst);
        assert_eq!(stage.kernel.recover().await.unwrap(), RecoveryReport::default(), "not yet");
        stage.step(16);
        assert_eq!(stage.kernel.recover().await.unwrap().indeterminate, 1, "whoever is not back by now is gone");
    };
    tokio::select! {
        _ = hanging => panic!("it hangs"),
        () = others => {}
    }
}

#[tokio::test]
async fn a_call_that_was_given_up_meanwhile_cannot_write_its_end() {
    let stage = stage(TestKernelOptions::default()).await;
    let go = Arc::new(Notify::new());
    says(&stage, ToolScript::Wait(Arc::clone(&go), json!({ "paid": 5 })));
    let overtaken = async {
        while stage.runs() == 0 {
            tokio::task::yield_now().await;
        }
        // It was stopped for longer than its lease, and somebody else looked.
        stage.step(60);
        assert_eq!(stage.kernel.recover().await.unwrap().indeterminate, 1);
        go.notify_waiters();
    };
    let (late, ()) = tokio::join!(stage.call(call("pay", "k")), overtaken);
    let late = late.unwrap_err();
    assert_eq!(late.refusal.code, ErrorCode::E3413);
    assert!(late.refusal.message.contains("discarded"), "{}", late.refusal.message);
    let line = stage.kernel.ledger_line(admin(), late.invocation_id).await.unwrap();
    assert_eq!(line.state, EntryState::Unknown, "what people were told stays true");
}

#[tokio::test]
async fn an_invocation_id_that_is_used_is_taken() {
    let stage = stage(TestKernelOptions::default()).await;
    says(&stage, ToolScript::Answer(json!({})));
    let id = "018f0000-0000-7000-8000-000000000001";
    let mut request = call("pay", "k");
    request["invocation_id"] = json!(id);
    assert_eq!(stage.call(request.clone()).await.unwrap().invocation_id.to_string(), id);
    request["execution_options"]["idempotency_key"] = json!("l");
    let refused = stage.call(request.clone()).await.unwrap_err();
    assert_eq!(refused.refusal.code, ErrorCode::E3410);
    request["execution_options"]["idempotency_key"] = json!("k");
    assert_eq!(stage.call(request).await.unwrap().invocation_id.to_string(), id, "the same call is answered again");
}

#[tokio::test]
async fn a_call_is_seen_by_whoever_made_it_and_by_nobody_of_another_tenant() {
    let stage = stage(TestKernelOptions::default()).await;
    says(&stage, ToolScript::Answer(json!({})));
    let agent = stage.mint(json!({ "sub": "agent-1", "tenant": "local" })).await;
    let other = stage.mint(json!({ "sub": "agent-2", "tenant": "local" })).await;
    let foreign = stage.mint(json!({ "sub": "agent-1", "tenant": "acme", "roles": ["admin"] })).await;
    let id = stage.call_as(Some(&agent), call("pay", "k")).await.unwrap().invocation_id;
    assert!(stage.kernel.ledger_line(as_holder(&agent), id).await.is_ok());
    assert!(stage.kernel.ledger_line(admin(), id).await.is_ok());
    for token in [&other, &foreign] {
        let refused = stage.kernel.ledger_line(as_holder(token), id).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::E3702);
    }
}

#[tokio::test]
async fn a_replay_names_the_version_that_ran() {
    let stage = stage(TestKernelOptions::default()).await;
    says(&stage, ToolScript::Answer(json!({ "paid": 5 })));
    let first = stage.call(call("pay", "k")).await.unwrap();
    let effects = json!([{ "resource": "money", "op": "CREATE", "scope": "account" }]);
    stage
        .publish(json!({ "tool_id": "pay", "version": "1.1.0", "side_effect_policy": "compensatable", "side_effects": effects,
            "idempotency": {}, "result_schema": { "type": ["object", "null", "array"] }, "compensation_tool_id": "set_it" }))
        .await;
    let again = stage.call(call("pay", "k")).await.unwrap();
    assert_eq!((again.cached, again.tool_version), (true, first.tool_version));
    assert_eq!(stage.call(call("pay", "k2")).await.unwrap().tool_version.to_string(), "1.1.0");
}

#[tokio::test]
async fn a_key_of_a_pure_tool_saves_work_for_its_window_and_nothing_is_written() {
    let failing = Arc::new(FailingLedger::default());
    failing.cannot_begin.store(true, Ordering::SeqCst);
    let stage = stage(TestKernelOptions { ledger: Some(failing), ..TestKernelOptions::default() }).await;
    stage.publish(json!({})).await;
    let first = stage.call(call("greet", "k")).await.unwrap();
    let second = stage.call(call("greet", "k")).await.unwrap();
    assert_eq!((first.cached, second.cached, stage.runs()), (false, true, 1));
    assert_eq!((first.invocation_id, first.result), (second.invocation_id, second.result));
    let mut other = call("greet", "k");
    other["parameters"]["name"] = json!("Bob");
    assert_eq!(stage.refusal(other).await, ErrorCode::E3410);
    assert!(!stage.call(call("greet", "k2")).await.unwrap().cached);
    let bare = json!({ "tool_id": "greet", "parameters": { "name": "Ada" } });
    assert!(!stage.call(bare).await.unwrap().cached, "without a key every call is a new one");
    stage.step(86_401);
    assert!(!stage.call(call("greet", "k")).await.unwrap().cached, "its window is over");
    fails(&stage, ErrorCode::E3402);
    assert_eq!(stage.refusal(call("greet", "k3")).await, ErrorCode::E3402);
    says(&stage, ToolScript::Answer(json!({ "text": "hi" })));
    assert!(!stage.call(call("greet", "k3")).await.unwrap().cached, "a failure is not remembered");
}

#[tokio::test]
async fn many_calls_of_a_pure_tool_with_one_key_at_once_run_once() {
    let stage = stage(TestKernelOptions::default()).await;
    stage.publish(json!({})).await;
    let go = Arc::new(Notify::new());
    says(&stage, ToolScript::Wait(Arc::clone(&go), json!({ "text": "hi" })));
    let calls = (0..100).map(|_| stage.call(call("greet", "k")));
    let release = async {
        while stage.runs() == 0 {
            tokio::task::yield_now().await;
        }
        let mut impatient = call("greet", "k");
        impatient["execution_options"]["wait_for_duplicate"] = json!(false);
        assert_eq!(stage.refusal(impatient).await, ErrorCode::E3409);
        go.notify_waiters();
    };
    let (answers, ()) = tokio::join!(join_all(calls), release);
    assert_eq!(stage.runs(), 1);
    assert_eq!(answers.into_iter().filter(|answer| answer.as_ref().unwrap().cached).count(), 99);
}
