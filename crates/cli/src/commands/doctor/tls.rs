//! What `gantry doctor` says about TLS: whether the files make an identity, how long it lasts, and whether the running server
//! uses it.

use super::Finding;
use crate::config::GantryConfig;
use crate::data_dir::DataDir;

const WHAT: &str = "tls";
/// A certificate that ends sooner is worth a word: three weeks, the last third of those that last ninety days.
const WARNING_DAYS: i64 = 21;
const DAY_S: i64 = 24 * 60 * 60;

/// How TLS is, at this time in milliseconds since 1970.
pub(super) fn finding(config: &GantryConfig, dir: &DataDir, now_ms: i64) -> Finding {
    let Some(files) = &config.server.tls else {
        let detail = "none: the doors speak in the clear, which is for this machine alone";
        return if config.server.listen.ip().is_loopback() {
            Finding::well(WHAT, detail)
        } else {
            Finding::warning(
                WHAT,
                "none, and other machines reach the doors: tokens cross the network in the clear",
                "set `[server] tls_cert` and `tls_key`, or put a TLS proxy in front",
            )
        };
    };
    let texts = match files.read() {
        Ok(texts) => texts,
        Err(failure) => return Finding::of_failure(WHAT, failure, "check `[server] tls_cert` and `tls_key`"),
    };
    let identity = match texts.identity() {
        Ok(identity) => identity,
        Err(failure) => return Finding::of_failure(WHAT, failure, "check `[server] tls_cert` and `tls_key`"),
    };
    let left_s = identity.expires_at_s().saturating_sub(now_ms.div_euclid(1000));
    let days = left_s.div_euclid(DAY_S);
    let renew = "renew it: the running server takes new files over by itself";
    if left_s < 0 {
        return Finding::failed(WHAT, format!("the certificate expired {} days ago", -days), renew);
    }
    if !identity.is_valid_at(now_ms) {
        return Finding::failed(WHAT, "the certificate is not valid yet", "look at the clock of this machine");
    }
    let detail = format!("the certificate expires in {days} days");
    let in_force = dir.running_server().and_then(|_| std::fs::read_to_string(dir.certificate_file()).ok());
    if in_force.is_some_and(|in_force| !in_force.contains(&identity.certificate_pem())) {
        return Finding::warning(
            WHAT,
            format!("{detail}, but the running server shows another one"),
            "it looks every 30 seconds; its log says why it has not taken the files over",
        );
    }
    if days < WARNING_DAYS {
        return Finding::warning(WHAT, detail, renew);
    }
    match texts.warning {
        Some(warning) => Finding::warning(WHAT, warning, "chmod 600 the key, unless the group is meant to read it"),
        None => Finding::well(WHAT, detail),
    }
}
