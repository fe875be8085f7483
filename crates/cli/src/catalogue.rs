//! Looking at tools: asked of the running server, or read from the data directory when there is none.

use contract::version::VersionSpec;
use kernel::registry::ListFilter;
use serde_json::Value;

use crate::client::{ClientError, segment};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::offline::OfflineRegistry;
use crate::tool_reference::ToolReference;

/// One page of tools: of a tier, or of what the token may know. Without a server only the latter can be told.
pub(crate) async fn list(
    context: &CommandContext,
    filter: &ListFilter,
    tier: Option<&str>,
) -> Result<Value, CommandFailure> {
    match ask(context, &list_path(filter, tier)).await? {
        Some(answer) => Ok(answer),
        None if tier.is_some() => Err(CommandFailure::new(format!("no server answers at {}", context.server_url()))
            .hint("tiers depend on who asks: start a server with `gantry serve`, or leave --tier out")),
        None => Ok(OfflineRegistry::open(context).await?.list(filter)),
    }
}

/// The best hits.
pub(crate) async fn search(context: &CommandContext, query: &str, limit: usize) -> Result<Value, CommandFailure> {
    match ask(context, &format!("/v1/tools/search?q={}&limit={limit}", segment(query))).await? {
        Some(answer) => Ok(answer),
        None => OfflineRegistry::open(context).await?.search(query, limit).await,
    }
}

/// One tool with all its versions, or one version.
pub(crate) async fn show(context: &CommandContext, tool: &ToolReference) -> Result<Value, CommandFailure> {
    let name = segment(&tool.tool);
    let Some(version) = &tool.version else {
        return match ask(context, &format!("/v1/tools/{name}")).await? {
            Some(answer) => Ok(answer),
            None => OfflineRegistry::open(context).await?.tool(&tool.tool),
        };
    };
    match ask(context, &format!("/v1/tools/{name}/versions/{}", segment(version))).await? {
        Some(answer) => Ok(answer),
        None => {
            let spec = VersionSpec::parse(version).map_err(|error| CommandFailure::usage(error.to_string()))?;
            OfflineRegistry::open(context).await?.version(&tool.tool, &spec)
        }
    }
}

/// How the versions of a tool fare, or the one that is asked for. Only a running server knows, and not every one does.
pub(crate) async fn health(context: &CommandContext, tool: &ToolReference) -> Option<Value> {
    let answer = context.client().ok()?.get(&format!("/v1/tools/{}/health", segment(&tool.tool))).await.ok()?;
    let versions = answer.get("versions")?.as_array()?.iter();
    let wanted = |version: &&Value| {
        tool.version.as_deref().is_none_or(|wanted| version.get("version").and_then(Value::as_str) == Some(wanted))
    };
    Some(versions.filter(wanted).cloned().collect())
}

/// `None`: no server runs, and none was asked for by name.
async fn ask(context: &CommandContext, path: &str) -> Result<Option<Value>, CommandFailure> {
    match context.client()?.get(path).await {
        Ok(answer) => Ok(Some(answer)),
        Err(ClientError::NotRunning { .. }) if context.may_go_offline() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn list_path(filter: &ListFilter, tier: Option<&str>) -> String {
    let mut path = format!("/v1/tools?page={}&page_size={}", filter.page, filter.page_size);
    let words = [
        ("category", filter.category.as_deref()),
        ("q", filter.text.as_deref()),
        ("lifecycle", filter.lifecycle.map(contract::manifest::LifecycleState::as_str)),
        ("tier", tier),
    ];
    let words = words.into_iter().filter_map(|(name, value)| Some((name, value?)));
    for (name, value) in words.chain(filter.tags.iter().map(|tag| ("tags", tag.as_str()))) {
        path.push_str(&format!("&{name}={}", segment(value)));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_in_the_question() {
        let filter = ListFilter {
            category: Some("a b".into()),
            tags: vec!["x".into(), "y&z".into()],
            text: None,
            lifecycle: Some(contract::manifest::LifecycleState::Sunset),
            page: 2,
            page_size: 50,
        };
        assert_eq!(
            list_path(&filter, Some("agent")),
            "/v1/tools?page=2&page_size=50&category=a%20b&lifecycle=sunset&tier=agent&tags=x&tags=y%26z"
        );
    }
}
