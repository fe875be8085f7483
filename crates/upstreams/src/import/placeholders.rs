//! `${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${userHome}` and, in a file of a project, `${workspaceFolder}`, as clients fill
//! them in. What only a person can fill in (`${input:…}`) is named.

use super::ImportMachine;

/// The text with its placeholders filled in, or what is missing, in words that follow "needs".
pub(super) fn filled_in(text: &str, machine: &dyn ImportMachine) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("${") {
        out.push_str(before);
        let Some((inside, after)) = from.split_once('}') else {
            out.push_str("${");
            rest = from;
            continue;
        };
        out.push_str(&value(inside, machine)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn value(inside: &str, machine: &dyn ImportMachine) -> Result<String, String> {
    let name = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = name.split_once(":-").map_or((name, None), |(name, default)| (name, Some(default)));
    let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    match name {
        "userHome" => machine.variable("HOME").ok_or_else(|| "the home folder, which is not known".into()),
        "workspaceFolder" | "workspaceRoot" if machine.project().is_some() => {
            Ok(machine.project().unwrap_or_default().display().to_string())
        }
        "pathSeparator" | "/" => Ok("/".to_owned()),
        _ if name.starts_with("input:") => Err(format!("an answer from you (`{shown}`)")),
        _ if name.is_empty() || name.contains([':', '/', ' ']) || name.starts_with("workspace") => {
            Err(format!("`{shown}`, which only your editor knows"))
        }
        _ => machine
            .variable(name)
            .or_else(|| default.map(str::to_owned))
            .ok_or_else(|| format!("the variable `{shown}`, which is not set here")),
    }
}
