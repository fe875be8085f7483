//! Who may put what behind Gantry. (AUTH-006, EXEC-011, DESIGN §6)
//!
//! Starting a program on this machine, giving it paths and hosts, and reaching what only this machine reaches are rights of
//! whoever operates the installation. A tenant's administrators have of them what the operator has listed for that tenant;
//! without a list they may name servers at public hosts by https on port 443, and nothing else.
//!
//! A description is judged twice: when it is put, so that whoever put it hears why not, and each time the server is started,
//! because the list may have become shorter and a name may lead elsewhere.
//!
//! Invariants
//! - UADM-1: what a tenant has described runs only if its list covers all of it: command, variables, paths and hosts.
//! - UADM-2: the bounds of `[egress]` hold for every address, whoever named it.
//! - UADM-3: nothing of the list, of an address or of a path is repeated in a refusal.
//!
//! Not here: who is an administrator (`kernel::administration`), what the sandbox gives (`executors::confinement`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::outbound::{AddressGuard, DeniedAddress, GuardedTarget, OpenedNetworks};
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use ports::permissions::{DeclaredPermissions, NetworkPermission};
use sandbox::egress::{Cidr, EgressBounds, EgressRule, GateLimits, HostResolver, PortSet};

use crate::spec::{ServerReach, ServerSpec, SetBy};

/// What the operator lets the administrators of one tenant put behind Gantry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantList {
    /// Programs with the first of their arguments; what follows is the tenant's.
    pub commands: Vec<Vec<String>>,
    /// Names of environment variables that may be set.
    pub variables: Vec<String>,
    /// Where declared paths may lie.
    pub paths: Vec<PathBuf>,
    /// Hosts that programs may declare, and that servers may be at beyond public ones by https on port 443.
    pub hosts: OpenedNetworks,
}

/// What the operator lets tenants do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantLists {
    pub by_tenant: BTreeMap<TenantId, TenantList>,
    /// Of those that have none of their own.
    pub others: TenantList,
}

/// Decides about descriptions of servers.
#[derive(Debug)]
pub struct ServerAdmission {
    operators: Arc<AddressGuard>,
    tenants: BTreeMap<TenantId, Entry>,
    others: Entry,
}

#[derive(Debug)]
struct Entry {
    list: TenantList,
    guard: Arc<AddressGuard>,
}

impl ServerAdmission {
    /// With the operator's bounds for everything outward, and what tenants may do.
    pub fn new(
        egress: &EgressBounds,
        open_networks: &[Cidr],
        lists: TenantLists,
        resolver: &Arc<dyn HostResolver>,
    ) -> Self {
        let limits = GateLimits::default();
        let entry = |list: TenantList| {
            let guard = AddressGuard::for_tenants(list.hosts.clone(), egress, limits, Arc::clone(resolver));
            Entry { list, guard: Arc::new(guard) }
        };
        Self {
            operators: Arc::new(AddressGuard::for_operators(egress, open_networks, limits, Arc::clone(resolver))),
            tenants: lists.by_tenant.into_iter().map(|(tenant, list)| (tenant, entry(list))).collect(),
            others: entry(lists.others),
        }
    }

    /// Judges a whole description when it is put. A name that cannot be resolved now may be later.
    ///
    /// # Errors
    /// Something in it is not for whoever put it.
    pub async fn admit(&self, owner: &TenantId, spec: &ServerSpec) -> Result<(), Refusal> {
        self.program(owner, spec)?;
        for (member, url) in spec.addresses() {
            let target = self.target(owner, spec, member, url)?;
            match self.guard(owner, spec).addresses(&target).await {
                Err(denied) if denied.is_violation() => return Err(self.refused(owner, spec, member, &denied)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Judges the program of a description, if it has one.
    pub(crate) fn program(&self, owner: &TenantId, spec: &ServerSpec) -> Result<(), Refusal> {
        let ServerReach::Stdio { command, args, cwd, env, permissions, package } = &spec.reach else { return Ok(()) };
        let Some(list) = self.list(owner, spec) else { return Ok(()) };
        // What stands in a listed command says nothing about which package would run.
        if package.is_some() {
            return Err(Refusal::new(
                ErrorCode::E3206,
                "`package` names a package of the operator's, which no tenant may start by itself",
            )
            .hint("let the operator add the server for this tenant (`--tenant`), or add it with `--no-package`")
            .retryable(false));
        }
        let words: Vec<&str> = std::iter::once(command).chain(args).map(String::as_str).collect();
        let begins = |listed: &Vec<String>| {
            !listed.is_empty() && words.len() >= listed.len() && listed.iter().zip(&words).all(|(a, b)| a == b)
        };
        if !list.commands.iter().any(begins) {
            return Err(not_listed("`command` is not among the programs that this tenant may start", "commands"));
        }
        if env.keys().any(|name| !list.variables.contains(name)) {
            return Err(not_listed("`env` sets a variable that this tenant may not set", "variables"));
        }
        let declared = DeclaredPermissions::of_words(permissions).map_err(|findings| {
            let first = findings.first().map(|finding| finding.message.clone()).unwrap_or_default();
            Refusal::new(ErrorCode::E3405, format!("the permissions of the server cannot be granted: {first}"))
                .retryable(false)
        })?;
        let lies_inside = |path: &str| list.paths.iter().any(|listed| Path::new(path).starts_with(listed));
        if cwd.as_deref().is_some_and(|cwd| !lies_inside(cwd)) {
            return Err(not_listed("`cwd` is a path that this tenant may not give to a server", "paths"));
        }
        if !declared.read.iter().chain(&declared.write).all(|path| lies_inside(path)) {
            return Err(not_listed("`permissions` name a path that this tenant may not give to a server", "paths"));
        }
        if !declared.network.iter().all(|place| rule(place).is_some_and(|rule| list.hosts.covers(&rule))) {
            return Err(not_listed("`permissions` name a host that this tenant may not give to a server", "hosts"));
        }
        Ok(())
    }

    /// Judges an address of a description, as far as that can be done before it is connected to.
    pub(crate) fn target(
        &self,
        owner: &TenantId,
        spec: &ServerSpec,
        member: &str,
        url: &str,
    ) -> Result<GuardedTarget, Refusal> {
        self.guard(owner, spec).target(url).map_err(|denied| self.refused(owner, spec, member, &denied))
    }

    /// Who judges the addresses of a description.
    pub(crate) fn guard(&self, owner: &TenantId, spec: &ServerSpec) -> &Arc<AddressGuard> {
        if is_operators(owner, spec) { &self.operators } else { &self.entry(owner).guard }
    }

    /// `None`: the operator has described it.
    fn list(&self, owner: &TenantId, spec: &ServerSpec) -> Option<&TenantList> {
        (!is_operators(owner, spec)).then(|| &self.entry(owner).list)
    }

    fn entry(&self, owner: &TenantId) -> &Entry {
        self.tenants.get(owner).unwrap_or(&self.others)
    }

    fn refused(&self, owner: &TenantId, spec: &ServerSpec, member: &str, denied: &DeniedAddress) -> Refusal {
        let hint = if self.list(owner, spec).is_some() {
            "a tenant's servers are at public hosts by https on port 443; the operator can open more with `hosts` of \
             `[[upstreams.tenants]]`"
        } else {
            "name a host that `[egress] allowed_hosts` and `allowed_networks` have; where a cloud hands out credentials is \
             open only if `[egress] open_networks` names that very address"
        };
        Refusal::new(ErrorCode::E3406, format!("`{member}` of the server: {denied}")).hint(hint).retryable(false)
    }
}

/// Refused by the guard when it was connected to.
pub(crate) fn denied_on_the_way(denied: &DeniedAddress) -> Option<Refusal> {
    denied.is_violation().then(|| {
        Refusal::new(ErrorCode::E3406, format!("an address of the server: {denied}"))
            .hint("let the operator look at where the name of the server leads, at `[egress]` and at `[[upstreams.tenants]]`")
            .retryable(false)
    })
}

/// The home tenant is the operator's own.
fn is_operators(owner: &TenantId, spec: &ServerSpec) -> bool {
    owner.is_home() || spec.set_by == SetBy::Operator
}

fn rule(place: &NetworkPermission) -> Option<EgressRule> {
    let ports = place.port.map_or(PortSet::Any, |port| PortSet::from([port]));
    Some(EgressRule { host: place.host.parse().ok()?, ports })
}

fn not_listed(message: &str, member: &str) -> Refusal {
    Refusal::new(ErrorCode::E3206, message)
        .hint(format!(
            "starting programs is the operator's right: let the operator add the server, or list it in `{member}` of \
             `[[upstreams.tenants]]`"
        ))
        .retryable(false)
}

impl ServerSpec {
    /// Every address it names, with the member it stands in.
    fn addresses(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let (url, oauth) = match &self.reach {
            ServerReach::Stdio { .. } => (None, None),
            ServerReach::Http { url, oauth, .. } | ServerReach::Sse { url, oauth, .. } => {
                (Some(("url", url.as_str())), oauth.as_ref())
            }
        };
        let token_url = oauth.map(|client| ("oauth.token_url", client.token_url.as_str()));
        let fallbacks = self.fallbacks.iter().map(|url| ("fallbacks", url.as_str()));
        url.into_iter().chain(fallbacks).chain(token_url)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::IpAddr;

    use async_trait::async_trait;
    use serde_json::{Value, json};

    use super::*;

    /// Says one address for every name.
    #[derive(Debug)]
    struct Says(&'static str);

    #[async_trait]
    impl HostResolver for Says {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(vec![self.0.parse().unwrap()])
        }
    }

    fn admission(says: &'static str) -> ServerAdmission {
        let list = TenantList {
            commands: vec![vec!["npx".into(), "-y".into(), "files@1".into()], vec!["/usr/bin/notes".into()]],
            variables: vec!["LOG".into()],
            paths: vec!["/srv/acme".into()],
            hosts: OpenedNetworks::read(["https://api.example.com", "http://127.0.0.1:9000"]).unwrap(),
        };
        let lists =
            TenantLists { by_tenant: BTreeMap::from([("acme".parse().unwrap(), list)]), others: TenantList::default() };
        let resolver: Arc<dyn HostResolver> = Arc::new(Says(says));
        ServerAdmission::new(&EgressBounds::default(), &[], lists, &resolver)
    }

    fn spec(reach: &Value) -> ServerSpec {
        serde_json::from_value(json!({ "reach": reach })).unwrap()
    }

    fn stdio(command: &str, args: &[&str], env: &Value, permissions: &[&str]) -> ServerSpec {
        spec(&json!({ "type": "stdio", "command": command, "args": args, "env": env, "permissions": permissions }))
    }

    async fn verdict(tenant: &str, spec: &ServerSpec) -> Result<(), ErrorCode> {
        admission("93.184.215.14").admit(&tenant.parse().unwrap(), spec).await.map_err(|refusal| refusal.code)
    }

    #[tokio::test]
    async fn a_tenant_starts_what_its_list_covers_as_a_whole() {
        let given = ["filesystem:read:/srv/acme/notes", "network:https://api.example.com"];
        // A listed command with a package that is not.
        let packaged = spec(&json!({ "type": "stdio", "command": "/usr/bin/notes", "package":
            { "registry": "npm", "name": "x", "version": "1.0.0", "digest": format!("sha256:{}", "0".repeat(64)) } }));
        for (spec, fine) in [
            (stdio("npx", &["-y", "files@1", "/srv/acme"], &json!({ "LOG": "info" }), &given), true),
            (stdio("/usr/bin/notes", &[], &json!({}), &["network:http://127.0.0.1:9000"]), true),
            (stdio("npx", &["-y"], &json!({}), &[]), false),
            (stdio("npx", &["-y", "other@1"], &json!({}), &[]), false),
            (stdio("/bin/sh", &["-c", "id"], &json!({}), &[]), false),
            (stdio("/usr/bin/notes", &[], &json!({ "LD_PRELOAD": "x" }), &[]), false),
            (stdio("/usr/bin/notes", &[], &json!({}), &["filesystem:read:/srv/acmes"]), false),
            (stdio("/usr/bin/notes", &[], &json!({}), &["filesystem:write:/srv"]), false),
            (stdio("/usr/bin/notes", &[], &json!({}), &["network:http://127.0.0.1:9001"]), false),
            (stdio("/usr/bin/notes", &[], &json!({}), &["network:https:*"]), false),
            (packaged, false),
        ] {
            let expected = if fine { Ok(()) } else { Err(ErrorCode::E3206) };
            assert_eq!(verdict("acme", &spec).await, expected, "{:?}", spec.reach);
            assert_eq!(verdict("globex", &spec).await, Err(ErrorCode::E3206), "without a list: {:?}", spec.reach);
            let home = TenantId::home();
            assert_eq!(verdict(home.as_str(), &spec).await, Ok(()), "the operator's own: {:?}", spec.reach);
            let by_operator = ServerSpec { set_by: SetBy::Operator, ..spec };
            assert_eq!(verdict("globex", &by_operator).await, Ok(()), "{:?}", by_operator.reach);
        }
    }

    #[tokio::test]
    async fn every_address_of_a_description_is_judged() {
        let oauth = json!({ "token_url": "http://169.254.169.254/token", "client_id": "x" });
        let mut with_fallback = spec(&json!({ "type": "http", "url": "https://mcp.example" }));
        with_fallback.fallbacks = vec!["https://10.0.0.7/mcp".into()];
        for spec in [
            spec(&json!({ "type": "http", "url": "http://127.0.0.1:8000/mcp" })),
            spec(&json!({ "type": "sse", "url": "https://[::1]/sse" })),
            spec(&json!({ "type": "http", "url": "https://mcp.example", "oauth": oauth })),
            with_fallback,
        ] {
            assert_eq!(verdict("acme", &spec).await, Err(ErrorCode::E3406), "{:?}", spec.reach);
        }
        let fine = spec(&json!({ "type": "http", "url": "https://mcp.example/mcp" }));
        assert_eq!(verdict("globex", &fine).await, Ok(()));
        let inside = admission("10.0.0.9").admit(&"globex".parse().unwrap(), &fine).await.unwrap_err();
        assert_eq!(inside.code, ErrorCode::E3406, "{inside:?}");
        assert!(!inside.message.contains("10.0.0.9"), "{inside:?}");
    }
}
