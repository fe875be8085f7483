//! What people do with servers and with what they offer: add, look, restart, remove; accept, reject, classify. Each act
//! is permitted and recorded by the kernel.

use std::sync::Arc;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::compat::{self, CompatVerdict, SchemaDirection};
use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, is_snake_word};
use contract::manifest::{LifecycleState, Manifest, SideEffectPolicy};
use contract::version::Version;
use kernel::WhyUnavailable;
use ports::actor::Actor;
use ports::audit_sink::AuditAction;
use ports::permissions::DeclaredPermissions;
use ports::server_administration::{PinReport, ServerAdministration, ServerDecision, ServerReport};
use ports::tool_version::ToolVersion;
use ports::upstream_store::{PinRecord, PinState, ServerPut, ServerRead, ServerRecord};
use serde_json::{Value, json};

use super::descriptor::{hints, shown, suggested};
use super::difference::difference;
use super::intake::{JUDGED_MAX, outdated, switched_off};
use super::spec_changes::changes;
use super::{KnownServer, ServerCatalogue, ServerKey, namespace};
use crate::pins;
use crate::plain_secrets;
use crate::spec::{
    CALL_TIMEOUT_MAX_SECONDS_MAX, CALL_TIMEOUT_SECONDS_MAX, EraChoice, FALLBACKS_MAX, RESULT_BYTES, ServerReach,
    ServerSpec, SetBy, authority,
};

/// Most servers of one tenant.
const SERVERS_MAX: usize = 256;
/// Longest name of a server, and of a namespace that is given to one.
const NAME_CHARS_MAX: usize = 64;
/// Most lines of a log in one answer.
const LOG_LINES_MAX: usize = 10_000;

#[async_trait]
impl ServerAdministration for ServerCatalogue {
    async fn servers(&self, actor: Actor<'_>, tenant: Option<&TenantId>) -> Result<Vec<ServerReport>, Refusal> {
        let tenant = self.parts.kernel.server_sight(actor, tenant).await?;
        let kept: Vec<KnownServer> =
            self.table().iter().filter(|((of, _), _)| *of == tenant).map(|(_, kept)| kept.clone()).collect();
        Ok(kept.iter().map(|kept| self.report(kept)).collect())
    }

    async fn put_server(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
        spec: Value,
        start: bool,
    ) -> Result<ServerReport, Refusal> {
        let act = self.parts.kernel.server_act(actor, tenant).await?;
        let key = (act.tenant().clone(), checked_name(name)?);
        let set_by = if act.is_operators() { SetBy::Operator } else { SetBy::Tenant };
        let read = ServerSpec { set_by, ..checked_spec(&spec)? };
        plain_secrets::refuse(&read, self.parts.kernel.redactor())?;
        self.parts.admission.admit(&key.0, &read).await?;
        let turn = self.turn(&key);
        let _turn = turn.lock().await;
        let start = start && !read.disabled;
        let record = ServerRecord {
            tenant: key.0.clone(),
            name: key.1.clone(),
            spec,
            added_at: self.parts.kernel.clock().now(),
            added_by: act.by().clone(),
        };
        let before = self.known(&key).ok().and_then(|kept| kept.spec);
        let (is_same, changed) = (before.as_ref() == Some(&read), changes(before.as_ref(), &read));
        let is_new = self.place(&key, record, read).await?;
        if is_new {
            // What a server of this name had before is not that of a removed one any more; what of it is to be had, a look says.
            self.close_orphans();
        }
        let note = format!("{} `{name}`{changed}", if is_new { "added" } else { "changed" });
        let recorded = act.done(AuditAction::ServersChanged, None, note).await;
        self.tell_others().await;
        self.supervise().await;
        recorded?;
        self.publish_limits(&key).await?;
        if start {
            // Described as before, it is started anew all the same: a credential may have another value.
            if is_same {
                let _ = self.parts.supervision.restart(&key.0, &key.1).await;
            }
            // It is there whether it answers or not; why it does not stands in the report.
            let _ = self.refresh_in_turn(&key).await;
        }
        self.known(&key).map(|kept| self.report(&kept))
    }

    async fn remove_server(&self, actor: Actor<'_>, tenant: Option<&TenantId>, name: &str) -> Result<(), Refusal> {
        let act = self.parts.kernel.server_act(actor, tenant).await?;
        let key = (act.tenant().clone(), name.to_owned());
        let turn = self.turn(&key);
        let _turn = turn.lock().await;
        let placing = self.placing.lock().await;
        self.catch_up().await?;
        let kept = self.known(&key)?;
        // Closed before it is forgotten: what is left published must not be callable for a moment longer.
        let closed = || kept.pins.values().map(|pin| (super::key_of(pin), Some(WhyUnavailable::ServerRemoved)));
        let storing = self.storing.read().await;
        self.parts.kernel.availability().set(closed());
        self.parts.store.remove_server(&key.0, &key.1).await.map_err(|error| error.refusal())?;
        {
            let mut servers = self.table();
            servers.remove(&key);
            // Its process may have said meanwhile that it answers; from here on nobody hears that any more.
            self.parts.kernel.availability().set(closed());
        }
        drop(storing);
        drop(placing);
        self.tell_others().await;
        {
            let mut turns = super::lock(&self.turns);
            // Somebody who waits for this turn and somebody who would make a new one must not both have one.
            if Arc::strong_count(&turn) <= 2 {
                turns.remove(&key);
            }
        }
        let recorded = act.done(AuditAction::ServersChanged, None, format!("removed `{name}`")).await;
        self.supervise().await;
        recorded
    }

    async fn restart_server(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<ServerReport, Refusal> {
        let act = self.parts.kernel.server_act(actor, tenant).await?;
        let key = (act.tenant().clone(), name.to_owned());
        if self.known(&key)?.is_disabled() {
            return Err(switched_off(name));
        }
        self.parts.supervision.restart(&key.0, &key.1).await?;
        act.done(AuditAction::ServersChanged, None, format!("restarted `{name}`")).await?;
        self.refresh(&key.0, &key.1).await?;
        self.known(&key).map(|kept| self.report(&kept))
    }

    async fn server_log(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
        lines: usize,
    ) -> Result<Vec<String>, Refusal> {
        let tenant = self.parts.kernel.server_sight(actor, tenant).await?;
        let key = (tenant, name.to_owned());
        if self.known(&key)?.is_disabled() {
            return Err(switched_off(name));
        }
        self.parts.supervision.log_tail(&key.0, &key.1, lines.min(LOG_LINES_MAX)).await
    }

    async fn server_tools(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<Vec<PinReport>, Refusal> {
        let tenant = self.parts.kernel.server_sight(actor, tenant).await?;
        let kept = self.known(&(tenant, name.to_owned()))?;
        let mut reports = Vec::with_capacity(kept.pins.len());
        for pin in kept.pins.values() {
            reports.push(self.pin_report(&kept.record.added_by, pin).await?);
        }
        Ok(reports)
    }

    async fn decide(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
        tool: &str,
        decision: ServerDecision,
    ) -> Result<PinReport, Refusal> {
        let act = self.parts.kernel.server_act(actor, tenant).await?;
        let key = (act.tenant().clone(), name.to_owned());
        let turn = self.turn(&key);
        let _turn = turn.lock().await;
        for _ in 0..JUDGED_MAX {
            self.catch_up().await?;
            let kept = self.known(&key)?;
            let pin = named(&kept, tool)?;
            let Decided { pin, version, note } = match decision {
                ServerDecision::Accept { digest } => self.accept(&kept, pin, digest).await?,
                ServerDecision::Reject => self.reject(pin)?,
                ServerDecision::Classify { class, digest } => self.classify(&kept, pin, class, digest).await?,
            };
            if self.store_pins(&kept, vec![pin.clone()], false).await? {
                act.done(AuditAction::ToolPinChanged, Some((&pin.tool, version.as_ref())), note).await?;
                return self.pin_report(&kept.record.added_by, &pin).await;
            }
        }
        Err(outdated(name))
    }
}

/// What somebody has decided about a tool.
struct Decided {
    pin: PinRecord,
    /// The version that was published for it, and what is noted.
    version: Option<Version>,
    note: String,
}

impl ServerCatalogue {
    async fn accept(&self, kept: &KnownServer, pin: &PinRecord, looked_at: Option<Digest>) -> Result<Decided, Refusal> {
        let digest = pins::undecided(pin).ok_or_else(|| nothing_to_decide(pin))?;
        is_as_looked_at(pin, Some(digest), looked_at)?;
        let accepted = pins::accept(pin).ok_or_else(|| nothing_to_decide(pin))?;
        let version = self.publish(kept, &accepted).await?;
        let seen_at = self.parts.kernel.clock().now();
        let pin = PinRecord { version: Some(version.clone()), seen_at, ..accepted };
        Ok(Decided { pin, version: Some(version), note: format!("accepted {digest}") })
    }

    fn reject(&self, pin: &PinRecord) -> Result<Decided, Refusal> {
        let digest = pins::undecided(pin).ok_or_else(|| nothing_to_decide(pin))?;
        let rejected = pins::reject(pin).ok_or_else(|| nothing_to_decide(pin))?;
        let pin = PinRecord { seen_at: self.parts.kernel.clock().now(), ..rejected };
        Ok(Decided { pin, version: None, note: format!("rejected {digest}") })
    }

    async fn classify(
        &self,
        kept: &KnownServer,
        pin: &PinRecord,
        class: SideEffectPolicy,
        looked_at: Option<Digest>,
    ) -> Result<Decided, Refusal> {
        let newest = pin.proposed.as_ref().or(pin.accepted.as_ref());
        is_as_looked_at(pin, newest.map(|definition| definition.digest), looked_at)?;
        if class == SideEffectPolicy::Compensatable {
            return Err(Refusal::new(ErrorCode::E3004, "a tool of a server cannot be `compensatable`")
                .hint("nothing says which tool undoes it: use `irreversible`, or `idempotent` if twice is as once"));
        }
        let classification = Some(class).filter(|class| *class != SideEffectPolicy::Unclassified);
        let mut classified = PinRecord { classification, ..pin.clone() };
        if classified.accepted.is_some() {
            // A version never changes, so another class is another version.
            classified.version = Some(self.publish(kept, &classified).await?);
        }
        let version = classified.version.clone();
        Ok(Decided { pin: classified, version, note: format!("classified as {}", class.as_str()) })
    }

    /// Publishes what is accepted of a server once more where the time or the size of a call has changed: a version never
    /// changes, so another limit is another version. What people are taking out of use is not brought back by it. For whoever has the turn.
    async fn publish_limits(&self, key: &ServerKey) -> Result<(), Refusal> {
        for _ in 0..JUDGED_MAX {
            let kept = self.known(key)?;
            let upkeep = kept.upkeep();
            let (registry, now) =
                (Arc::clone(&self.parts.kernel.registry().snapshot()), self.parts.kernel.clock().now());
            let is_other = |pin: &&PinRecord| {
                let newest = registry.tool(&pin.tenant, &pin.tool).and_then(|tool| tool.versions().last());
                let is_other = |newest: &ToolVersion| {
                    let manifest = &newest.manifest;
                    let is_same = manifest.timeout_default == Some(upkeep.call_timeout_seconds)
                        && manifest.timeout_max == upkeep.call_timeout_max_seconds
                        && manifest.result_bytes_max == upkeep.result_bytes_max;
                    !is_same && newest.lifecycle.state(now) == LifecycleState::Active
                };
                pin.accepted.is_some() && newest.is_some_and(|newest| is_other(newest))
            };
            let mut changed = Vec::new();
            for pin in kept.pins.values().filter(is_other) {
                changed.push(PinRecord { version: Some(self.publish(&kept, pin).await?), ..pin.clone() });
            }
            if changed.is_empty() || self.store_pins(&kept, changed, false).await? {
                return Ok(());
            }
            self.catch_up().await?;
        }
        Err(outdated(&key.1))
    }

    fn report(&self, kept: &KnownServer) -> ServerReport {
        let in_state = |states: &[PinState]| kept.pins.values().filter(|pin| states.contains(&pin.state)).count();
        let status = match kept.spec {
            Some(_) if kept.is_disabled() => json!({ "state": "disabled" }),
            Some(_) => self.parts.supervision.status(&kept.record.tenant, &kept.record.name),
            None => json!({ "state": "unreadable" }),
        };
        ServerReport {
            record: kept.record.clone(),
            status,
            tools_available: if kept.answers { in_state(&[PinState::Accepted]) } else { 0 },
            tools_quarantined: in_state(&[PinState::Quarantined]),
            tools_known: kept.pins.len(),
            problems: kept.problems.clone(),
        }
    }

    async fn pin_report(&self, added_by: &Subject, pin: &PinRecord) -> Result<PinReport, Refusal> {
        let accepted = pin.accepted.as_ref().map(|definition| &definition.value);
        let open = pin.proposed.as_ref().filter(|_| pins::undecided(pin).is_some());
        let newest = pin.proposed.as_ref().map(|definition| &definition.value).or(accepted);
        let compatibility = match (accepted, open) {
            (Some(old), Some(new)) => {
                let (old, new) = (old.clone(), new.value.clone());
                let comparing = move || compared(&old, &new);
                Some(self.parts.kernel.compare_definitions(&pin.tenant, added_by, comparing).await?)
            }
            _ => None,
        };
        let why = self.parts.kernel.availability().why_not(&pin.tenant, &pin.tool);
        let hints = newest.map(hints).unwrap_or_default();
        Ok(PinReport {
            unavailable: why.map(kernel::WhyUnavailable::as_str),
            difference: open.map(|new| difference(accepted, &new.value)).unwrap_or_default(),
            compatibility,
            suggested: suggested(&hints),
            hints,
            pin: pin.clone(),
        })
    }

    /// Puts a server among the others, in this instance and in the store, as one step (CAT-7). Answers whether it is new. For
    /// whoever has its turn.
    async fn place(&self, key: &ServerKey, record: ServerRecord, spec: ServerSpec) -> Result<bool, Refusal> {
        let _placing = self.placing.lock().await;
        self.catch_up().await?;
        for _ in 0..JUDGED_MAX {
            let others = self.there_is_room(key, &spec)?;
            let storing = self.storing.read().await;
            let marked = super::stored::marked(&record, spec.set_by);
            match self.parts.store.put_server(&marked, &others).await.map_err(|error| error.refusal())? {
                ServerPut::Kept => {}
                ServerPut::Outdated => {
                    drop(storing);
                    self.read_anew().await?;
                    continue;
                }
            }
            let before = self.kept(key);
            let (is_new, was_disabled) = (before.is_none(), before.as_ref().is_some_and(KnownServer::is_disabled));
            let pins = before.map(|kept| kept.pins).unwrap_or_default();
            let answers = !spec.disabled;
            let kept = KnownServer { record, spec: Some(spec), answers, pins, problems: Vec::new() };
            let mut servers = self.table();
            // Under the lock: what is switched off is offered to nobody from here on, and what is switched on is.
            if kept.is_disabled() || was_disabled {
                self.parts.kernel.availability().set(kept.availability());
            }
            servers.insert(key.clone(), kept);
            return Ok(is_new);
        }
        Err(outdated(&key.1))
    }

    /// Two servers of a tenant never share a namespace, or nobody could tell by a tool's name where it comes from. Answers by which
    /// others this was judged.
    fn there_is_room(&self, key: &ServerKey, spec: &ServerSpec) -> Result<Vec<ServerRead>, Refusal> {
        let wanted = namespace(&key.1, Some(spec));
        let servers = self.table();
        let mut others = servers.iter().filter(|((tenant, name), _)| *tenant == key.0 && *name != key.1);
        let read = |kept: &KnownServer| ServerRead { name: kept.record.name.clone(), added_at: kept.record.added_at };
        let judged_by: Vec<ServerRead> = others.clone().map(|(_, kept)| read(kept)).collect();
        if judged_by.len() >= SERVERS_MAX {
            return Err(Refusal::new(ErrorCode::E3407, format!("a tenant has at most {SERVERS_MAX} servers"))
                .hint("remove one that is not needed: `gantry server remove`"));
        }
        match others.find(|(_, kept)| kept.namespace() == wanted) {
            Some(((_, other), _)) => Err(Refusal::new(
                ErrorCode::E3004,
                format!("the tools of `{other}` stand in the namespace `{wanted}` already"),
            )
            .hint("give this server a `namespace` of its own")),
            None => Ok(judged_by),
        }
    }
}

/// What accepting would mean for callers.
fn compared(old: &Value, new: &Value) -> &'static str {
    let side = |definition: &Value, member: &str| definition.get(member).cloned().unwrap_or_else(|| json!({}));
    let input = compat::compare(&side(old, "inputSchema"), &side(new, "inputSchema"), SchemaDirection::Input);
    let output = compat::compare(&side(old, "outputSchema"), &side(new, "outputSchema"), SchemaDirection::Output);
    match input.verdict.max(output.verdict) {
        CompatVerdict::Patch => "patch",
        CompatVerdict::Minor => "minor",
        CompatVerdict::Major => "major",
    }
}

/// The pin of a tool, by its server's name of it or by ours.
fn named<'a>(kept: &'a KnownServer, tool: &str) -> Result<&'a PinRecord, Refusal> {
    let found = kept.pins.get(tool).or_else(|| {
        kept.pins
            .values()
            .find(|pin| pin.tool.as_str() == tool)
            .or_else(|| kept.pins.values().find(|pin| pin.tool.local() == tool))
    });
    found.ok_or_else(|| {
        let names = kept.pins.keys().map(String::as_str).chain(kept.pins.values().map(|pin| pin.tool.as_str()));
        let message = format!("the server `{}` has no tool `{}`", kept.record.name, shown(tool));
        let refusal = Refusal::new(ErrorCode::E3101, message);
        match contract::nearest::nearest(tool, names) {
            Some(near) => refusal.hint(format!("did you mean `{}`?", shown(near))),
            None => refusal.hint(format!("`gantry server review {}` shows those it has", kept.record.name)),
        }
    })
}

fn nothing_to_decide(pin: &PinRecord) -> Refusal {
    let why = match pin.state {
        PinState::Withdrawn => "its server does not offer it any more",
        _ => "its server says what was accepted",
    };
    Refusal::new(ErrorCode::E3408, format!("there is nothing to decide about `{}`: {why}", pin.tool))
        .hint("`gantry server list` shows which servers wait for a decision")
}

fn checked_name(name: &str) -> Result<String, Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fine = name.len() <= NAME_CHARS_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain);
    if fine {
        return Ok(name.to_owned());
    }
    Err(Refusal::new(ErrorCode::E3004, format!("`{}` is no name for a server", shown(name)))
        .hint("use at most 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit"))
}

/// Reads a server's description, as far as it can be told before it is started.
fn checked_spec(spec: &Value) -> Result<ServerSpec, Refusal> {
    let wrong = |message: String| Refusal::new(ErrorCode::E3004, message).hint("see docs/upstream-servers.md");
    let read: ServerSpec = serde_json::from_value(spec.clone()).map_err(|error| wrong(told(&error.to_string())))?;
    if let Some(space) = &read.namespace
        && !space.is_empty()
        && (!is_snake_word(space) || space.len() > NAME_CHARS_MAX)
    {
        return Err(wrong(
            "`namespace` must be at most 64 of a-z, 0-9 and _, beginning with a letter, or empty for none".into(),
        ));
    }
    if !(1..=CALL_TIMEOUT_SECONDS_MAX).contains(&read.upkeep.call_timeout_seconds) {
        return Err(wrong(format!("`upkeep.call_timeout_seconds` must be between 1 and {CALL_TIMEOUT_SECONDS_MAX}")));
    }
    let least = read.upkeep.call_timeout_seconds;
    if let Some(most) = read.upkeep.call_timeout_max_seconds
        && !(least..=CALL_TIMEOUT_MAX_SECONDS_MAX).contains(&most)
    {
        return Err(wrong(format!(
            "`upkeep.call_timeout_max_seconds` must be between `call_timeout_seconds`, {least}, and {CALL_TIMEOUT_MAX_SECONDS_MAX}"
        )));
    }
    if let Some(bytes) = read.upkeep.result_bytes_max
        && !RESULT_BYTES.contains(&bytes)
    {
        let (least, most) = RESULT_BYTES.into_inner();
        return Err(wrong(format!("`upkeep.result_bytes_max` must be between {least} and {most}")));
    }
    if read.era == EraChoice::Modern && matches!(read.reach, ServerReach::Sse { .. }) {
        return Err(wrong(
            "`era` cannot be `modern` for an address that speaks HTTP+SSE: that is the oldest protocol".into(),
        ));
    }
    match &read.reach {
        ServerReach::Stdio { command, args, cwd, env, permissions, package } => {
            if command.is_empty() || command.contains('\0') || args.iter().any(|arg| arg.contains('\0')) {
                return Err(wrong("`command` must name a program, and nothing may contain NUL".into()));
            }
            if env.keys().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
                return Err(wrong("names in `env` must not be empty or contain `=`".into()));
            }
            if cwd.as_ref().is_some_and(|cwd| !cwd.starts_with('/') || cwd.contains('\0')) {
                return Err(wrong("`cwd` must be a path in full".into()));
            }
            if package.as_ref().is_some_and(|pin| pin.folder().is_none()) {
                return Err(wrong(
                    "`package` must name a package, its version, and `sha256:` with the digest of its lock file".into(),
                ));
            }
            checked_permissions(permissions)?;
        }
        ServerReach::Http { url, .. } | ServerReach::Sse { url, .. } => {
            if !is_address(url) {
                return Err(wrong(
                    "`url` must be an http or https address without a password, white space or backslashes".into(),
                ));
            }
        }
    }
    checked_fallbacks(&read).map_err(|message| wrong(message.into()))?;
    Ok(read)
}

/// A backslash is a slash to some readers and not to others, and what is left out as white space is seen by people: of such an
/// address nobody could say whose host it names.
fn is_address(url: &str) -> bool {
    let is_plain = !url.contains(|letter: char| letter == '\\' || letter.is_whitespace() || letter.is_control());
    let parsed = url::Url::parse(url);
    is_plain
        && parsed
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.password().is_none())
}

/// A few addresses besides the first, each of another host or port: at the same one, nothing would be gained.
fn checked_fallbacks(spec: &ServerSpec) -> Result<(), &'static str> {
    if spec.fallbacks.is_empty() {
        return Ok(());
    }
    let Some(first) = spec.reach.authority() else {
        return Err("`fallbacks` are for servers that are reached at an address");
    };
    if spec.fallbacks.len() > FALLBACKS_MAX || !spec.fallbacks.iter().all(|url| is_address(url)) {
        return Err(
            "`fallbacks` must be at most two http or https addresses without a password, white space or backslashes",
        );
    }
    let mut places: Vec<String> = spec.fallbacks.iter().filter_map(|url| authority(url)).chain([first]).collect();
    places.sort();
    places.dedup();
    if places.len() <= spec.fallbacks.len() {
        return Err("`fallbacks` must each be of another host or port than the others and `url`");
    }
    Ok(())
}

/// The words mean the same as in manifests, so the same reader judges them.
fn checked_permissions(words: &[String]) -> Result<(), Refusal> {
    let manifest = json!({
        "tool_id": "server", "version": "1.0.0", "name": "server", "description": "a server's permissions",
        "provider": "gantry", "protocol": "mcp", "side_effect_policy": "unclassified", "timeout_class": "standard",
        "parameters": { "type": "object" }, "result_schema": {}, "required_permissions": words,
    });
    let findings = match Manifest::from_value(manifest) {
        Ok(manifest) => DeclaredPermissions::of(&manifest).err().unwrap_or_default(),
        Err(error) => error.findings().to_vec(),
    };
    match findings.first() {
        None => Ok(()),
        Some(finding) => {
            let message = format!("`permissions`: {}", shown(&finding.message));
            Err(Refusal::new(ErrorCode::E3004, message)
                .hint("the words are those of `required_permissions` in manifests"))
        }
    }
}

/// A decision is about what was looked at and nothing else.
fn is_as_looked_at(pin: &PinRecord, said: Option<Digest>, looked_at: Option<Digest>) -> Result<(), Refusal> {
    if looked_at.is_none() || looked_at == said {
        return Ok(());
    }
    let message = format!("what the server says about `{}` has changed since it was looked at", pin.tool);
    Err(Refusal::new(ErrorCode::E3408, message).hint("nothing was decided; look again: `gantry server review`"))
}

/// serde's words without the values it repeats: they may be secrets.
fn told(message: &str) -> String {
    let kept = message.split('"').step_by(2).collect::<Vec<_>>().join("…");
    format!("the description of the server cannot be read: {}", kept.split(" at line").next().unwrap_or_default())
}
