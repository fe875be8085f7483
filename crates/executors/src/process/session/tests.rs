//! Sessions over pipes in memory, with a tool played by the test. Real programs are in
//! `tests/executors/conversation.rs`.

use std::sync::Mutex;

use async_trait::async_trait;
use ports::tool_companion::{LogLevel, ToolProgress, ToolSnapshot};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, duplex};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::*;

/// What a companion heard, and how it answers.
#[derive(Debug)]
struct Ear {
    heard: Mutex<Vec<String>>,
    /// `document` waits for one of these.
    permits: Semaphore,
}

impl Ear {
    fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { heard: Mutex::default(), permits: Semaphore::new(permits) })
    }

    fn hear(&self, what: String) {
        self.heard.lock().unwrap().push(what);
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

#[async_trait]
impl ToolCompanion for Ear {
    fn progress(&self, progress: ToolProgress) {
        self.hear(format!("{:?} {:?} {:?}", progress.percent, progress.phase, progress.message));
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.hear(format!("{level:?}: {message}"));
    }

    async fn checkpoint(&self, snapshot: ToolSnapshot) -> Result<String, Refusal> {
        self.hear(format!("checkpoint {:?} {}", snapshot.name, snapshot.state));
        Ok("cp-1".to_owned())
    }

    async fn document(&self, id: &str) -> Result<Value, Refusal> {
        match id {
            "slow" => {
                self.permits.acquire().await.unwrap().forget();
                Ok(json!("slowly"))
            }
            "huge" => Ok(json!("x".repeat(9 << 20))),
            "bug" => panic!("a bug of ours"),
            "forbidden" => Err(Refusal::new(ErrorCode::E3010, "not for you")),
            id => Ok(json!({ "id": id })),
        }
    }
}

/// The tool's ends of its streams.
struct Tool {
    lines: Lines<BufReader<DuplexStream>>,
    stdout: DuplexStream,
    stderr: DuplexStream,
}

impl Tool {
    async fn hear(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().expect("a line from Gantry")).unwrap()
    }

    async fn say(&mut self, message: Value) {
        self.say_raw(&format!("{message}\n")).await;
    }

    async fn say_raw(&mut self, text: &str) {
        // The other side may have hung up on us by now.
        let _ = self.stdout.write_all(text.as_bytes()).await;
    }

    async fn tell(&mut self, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    async fn ask(&mut self, id: Value, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    async fn answer(&mut self, invoke: &Value, result: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": invoke["id"], "result": result })).await;
    }
}

fn pair(bounds: SessionBounds) -> (ProcessSession, Tool) {
    let (stdin, tool_stdin) = duplex(256);
    let (stdout, tool_stdout) = duplex(256);
    let (stderr, tool_stderr) = duplex(256);
    let session = ProcessSession::new(ProcessStreams::new(stdin, stdout, stderr), bounds);
    (session, Tool { lines: BufReader::new(tool_stdin).lines(), stdout: tool_stdout, stderr: tool_stderr })
}

fn call() -> SessionCall {
    SessionCall {
        invocation_id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
        tool_id: "demo.tool".parse().unwrap(),
        tool_version: Version::new(1, 2, 3),
        parameters: Arc::new(json!({ "text": "line\nline" })),
        time_left: Duration::from_millis(1500),
        trace_id: TraceId::from_bytes([1; 16]),
        traceparent: None,
        resume: None,
        idempotency_key: "act-1".into(),
        user: Some("did:example:ann".parse().unwrap()),
    }
}

/// Runs one call against a played tool.
async fn play<F: Future<Output = Tool> + Send + 'static>(
    bounds: SessionBounds,
    script: impl FnOnce(Tool) -> F,
) -> (Result<Value, SessionError>, ProcessSession, Arc<Ear>, JoinHandle<Tool>) {
    let (mut session, tool) = pair(bounds);
    let tool = tokio::spawn(script(tool));
    let ear = Ear::new(0);
    let companion: Arc<dyn ToolCompanion> = Arc::clone(&ear) as _;
    let ended = tokio::time::timeout(PATIENCE, session.invoke(&call(), &companion)).await.unwrap();
    (ended, session, ear, tool)
}

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);
const USUAL: fn() -> SessionBounds = SessionBounds::default;

#[tokio::test]
async fn a_call_goes_out_whole_and_its_answer_is_the_result() {
    let (ended, session, _, tool) = play(USUAL(), |mut tool| async move {
        let invoke = tool.hear().await;
        assert_eq!(
            invoke,
            json!({ "jsonrpc": "2.0", "id": "00000000-0000-7000-8000-000000000001", "method": "invoke", "params": {
                "invocation_id": "00000000-0000-7000-8000-000000000001", "tool_id": "demo.tool", "tool_version": "1.2.3",
                "parameters": { "text": "line\nline" }, "deadline_ms": 1500, "trace_id": "01".repeat(16),
                "idempotency_key": "act-1", "user": "did:example:ann" } })
        );
        tool.stderr.write_all(b"to the log\n").await.unwrap();
        tool.answer(&invoke, json!({ "ok": [1, 2] })).await;
        tool
    })
    .await;
    assert_eq!(ended.unwrap(), json!({ "ok": [1, 2] }));
    assert_eq!(
        session.log(&SecretScrubber::default()),
        "to the log\n",
        "what came before the answer is in the log of the call"
    );
    assert!(session.is_reusable());
    tool.await.unwrap();
}

#[tokio::test]
async fn what_a_tool_reports_beside_its_result_is_of_that_call_only() {
    let (mut session, mut tool) = pair(USUAL());
    let companion: Arc<dyn ToolCompanion> = Ear::new(0);
    let program = tokio::spawn(async move {
        for usage in
            [json!({ "cost_incurred": "0.02", "currency": "EUR", "tokens_used": 9 }), json!("much"), Value::Null]
        {
            let invoke = tool.hear().await;
            tool.say(json!({ "jsonrpc": "2.0", "id": invoke["id"], "result": 1, "usage": usage })).await;
        }
        tool
    });
    let mut said = Vec::new();
    for _ in 0..3 {
        assert_eq!(session.invoke(&call(), &companion).await.unwrap(), 1);
        let reported = session.reported();
        said.push((reported.cost.map(|cost| format!("{} {}", cost.amount, cost.currency)), reported.tokens));
    }
    assert_eq!(said, [(Some("0.02 EUR".to_owned()), Some(9)), (None, None), (None, None)]);
    program.await.unwrap();
}

#[tokio::test]
async fn progress_log_checkpoints_and_documents_reach_the_companion() {
    let (ended, session, ear, tool) = play(USUAL(), |mut tool| async move {
        let invoke = tool.hear().await;
        tool.say_raw("\n  \r\n").await;
        tool.tell("progress", json!({ "percent": 140, "phase": "load", "message": "a\u{1b}b" })).await;
        tool.tell("progress", json!({ "percent": -3 })).await;
        tool.tell("progress", json!({ "percent": "half" })).await;
        tool.tell("log", json!({ "level": "WARNING", "message": "careful" })).await;
        tool.tell("log", json!({ "message": 5 })).await;
        tool.tell("unknown", json!({})).await;
        // Answers to calls that are over, or that somebody guesses.
        for id in [json!(1), json!(99), json!("00000000-0000-7000-8000-000000000002"), Value::Null] {
            tool.say(json!({ "jsonrpc": "2.0", "id": id, "result": "late" })).await;
        }
        tool.ask(json!(7), "checkpoint", json!({ "name": "half", "state": { "row": 3 } })).await;
        assert_eq!(tool.hear().await, json!({ "jsonrpc": "2.0", "id": 7, "result": { "checkpoint_id": "cp-1" } }));
        tool.ask(json!("d"), "document", json!({ "id": "doc-9" })).await;
        assert_eq!(tool.hear().await, json!({ "jsonrpc": "2.0", "id": "d", "result": { "id": "doc-9" } }));
        tool.answer(&invoke, json!(1)).await;
        tool
    })
    .await;
    tool.await.unwrap();
    assert_eq!(ended.unwrap(), 1);
    assert!(session.is_reusable());
    assert_eq!(
        ear.heard(),
        [
            "Some(100.0) Some(\"load\") Some(\"a\u{fffd}b\")",
            "Some(0.0) None None",
            "Warn: careful",
            "checkpoint Some(\"half\") {\"row\":3}"
        ]
    );
}

#[tokio::test]
async fn requests_that_cannot_be_granted_are_refused_and_the_call_goes_on() {
    let (ended, _, _, tool) = play(USUAL(), |mut tool| async move {
        let invoke = tool.hear().await;
        for (method, params, code, words) in [
            ("rm", json!({}), -32601, "no method `rm`"),
            ("invoke", json!({}), -32601, "no method `invoke`"),
            ("checkpoint", json!({}), -32602, "`state` is missing"),
            ("checkpoint", json!({ "name": 5, "state": 1 }), -32602, "`name`"),
            ("checkpoint", json!([1]), -32602, "`state` is missing"),
            ("document", json!({}), -32602, "`id`"),
            ("document", json!({ "id": "" }), -32602, "`id`"),
            ("document", json!({ "id": "x".repeat(300) }), -32602, "`id`"),
            ("document", json!({ "id": "forbidden" }), ErrorCode::E3010.json_rpc(), "not for you"),
            ("document", json!({ "id": "huge" }), -32006, "larger than 8388608 bytes"),
            ("document", json!({ "id": "bug" }), -32603, "could not be answered"),
        ] {
            tool.ask(json!(5), method, params).await;
            let refused = tool.hear().await;
            assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(5), &json!(code)), "{refused}");
            assert!(refused["error"]["message"].as_str().unwrap().contains(words), "{refused}");
        }
        tool.answer(&invoke, json!("done")).await;
        tool
    })
    .await;
    tool.await.unwrap();
    assert_eq!(ended.unwrap(), "done");
}

#[tokio::test]
async fn requests_are_answered_as_they_are_done_and_only_so_many_are_open() {
    let (mut session, mut tool) = pair(SessionBounds { requests_max: 2, ..USUAL() });
    let ear = Ear::new(0);
    let companion: Arc<dyn ToolCompanion> = Arc::clone(&ear) as _;
    let script = async {
        let invoke = tool.hear().await;
        tool.ask(json!(1), "document", json!({ "id": "slow" })).await;
        tool.ask(json!(2), "document", json!({ "id": "quick" })).await;
        assert_eq!(tool.hear().await["id"], 2);
        tool.ask(json!(1), "document", json!({ "id": "quick" })).await;
        assert_eq!(tool.hear().await["error"]["code"], -32600);
        tool.ask(json!(3), "document", json!({ "id": "slow" })).await;
        tool.ask(json!(4), "document", json!({ "id": "quick" })).await;
        let refused = tool.hear().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(4), &json!(-32005)));
        ear.permits.add_permits(2);
        let mut ids = [tool.hear().await, tool.hear().await].map(|answer| answer["id"].as_i64());
        ids.sort_unstable();
        assert_eq!(ids, [Some(1), Some(3)]);
        tool.answer(&invoke, json!("done")).await;
    };
    let call = call();
    let both = async { tokio::join!(session.invoke(&call, &companion), script) };
    let (ended, ()) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert_eq!(ended.unwrap(), "done");
}

#[tokio::test]
async fn a_process_serves_one_call_after_another_also_after_its_own_error() {
    let (mut session, mut tool) = pair(USUAL());
    let companion: Arc<dyn ToolCompanion> = Ear::new(0);
    let program = tokio::spawn(async move {
        for round in 1..=3 {
            let invoke = tool.hear().await;
            assert_eq!(invoke["id"], invoke["params"]["invocation_id"]);
            if round == 2 {
                let error = json!({ "code": 42, "message": "no such\nrow", "data": { "row": 7 } });
                tool.say(json!({ "jsonrpc": "2.0", "id": invoke["id"], "error": error })).await;
            } else {
                tool.answer(&invoke, json!(round)).await;
            }
        }
        tool
    });
    assert_eq!(session.invoke(&call(), &companion).await.unwrap(), 1);
    let error = session.invoke(&call(), &companion).await.unwrap_err();
    assert!(error.is_reusable() && error.was_asked() && session.is_reusable());
    let refusal = error.refusal();
    assert_eq!((refusal.code, refusal.message.as_str()), (ErrorCode::E3401, "the tool failed: no such row"));
    assert_eq!(refusal.details.as_deref(), Some(&json!({ "tool_code": 42, "tool_data": { "row": 7 } })));
    assert_eq!(session.invoke(&call(), &companion).await.unwrap(), 3);
    program.await.unwrap();
}

#[tokio::test]
async fn a_tool_says_in_its_error_that_its_service_failed_or_that_it_should_be_asked_again() {
    let (mut session, mut tool) = pair(USUAL());
    let companion: Arc<dyn ToolCompanion> = Ear::new(0);
    let program = tokio::spawn(async move {
        for kind in ["unavailable", "try_again"] {
            let invoke = tool.hear().await;
            let error = json!({ "code": 1, "message": "no line", "data": { "kind": kind, "retry_after_ms": 20 } });
            tool.say(json!({ "jsonrpc": "2.0", "id": invoke["id"], "error": error })).await;
        }
        tool
    });
    for code in [ErrorCode::E3502, ErrorCode::E3504] {
        let error = session.invoke(&call(), &companion).await.unwrap_err();
        assert!(error.is_reusable(), "the process itself is well");
        let refusal = error.refusal();
        assert_eq!((refusal.code, refusal.retryable, refusal.retry_after_ms), (code, Some(true), Some(20)));
        assert!(refusal.message.ends_with(": no line"), "{}", refusal.message);
    }
    program.await.unwrap();
}

#[tokio::test]
async fn a_tool_that_breaks_the_protocol_is_done() {
    let small =
        SessionBounds { line_bytes_max: 200, call_bytes_max: 5000, messages_max: 20, log_bytes_max: 500, ..USUAL() };
    for (said, code, words) in [
        ("hello world\n".to_owned(), ErrorCode::E3401, "not acceptable JSON"),
        ("[1]\n".to_owned(), ErrorCode::E3401, "not a JSON-RPC object"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1}\n".to_owned(), ErrorCode::E3401, "neither a request"),
        (format!("\"{}\"\n", "x".repeat(300)), ErrorCode::E3414, "longer than 200 bytes"),
        ("x".repeat(6000), ErrorCode::E3414, "longer than 200 bytes"),
        ("\n".repeat(6000), ErrorCode::E3407, "output of 5000"),
        ("{\"jsonrpc\":\"2.0\",\"method\":\"p\"}\n".repeat(30), ErrorCode::E3407, "number of messages of 20"),
    ] {
        let (ended, session, _, tool) = play(small, |mut tool| async move {
            tool.hear().await;
            tool.say_raw(&said).await;
            tool
        })
        .await;
        let error = ended.unwrap_err();
        assert!(!error.is_reusable() && !session.is_reusable());
        let refusal = error.refusal();
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.message.contains(words), "{words}: {refusal}");
        drop(session);
        tool.await.unwrap();
    }
    let (ended, session, _, tool) = play(small, |mut tool| async move {
        tool.hear().await;
        let _ = tool.stderr.write_all(&[b'e'; 2000]).await;
        tool
    })
    .await;
    assert!(matches!(ended, Err(SessionError::TooMuch { what: "log", .. })), "{ended:?}");
    drop(session);
    tool.await.unwrap();
}

#[tokio::test]
async fn a_tool_that_does_not_read_its_answers_is_done() {
    let bounds = SessionBounds { unread_bytes_max: 10_000, ..USUAL() };
    let (ended, session, _, tool) = play(bounds, |mut tool| async move {
        tool.hear().await;
        for id in 0..10_000 {
            tool.ask(json!(id), "no_such_method", json!({})).await;
        }
        tool
    })
    .await;
    assert!(matches!(ended, Err(SessionError::Protocol(ProtocolFault::Unread))), "{ended:?}");
    drop(session);
    tool.await.unwrap();
}

#[tokio::test]
async fn a_tool_that_ends_is_told_apart_and_its_last_words_are_kept() {
    let (ended, session, _, tool) = play(USUAL(), |mut tool| async move {
        tool.hear().await;
        tool.say_raw("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":").await;
        tool.stderr.write_all(b"Traceback\nKeyError: 'x'\n").await.unwrap();
        let (_, unused) = duplex(1);
        tool.stdout = unused;
        tool.stderr.shutdown().await.unwrap();
        tool
    })
    .await;
    let error = ended.unwrap_err();
    assert!(matches!(error, SessionError::Ended), "{error:?}");
    assert_eq!(error.refusal().code, ErrorCode::E3404);
    assert_eq!(session.log(&SecretScrubber::default()), "Traceback\nKeyError: 'x'\n");
    tool.await.unwrap();
}

#[tokio::test]
async fn news_above_the_pace_is_dropped_and_the_rest_arrives() {
    let bounds = SessionBounds { notes_per_second_max: 5, ..USUAL() };
    let (ended, _, ear, _) = play(bounds, |mut tool| async move {
        let invoke = tool.hear().await;
        for percent in 0..200 {
            tool.tell("progress", json!({ "percent": percent })).await;
        }
        tool.answer(&invoke, json!("done")).await;
        tool
    })
    .await;
    assert_eq!(ended.unwrap(), "done");
    let heard = ear.heard().len();
    assert!((5..200).contains(&heard), "{heard}");
}

#[tokio::test]
async fn what_is_said_out_of_turn_never_becomes_part_of_the_next_call() {
    let companion: Arc<dyn ToolCompanion> = Ear::new(0);
    // A message that came with the answer, one that came after it, and the end of the process.
    for after in ["with", "after", "end"] {
        let (mut session, mut tool) = pair(USUAL());
        let (done, answered) = tokio::sync::oneshot::channel();
        let program = tokio::spawn(async move {
            let invoke = tool.hear().await;
            let answer = json!({ "jsonrpc": "2.0", "id": invoke["id"], "result": 1 });
            let forged = json!({ "jsonrpc": "2.0", "id": 2, "result": "forged" });
            match after {
                "with" => tool.say_raw(&format!("{answer}\n{forged}\n")).await,
                "after" => {
                    tool.say(answer).await;
                    tool.say(forged).await;
                }
                _ => {
                    tool.say(answer).await;
                    tool.stdout.shutdown().await.unwrap();
                }
            }
            done.send(()).unwrap();
            tool
        });
        assert_eq!(session.invoke(&call(), &companion).await.unwrap(), 1);
        answered.await.unwrap();
        let error = session.invoke(&call(), &companion).await.unwrap_err();
        assert!(matches!(error, SessionError::Unfit) && !error.was_asked(), "{after}: {error:?}");
        assert!(!session.is_reusable());
        drop(program.await.unwrap());
    }
}

#[tokio::test]
async fn a_tool_that_still_waits_for_an_answer_gets_no_second_call() {
    let (ended, session, _, tool) = play(USUAL(), |mut tool| async move {
        let invoke = tool.hear().await;
        tool.ask(json!(1), "document", json!({ "id": "slow" })).await;
        tool.answer(&invoke, json!("done")).await;
        tool
    })
    .await;
    assert_eq!(ended.unwrap(), "done");
    assert!(!session.is_reusable());
    tool.await.unwrap();
}

/// Starts a call and drops it once the tool has it.
async fn dropped(session: &mut ProcessSession, tool: &mut Tool) -> Value {
    let companion: Arc<dyn ToolCompanion> = Ear::new(0);
    let call = call();
    let invoke = tokio::select! {
        ended = session.invoke(&call, &companion) => panic!("ended by itself: {ended:?}"),
        invoke = async {
            let invoke = tool.hear().await;
            tool.ask(json!("open"), "document", json!({ "id": "slow" })).await;
            tool.ask(json!("marker"), "document", json!({ "id": "quick" })).await;
            // When this is answered, the one before it has been read.
            assert_eq!(tool.hear().await["id"], "marker");
            invoke
        } => invoke,
    };
    assert!(!session.is_reusable(), "a call is open");
    invoke
}

#[tokio::test]
async fn a_dropped_call_can_be_cancelled_and_the_process_used_again() {
    let (mut session, mut tool) = pair(USUAL());
    let invoke = dropped(&mut session, &mut tool).await;
    let script = async {
        let refused = tool.hear().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("open"), &json!(-32007)));
        let cancel = tool.hear().await;
        assert_eq!(cancel, json!({ "jsonrpc": "2.0", "method": "cancel", "params": { "reason": "deadline" } }));
        tool.tell("progress", json!({ "percent": 50 })).await;
        tool.ask(json!(9), "checkpoint", json!({ "state": 1 })).await;
        assert_eq!(tool.hear().await["error"]["code"], -32007);
        tool.answer(&invoke, json!("late")).await;
    };
    let (cancelled, ()) = tokio::join!(session.cancel("deadline"), script);
    cancelled.unwrap();
    assert!(session.is_reusable());
    let companion: Arc<dyn ToolCompanion> = Ear::new(0);
    let again = async {
        let invoke = tool.hear().await;
        tool.answer(&invoke, json!("again")).await;
    };
    let call = call();
    let (ended, ()) = tokio::join!(session.invoke(&call, &companion), again);
    assert_eq!(ended.unwrap(), "again");
    session.cancel("nothing runs").await.unwrap();
    assert!(session.is_reusable());
}

#[tokio::test]
async fn a_tool_that_does_not_stop_is_said_so_within_the_grace() {
    let (mut session, mut tool) = pair(SessionBounds { cancel_grace: Duration::from_millis(20), ..USUAL() });
    dropped(&mut session, &mut tool).await;
    let error = session.cancel("deadline").await.unwrap_err();
    assert!(matches!(error, SessionError::Unresponsive), "{error:?}");
    assert!(!session.is_reusable());
    let companion: Arc<dyn ToolCompanion> = Ear::new(0);
    assert!(matches!(session.invoke(&call(), &companion).await, Err(SessionError::Unfit)));
}

#[tokio::test]
async fn large_parameters_and_a_tool_that_writes_first_do_not_deadlock() {
    let (mut session, mut tool) = pair(USUAL());
    let companion: Arc<dyn ToolCompanion> = Ear::new(0);
    let call = SessionCall { parameters: Arc::new(json!("x".repeat(500_000))), ..call() };
    let script = async {
        for _ in 0..100 {
            tool.tell("log", json!({ "level": "info", "message": "y".repeat(5000) })).await;
        }
        let invoke = tool.hear().await;
        assert_eq!(invoke["params"]["parameters"].as_str().map(str::len), Some(500_000));
        tool.answer(&invoke, json!("z".repeat(500_000))).await;
    };
    let both = async { tokio::join!(session.invoke(&call, &companion), script) };
    let (ended, ()) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert_eq!(ended.unwrap().as_str().map(str::len), Some(500_000));
}

#[tokio::test]
async fn a_scrubbed_companion_hears_no_secret() {
    let ear = Ear::new(0);
    let secrets = Arc::new(SecretScrubber::new(&[("key", "hunter22")]));
    let companion = ScrubbedCompanion::new(Arc::clone(&ear) as Arc<dyn ToolCompanion>, secrets);
    let words = || Some("it is hunter22".to_owned());
    companion.progress(ToolProgress { phase: words(), message: words(), ..ToolProgress::default() });
    companion.log(LogLevel::Info, "aHVudGVyMjI= is hunter22");
    companion.checkpoint(ToolSnapshot::of(Some("hunter22"), json!({ "hunter22": ["hunter22"] }))).await.unwrap();
    assert_eq!(companion.document("hunter22").await.unwrap(), json!({ "id": "[secret key]" }));
    let heard = ear.heard().join("\n");
    assert!(!heard.contains("hunter22") && !heard.contains("aHVudGVyMj"), "{heard}");
    assert_eq!(heard.matches("[secret key]").count(), 7, "{heard}");
}

#[test]
fn each_end_of_a_session_says_how_far_the_call_came() {
    use ports::executor::ExecutionReach::{Answered, MayHaveRun, NotSent};
    let failure = ToolFailure { code: 1, message: "no".into(), data: None };
    for (error, reach) in [
        (SessionError::Unfit, NotSent),
        (SessionError::Failed(failure), Answered),
        (SessionError::Protocol(ProtocolFault::NotAnObject), MayHaveRun),
        (SessionError::TooMuch { what: "x", limit: 1 }, MayHaveRun),
        (SessionError::Ended, MayHaveRun),
        (SessionError::Unresponsive, MayHaveRun),
        (SessionError::Io(std::io::ErrorKind::BrokenPipe.into()), MayHaveRun),
    ] {
        assert_eq!(error.reach(), reach, "{error:?}");
    }
}
