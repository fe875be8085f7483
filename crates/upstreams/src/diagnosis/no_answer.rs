//! A place a server wants to connect to, where nothing answers: a database that is not up, or that it cannot see.

use std::net::IpAddr;

use super::{StartDiagnosis, StartRemedy, found, plain};

/// Lines below an error in which Node.js names the place.
const MEMBERS_MAX: usize = 12;

/// `connect ECONNREFUSED 127.0.0.1:5432`, `Connection refused` and their relatives, if they say where.
pub(super) fn no_answer(line: &str, behind: &[&str]) -> Option<StartDiagnosis> {
    let lower = line.to_ascii_lowercase();
    let after = |signs: [&str; 2]| signs.iter().find_map(|sign| Some((lower.find(sign)?, sign.len())));
    let refused = after(["econnrefused", "connection refused"]);
    let broken = after(["econnreset", "connection reset"]);
    let (at, length) = refused.or(broken)?;
    let rest = line.get(at + length..).unwrap_or_default();
    let place = place_in(rest).or_else(|| place_in(line)).or_else(|| named_in(&lower)).or_else(|| members(behind))?;
    let port = ["localhost:", "::1:", "[::1]:"].iter().find_map(|host| place.strip_prefix(host));
    let place = port.map(|port| format!("127.0.0.1:{port}")).unwrap_or(place);
    let is_loopback = is_loopback(&place);
    let shown = plain(&place);
    let what = match (refused.is_some(), is_loopback) {
        // Inside, the loopback is the sandbox's own.
        (true, true) => format!(
            "nothing answers at {shown}: is it up? What listens there on this machine is reached only if it is granted"
        ),
        (true, false) => format!("nothing answers at {shown}: is it up?"),
        (false, _) => format!("nothing answers at {shown} as it expects: the connection was broken off from there"),
    };
    found(what, (refused.is_some() && is_loopback).then_some(StartRemedy::Host(place)))
}

/// Is this host and port one of the machine's own?
pub fn is_loopback(place: &str) -> bool {
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The first host and port in a text.
fn place_in(text: &str) -> Option<String> {
    text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '[' | ':')));
        let word = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let word = word.split_once("://").map_or(word, |(_, rest)| rest);
        let word = word.rsplit_once('@').map_or(word, |(_, rest)| rest);
        let word = word.split('/').next().unwrap_or_default();
        let (host, port) = word.rsplit_once(':')?;
        is_host(host).then(|| port.parse::<u16>().ok()).flatten().map(|port| format!("{host}:{port}"))
    })
}

/// What can be a host, and is no file with a line behind it.
fn is_host(host: &str) -> bool {
    let bare = host.trim_matches(['[', ']']);
    let is_file = [".js", ".mjs", ".cjs", ".ts", ".py", ".go", ".rs"].iter().any(|ending| bare.ends_with(ending));
    let is_name =
        |name: &str| name.contains('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    !is_file && (bare == "localhost" || bare.parse::<IpAddr>().is_ok() || is_name(bare))
}

/// `at "localhost", port 5432`, `host='db.example', port=80`.
fn named_in(lower: &str) -> Option<String> {
    let quoted = |sign: &str| {
        let (_, rest) = lower.split_once(sign)?;
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        rest.get(1..)?.split(quote).next()
    };
    let host = quoted("host=").or_else(|| quoted("server at ")).or_else(|| quoted(" on "))?;
    let port = ["port ", "port="].iter().find_map(|sign| {
        let (_, rest) = lower.split_once(sign)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse::<u16>().ok()
    })?;
    is_host(host).then(|| format!("{host}:{port}"))
}

/// `address: '127.0.0.1'` and `port: 5432`, below the error.
fn members(behind: &[&str]) -> Option<String> {
    let member = |name: &str| {
        let lines = behind.iter().take(MEMBERS_MAX).map(|line| line.trim());
        lines.filter_map(|line| line.strip_prefix(name)).map(|value| value.trim_matches([' ', ',', '\'', '"'])).next()
    };
    let (host, port) = (member("address:").or_else(|| member("hostname:"))?, member("port:")?.parse::<u16>().ok()?);
    is_host(host).then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_told_by_the_place_where_nothing_answers() {
        for (log, place) in [
            (&["Error: connect ECONNREFUSED 127.0.0.1:5432"][..], "127.0.0.1:5432"),
            (&["Error: connect ECONNREFUSED ::1:6379"], "127.0.0.1:6379"),
            (
                &[
                    "AggregateError [ECONNREFUSED]: ",
                    "  code: 'ECONNREFUSED',",
                    "  address: 'db.example',",
                    "  port: 3306",
                ],
                "db.example:3306",
            ),
            (
                &["connection to server at \"localhost\" (127.0.0.1), port 5432 failed: Connection refused"],
                "127.0.0.1:5432",
            ),
            (
                &["redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused."],
                "127.0.0.1:6379",
            ),
            (&["dial tcp 10.0.0.7:5432: connect: connection refused"], "10.0.0.7:5432"),
            (
                &["HTTPConnectionPool(host='api.example', port=8080): Max retries exceeded: Connection refused"],
                "api.example:8080",
            ),
            (
                &[
                    "Error: read ECONNRESET",
                    "    at TCP.onStreamRead (node:internal/x:2:3) {",
                    "  address: '10.0.0.7',",
                    "  port: 25",
                ],
                "10.0.0.7:25",
            ),
            (&["MongoServerSelectionError: connect ECONNREFUSED mongodb://u@db.example:27017/x"], "db.example:27017"),
        ] {
            let (first, behind) = log.split_first().unwrap();
            let told = no_answer(first, behind).unwrap_or_else(|| panic!("{log:?}"));
            assert!(told.what.starts_with(&format!("nothing answers at {place}")), "{log:?}: {told:?}");
            let is_here = place.starts_with("127.");
            assert_eq!(told.remedy, is_here.then(|| StartRemedy::Host(place.to_owned())), "{log:?}");
        }
        for line in ["Error: read ECONNRESET", "Connection refused at index.js:12", "Error: connect ENOENT 127.0.0.1:1"]
        {
            assert_eq!(no_answer(line, &[]), None, "{line}");
        }
    }
}
