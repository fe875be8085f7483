//! Looking at tools: list, show, search, compare, negotiate. Every answer is limited to what the caller may know; a tool
//! it may not know of is "not found", never "forbidden".

use std::sync::Arc;

use contract::compat::{self, Comparison, Direction, Negotiation};
use contract::error::Refusal;
use contract::version::VersionSpec;
use policy::Caller;
use serde_json::Value;

use crate::administration::Actor;
use crate::invoke::Kernel;
use crate::registry::{ListFilter, Listed, Tool, ToolPage, ToolVersion};

/// One side of a comparison: a schema, or a published version.
#[derive(Debug, Clone)]
pub enum Side {
    Schema(Value),
    Published { tool: String, version: VersionSpec },
}

/// The verdict about two versions or schemas.
#[derive(Debug)]
pub struct Compared {
    pub parameters: Comparison,
    /// There when both sides were published versions.
    pub result: Option<Comparison>,
}

impl Kernel {
    /// One page of the tools the caller may know.
    pub fn list_tools(&self, actor: Actor<'_>, filter: &ListFilter) -> Result<ToolPage, Refusal> {
        let caller = self.recognise(actor)?;
        Ok(self.registry().list(caller.tenant(), filter, |tool| caller.may_know(&tool.id)))
    }

    /// The best hits among the tools the caller may know.
    pub async fn search_tools(&self, actor: Actor<'_>, query: &str, limit: usize) -> Result<Vec<Listed>, Refusal> {
        let caller = self.recognise(actor)?;
        self.registry().search(caller.tenant(), query, limit, |tool| caller.may_know(&tool.id)).await
    }

    /// One tool with all its versions.
    pub fn tool(&self, actor: Actor<'_>, name: &str) -> Result<Arc<Tool>, Refusal> {
        let caller = self.recognise(actor)?;
        self.known_tool(&caller, name)
    }

    /// One version of one tool, whatever its state: history stays readable.
    pub fn tool_version(&self, actor: Actor<'_>, name: &str, spec: &VersionSpec) -> Result<Arc<ToolVersion>, Refusal> {
        let tool = self.tool(actor, name)?;
        if let VersionSpec::Exact(version) = spec
            && let Some(known) = tool.version(version)
        {
            return Ok(Arc::clone(known));
        }
        tool.resolve(spec, self.clock().now()).cloned()
    }

    /// Compares two schemas or versions (REG-016, REG-017).
    pub fn compare(&self, actor: Actor<'_>, old: &Side, new: &Side, direction: Direction) -> Result<Compared, Refusal> {
        self.recognise(actor)?;
        if let (Side::Published { tool: a, version: va }, Side::Published { tool: b, version: vb }) = (old, new) {
            let (old, new) = (self.tool_version(actor, a, va)?, self.tool_version(actor, b, vb)?);
            return Ok(Compared {
                parameters: compat::compare(&old.manifest.parameters, &new.manifest.parameters, Direction::Input),
                result: Some(compat::compare(
                    &old.manifest.result_schema,
                    &new.manifest.result_schema,
                    Direction::Output,
                )),
            });
        }
        let (old, new) = (self.schema_of(actor, old, direction)?, self.schema_of(actor, new, direction)?);
        Ok(Compared { parameters: compat::compare(&old, &new, direction), result: None })
    }

    /// Does what a caller wants to send fit what a tool takes? (REG-018)
    pub fn negotiate(&self, actor: Actor<'_>, expected: &Side, offered: &Side) -> Result<Negotiation, Refusal> {
        self.recognise(actor)?;
        let expected = self.schema_of(actor, expected, Direction::Input)?;
        let offered = self.schema_of(actor, offered, Direction::Input)?;
        Ok(compat::negotiate(&expected, &offered))
    }

    fn schema_of(&self, actor: Actor<'_>, side: &Side, direction: Direction) -> Result<Value, Refusal> {
        match side {
            Side::Schema(schema) => Ok(schema.clone()),
            Side::Published { tool, version } => {
                let version = self.tool_version(actor, tool, version)?;
                Ok(match direction {
                    Direction::Input => version.manifest.parameters.clone(),
                    Direction::Output => version.manifest.result_schema.clone(),
                })
            }
        }
    }

    fn known_tool(&self, caller: &Caller, name: &str) -> Result<Arc<Tool>, Refusal> {
        let snapshot = self.registry().snapshot();
        let found = snapshot.find(caller.tenant(), name).filter(|tool| caller.may_know(&tool.id)).cloned();
        found.ok_or_else(|| snapshot.not_found(caller.tenant(), name, |tool| caller.may_know(&tool.id)))
    }
}
