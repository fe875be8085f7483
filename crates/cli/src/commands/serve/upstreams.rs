//! MCP servers behind this Gantry: what keeps them, what looks at their tools, and what is asked about them.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use kernel::Kernel;
use kernel::ports::upstream_store::UpstreamStore;
use serde_json::{Value, json};
use upstreams::catalogue::{Catalogue, CatalogueParts, Inspection, Inspector, Supervision, ToolSource, WantedServer};

use crate::config::Config;
use crate::failure::Failure;

/// Opens the catalogue. Before any door: what nobody has accepted must never have been offered.
pub(super) async fn open(
    kernel: &Arc<Kernel>,
    store: Arc<dyn UpstreamStore>,
    config: &Config,
) -> Result<Arc<Catalogue>, Failure> {
    let parts = CatalogueParts {
        kernel: Arc::clone(kernel),
        store,
        supervision: Arc::new(Unsupervised),
        inspector: Arc::new(Unscanned { blocks: config.scan.blocks }),
    };
    Catalogue::open(parts).await.map_err(|refusal| {
        Failure::from(refusal)
            .hint("what is kept of MCP servers cannot be read; `gantry doctor` looks at the data directory")
    })
}

/// Starts no servers: none of them answers.
#[derive(Debug)]
struct Unsupervised;

#[async_trait]
impl ToolSource for Unsupervised {
    async fn list_tools(&self, _: &TenantId, _: &str) -> Result<Vec<Value>, Refusal> {
        Err(unsupervised())
    }
}

#[async_trait]
impl Supervision for Unsupervised {
    async fn apply(&self, _: Vec<WantedServer>) {}

    fn status(&self, _: &TenantId, _: &str) -> Value {
        json!({ "state": "stopped" })
    }

    async fn restart(&self, _: &TenantId, _: &str) -> Result<(), Refusal> {
        Err(unsupervised())
    }

    async fn log_tail(&self, _: &TenantId, _: &str, _: usize) -> Result<Vec<String>, Refusal> {
        Err(unsupervised())
    }
}

fn unsupervised() -> Refusal {
    Refusal::new(ErrorCode::E3010, "this build starts no MCP servers").hint("use a build that does")
}

/// Finds nothing, and lets pass only what need not be looked at.
#[derive(Debug)]
struct Unscanned {
    blocks: bool,
}

impl Inspector for Unscanned {
    fn inspect(&self, definitions: &[Value], _: &[String], _: &[String]) -> Vec<Inspection> {
        definitions.iter().map(|_| Inspection { findings: Vec::new(), blocks: self.blocks }).collect()
    }
}
