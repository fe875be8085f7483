//! The time of one call, as executors wait for it that tell a tool of its end or end it themselves.

use std::time::Duration;

use ports::executor::ToolCall;

/// Waits until no more than `notice` is left of a call's time. What its tool says about its progress moves that moment.
pub(crate) async fn time_nears_its_end(call: &ToolCall, notice: Duration) {
    match &call.deadline {
        Some(deadline) => deadline.nears(notice).await,
        None => tokio::time::sleep(call.time_left.saturating_sub(notice)).await,
    }
}
