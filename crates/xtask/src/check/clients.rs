//! Every HTTP client of the product is made in `outbound`, so that none reaches what it must not by being made elsewhere.
//!
//! Looked for are the ways to make one: constructors and builders of `reqwest`, and clients of `hyper`. Tests and developer
//! commands ask whom they like.

use crate::workspace::SourceFile;

/// Where clients are made, and the gate's own way out for WASM components, which is judged as they are.
const MAKERS: [&str; 2] = ["crates/outbound/src/", "crates/executors/src/wasm/outbound.rs"];
/// Crates that are never in the binary.
const ELSEWHERE: [&str; 2] = ["crates/xtask/", "crates/test-servers/"];
/// Ways to make a client, whatever stands before them.
const WAYS: [&str; 5] =
    ["reqwest::Client::new(", "Client::builder(", "ClientBuilder::new(", "reqwest::get(", "hyper::client"];
/// One more where `reqwest` itself is imported.
const IMPORTED: &str = " Client::new(";

/// Clients that are made in the wrong place.
pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let product = files.iter().filter(|file| {
        let in_source = file.path.starts_with("crates/") && file.path.contains("/src/") && file.path.ends_with(".rs");
        let is_exempt = MAKERS.iter().chain(&ELSEWHERE).any(|path| file.path.starts_with(path));
        in_source && !is_exempt && !file.path.ends_with("/tests.rs")
    });
    product.filter_map(|file| way(&file.text).map(|way| finding(&file.path, way))).collect()
}

fn finding(path: &str, way: &str) -> String {
    format!("{path} makes an HTTP client (`{}`): take one of `outbound`", way.trim())
}

/// The first way that is used before the tests of a file.
fn way(text: &str) -> Option<&'static str> {
    let shipped = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    let imports = shipped.lines().any(|line| line.starts_with("use reqwest::") && line.contains("Client"));
    let used = |way: &str| shipped.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(way));
    WAYS.iter().find(|way| used(way)).copied().or_else(|| Some(IMPORTED).filter(|way| imports && used(way)))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_client_is_made_in_one_place() {
        let plain = "fn f() { let http = reqwest::Client::builder().build(); }";
        for (path, text, found) in [
            ("crates/upstreams/src/connection/outbound.rs", plain, true),
            ("crates/cli/src/audit_log.rs", "use reqwest::{Client, Url};\nfn f() { let c = Client::new(); }", true),
            ("crates/cli/src/commands/call.rs", "fn f() { let c = Client::new(base); }", false),
            ("crates/executors/src/http.rs", "use hyper::client::conn::http1;", true),
            ("crates/executors/src/wasm/outbound.rs", "use hyper::client::conn::http1;", false),
            ("crates/outbound/src/client.rs", plain, false),
            ("crates/xtask/src/bench.rs", plain, false),
            (
                "crates/server/src/serve.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests { fn g() { Client::builder(); } }",
                false,
            ),
            ("tests/support.rs", plain, false),
        ] {
            assert_eq!(!findings(&[file(path, text)]).is_empty(), found, "{path}");
        }
    }
}
