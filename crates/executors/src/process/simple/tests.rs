//! Simple mode over pipes in memory. Real programs are in `tests/executors/conversation.rs`.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

/// The tool's ends of its streams.
struct Tool {
    stdin: DuplexStream,
    stdout: DuplexStream,
    stderr: DuplexStream,
    result: DuplexStream,
}

fn pair(with_result: bool) -> (Streams, Tool) {
    let (stdin, tool_stdin) = duplex(64);
    let (stdout, tool_stdout) = duplex(64);
    let (stderr, tool_stderr) = duplex(64);
    let (result, tool_result) = duplex(64);
    let streams = Streams::new(stdin, stdout, stderr);
    let streams = if with_result { streams.with_result(result) } else { streams };
    (streams, Tool { stdin: tool_stdin, stdout: tool_stdout, stderr: tool_stderr, result: tool_result })
}

const SMALL: Bounds =
    Bounds { result_bytes_max: 1000, log_bytes_max: 5000, log_bytes_kept: 10, drain_max: Duration::from_millis(50) };

#[tokio::test]
async fn a_tool_that_writes_before_it_reads_does_not_deadlock() {
    let (streams, mut tool) = pair(false);
    let input = vec![b'i'; 10_000];
    let program = tokio::spawn(async move {
        tool.stderr.write_all(&[b'e'; 900]).await.unwrap();
        tool.stderr.write_all(b"\nthe end").await.unwrap();
        tool.stdout.write_all(&[b'o'; 900]).await.unwrap();
        let mut read = Vec::new();
        tool.stdin.read_to_end(&mut read).await.unwrap();
        read.len()
    });
    let said = talk(streams, &input, &SMALL).await.unwrap();
    assert_eq!((said.result().len(), said.log(&Scrubber::default()).as_str()), (900, "the end"));
    assert_eq!(program.await.unwrap(), 10_000);
}

#[tokio::test]
async fn what_comes_on_the_channel_is_the_result_and_stdout_the_log() {
    for (on_stdout, on_channel, result, log) in [
        ("chatter", "{\"a\":1}", "{\"a\":1}", "chatter\nlast words"),
        ("{\"b\":2}", "", "{\"b\":2}", "last words"),
        ("", "3", "3", "last words"),
    ] {
        let (streams, mut tool) = pair(true);
        tokio::spawn(async move {
            tool.stdout.write_all(on_stdout.as_bytes()).await.unwrap();
            tool.result.write_all(on_channel.as_bytes()).await.unwrap();
            tool.stderr.write_all(b"last words").await.unwrap();
        });
        let said = talk(streams, b"{}", &SMALL).await.unwrap();
        assert_eq!((said.result(), said.log(&Scrubber::default()).as_str()), (result.as_bytes(), log));
    }
}

#[tokio::test]
async fn too_much_of_anything_breaks_the_conversation_off() {
    // (bytes on stdout, with a channel, on the channel, on stderr) → the error's words
    let cases: [(usize, bool, usize, usize, Option<&str>); 8] = [
        (1000, false, 0, 0, None),
        (1001, false, 0, 0, Some("result is larger than 1000 bytes")),
        (1001, true, 0, 0, Some("result is larger than 1000 bytes")),
        (4000, true, 1, 0, None),
        (5001, true, 1, 0, Some("more than 5000 bytes to its log")),
        (0, true, 1001, 0, Some("result is larger than 1000 bytes")),
        (1, false, 0, 5000, None),
        (1, false, 0, 5001, Some("more than 5000 bytes to its log")),
    ];
    for (stdout, with_channel, channel, stderr, expected) in cases {
        let (streams, mut tool) = pair(with_channel);
        tokio::spawn(async move {
            // Whoever breaks off closes the pipes, so these may fail.
            let _ = tool.result.write_all(&vec![b'r'; channel]).await;
            let _ = tool.stdout.write_all(&vec![b'o'; stdout]).await;
            let _ = tool.stderr.write_all(&vec![b'e'; stderr]).await;
        });
        let said = talk(streams, b"", &SMALL).await;
        match expected {
            None => drop(said.unwrap()),
            Some(words) => assert!(said.unwrap_err().to_string().contains(words), "{stdout} {channel} {stderr}"),
        }
    }
}

#[tokio::test]
async fn a_pipe_that_stays_open_after_the_end_does_not_hold_the_call_and_loses_nothing() {
    let (streams, mut tool) = pair(false);
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
    let (streams, tool) = pair(false);
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
