//! Reading what the programs of tools wrote: administrators and operators of the tenant that made the calls, nobody else, and
//! no other tenant's lines, also not for whoever administers the installation. (decision 0105)

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use policy::Action;
use ports::actor::Actor;
use tokio::sync::watch;

use crate::invoke::Kernel;
use crate::phases::ReaderMask;
use crate::tool_logs::LoggedCall;

impl Kernel {
    /// The last calls of a tool by the caller's tenant, the oldest first, with what its program wrote. Nothing of the texts
    /// for a reader from whom a policy hides parts of what the tool says.
    pub async fn tool_logs(
        &self,
        actor: Actor<'_>,
        name: &str,
        limit: usize,
    ) -> Result<(ToolId, Vec<Arc<LoggedCall>>), Refusal> {
        let caller = self.permitted(actor, Action::SeeToolLogs).await?;
        let tool = self.known_tool(&caller, name)?;
        if tool.tenant != *caller.tenant() {
            // Nothing of such calls is kept (TLOG-1), and an empty list would say that there were none.
            let refusal = Refusal::new(
                ErrorCode::E3206,
                format!("`{}` is shared by another tenant, which alone has logs of it", tool.id),
            );
            return Err(refusal
                .hint("ask the operators of the installation; the answer of a failed call has the end of its stderr"));
        }
        let calls = self.tool_logs.last(caller.tenant(), &tool.id, limit);
        let mask = ReaderMask::of(self, &caller, caller.tenant(), &tool.id, false).await;
        if mask.shows_text() {
            return Ok((tool.id.clone(), calls));
        }
        let withheld = |call: Arc<LoggedCall>| Arc::new(LoggedCall { message: None, log: None, ..(*call).clone() });
        Ok((tool.id.clone(), calls.into_iter().map(withheld).collect()))
    }

    /// The calls of all tools that were kept after so many, the oldest first, each with its number: for the process that runs
    /// this server, which shows them to whoever has started it. No door leads here.
    pub fn tool_logs_after(&self, count: u64) -> Vec<(u64, ToolId, Arc<LoggedCall>)> {
        self.tool_logs.after(count)
    }

    /// Changes whenever a call was kept among the logs of tools.
    pub fn watch_tool_logs(&self) -> watch::Receiver<u64> {
        self.tool_logs.watch()
    }
}
