//! The servers under measurement: PostgreSQL and Redis of the installed kit, and instances of the product on them.
//!
//! Every instance has a data directory of its own and a token that it minted itself. Everything ends with the value that holds
//! it, however the measurement ends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_servers::{PostgresServer, RedisServer};

use super::spread::Target;
use crate::load::{self, Fresh};
use crate::product::{self, Product};

/// What the tests leave out and a real database does not.
const DURABLE: [&str; 3] = ["fsync=on", "synchronous_commit=on", "full_page_writes=on"];

/// A tool that says of itself that it has effects, one that has neither effects nor limits, and one with a service and a limit.
pub(super) const EFFECTFUL: &str = "bench.note";
pub(super) const PURE: &str = "calculator";
pub(super) const GUARDED: &str = "bench.sum";
/// The key that instances on one database share.
const STORE_KEY: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";
/// What every right answer contains: it was done, and not found done.
const ANSWER: &str = r#""cached":false"#;

/// The servers beside the product.
pub(super) struct Services {
    pub(super) postgres: PostgresServer,
    redis: RedisServer,
}

/// Where a product keeps what it keeps.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// Nothing: the file in the data directory.
    pub(super) store: Option<&'a str>,
    /// Nothing: the memory of the process.
    pub(super) shared: Option<&'a str>,
}

/// Instances that work as one, with the tools that are called.
pub(super) struct InstanceGroup {
    instances: Vec<Instance>,
}

struct Instance {
    product: Product,
    admin: String,
    agent: String,
}

// -------------------------------------------------------------------------------------------------------- Services

impl Services {
    /// Starts both.
    pub(super) fn start() -> Result<Self> {
        Ok(Self { postgres: PostgresServer::start_with(&DURABLE)?, redis: RedisServer::start()? })
    }

    /// The address of Redis, for an installation that no other has the name of.
    pub(super) fn redis(&self, database: u8) -> String {
        format!("{}{database}", self.redis.url())
    }
}

// ------------------------------------------------------------------------------------------------------------ InstanceGroup

impl InstanceGroup {
    /// Starts so many instances in one place and publishes the tools. `name` becomes a folder and the name in Redis.
    pub(super) async fn start(
        gantry: &Path,
        folder: &Path,
        name: &str,
        place: Place<'_>,
        count: usize,
    ) -> Result<Self> {
        let mut instances = Vec::with_capacity(count);
        for number in 0..count {
            instances.push(Instance::start(gantry, &folder.join(format!("{name}-{number}")), name, place).await?);
        }
        for instance in &instances {
            for manifest in manifests() {
                instance.register(&manifest).await?;
            }
        }
        Ok(Self { instances })
    }

    /// Calls of one tool, spread over the instances; each with a key of its own or with none.
    pub(super) fn targets(&self, tool: &'static str, series: &str) -> Vec<Target> {
        let instances = self.instances.iter().enumerate();
        instances
            .map(|(number, instance)| {
                let fresh = fresh(&instance.agent, tool, &format!("{series}-{number}"));
                Target { address: instance.product.address, fresh }
            })
            .collect()
    }

    /// The address of the first instance and its administrator's token.
    pub(super) fn first(&self) -> Result<(SocketAddr, &str)> {
        let first = self.instances.first().context("a group without instances")?;
        Ok((first.product.address, &first.admin))
    }

    /// Ends all of them in order.
    pub(super) async fn stop(self) -> Result<()> {
        for instance in self.instances {
            instance.product.stop().await?;
        }
        Ok(())
    }
}

impl Instance {
    async fn start(gantry: &Path, data: &Path, name: &str, place: Place<'_>) -> Result<Self> {
        let data: PathBuf = data.to_owned();
        let mut settings = vec![("GANTRY_SHARED_STATE__NAMESPACE", name)];
        settings.extend(place.store.map(|url| ("GANTRY_STORE__URL", url)));
        // Instances on one database share a key.
        settings.extend(place.store.map(|_| ("GANTRY_STORE__SEAL_KEY", STORE_KEY)));
        settings.extend(place.shared.map(|url| ("GANTRY_SHARED_STATE__URL", url)));
        let product = Product::start_set(gantry, &data, None, &settings).await?;
        let admin = product::admin_token(&data)?;
        let agent = product.agent_token(&admin).await?;
        Ok(Self { product, admin, agent })
    }

    /// Publishes a tool, or finds that another instance did.
    async fn register(&self, manifest: &Value) -> Result<()> {
        let request = load::request("POST", "/v1/tools/register", Some(&self.admin), Some(&manifest.to_string()));
        let (status, answer) = load::ask_once(self.product.address, &request).await?;
        let said = String::from_utf8_lossy(&answer);
        ensure!(matches!(status, 200 | 201), "the tool was not published: {status}, {said}");
        Ok(())
    }
}

/// Calls of one tool. Those of a tool with effects have a key each; the others are the same bytes every time.
fn fresh(agent: &str, tool: &'static str, series: &str) -> Fresh {
    let call = json!({ "tool_id": tool, "parameters": { "expression": "sqrt(16) + 2^3" } });
    if tool != EFFECTFUL {
        let request = load::request("POST", "/v1/tools/invoke", Some(agent), Some(&call.to_string()));
        return Fresh::new(200, ANSWER, move |_| request.clone());
    }
    let (agent, series) = (agent.to_owned(), series.to_owned());
    Fresh::new(200, ANSWER, move |number| {
        let mut body = call.clone();
        if let Value::Object(members) = &mut body {
            members.insert("execution_options".into(), json!({ "idempotency_key": format!("{series}-{number:012}") }));
        }
        load::request("POST", "/v1/tools/invoke", Some(&agent), Some(&body.to_string()))
    })
}

/// The tools that are published. None does more than the calculator, so that what is measured is what is kept of them.
fn manifests() -> [Value; 2] {
    let tool = |id: &str, policy: &str, more: Value| {
        let mut manifest = json!({
            "tool_id": id, "namespace": "bench", "version": "1.0.0", "name": id, "provider": "Bench", "protocol": "native",
            "description": "Evaluates an expression, for a measurement.", "side_effect_policy": policy,
            "timeout_class": "standard", "required_permissions": [],
            "parameters": { "type": "object", "required": ["expression"],
                "properties": { "expression": { "type": "string", "description": "what is evaluated" } } },
            "result_schema": { "type": "object" }, "execution": { "type": "builtin", "handler": "calculator" },
        });
        if let (Value::Object(members), Value::Object(more)) = (&mut manifest, more) {
            members.extend(more);
        }
        manifest
    };
    let effects =
        json!({ "idempotency": {}, "side_effects": [{ "resource": "note", "op": "UPDATE", "scope": "account" }] });
    // More than will be called, so that the limit is asked and never reached.
    let guards = json!({ "external_service": "sums", "rate_limit": { "max_per_day": 10_000_000 } });
    [tool("note", "idempotent", effects), tool("sum", "pure", guards)]
}
