//! `gantry jobs watch`: a job's events as they happen, until it has ended. A stream that is cut is taken up again where it
//! was left.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::{JobShowCommand, text};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::visible;

/// Events longer than this are no events of ours.
const EVENT_BYTES_MAX: usize = 1 << 20;
/// How often a cut stream is taken up again without anything new, and the pause before.
const TRIES_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// Watch a job until it has ended
#[derive(Debug, Args)]
pub(crate) struct JobWatchCommand {
    #[command(flatten)]
    job: JobShowCommand,
    /// Only what comes after the event of this number
    #[arg(long, default_value_t = 0)]
    after: u64,
}

impl JobWatchCommand {
    pub(super) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let client = context.client()?;
        let (mut after, mut tries) = (self.after, 0);
        while tries < TRIES_MAX {
            let path = self.job.path("/events");
            let join = if path.contains('?') { '&' } else { '?' };
            let mut stream = client.events(&format!("{path}{join}after={after}")).await?;
            let (mut unread, mut ended) = (Vec::new(), false);
            // A broken connection ends this stream, not the watch.
            while let Ok(Some(piece)) = stream.chunk().await {
                unread.extend_from_slice(&piece);
                while let Some(event) = next_event(&mut unread) {
                    tries = 0;
                    after = event.get("id").and_then(Value::as_u64).unwrap_or(after);
                    context.printer.answer(&event, |_| line(&event));
                    // The server closes the stream of a job that has ended; what a person found out comes after its end.
                    ended |= is_end(&text(&event, "event"));
                }
                if unread.len() > EVENT_BYTES_MAX {
                    return Err(CommandFailure::new("the server sends events that are too large"));
                }
            }
            if ended {
                return Ok(());
            }
            tries += 1;
            tokio::time::sleep(PAUSE).await;
        }
        Err(CommandFailure::new("the stream of events does not go on")
            .hint(format!("`gantry jobs show {}`", self.job.id)))
    }
}

/// The end of a job is called what its status is. Servers of earlier releases had words of their own.
fn is_end(kind: &str) -> bool {
    let earlier = ["done", "failed", "dead"];
    let ends = ["success", "error", "timeout", "cancelled", "permission_denied", "indeterminate", "resolved"];
    ends.contains(&kind) || earlier.contains(&kind)
}

/// Takes the first whole event off the front; comments are skipped.
fn next_event(unread: &mut Vec<u8>) -> Option<Value> {
    loop {
        let end = unread.windows(2).position(|pair| pair == b"\n\n")?;
        let block: Vec<u8> = unread.drain(..end + 2).collect();
        let block = String::from_utf8_lossy(&block);
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        if let (Some(id), Some(event), Some(data)) = (field("id"), field("event"), field("data")) {
            let data: Value = serde_json::from_str(data).unwrap_or_default();
            return Some(json!({ "id": id.parse::<u64>().ok(), "event": event, "data": data }));
        }
    }
}

fn line(event: &Value) -> String {
    let data = event.get("data").cloned().unwrap_or_default();
    let (at, kind) = (text(&data, "at"), text(event, "event"));
    let percent = data.get("progress_percent").and_then(Value::as_f64).map(|percent| format!("{percent:.0} %"));
    let phase = data.get("current_phase").and_then(Value::as_str).map(str::to_owned);
    let error = data.pointer("/error/message").and_then(Value::as_str).map(str::to_owned);
    let more: Vec<String> = [percent, phase, error].into_iter().flatten().collect();
    visible(&format!("{at}  {kind:<12} {}", more.join(" · "))).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_off_whole_and_comments_skipped() {
        let mut unread =
            b": still here\n\nid: 3\nevent: progress\ndata: {\"progress_percent\":40.0}\n\nid: 4\nev".to_vec();
        let event = next_event(&mut unread).unwrap();
        assert_eq!((event["id"].as_u64(), event["event"].as_str()), (Some(3), Some("progress")));
        assert!(line(&event).contains("40 %"));
        assert_eq!(next_event(&mut unread), None);
        unread.extend_from_slice(b"ent: success\ndata: {}\n\n");
        assert!(is_end(next_event(&mut unread).unwrap()["event"].as_str().unwrap()));
    }
}
