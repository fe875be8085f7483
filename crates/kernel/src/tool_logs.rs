//! The logs of the last calls of tools that are programs: what each wrote to stderr, for those who look after the tool.
//!
//! Kept in memory, by the instance that ran the call, and gone with it: it is for whoever looks for the reason now. The audit
//! log says for ever that a call was made.
//!
//! Invariants
//! - TLOG-1: a call is kept under the tenant that made it, and only if the tool is that tenant's own. What another tenant's
//!   call wrote is in nobody's hands: it holds the caller's data in the words of somebody else's program. (decision 0105)
//! - TLOG-2: bounded: [`CALLS_MAX`] calls of a tool, [`LOG_BYTES_MAX`] bytes of a call, [`TOOLS_MAX`] tools; the oldest go
//!   first, and of the tools the one that was called longest ago.
//! - TLOG-3: what is kept was redacted before, and has none of the credentials that the tool was given. Of a call under a policy
//!   that masks members nothing of the text is kept, because text has no members.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use base::MutexExt as _;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, Subject, TenantId, ToolId};
use contract::version::Version;
use ports::clock::UnixMillis;
use tokio::sync::watch;

/// Calls of one tool that are kept.
pub const CALLS_MAX: usize = 50;
/// Bytes of one call's log, and of its message.
const LOG_BYTES_MAX: usize = 4096;
/// Tools of which calls are kept, each tenant's counted.
const TOOLS_MAX: usize = 200;

/// One call and what its program wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCall {
    pub invocation_id: InvocationId,
    /// When it ended.
    pub at: UnixMillis,
    pub version: Version,
    /// Who called.
    pub subject: Subject,
    pub duration_ms: u64,
    /// Why it failed, if it did.
    pub code: Option<ErrorCode>,
    /// What the caller was told of that.
    pub message: Option<String>,
    /// How the program ended, where that is known.
    pub exit_code: Option<i32>,
    /// The end of what it wrote to stderr. `None`: a policy masks parts of what the tool says, so nothing of it was kept.
    pub log: Option<String>,
}

/// The last calls of tools.
#[derive(Debug)]
pub(crate) struct ToolLogs {
    kept: Mutex<KeptLogs>,
    /// Rises with every call that is kept, for whoever waits for the next.
    count: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct KeptLogs {
    tools: HashMap<(TenantId, ToolId), Ring>,
    count: u64,
}

#[derive(Debug, Default)]
struct Ring {
    /// The count when the last call was kept.
    newest: u64,
    /// Each with the count when it was kept.
    calls: VecDeque<(u64, Arc<LoggedCall>)>,
}

impl Default for ToolLogs {
    fn default() -> Self {
        Self { kept: Mutex::default(), count: watch::Sender::new(0) }
    }
}

impl ToolLogs {
    /// Keeps a call of a tenant's own tool (TLOG-1 is the caller's to see to).
    pub(crate) fn keep(&self, tenant: &TenantId, tool: &ToolId, mut call: LoggedCall) {
        for text in [&mut call.log, &mut call.message].into_iter().flatten() {
            keep_end(text, LOG_BYTES_MAX);
        }
        let mut kept = self.kept.lock_unpoisoned();
        let count = kept.count.saturating_add(1);
        kept.count = count;
        let ring = kept.tools.entry((tenant.clone(), tool.clone())).or_default();
        ring.newest = count;
        ring.calls.push_back((count, Arc::new(call)));
        if ring.calls.len() > CALLS_MAX {
            ring.calls.pop_front();
        }
        if kept.tools.len() > TOOLS_MAX {
            let oldest = kept.tools.iter().min_by_key(|(_, ring)| ring.newest).map(|(key, _)| key.clone());
            oldest.map(|key| kept.tools.remove(&key));
        }
        drop(kept);
        self.count.send_replace(count);
    }

    /// The last calls of a tool by its own tenant, the oldest first.
    pub(crate) fn last(&self, tenant: &TenantId, tool: &ToolId, limit: usize) -> Vec<Arc<LoggedCall>> {
        let kept = self.kept.lock_unpoisoned();
        let Some(ring) = kept.tools.get(&(tenant.clone(), tool.clone())) else { return Vec::new() };
        let passed = ring.calls.len().saturating_sub(limit);
        ring.calls.iter().skip(passed).map(|(_, call)| Arc::clone(call)).collect()
    }

    /// What was kept after so many calls, of every tool, the oldest first.
    pub(crate) fn after(&self, count: u64) -> Vec<(u64, ToolId, Arc<LoggedCall>)> {
        let kept = self.kept.lock_unpoisoned();
        let rings = kept.tools.iter().filter(|(_, ring)| ring.newest > count);
        let mut calls: Vec<_> = rings
            .flat_map(|((_, tool), ring)| {
                let fresh = ring.calls.iter().filter(|(number, _)| *number > count);
                fresh.map(|(number, call)| (*number, tool.clone(), Arc::clone(call)))
            })
            .collect();
        drop(kept);
        calls.sort_by_key(|(number, _, _)| *number);
        calls
    }

    /// Changes whenever a call is kept.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }
}

/// Cuts at the front, at the beginning of a line if there is one: the end of a log says what happened.
fn keep_end(text: &mut String, bytes_max: usize) {
    let surplus = text.len().saturating_sub(bytes_max);
    if surplus == 0 {
        return;
    }
    let line = text.as_bytes().iter().skip(surplus).position(|byte| *byte == b'\n').map(|at| surplus + at + 1);
    let mut start = line.unwrap_or(surplus);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.drain(..start);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: usize, log: &str) -> LoggedCall {
        LoggedCall {
            invocation_id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
            at: UnixMillis(i64::try_from(number).unwrap()),
            version: "1.0.0".parse().unwrap(),
            subject: "admin".parse().unwrap(),
            duration_ms: 1,
            code: None,
            message: None,
            exit_code: Some(0),
            log: Some(log.to_owned()),
        }
    }

    #[test]
    fn the_last_calls_of_a_tool_are_kept_the_oldest_first_and_no_more_than_so_many() {
        let (logs, tenant, tool) = (ToolLogs::default(), TenantId::home(), "demo.alpha".parse().unwrap());
        (0..CALLS_MAX + 7).for_each(|number| logs.keep(&tenant, &tool, call(number, "x")));
        let kept = logs.last(&tenant, &tool, usize::MAX);
        assert_eq!((kept.len(), kept[0].at), (CALLS_MAX, UnixMillis(7)));
        let last: Vec<_> = logs.last(&tenant, &tool, 2).iter().map(|call| call.at.0).collect();
        assert_eq!(last, [55, 56]);
        assert!(logs.last(&"acme".parse().unwrap(), &tool, 9).is_empty(), "another tenant's");
    }

    #[test]
    fn of_too_many_tools_the_one_goes_that_was_called_longest_ago() {
        let (logs, tenant) = (ToolLogs::default(), TenantId::home());
        let tool = |number: usize| -> ToolId { format!("demo.tool_{number}").parse().unwrap() };
        (0..TOOLS_MAX).for_each(|number| logs.keep(&tenant, &tool(number), call(number, "x")));
        logs.keep(&tenant, &tool(0), call(1, "again"));
        logs.keep(&tenant, &tool(TOOLS_MAX), call(2, "one more"));
        assert_eq!(logs.last(&tenant, &tool(0), 9).len(), 2);
        assert!(logs.last(&tenant, &tool(1), 9).is_empty());
        assert_eq!(logs.last(&tenant, &tool(TOOLS_MAX), 9).len(), 1);
    }

    #[test]
    fn of_a_long_log_whole_lines_of_its_end_are_kept() {
        for (given, max, kept) in [
            ("short", 10, "short"),
            ("first line\nsecond\nthird", 10, "third"),
            ("äöüäöü", 5, "öü"),
            ("no end of a line", 4, "line"),
        ] {
            let mut text = given.to_owned();
            keep_end(&mut text, max);
            assert_eq!(text, kept);
        }
    }
}
