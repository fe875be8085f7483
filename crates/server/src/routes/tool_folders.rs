//! `POST /v1/admin/tool-folders/load`: looks at the folders of tools now, so that whoever has just put one there learns what
//! came of it. Without it a change is seen a moment later by itself.

use std::sync::Arc;

use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use ports::tool_folders::{FolderProblem, FolderReport, LoadedFolder};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Post,
    path: "/v1/admin/tool-folders/load",
    id: "loadToolFolders",
    tag: "operations",
    summary: "Look at the folders of tools now, and publish what is new",
    access: RouteAccess::Token,
    parameters: &[],
    asks: RequestBody::Nothing,
    good: &[(200, "what came of it")],
    gives: ResponseBody::Json(SchemaGenerator::subschema_for::<LoadedFolders>),
    codes: &[ErrorCode::E3001, ErrorCode::E3010, ErrorCode::E3801, ErrorCode::E3803],
    mount: |filter| to(filter, load),
}];

/// What came of looking at the folders.
#[derive(Debug, Serialize, JsonSchema)]
struct LoadedFolders {
    /// Versions that are new: `demo.greet 1.0.0`.
    published: Vec<String>,
    /// The versions that run from a folder.
    loaded: Vec<LoadedFolderView>,
    /// What stands in the way of folders.
    problems: Vec<FolderProblemView>,
}

/// A version and the folder it runs from.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LoadedFolder")]
struct LoadedFolderView {
    tool_id: ToolId,
    version: String,
    /// Of its manifest.
    digest: Digest,
    /// The folder's own name.
    folder: String,
}

/// Why a folder is not taken.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FolderProblem")]
struct FolderProblemView {
    /// The folder's own name.
    folder: String,
    message: String,
}

async fn load(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().may_load_folders(who.actor()).await?;
    let folders = door.tool_folders().ok_or_else(not_here)?;
    door.carry_to_end(async move {
        let FolderReport { published, loaded, problems } = folders.load().await.ok_or_else(not_here)?;
        let view = |FolderProblem { folder, message }| FolderProblemView { folder, message };
        let loaded = loaded.into_iter().map(|LoadedFolder { tool, version, digest, folder }| LoadedFolderView {
            tool_id: tool,
            version,
            digest,
            folder,
        });
        let problems = problems.into_iter().map(view).collect();
        HttpAnswer::json(&LoadedFolders { published, loaded: loaded.collect(), problems })
    })
    .await
}

fn not_here() -> Refusal {
    Refusal::new(ErrorCode::E3010, "this server looks at no folders of tools")
        .hint("start it again, or ask another one")
}
