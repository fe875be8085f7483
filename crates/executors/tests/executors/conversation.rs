//! Both conversations with real programs: the examples, and the programs that the documentation shows.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use contract::error::Refusal;
use contract::manifest::{Execution, Manifest, ManifestFormat};
use gantry_executors::process::output::{ProcessExit, judged};
use gantry_executors::process::scrub::SecretScrubber;
use gantry_executors::process::session::{ProcessSession, SessionBounds, SessionCall, SessionError};
use gantry_executors::process::simple::{ReadBounds, talk_until};
use gantry_executors::process::streams::ProcessStreams;
use ports::executor::ResumePoint;
use ports::saved_state::SavedState;
use ports::tool_companion::{LogLevel, ToolCompanion, ToolProgress, ToolSnapshot};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::calls::{call, version_of};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tools");
const GUIDE: &str = include_str!("../../../../docs/process-tools.md");
/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

// ------------------------------------------------------------------------------------------------------ simple mode

fn start(command: &[String], home: &Path) -> (Child, ProcessStreams) {
    let (program, arguments) = command.split_first().unwrap();
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let streams =
        ProcessStreams::new(child.stdin.take().unwrap(), child.stdout.take().unwrap(), child.stderr.take().unwrap());
    (child, streams)
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).collect()
}

async fn run(command: &[String], home: &Path, parameters: &Value) -> (Result<Value, Refusal>, String) {
    let (mut child, streams) = start(command, home);
    let input = parameters.to_string();
    let bounds = ReadBounds::default();
    let talk = talk_until(streams, input.as_bytes(), &bounds, async { child.wait().await.unwrap() });
    let (status, said) = tokio::time::timeout(PATIENCE, talk).await.unwrap().unwrap();
    (judged(ProcessExit::from(status), said.result(), bounds.result_bytes_max), said.log(&SecretScrubber::default()))
}

fn example(name: &str) -> (Manifest, Vec<String>) {
    let text = std::fs::read_to_string(Path::new(EXAMPLES).join(name).join("tool.toml")).unwrap();
    let manifest = Manifest::read(&text, ManifestFormat::Toml).unwrap_or_else(|error| panic!("{name}: {error}"));
    let Some(Execution::Process { command, .. }) = &manifest.execution else { panic!("{name} is a process tool") };
    let command = command.clone();
    (manifest, command)
}

#[tokio::test]
async fn the_examples_in_simple_mode_answer() {
    let records = json!([{ "a": 1, "b": "x|y" }, { "b": null, "c": "two\nlines" }]);
    let digest = "911169ddaaf146aff539f58c26c489af3b892dff0fe283c1c264c65ae5aa59a2";
    for (name, parameters, expected, log) in [
        ("word_stats", json!({ "text": "a b" }), json!({ "words": 2, "characters": 3 }), "counting 3 characters"),
        (
            "text_digest",
            json!({ "text": "a\nb\n" }),
            json!({ "sha256": digest, "bytes": 4, "lines": 2 }),
            "digesting 4 characters",
        ),
        (
            "json_table",
            json!({ "records": records }),
            json!({ "table": "| a | b | c |\n| --- | --- | --- |\n| 1 | x\\|y |  |\n|  |  | two<br>lines |", "rows": 2, "columns": ["a", "b", "c"] }),
            "2 records, 3 columns",
        ),
    ] {
        let (_, command) = example(name);
        let home = Path::new(EXAMPLES).join(name);
        let (result, said) = run(&command, &home, &parameters).await;
        assert_eq!((result.unwrap(), said.trim_end()), (expected, log), "{name}");
        let (failed, _) = run(&command, &home, &json!({ "wrong": 1 })).await;
        assert!(failed.unwrap_err().message.contains("exit code 1"), "{name}");
    }
}

// ----------------------------------------------------------------------------------------------------- session mode

/// Remembers what it heard.
#[derive(Debug, Default)]
struct Ear(Mutex<Vec<String>>, tokio::sync::Notify);

impl Ear {
    fn hear(&self, what: String) {
        self.0.lock().unwrap().push(what);
        self.1.notify_one();
    }

    fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl ToolCompanion for Ear {
    fn progress(&self, progress: ToolProgress) {
        self.hear(format!("progress {}", progress.percent.unwrap_or(-1.0)));
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.hear(format!("{level:?} {message}"));
    }

    async fn checkpoint(&self, snapshot: ToolSnapshot) -> Result<String, Refusal> {
        self.hear(format!("checkpoint {:?} {}", snapshot.name, snapshot.state));
        Ok("cp-1".to_owned())
    }

    async fn document(&self, id: &str) -> Result<Value, Refusal> {
        Ok(json!(id))
    }
}

fn asked(parameters: Value) -> SessionCall {
    SessionCall::from(&call(&version_of(example("primes").0), parameters))
}

async fn invoked(session: &mut ProcessSession, parameters: Value, ear: &Arc<Ear>) -> Result<Value, SessionError> {
    let companion: Arc<dyn ToolCompanion> = Arc::clone(ear) as _;
    tokio::time::timeout(PATIENCE, session.invoke(&asked(parameters), &companion)).await.unwrap()
}

#[tokio::test]
async fn the_example_that_saves_goes_on_where_it_was() {
    let (manifest, command) = example("word_index");
    let (mut child, streams) = start(&command, &Path::new(EXAMPLES).join("word_index"));
    let mut session = ProcessSession::new(streams, SessionBounds::default());
    let ear = Arc::new(Ear::default());
    let companion: Arc<dyn ToolCompanion> = Arc::clone(&ear) as _;
    let texts = json!(["a b", "b", "c", "a"]);
    let mut first = call(&version_of(manifest), json!({ "texts": texts, "fail_after": 3 }));
    let failed = tokio::time::timeout(PATIENCE, session.invoke(&SessionCall::from(&first), &companion)).await.unwrap();
    assert!(matches!(failed, Err(SessionError::Failed(_))), "{failed:?}");
    let state = json!({ "next": 3, "words": { "a": 1, "b": 2, "c": 1 } });
    let saved: Vec<String> = ear.heard().into_iter().filter(|line| line.starts_with("checkpoint")).collect();
    assert_eq!(saved.len(), 3);
    assert!(saved[1].starts_with("checkpoint Some(\"half_way\")"), "{saved:?}");
    assert_eq!(saved[2], format!("checkpoint None {state}"));

    let point = SavedState { custom_state: state, ..SavedState::default() };
    let (checkpoint_id, invocation_id) = ("cp-1".to_owned(), first.invocation_id);
    first.resume = Some(Arc::new(ResumePoint { checkpoint_id, invocation_id, saved: point }));
    first.invocation_id = "00000000-0000-7000-8000-000000000002".parse().unwrap();
    let done =
        tokio::time::timeout(PATIENCE, session.invoke(&SessionCall::from(&first), &companion)).await.unwrap().unwrap();
    assert_eq!(done, json!({ "texts": 4, "words": { "a": 2, "b": 2, "c": 1 }, "read_in_this_call": 1 }));
    drop(session);
    tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_session_example_counts_tells_stops_and_counts_again() {
    let (_, command) = example("primes");
    let (mut child, streams) = start(&command, &Path::new(EXAMPLES).join("primes"));
    let mut session =
        ProcessSession::new(streams, SessionBounds { cancel_grace: PATIENCE, ..SessionBounds::default() });
    let ear = Arc::new(Ear::default());
    let counted = invoked(&mut session, json!({ "limit": 1_000_000 }), &ear).await.unwrap();
    assert_eq!(counted, json!({ "count": 78498, "largest": 999_983 }));
    let heard = ear.heard();
    assert_eq!(heard.first().map(String::as_str), Some("Info looking at numbers up to 1000000"));
    assert!(heard.iter().filter(|line| line.starts_with("progress")).count() >= 5, "{heard:?}");

    let error = invoked(&mut session, json!({ "limit": "many" }), &ear).await.unwrap_err();
    assert_eq!(error.to_string(), "the tool failed: the numbers could not be counted");
    let log = session.log(&SecretScrubber::default());
    assert!(log.contains("TypeError"), "{log}");

    let long = Arc::new(Ear::default());
    let companion: Arc<dyn ToolCompanion> = Arc::clone(&long) as _;
    let call = asked(json!({ "limit": 50_000_000 }));
    let told = async {
        while !long.heard().iter().any(|line| line.starts_with("progress")) {
            long.1.notified().await
        }
    };
    tokio::select! {
        ended = session.invoke(&call, &companion) => panic!("ended by itself: {ended:?}"),
        told = tokio::time::timeout(PATIENCE, told) => told.unwrap(),
    }
    session.cancel("deadline").await.unwrap();
    assert!(session.is_reusable());
    assert_eq!(
        invoked(&mut session, json!({ "limit": 100 }), &ear).await.unwrap(),
        json!({ "count": 25, "largest": 97 })
    );

    drop(session);
    assert!(tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success(), "ends when stdin does");
}

#[tokio::test]
async fn ends_and_chatter_of_real_programs_are_told_apart() {
    let room = tempfile::tempdir().unwrap();
    for (script, words) in [
        ("read line; echo hello", "not acceptable JSON"),
        ("read line; echo last words >&2; exit 3", "ended without an answer"),
        ("exec 0<&-; exit 0", "ended without an answer"),
        ("yes", "not acceptable JSON"),
        ("tr '\\0' x </dev/zero", "longer than 1052672 bytes"),
    ] {
        let (_child, streams) = start(&self::words(&["bash", "-c", script]), room.path());
        let mut session = ProcessSession::new(streams, SessionBounds::default());
        let error = invoked(&mut session, json!({}), &Arc::default()).await.unwrap_err();
        assert!(error.to_string().contains(words), "{script}: {error}");
        assert!(!session.is_reusable());
        if script.contains("last words") {
            assert_eq!(session.log(&SecretScrubber::default()), "last words\n");
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- the guide

/// The programs under a heading of the guide: language and text.
fn programs(from: &str, to: &str) -> Vec<(String, String)> {
    let section = GUIDE.split_once(from).unwrap().1.split_once(to).unwrap().0;
    let blocks = section.split("```").skip(1).step_by(2);
    let blocks = blocks.map(|block| block.split_once('\n').unwrap());
    blocks.filter(|(language, _)| *language != "text").map(|(l, text)| (l.to_owned(), text.to_owned())).collect()
}

fn command_of(language: &str, text: &str, home: &Path) -> Vec<String> {
    let (program, file) = match language {
        "python" => ("python3", "main.py"),
        "js" => ("node", "main.js"),
        "bash" => ("bash", "main.sh"),
        other => panic!("a program in `{other}`"),
    };
    std::fs::write(home.join(file), text).unwrap();
    words(&[program, file])
}

#[tokio::test]
async fn every_program_of_the_guide_counts_words() {
    let room = tempfile::tempdir().unwrap();
    let simple = programs("\n## Simple mode\n", "\n## Session mode\n");
    assert_eq!(
        simple.iter().map(|(language, _)| language.as_str()).collect::<Vec<_>>(),
        ["python", "js", "bash", "bash"]
    );
    for (language, text) in simple {
        let command = command_of(&language, &text, room.path());
        let (result, _) = run(&command, room.path(), &json!({ "text": "one two three" })).await;
        assert_eq!(result.unwrap(), json!({ "words": 3 }), "{text}");
    }
    let sessions = programs("\n### Complete tools\n", "\n## Warm processes\n");
    assert_eq!(sessions.iter().map(|(language, _)| language.as_str()).collect::<Vec<_>>(), ["python", "js", "bash"]);
    for (language, text) in sessions {
        let command = command_of(&language, &text, room.path());
        let (mut child, streams) = start(&command, room.path());
        let mut session = ProcessSession::new(streams, SessionBounds::default());
        let ear = Arc::new(Ear::default());
        for (given, words) in [("one two three", 3), ("", 0), ("a \"quoted\"\nword", 3)] {
            let counted = invoked(&mut session, json!({ "text": given }), &ear).await.unwrap();
            assert_eq!(counted, json!({ "words": words }), "{text}");
        }
        assert!(!ear.heard().is_empty(), "{text}");
        drop(session);
        assert!(tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success(), "{text}");
    }
}
