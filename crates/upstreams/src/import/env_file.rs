//! A file of variables, as editors read them: `NAME=value` in lines, with comments, `export` and quotes.

use serde_json::{Map, Value};

/// The variables of the file. A line that is none is passed over, as editors do.
pub(super) fn variables(text: &str) -> Map<String, Value> {
    let mut found = Map::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else { continue };
        let (name, value) = (name.trim(), value.trim());
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            continue;
        }
        let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.split(quote).next());
        let value = quoted.unwrap_or_else(|| value.split(" #").next().unwrap_or(value).trim_end());
        found.insert(name.to_owned(), Value::String(value.to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_variables_and_comments_are_not() {
        let text = "# mine\nA=1\nexport B = two words # said\n\nC=\"x # y\" z\nD='$E'\nnot a line\n E F=3\nG=";
        let expected = serde_json::json!({ "A": "1", "B": "two words", "C": "x # y", "D": "$E", "G": "" });
        assert_eq!(Value::Object(variables(text)), expected);
    }
}
