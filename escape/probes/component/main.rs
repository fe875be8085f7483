//! The hostile component: one program that makes the attempts of `../*.py` which make sense without processes, by the ids
//! of `probes.toml`. It reads the canary's parameters on stdin and answers as the Python probes do.
//!
//! The library of WASI 0.1 looks paths up among the directories it was given before it asks the host, so most attempts
//! here go past it, straight to the host's functions: what is to be shown is what the host refuses, not what a library
//! leaves out.
//!
//! Built by `build.sh` with Rust 1.63; not a part of the workspace.

use std::collections::HashMap;
use std::io::Read as _;

mod answers;
mod bombs;
mod files;
mod host;
mod network;

/// What came of an attempt.
pub struct Report {
    escaped: bool,
    how: String,
}

pub fn escaped(how: impl Into<String>) -> Report {
    Report { escaped: true, how: how.into() }
}

pub fn blocked(how: impl Into<String>) -> Report {
    Report { escaped: false, how: how.into() }
}

/// The first attempt that got out, or the last one.
pub fn any_of(attempts: impl IntoIterator<Item = Report>) -> Report {
    let mut last = blocked("there was nothing to try");
    for attempt in attempts {
        if attempt.escaped {
            return attempt;
        }
        last = attempt;
    }
    last
}

/// What the runner says: strings and numbers by name.
pub struct Parameters(HashMap<String, String>);

impl Parameters {
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("no parameter {name}"))
    }

    /// The strings and numbers of a flat object; enough for what the runner writes.
    fn read(text: &str) -> Self {
        let (mut found, mut chars, mut name) = (HashMap::new(), text.chars().peekable(), None);
        while let Some(c) = chars.next() {
            let word = match c {
                '"' => {
                    let mut word = String::new();
                    while let Some(c) = chars.next() {
                        match c {
                            '"' => break,
                            '\\' => word.extend(chars.next()),
                            other => word.push(other),
                        }
                    }
                    word
                }
                digit if digit.is_ascii_digit() => {
                    let mut word = String::from(digit);
                    while let Some(digit) = chars.peek().copied().filter(char::is_ascii_digit) {
                        word.push(digit);
                        chars.next();
                    }
                    word
                }
                _ => continue,
            };
            match name.take() {
                Some(name) => drop(found.insert(name, word)),
                None if chars.peek() == Some(&':') => name = Some(word),
                None => {}
            }
        }
        Self(found)
    }
}

fn main() {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).expect("parameters");
    let parameters = Parameters::read(&input);
    // The honest tool beside the hostile ones is the same program without a task.
    let id = parameters.0.get("probe").map_or("", String::as_str);
    if id.is_empty() {
        return println!("{{\"escaped\": false, \"how\": \"there was no task\"}}");
    }
    let known = files::attempt(id, &parameters)
        .or_else(|| network::attempt(id, &parameters))
        .or_else(|| bombs::attempt(id))
        .or_else(|| answers::attempt(id));
    // What is not known fails, and a failure is nothing the runner takes for blocked.
    let report = known.unwrap_or_else(|| panic!("there is no probe {id}"));
    let how: String = report.how.chars().filter(|c| !c.is_control() && !"\"\\".contains(*c)).take(200).collect();
    println!("{{\"escaped\": {}, \"how\": \"{how}\"}}", report.escaped);
}

/// A value the compiler knows nothing about.
pub fn opaque<T: Copy>(value: T) -> T {
    // SAFETY: the reference is to a live value of a type that may be copied.
    unsafe { std::ptr::read_volatile(&value) }
}
