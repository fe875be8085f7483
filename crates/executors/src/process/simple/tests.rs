//! Simple mode over pipes in memory. Real programs are in `tests/executors/conversation.rs`.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

/// The tool's ends of its streams.
struct Tool {
    stdin: DuplexStream,
    stdout: DuplexStream,
    stderr: DuplexStream,
}

fn pair() -> (ProcessStreams, Tool) {
    let (stdin, tool_stdin) = duplex(64);
    let (stdout, tool_stdout) = duplex(64);
    let (stderr, tool_stderr) = duplex(64);
    let tool = Tool { stdin: tool_stdin, stdout: tool_stdout, stderr: tool_stderr };
    (ProcessStreams::new(stdin, stdout, stderr), tool)
}

/// With a tool that has ended once its streams are closed.
async fn talk(streams: ProcessStreams, input: &[u8]) -> Result<ToolOutputStream, BreakOff> {
    let patient = ReadBounds { drain_max: Duration::from_secs(20), ..SMALL };
    talk_until(streams, input, &patient, std::future::ready(())).await.map(|((), said)| said)
}

const SMALL: ReadBounds = ReadBounds {
    result_bytes_max: 1000,
    log_bytes_max: 5000,
    log_bytes_kept: 10,
    drain_max: Duration::from_millis(50),
};

#[tokio::test]
async fn a_tool_that_writes_before_it_reads_does_not_deadlock() {
    let (streams, mut tool) = pair();
    let input = vec![b'i'; 10_000];
    let program = tokio::spawn(async move {
        tool.stderr.write_all(&[b'e'; 900]).await.unwrap();
        tool.stderr.write_all(b"\nthe end").await.unwrap();
        tool.stdout.write_all(&[b'o'; 900]).await.unwrap();
        let mut read = Vec::new();
        tool.stdin.read_to_end(&mut read).await.unwrap();
        read.len()
    });
    let said = talk(streams, &input).await.unwrap();
    assert_eq!((said.result().len(), said.log(&SecretScrubber::default()).as_str()), (900, "the end"));
    assert_eq!(program.await.unwrap(), 10_000);
}

#[tokio::test]
async fn too_much_of_anything_breaks_the_conversation_off() {
    // (bytes on stdout, on stderr) → the error's words
    let cases: [(usize, usize, Option<&str>); 4] = [
        (1000, 0, None),
        (1001, 0, Some("result is larger than 1000 bytes")),
        (1, 5000, None),
        (1, 5001, Some("more than 5000 bytes to its log")),
    ];
    for (stdout, stderr, expected) in cases {
        let (streams, mut tool) = pair();
        tokio::spawn(async move {
            // Whoever breaks off closes the pipes, so these may fail.
            let _ = tool.stdout.write_all(&vec![b'o'; stdout]).await;
            let _ = tool.stderr.write_all(&vec![b'e'; stderr]).await;
        });
        let said = talk(streams, b"").await;
        match expected {
            None => drop(said.unwrap()),
            Some(words) => assert!(said.unwrap_err().to_string().contains(words), "{stdout} {stderr}"),
        }
    }
}

#[tokio::test]
async fn a_pipe_that_stays_open_after_the_end_does_not_hold_the_call_and_loses_nothing() {
    let (streams, mut tool) = pair();
    let ended = async {
        tool.stdout.write_all(b"42").await.unwrap();
        "exit 0"
    };
    // `tool.stdout` lives on, as with a helper that inherited the pipe.
    let (end, said) = talk_until(streams, b"", &SMALL, ended).await.unwrap();
    assert_eq!((end, said.result()), ("exit 0", &b"42"[..]));
}

#[tokio::test]
async fn closed_streams_are_not_yet_the_end_of_the_process() {
    let (streams, tool) = pair();
    drop(tool);
    let (tell, told) = tokio::sync::oneshot::channel();
    let talking = talk_until(streams, b"", &SMALL, told);
    tokio::pin!(talking);
    tokio::select! {
        biased;
        _ = &mut talking => panic!("nobody has waited for the process"),
        () = tokio::task::yield_now() => {}
    }
    tell.send(7).unwrap();
    assert_eq!(talking.await.unwrap().0, Ok(7));
}
