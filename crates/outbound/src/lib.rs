//! The one way out by HTTP. Every client of the product is made here, for one of two kinds of addresses:
//!
//! | who named the address | client | what is reached |
//! |---|---|---|
//! | the operator, in the configuration | [`operators_client`] | that address, whatever it is |
//! | somebody else, or the operator for calls of others | [`AddressGuard::client`], [`pinned_client`] | what the [`AddressGuard`] lets through |
//!
//! A guard is the egress gate that also stands before tools nobody trusts: which hosts and ports, then the name is resolved
//! once, every address is judged, and the connection goes to what was judged.
//!
//! Invariants
//! - OUT-1: a guarded client resolves nothing by itself: whatever name it asks for, it is given addresses that were judged
//!   for this connection. An address that is written as such was judged before the client was made.
//! - OUT-2: a guarded client talks to one origin. A redirect leads to the same origin, and so to an address that is judged
//!   again, or it is not followed.
//! - OUT-3: no proxy of the environment is used, except by the command line of a person who says so.
//! - OUT-4: only the redirects that repeat the request as it is are followed (307, 308), and by their definition the place
//!   that gave them has not executed it. So whatever a guarded client says of a request, it says of the request itself, and
//!   never of a GET that a 301, 302 or 303 would have made of it.
//! - OUT-5: whoever has to know whether anything of a request has left is told when its connection is there
//!   ([`OriginClient::post_noting`]). Guarded clients speak HTTP/1.1, where head and body leave together.
//!
//! Not here: how long an answer may be (whoever reads it), tools in a sandbox (`sandbox::egress` itself).

mod client;
mod guard;
mod opened;

pub use client::{
    BuildError, ClientOptions, OriginClient, denial, operators_client, operators_client_with_tls, pinned_client,
};
pub use guard::{AddressGuard, DeniedAddress, GuardedTarget};
pub use opened::{OpenedError, OpenedNetworks};
/// What a guard is made of.
pub use sandbox::egress::{Cidr, GateLimits, HostResolver, SystemResolver};
