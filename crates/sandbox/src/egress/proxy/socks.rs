//! SOCKS5 (RFC 1928): no authentication, `CONNECT` to a name, an IPv4 or an IPv6 address. The rest is refused: `BIND` and
//! UDP would be ways in and ways around.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Client, ProxyLimits, SOCKS5, tunnel};
use crate::egress::gate::{EgressGate, EgressRefusal};

/// Codes of replies.
const GRANTED: u8 = 0;
const FAILED: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
const CONNECTION_REFUSED: u8 = 5;
const TTL_EXPIRED: u8 = 6;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// What a greeting and a request came to.
enum Asked {
    Connect {
        host: String,
        port: u16,
    },
    /// To be answered with these bytes.
    Refuse(Vec<u8>),
}

/// Serves a connection whose first byte says SOCKS5.
pub(super) async fn converse(mut client: Client, gate: &EgressGate, limits: &ProxyLimits) -> io::Result<()> {
    let (host, port) = match timeout(limits.head_timeout, negotiate(&mut client)).await?? {
        Asked::Connect { host, port } => (host, port),
        Asked::Refuse(bytes) => {
            client.write(&bytes, limits).await?;
            return client.linger().await;
        }
    };
    match gate.connect(&host, port).await {
        Ok(upstream) => {
            client.write(&reply(GRANTED), limits).await?;
            tunnel::relay(client, upstream, limits.idle_timeout).await
        }
        Err(refused) => {
            client.write(&reply(code(&refused)), limits).await?;
            client.linger().await
        }
    }
}

async fn negotiate(client: &mut Client) -> io::Result<Asked> {
    let (_version, methods) = (client.reader.read_u8().await?, client.reader.read_u8().await?);
    let mut offered = vec![0; usize::from(methods)];
    client.reader.read_exact(&mut offered).await?;
    if !offered.contains(&NO_AUTHENTICATION) {
        return Ok(Asked::Refuse(vec![SOCKS5, NO_METHOD]));
    }
    client.writer.write_all(&[SOCKS5, NO_AUTHENTICATION]).await?;

    let mut head = [0; 4];
    client.reader.read_exact(&mut head).await?;
    let [version, command, _reserved, kind] = head;
    if version != SOCKS5 {
        return Ok(Asked::Refuse(reply(FAILED).to_vec()));
    }
    if command != CONNECT {
        return Ok(Asked::Refuse(reply(NO_SUCH_COMMAND).to_vec()));
    }
    let host = match kind {
        1 => Ipv4Addr::from_bits(client.reader.read_u32().await?).to_string(),
        3 => {
            let mut name = vec![0; usize::from(client.reader.read_u8().await?)];
            client.reader.read_exact(&mut name).await?;
            // What is no text is no host either, and the gate says so.
            String::from_utf8_lossy(&name).into_owned()
        }
        4 => Ipv6Addr::from_bits(client.reader.read_u128().await?).to_string(),
        _ => return Ok(Asked::Refuse(reply(NO_SUCH_ADDRESS).to_vec())),
    };
    Ok(Asked::Connect { host, port: client.reader.read_u16().await? })
}

const fn code(refused: &EgressRefusal) -> u8 {
    match refused {
        EgressRefusal::NotAHost { .. }
        | EgressRefusal::NotAllowed { .. }
        | EgressRefusal::ForbiddenAddress { .. }
        | EgressRefusal::OutsideNetworks { .. } => NOT_ALLOWED,
        EgressRefusal::TooMany => FAILED,
        EgressRefusal::Unresolvable { .. } => HOST_UNREACHABLE,
        EgressRefusal::Unreachable { .. } => CONNECTION_REFUSED,
        EgressRefusal::TimedOut { .. } => TTL_EXPIRED,
    }
}

/// A reply; the address of our own end is nobody's business and is left at zero.
const fn reply(code: u8) -> [u8; 10] {
    [SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}
