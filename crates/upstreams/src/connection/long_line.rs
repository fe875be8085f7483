//! A line that is longer than a message may be: its two ends are kept, because one of them says whose answer it is.
//!
//! A message of JSON-RPC has few members of its own, and every writer puts `id` before or behind the large one. So the beginning
//! `{"jsonrpc":"2.0","id":7,` and the end `,"id":7}` belong to the message itself: what is inside of it is behind another brace.

use base::SaturatingFrom as _;

use crate::wire::CallId;

/// Bytes of each end that are kept.
const END_BYTES: usize = 256;

/// What is known of such a line.
#[derive(Debug, Default)]
pub(super) struct LongLine {
    head: Vec<u8>,
    tail: Vec<u8>,
    passed: u64,
}

impl LongLine {
    /// Passes over more of it.
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        self.passed = self.passed.saturating_add(u64::saturating_from(bytes.len()));
        let room = END_BYTES.saturating_sub(self.head.len());
        self.head.extend(bytes.iter().take(room));
        self.tail.extend(bytes.get(bytes.len().saturating_sub(END_BYTES)..).unwrap_or_default());
        let surplus = self.tail.len().saturating_sub(END_BYTES);
        self.tail.drain(..surplus);
    }

    /// Bytes so far.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// The request of ours that it answers, as far as that can be told.
    pub(super) fn answered(&self) -> Option<CallId> {
        let (head, tail) = (dense(&self.head), dense(&self.tail));
        // A question of the server has an id of its own.
        if head.contains("\"method\":") || tail.contains("\"method\":") {
            return None;
        }
        id_at_beginning(&head).or_else(|| id_at_end(&tail))
    }
}

fn id_at_beginning(head: &str) -> Option<CallId> {
    let members = head.strip_prefix('{')?;
    let members = members.strip_prefix("\"jsonrpc\":\"2.0\",").unwrap_or(members);
    let (id, _) = members.strip_prefix("\"id\":")?.split_once(',')?;
    id.trim_matches('"').parse().ok()
}

fn id_at_end(tail: &str) -> Option<CallId> {
    let members = tail.strip_suffix('}')?;
    let members = members.strip_suffix(",\"jsonrpc\":\"2.0\"").unwrap_or(members);
    let (_, id) = members.rsplit_once(",\"id\":")?;
    id.trim_matches('"').parse().ok()
}

/// Without what stands between the members. What that makes of texts does not matter: they are not looked at.
fn dense(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_ascii_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_is_found_at_either_end_and_never_inside() {
        let inside = format!("{{\"structuredContent\":{{\"rows\":\"{}\",\"id\":9}}}}", "x".repeat(5_000));
        for (line, id) in [
            (format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{inside}}}"), Some(7)),
            (format!("{{ \"jsonrpc\": \"2.0\", \"id\": \"7\", \"result\": {inside} }}"), Some(7)),
            (format!("{{\"id\":7,\"result\":{inside},\"jsonrpc\":\"2.0\"}}"), Some(7)),
            (format!("{{\"result\":{inside},\"jsonrpc\":\"2.0\",\"id\":7}}"), Some(7)),
            (format!("{{\"result\":{inside},\"id\":7,\"jsonrpc\":\"2.0\"}}"), Some(7)),
            (format!("{{\"result\":{inside}}}"), None),
            (format!("{{\"id\":7,\"method\":\"sampling/createMessage\",\"params\":{inside}}}"), None),
            ("x".repeat(5_000), None),
        ] {
            let mut long = LongLine::default();
            line.as_bytes().chunks(700).for_each(|piece| long.pass(piece));
            assert_eq!(long.answered(), id, "{}", line.get(..60).unwrap());
            assert_eq!(long.passed(), u64::try_from(line.len()).unwrap());
            assert!(long.head.len() <= END_BYTES && long.tail.len() <= END_BYTES);
        }
    }
}
