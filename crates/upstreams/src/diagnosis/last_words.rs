//! Which line of a log says best why a program ended, where no line is understood.
//!
//! The last one seldom does: interpreters print where an error came from, its members, their own version and a link behind it. What
//! names an error goes first.

/// Lines that programs and package tools print behind what happened.
const BEHIND: [&str; 14] = [
    "for further information",
    "for more information",
    "for more details",
    "a complete log of this run",
    "node.js v",
    "traceback (most recent call last)",
    "during handling of the above exception",
    "the above exception was the direct cause",
    "triggeruncaughtexception",
    "throw ",
    "raise ",
    "usage:",
    "hint:",
    "options:",
];
/// Members of an error as Node.js prints it.
const MEMBERS: [&str; 13] = [
    "address:",
    "cmd:",
    "code:",
    "dest:",
    "errno:",
    "hostname:",
    "killed:",
    "path:",
    "port:",
    "requirestack:",
    "signal:",
    "spawnargs:",
    "syscall:",
];
/// What npm says of an error besides its sentence.
const OF_NPM: [&str; 6] = ["code ", "errno ", "syscall ", "path ", "a complete log", "signal "];
/// How pydantic begins the list of what is wrong with the settings of a program.
const INVALID_SETTINGS: &str = "validation error";

/// The line, with what belongs to it.
pub(super) fn telling(lines: &[&str]) -> Option<String> {
    let own = |line: &&str| !line.starts_with("[gantry]") && line.chars().any(char::is_alphanumeric);
    let last = |fits: &dyn Fn(&str) -> bool| lines.iter().rposition(|line| own(line) && fits(spoken(line)));
    let at = last(&|line| !is_behind(line) && names_error(line))
        .or_else(|| last(&|line| !is_behind(line)))
        .or_else(|| last(&|_| true))?;
    let line = spoken(lines.get(at)?);
    // `1 validation error for Settings`, the setting, and what is wrong with it, each on a line of its own.
    let below = |by: usize| lines.get(at + by).map(|line| line.trim()).filter(|line| !line.is_empty());
    match (below(1), below(2)) {
        (Some(setting), Some(why)) if line.contains(INVALID_SETTINGS) && !is_behind(setting) && !is_behind(why) => {
            let why = why.split(" [").next().unwrap_or(why);
            Some(format!("{line}: `{}`: {why}", setting.replace('`', "")))
        }
        _ => Some(line.to_owned()),
    }
}

/// What a program said, without what Gantry and Node.js put before it.
fn spoken(line: &str) -> &str {
    let line = line.strip_prefix(super::NOT_A_MESSAGE).unwrap_or(line).trim();
    line.strip_prefix("[cause]: ").unwrap_or(line)
}

/// Does it only belong to what was said before?
fn is_behind(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let of_npm = ["npm error ", "npm err! "].iter().find_map(|start| lower.strip_prefix(start));
    BEHIND.iter().any(|start| lower.starts_with(start))
        || MEMBERS.iter().any(|member| lower.starts_with(member))
        || of_npm.is_some_and(|rest| OF_NPM.iter().any(|start| rest.starts_with(start)))
        || ["- ", "* ", "• ", "--", "^", "~", "|", "└", "├"].iter().any(|mark| line.starts_with(mark))
        || (["http://", "https://"].iter().any(|start| lower.starts_with(start)) && !lower.contains(' '))
        || is_frame(line)
}

/// A place in a program: `at f (file:///srv/x.js:1:2)`, `File "/srv/x.py", line 3, in f`, `node:internal/modules:12`.
fn is_frame(line: &str) -> bool {
    let is_place = |text: &str| {
        let mut parts = text.trim_end_matches([')', ',']).rsplitn(3, ':');
        let number =
            |part: Option<&str>| part.is_some_and(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()));
        number(parts.next())
    };
    let of_node = line.strip_prefix("at ").is_some_and(|place| {
        let place = place.trim_end_matches([' ', '{']);
        is_place(place) || place.ends_with("(<anonymous>)") || place.ends_with("(native)")
    });
    let of_python = line.starts_with("File \"") && line.contains(", line ");
    of_node || of_python || (line.starts_with("node:internal/") && is_place(line))
}

/// `Error: …`, `ValueError: …`, `fatal: …`, `tool: error: …`.
fn names_error(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let begins =
        ["error:", "fatal:", "fatal error", "error[", "panic:", "thread 'main' panicked", "failed to ", "critical:"];
    let within = [" error: ", " fatal: ", "[error]", " error ", "npm err! "];
    if begins.iter().any(|start| lower.starts_with(start)) || within.iter().any(|word| lower.contains(word)) {
        return true;
    }
    // `pkg.module.ValueError: …`, `TypeError [ERR_X]: …`, `click.exceptions.NoSuchOption: …`.
    let Some((head, _)) = line.split_once(':') else { return is_error_name(line) };
    let head = head.split(" [").next().unwrap_or(head);
    is_error_name(head.rsplit(' ').next().unwrap_or(head)) || (!head.contains(' ') && head.contains(".exceptions."))
}

fn is_error_name(word: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
    word.len() >= "Error".len()
        && word.chars().all(is_name)
        && ["Error", "Exception", "Fault"].iter().any(|ending| word.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_names_the_error_is_told_and_not_what_stands_behind_it() {
        for (log, expected) in [
            (
                &[
                    "node:internal/process/promises:394",
                    "      ^",
                    "",
                    "Error: Missing key",
                    "    at main (file:///srv/x/dist/index.js:12:9)",
                    "    at new Promise (<anonymous>) {",
                    "  errno: -104,",
                    "  code: 'X',",
                    "  syscall: 'read'",
                    "}",
                    "",
                    "Node.js v22.18.0",
                ][..],
                "Error: Missing key",
            ),
            (
                &[
                    "Traceback (most recent call last):",
                    "  File \"/srv/x.py\", line 3, in <module>",
                    "    raise ValueError(\"no db\")",
                    "ValueError: no db",
                ],
                "ValueError: no db",
            ),
            (
                &[
                    "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings",
                    "api_url",
                    "  Field required [type=missing, input_value={}, input_type=dict]",
                    "    For further information visit https://errors.example/2",
                ],
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings: `api_url`: Field required",
            ),
            (
                &["server: error: the following arguments are needed: db", "- Use --db-path FILE"],
                "server: error: the following arguments are needed: db",
            ),
            (&["fatal: no such ref", "  - Try another one"], "fatal: no such ref"),
            (
                &["Error: it broke", "  [cause]: TypeError: fetch failed", "      at x (node:internal/y:1:2)"],
                "TypeError: fetch failed",
            ),
            (
                &["npm error the package is too new", "npm error A complete log of this run can be found in: /x"],
                "npm error the package is too new",
            ),
            (&["starting", "could not read the config", "    at f (/srv/x.js:1:2)"], "could not read the config"),
            (&["starting", "[not a message] no licence"], "no licence"),
            (&["  syscall: 'read'"], "syscall: 'read'"),
            (&["at noon it ended"], "at noon it ended"),
        ] {
            assert_eq!(telling(log).as_deref(), Some(expected), "{log:?}");
        }
        assert_eq!(telling(&["[gantry] it ended", "---", ""]), None);
    }
}
