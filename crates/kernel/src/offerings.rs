//! Resources and prompts of servers behind Gantry: who may see and ask for them.
//!
//! They are governed as if each server had two pure tools, `NAMESPACE.resources` and `NAMESPACE.prompts`: a token must name
//! them and the agent must reach them. Every reading leaves a record; listings do not, like those of tools.

use std::sync::Arc;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::manifest::SideEffectPolicy;
use policy::Caller;
use serde_json::Value;

use crate::administration::Actor;
use crate::invoke::Kernel;
use crate::ports::audit_sink::{AuditAction, AuditRecord};
use crate::ports::companion::{Companion, Unaccompanied};
use crate::ports::offerings::{Offered, Offering, OfferingRequest, unknown_server};

/// Longest time a server may take over one of these.
const PATIENCE: Duration = Duration::from_secs(30);

impl Kernel {
    /// Everything of a kind that the caller may see, server by server in a stable order. A server that does not answer is
    /// left out: its neighbours are not to blame.
    pub async fn offered(&self, actor: Actor<'_>, what: Offering) -> Result<Vec<Offered>, Refusal> {
        let caller = self.recognise(actor).await?;
        let word = match what {
            Offering::Resources | Offering::ResourceTemplates => "resources",
            Offering::Prompts => "prompts",
        };
        let mut servers = self.parts.offerings.servers(caller.tenant());
        servers.sort();
        let mut all = Vec::new();
        for (server, namespace) in servers {
            if !self.may_ask(&caller, &namespace, word) {
                continue;
            }
            let listed = tokio::select! {
                listed = self.parts.offerings.list(caller.tenant(), &server, what) => listed,
                () = self.clock().sleep(PATIENCE) => Err(too_slow(&server)),
            };
            match listed {
                Ok(items) => all.extend(items.into_iter().map(|item| Offered {
                    server: server.clone(),
                    namespace: namespace.clone(),
                    item,
                })),
                Err(refusal) => {
                    tracing::warn!(%server, code = %refusal.code, "what this server offers cannot be listed: {}", refusal.message);
                }
            }
        }
        Ok(all)
    }

    /// Asks one server for a resource, a prompt or a completion, and records that it was asked.
    pub async fn ask_offering(
        &self,
        actor: Actor<'_>,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        companion: Option<Arc<dyn Companion>>,
    ) -> Result<Value, Refusal> {
        let caller = self.recognise(actor).await?;
        let slot = self.parts.recorder.reserve().await?;
        let word = match request {
            OfferingRequest::ReadResource => "resources",
            OfferingRequest::GetPrompt | OfferingRequest::Complete => "prompts",
        };
        let known = self.parts.offerings.servers(caller.tenant()).into_iter().find(|(name, _)| name == server);
        let answer = match known {
            Some((_, namespace)) if self.may_ask(&caller, &namespace, word) => {
                let companion = companion.unwrap_or_else(Unaccompanied::new);
                tokio::select! {
                    answer = self.parts.offerings.ask(caller.tenant(), server, request, parameters, &*companion) => answer,
                    () = self.clock().sleep(PATIENCE) => Err(too_slow(server)),
                }
            }
            // The same words whether there is none or it is not for this caller.
            _ => Err(unknown_server(server)),
        };
        let note = Some(request.method().to_owned());
        slot.record(AuditRecord {
            code: answer.as_ref().err().map(|refusal| refusal.code),
            ..self.act(actor, &caller, AuditAction::OfferingAsked, None, note)
        });
        answer
    }

    fn may_ask(&self, caller: &Caller, namespace: &str, word: &str) -> bool {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        let Ok(id) = ToolId::new(namespace, word) else { return false };
        let access = self.access().snapshot().clone();
        let hands = std::iter::once(caller.subject()).chain(caller.chain().iter().map(|link| &link.sub));
        caller.names(&id)
            && hands
                .map(|hand| access.view(caller.tenant(), hand))
                .all(|view| view.reach(&id, || SideEffectPolicy::Pure).is_ok())
    }
}

fn too_slow(server: &str) -> Refusal {
    Refusal::new(ErrorCode::E3503, format!("server `{server}` did not answer within {} s", PATIENCE.as_secs()))
        .hint("`gantry server logs` may tell why")
}
