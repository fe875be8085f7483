//! What a server behind Gantry is given that runs here as a program: the same words, mounts, gate and limits as a tool has.
//!
//! It differs from a tool in that it outlives its calls, and has no folder of its own: what it needs of the machine it
//! declares, or it is in a system directory. Its paths were named by the operator, or are among those the operator has listed
//! for the tenant that named them (`upstreams::admission`), so people's homes are open to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::error::Refusal;
use ports::permissions::DeclaredPermissions;
use ports::resolved_limits::ResolvedLimits;
use ports::secret_source::SecretValue;
use sandbox::SandboxSpec;
use sandbox::egress::EgressGate;

use crate::confinement::ToolConfinement;
use crate::process::prepared::{lay_out_secrets, open_network};

/// A sandbox to be, and its way out.
#[derive(Debug)]
pub struct ServerConfinement {
    pub spec: SandboxSpec,
    /// To be served at the sockets of the child.
    pub gate: Arc<EgressGate>,
}

impl ToolConfinement {
    /// The room of the program of the MCP server `name`, which serves many calls. `credentials` are those its permissions name, already fetched.
    ///
    /// # Errors
    /// Something is declared that this server gives to nobody.
    pub fn server_room(
        &self,
        name: &str,
        command: Vec<String>,
        env: BTreeMap<String, String>,
        permissions: &DeclaredPermissions,
        limits: &ResolvedLimits,
        credentials: &[(&str, SecretValue)],
    ) -> Result<ServerConfinement, Refusal> {
        let mut spec = SandboxSpec::new(command);
        spec.system = self.system();
        for system in &spec.system {
            self.without_private(system, "a system directory")?;
        }
        spec.mounts = self.mounts_of_server(permissions)?;
        spec.limits = self.limits_of(limits);
        // Also where it may go nowhere: what it wanted is told to whoever asks why it does not work.
        let gate = self.gate_of_server(name, permissions, limits)?;
        open_network(&mut spec, gate.policy().direct_places_that_tell());
        if !credentials.is_empty() {
            lay_out_secrets(&mut spec, credentials.iter().map(|(name, secret)| (*name, secret)));
        }
        spec.env.extend(env);
        Ok(ServerConfinement { spec, gate })
    }
}
