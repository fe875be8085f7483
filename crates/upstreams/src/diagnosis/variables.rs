//! Which variables a server misses, from the line in which it says so and those below.
//!
//! What it calls a variable is written in capitals with an underscore; one word alone is believed only where the line speaks of
//! variables.

use super::{StartDiagnosis, StartRemedy, found, plain};

/// Variables that are named at most.
const VARIABLES_MAX: usize = 8;

/// `BRAVE_API_KEY environment variable is required` and its many relatives.
pub(super) fn no_variable(line: &str, behind: &[&str]) -> Option<StartDiagnosis> {
    // Python, when nobody has said what `os.environ["DB_URL"]` is.
    if let Some(name) = line.strip_prefix("KeyError: ").map(|name| name.trim_matches(['\'', '"']))
        && !name.is_empty()
        && name.chars().all(of_variable)
    {
        return wants_variables(vec![plain(name)], false);
    }
    let lower = line.to_ascii_lowercase();
    let signs = [
        "required",
        "missing",
        "not set",
        "must be set",
        "must provide",
        "is not defined",
        "not provided",
        "please set",
        "please provide",
    ];
    if !signs.iter().any(|sign| lower.contains(sign)) {
        return None;
    }
    let is_about_variables =
        ["environment variable", "env var", "environment:"].iter().any(|sign| lower.contains(sign));
    let mut names = variables_in(line);
    if names.is_empty() && is_about_variables {
        // Listed below, one in each line.
        names = behind.iter().map_while(|line| listed_variable(line)).take(VARIABLES_MAX).collect();
        if names.is_empty() {
            names = single_words(line);
        }
    }
    let words: Vec<&str> =
        line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect();
    let is_either = words.iter().enumerate().any(|(at, word)| {
        word.eq_ignore_ascii_case("or")
            && at.checked_sub(1).and_then(|at| words.get(at)).is_some_and(|word| names.iter().any(|name| name == word))
            && words.get(at + 1..).unwrap_or_default().iter().take(2).any(|word| names.iter().any(|name| name == word))
    });
    wants_variables(names, is_either)
}

/// Which variables are wanted, one of them or each.
fn wants_variables(mut names: Vec<String>, is_either: bool) -> Option<StartDiagnosis> {
    let shown: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let what = match (shown.as_slice(), is_either) {
        ([], _) => return None,
        ([one], _) => format!("it wants the variable {one}"),
        (_, true) => format!("it wants one of the variables {}", shown.join(", ")),
        ([first @ .., last], false) => format!("it wants the variables {} and {last}", first.join(", ")),
    };
    if is_either {
        names.truncate(1);
    }
    found(what, Some(StartRemedy::Variables(names)))
}

fn of_variable(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

/// The names of variables in a line, each once: what nobody writes but for a variable.
fn variables_in(line: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        let is_name = word.len() > 3
            && word.contains('_')
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(of_variable)
            && !word.starts_with("ERR_");
        // `TOKEN=<YOUR_TOKEN>` has one name and an example.
        let is_example = ["YOUR_", "MY_"].iter().any(|beginning| word.starts_with(beginning));
        if is_name && !is_example && names.len() < VARIABLES_MAX && !names.iter().any(|name| name == word) {
            names.push(plain(word));
        }
    }
    names
}

/// The names without an underscore in a line that is about variables.
fn single_words(line: &str) -> Vec<String> {
    let shouted = [
        "API", "ENV", "ERROR", "FATAL", "INFO", "JSON", "KEY", "MCP", "NOT", "REQUIRED", "MISSING", "URL", "WARN",
        "WARNING",
    ];
    let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_name = |word: &&str| {
        word.len() > 2
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(of_variable)
            && !shouted.contains(word)
    };
    words.filter(is_name).take(1).map(plain).collect()
}

/// The variable of a line of a list: `  - SLACK_BOT_TOKEN: the token of the bot`.
fn listed_variable(line: &str) -> Option<String> {
    let item = line.trim().trim_start_matches(['-', '*', '•', ' ', '`', '\'', '"']);
    let end = item.find(|c: char| !of_variable(c)).unwrap_or(item.len());
    let name = item.get(..end).filter(|name| name.len() > 2 && name.starts_with(|c: char| c.is_ascii_uppercase()))?;
    let rest = item.get(end..)?;
    (!rest.starts_with(|c: char| c.is_ascii_alphanumeric())).then(|| plain(name))
}
