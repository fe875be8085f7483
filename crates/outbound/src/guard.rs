//! Which addresses may be asked, and why others may not. The gate decides; the words are for whoever chose the address.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use sandbox::egress::{
    AddressClass, Cidr, EgressBounds, EgressGate, EgressHost, EgressPolicy, EgressRefusal, EgressRule, GateLimits,
    HostPattern, HostResolver, PortSet,
};
use url::Url;

use crate::opened::OpenedNetworks;

/// The port that is open without a word of the operator.
const HTTPS_PORT: u16 = 443;
/// Every address there is. Where clouds hand out credentials must be opened by itself all the same.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Decides which addresses may be asked.
#[derive(Debug)]
pub struct AddressGuard {
    gate: EgressGate,
    plaintext: Plaintext,
    /// Without a word of the operator, only this port is open.
    only_https: bool,
}

/// Where TLS may be left out.
#[derive(Debug)]
enum Plaintext {
    Anywhere,
    Opened(OpenedNetworks),
}

/// An address of the right shape, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedTarget {
    url: Url,
    host: EgressHost,
    port: u16,
}

/// Why an address is not asked. Repeats nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeniedAddress {
    /// It is no address that can be asked at all.
    #[error("the address cannot be used: {0}")]
    Address(&'static str),
    /// It has no TLS, and nobody has allowed that.
    #[error("the address must begin with `https://`")]
    Plaintext,
    /// It leads where it must not lead.
    #[error("the address is not allowed: {0}")]
    NotAllowed(&'static str),
    /// Its name has no address.
    #[error("the name of the host could not be resolved")]
    Unresolved,
    /// Nobody said in time which address it has.
    #[error("the name of the host was not resolved in time")]
    TimedOut,
}

impl DeniedAddress {
    /// Was it forbidden, and not a misfortune?
    #[must_use]
    pub fn is_violation(&self) -> bool {
        match self {
            Self::Address(_) | Self::Plaintext | Self::NotAllowed(_) => true,
            Self::Unresolved | Self::TimedOut => false,
        }
    }
}

impl AddressGuard {
    /// For addresses that somebody else than the operator names: public hosts by https on port 443 as far as `egress` has
    /// them, and what the operator has opened.
    #[must_use]
    pub fn for_tenants(
        opened: OpenedNetworks,
        egress: &EgressBounds,
        limits: GateLimits,
        resolver: Arc<dyn HostResolver>,
    ) -> Self {
        let anywhere = EgressRule { host: HostPattern::Any, ports: PortSet::from([HTTPS_PORT]) };
        let bounded = EgressPolicy { rules: vec![anywhere], ..EgressPolicy::default() }.within(egress);
        let policy = EgressPolicy {
            rules: bounded.rules.into_iter().chain(opened.rules().iter().cloned()).collect(),
            open_networks: opened.networks().to_vec(),
            networks: bounded.networks,
            // What `egress` names is a bound and opens no address that is not public.
            declared: Some(opened.rules().to_vec()),
            ..EgressPolicy::default()
        };
        let gate = EgressGate::with_limits(policy, resolver, limits);
        Self { gate, plaintext: Plaintext::Opened(opened), only_https: egress.rules.is_none() }
    }

    /// For addresses that the operator names for the calls of others: everything that `egress` has, this machine and
    /// private networks too. Where clouds hand out credentials is reached only if `open_networks` names that very address.
    #[must_use]
    pub fn for_operators(
        egress: &EgressBounds,
        open_networks: &[Cidr],
        limits: GateLimits,
        resolver: Arc<dyn HostResolver>,
    ) -> Self {
        let any = EgressRule { host: HostPattern::Any, ports: PortSet::Any };
        let everywhere = EVERYWHERE.iter().filter_map(|network| network.parse().ok());
        let policy = EgressPolicy {
            rules: vec![any],
            open_networks: everywhere.chain(open_networks.iter().copied()).collect(),
            ..EgressPolicy::default()
        };
        let gate = EgressGate::with_limits(policy.within(egress), resolver, limits);
        Self { gate, plaintext: Plaintext::Anywhere, only_https: false }
    }

    /// For addresses on hosts that the operator has listed, where others choose which: everything public, and what
    /// `open_networks` has. The list is not kept here; it may have `*.example.com`, and whoever has a name below that
    /// decides where it leads.
    #[must_use]
    pub fn for_listed_hosts(open_networks: &[Cidr], limits: GateLimits, resolver: Arc<dyn HostResolver>) -> Self {
        let any = EgressRule { host: HostPattern::Any, ports: PortSet::Any };
        let policy =
            EgressPolicy { rules: vec![any], open_networks: open_networks.to_vec(), ..EgressPolicy::default() };
        let gate = EgressGate::with_limits(policy, resolver, limits);
        Self { gate, plaintext: Plaintext::Anywhere, only_https: false }
    }

    /// The address taken apart, if its shape, scheme, host and port are good. What is written as an address is judged here;
    /// a name is judged when it is resolved.
    ///
    /// # Errors
    /// It cannot be asked, or must not be.
    pub fn target(&self, text: &str) -> Result<GuardedTarget, DeniedAddress> {
        let url = Url::parse(text).map_err(|_| DeniedAddress::Address("it is not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(DeniedAddress::Address("it has a user or a password in it"));
        }
        if url.fragment().is_some() {
            return Err(DeniedAddress::Address("it has a fragment"));
        }
        let host = url.host_str().ok_or(DeniedAddress::Address("it has no host"))?;
        let host = EgressHost::from_str(host)
            .map_err(|_| DeniedAddress::Address("its host is neither a name nor an address"))?;
        let port = url.port_or_known_default().ok_or(DeniedAddress::Address("it has no port"))?;
        match (url.scheme(), &self.plaintext) {
            ("https", _) | ("http", Plaintext::Anywhere) => {}
            ("http", Plaintext::Opened(opened)) if opened.allows_plaintext(&host, port) => {}
            ("http", Plaintext::Opened(_)) => return Err(DeniedAddress::Plaintext),
            _ => return Err(DeniedAddress::Address("it must begin with `https://`")),
        }
        self.gate.check(&host, port).map_err(|refused| match refused {
            EgressRefusal::ForbiddenAddress { .. } => DeniedAddress::NotAllowed("it is not public"),
            other => self.denied(&other),
        })?;
        Ok(GuardedTarget { url, host, port })
    }

    /// The addresses to which a connection may be made now.
    ///
    /// # Errors
    /// It leads where it must not lead, or nowhere.
    pub async fn addresses(&self, target: &GuardedTarget) -> Result<Vec<SocketAddr>, DeniedAddress> {
        self.gate.resolve(&target.host.to_string(), target.port).await.map_err(|refused| self.denied(&refused))
    }

    /// The gate's words are for whoever wrote a tool; these are for whoever chose an address.
    fn denied(&self, refused: &EgressRefusal) -> DeniedAddress {
        match refused {
            EgressRefusal::NotAHost { .. } => DeniedAddress::Address("its host is neither a name nor an address"),
            EgressRefusal::NotAllowed { .. } if self.only_https => DeniedAddress::NotAllowed("its port is not 443"),
            EgressRefusal::NotAllowed { .. } => {
                DeniedAddress::NotAllowed("it is not among the hosts and ports that are open")
            }
            EgressRefusal::ForbiddenAddress { class: AddressClass::Metadata, .. } => {
                DeniedAddress::NotAllowed("it leads to where a cloud hands out credentials")
            }
            EgressRefusal::ForbiddenAddress { .. } => {
                DeniedAddress::NotAllowed("it leads to an address that is not public")
            }
            EgressRefusal::OutsideNetworks { .. } => DeniedAddress::NotAllowed("it leads out of the open networks"),
            EgressRefusal::Unresolvable { .. } | EgressRefusal::TooMany | EgressRefusal::Unreachable { .. } => {
                DeniedAddress::Unresolved
            }
            EgressRefusal::TimedOut { .. } => DeniedAddress::TimedOut,
        }
    }
}

impl GuardedTarget {
    /// The whole address.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The host it names.
    pub(crate) fn host(&self) -> &EgressHost {
        &self.host
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::IpAddr;

    use super::*;

    /// Says one address for every name.
    #[derive(Debug)]
    struct Says(&'static str);

    #[async_trait::async_trait]
    impl HostResolver for Says {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(vec![self.0.parse().unwrap()])
        }
    }

    fn of_tenants(opened: &[&str], egress: &EgressBounds, says: &'static str) -> AddressGuard {
        let opened = OpenedNetworks::read(opened.iter().copied()).unwrap();
        AddressGuard::for_tenants(opened, egress, GateLimits::default(), Arc::new(Says(says)))
    }

    fn of_operators(egress: &EgressBounds, open: &[&str], says: &'static str) -> AddressGuard {
        let open: Vec<Cidr> = open.iter().map(|text| text.parse().unwrap()).collect();
        AddressGuard::for_operators(egress, &open, GateLimits::default(), Arc::new(Says(says)))
    }

    async fn verdict(guard: &AddressGuard, url: &str) -> Result<(), DeniedAddress> {
        guard.addresses(&guard.target(url)?).await.map(|_| ())
    }

    #[tokio::test]
    async fn a_tenant_reaches_public_hosts_by_https_and_what_was_opened() {
        let none = EgressBounds::default();
        let public = of_tenants(&[], &none, "93.184.215.14");
        assert_eq!(verdict(&public, "https://mcp.example/x").await, Ok(()));
        for url in [
            "http://mcp.example/x",
            "https://mcp.example:8443/",
            "https://127.0.0.1/",
            "https://10.0.0.7/",
            "https://169.254.169.254/latest",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://localhost/",
            "https://me:pw@mcp.example/",
            "ftp://mcp.example/",
            "https://2130706433/",
        ] {
            let denied = verdict(&public, url).await.unwrap_err();
            assert!(denied.is_violation(), "{url}: {denied}");
        }
        // The name is harmless, and where it leads is not.
        for inside in ["127.0.0.1", "10.0.0.7", "169.254.169.254", "fd00::1"] {
            let denied = verdict(&of_tenants(&[], &none, inside), "https://mcp.example/").await.unwrap_err();
            assert!(matches!(denied, DeniedAddress::NotAllowed(_)), "{inside}: {denied}");
        }
        let opened = of_tenants(&["http://127.0.0.1:9000", "10.1.0.0/16"], &none, "10.1.2.3");
        assert_eq!(verdict(&opened, "http://127.0.0.1:9000/mcp").await, Ok(()));
        assert_eq!(verdict(&opened, "https://inside.example/").await, Ok(()));
        for url in ["http://127.0.0.1:9001/mcp", "https://127.0.0.1/", "http://inside.example/"] {
            assert!(verdict(&opened, url).await.is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_on_a_listed_host_leads_to_public_addresses_and_into_open_networks() {
        let guard = |open: &[&str], says| {
            let open: Vec<Cidr> = open.iter().map(|text| text.parse().unwrap()).collect();
            AddressGuard::for_listed_hosts(&open, GateLimits::default(), Arc::new(Says(says)))
        };
        assert_eq!(verdict(&guard(&[], "93.184.215.14"), "https://a.example:8443/did.json").await, Ok(()));
        for inside in ["127.0.0.1", "10.0.0.7", "169.254.169.254", "fd00::1"] {
            let denied = verdict(&guard(&[], inside), "https://a.example/did.json").await.unwrap_err();
            assert!(denied.is_violation(), "{inside}: {denied}");
        }
        assert_eq!(verdict(&guard(&["10.0.0.0/8"], "10.0.0.7"), "https://a.example/did.json").await, Ok(()));
        assert_eq!(verdict(&guard(&["127.0.0.0/8"], "10.0.0.7"), "http://127.0.0.1:9000/did.json").await, Ok(()));
        assert!(verdict(&guard(&[], "10.0.0.7"), "http://127.0.0.1:9000/did.json").await.is_err());
        assert!(verdict(&guard(&["0.0.0.0/0"], "169.254.169.254"), "https://a.example/").await.is_err());
    }

    #[tokio::test]
    async fn what_bounds_tools_bounds_both_and_opens_nothing() {
        let egress = EgressBounds {
            rules: Some(vec!["*.example:443".parse().unwrap(), "10.0.0.7:443".parse().unwrap()]),
            ..EgressBounds::default()
        };
        let tenants = of_tenants(&["other.test:8443"], &egress, "93.184.215.14");
        assert_eq!(verdict(&tenants, "https://a.example/").await, Ok(()));
        assert_eq!(verdict(&tenants, "https://other.test:8443/").await, Ok(()), "the operator has opened it");
        assert!(verdict(&tenants, "https://other.test/").await.is_err());
        assert!(verdict(&tenants, "https://10.0.0.7/").await.is_err(), "a bound is no permission");
        let operators = of_operators(&egress, &[], "10.0.0.9");
        assert_eq!(verdict(&operators, "https://a.example/").await, Ok(()));
        assert_eq!(verdict(&operators, "https://10.0.0.7/").await, Ok(()));
        assert!(verdict(&operators, "http://127.0.0.1:9000/").await.is_err());
    }

    #[tokio::test]
    async fn an_operator_reaches_everything_but_a_clouds_credentials() {
        let operators = of_operators(&EgressBounds::default(), &[], "10.0.0.9");
        for url in ["http://127.0.0.1:9000/mcp", "http://localhost:9000/", "https://inside.example/", "http://[::1]:9/"]
        {
            assert_eq!(verdict(&operators, url).await, Ok(()), "{url}");
        }
        assert!(verdict(&operators, "http://169.254.169.254/latest").await.is_err());
        let opened = of_operators(&EgressBounds::default(), &["169.254.169.254/32"], "10.0.0.9");
        assert_eq!(verdict(&opened, "http://169.254.169.254/latest").await, Ok(()));
    }
}
