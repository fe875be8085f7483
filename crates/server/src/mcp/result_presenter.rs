//! Presentation of results: with addresses that the caller can read, and no larger than it takes.
//!
//! Not here: what a result looks like on the wire (`to_wire`), how one that is too large is cut and parked (`result_fit`).

use rmcp::model::{CallToolResult, ContentBlock};

use super::offering_relay::OfferingRelay;
use super::result_fit::{ResultBudget, ResultOutline, ResultParking};
use super::results::ResultOwner;
use super::tool_list::ListedTool;
use super::{McpVisit, addresses};
use crate::door::Door;

/// Presents results to one visitor.
pub(crate) struct ResultPresenter<'a> {
    pub(crate) door: &'a Door,
    pub(crate) visit: &'a McpVisit,
}

impl ResultPresenter<'_> {
    /// A result as this caller may have it: with addresses it can read, and not too large. `asked` is how much of it the caller
    /// says that it takes.
    pub(crate) fn presented(
        &self,
        mut result: CallToolResult,
        tool: Option<&ListedTool>,
        tool_id: &str,
        asked: Option<usize>,
    ) -> CallToolResult {
        let (mcp, kernel) = (self.door.mcp(), self.door.kernel());
        self.readdress(&mut result, tool);
        let promised = tool.is_some_and(|tool| tool.wire.output_schema.is_some());
        let text_is_copy = !tool.is_some_and(ListedTool::is_relayed);
        let shape = ResultOutline { tool_id, structured_promised: promised, text_is_copy };
        let owner = ResultOwner::of(self.visit.caller.caller());
        let (results, config, now_ms) = (&mcp.results, &mcp.config, kernel.clock().now().0);
        let parking = ResultParking { results, owner: &owner, config, entropy: kernel.entropy(), now_ms };
        parking.fit(result, shape, ResultBudget::of(config, asked))
    }

    /// Resources that a server's tool speaks of get the address under which this caller can read them.
    pub(crate) fn readdress(&self, result: &mut CallToolResult, tool: Option<&ListedTool>) {
        let Some((version, server)) = tool.and_then(|tool| Some((&tool.version, tool.server()?))) else { return };
        let names_resources =
            |block: &ContentBlock| matches!(block, ContentBlock::ResourceLink(_) | ContentBlock::Resource(_));
        if !result.content.iter().any(names_resources) {
            return;
        }
        let relay = OfferingRelay::at(self.door, self.visit);
        if let Some(server) = relay.readable(server, &version.tenant) {
            result.content.iter_mut().for_each(|block| addresses::readdress(block, &server));
        }
    }
}
