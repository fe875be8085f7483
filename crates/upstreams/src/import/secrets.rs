//! Which settings of a server are secrets: by what they are called, or by what they look like. The one rule for whoever brings a
//! server in and for the door that takes it.
//!
//! What the redactor calls a secret is refused in clear ([`is_secret`]), so an import makes a credential of it. Besides, an
//! import takes a value for a secret in doubt ([`SecretJudge`]): that costs nothing, since the server gets it all the same; the
//! other way round it would stay in a file that people share. Arguments are judged by the option that each is the value of, and
//! are not refused, because many servers take their secrets nowhere else: they are warned about, and not shown.

use redaction::{RedactionAdditions, RedactionEngine};

/// Parts of names that stand before secrets.
const WORDS: [&str; 14] = [
    "apikey",
    "auth",
    "bearer",
    "connectionstring",
    "cookie",
    "credential",
    "dsn",
    "key",
    "passphrase",
    "passwd",
    "password",
    "private",
    "secret",
    "token",
];
/// Names with such a part that are none.
const HARMLESS: [&str; 9] =
    ["authtype", "authmode", "keyboard", "keyring", "keyspace", "maxtokens", "monkey", "tokenlimit", "tokenizer"];
/// Options whose value is a header with its name.
const HEADER_OPTIONS: [&str; 2] = ["--header", "-H"];
/// How paths begin. A path to a key is no key.
const PATH_BEGINNINGS: [&str; 4] = ["/", "./", "../", "~"];
/// What is shown in place of an argument.
const HIDDEN: &str = "(hidden)";
/// How names of passwords end that are written as one word: `DBPASS`.
const ENDINGS: [&str; 2] = ["pass", "pwd"];
/// Names with such an ending that are none.
const HARMLESS_ENDINGS: [&str; 4] = ["bypass", "compass", "oldpwd", "trespass"];
/// The variable in which shells keep the folder they are in.
const WORKING_FOLDER: &str = "PWD";
/// Beginnings of keys that services give out.
const BEGINNINGS: [&str; 17] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "ya29.",
    "eyJ",
    "-----BEGIN",
];
/// Text without spaces that is longer than this, with letters and digits mixed, is a key of something.
const OPAQUE_CHARS_MIN: usize = 32;
/// Longest name of a credential: it becomes the name of a file.
const NAME_CHARS_MAX: usize = 120;

/// Where a setting stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingPlace {
    Variable,
    Header,
    /// The query of an address.
    Query,
}

/// Is this setting a secret for sure? `redactor` says what names and texts are.
pub(crate) fn is_secret(
    place: SettingPlace,
    name: &str,
    value: &str,
    redactor: impl FnOnce(&str, &str) -> bool,
) -> bool {
    if value.is_empty() {
        return false;
    }
    if place == SettingPlace::Header && is_standard_header(name) {
        return true;
    }
    if is_plain(value) {
        return false;
    }
    // A path to a key is no key.
    looks_like_one(value) || (!value.starts_with('/') && redactor(telling_name(place, name), value))
}

/// Judges settings for whoever brings a server in: in doubt each is a secret.
#[derive(Debug)]
pub(crate) struct SecretJudge {
    /// None: it could not be built, and then everything is a secret.
    engine: Option<RedactionEngine>,
}

impl SecretJudge {
    pub(crate) fn new() -> Self {
        Self { engine: RedactionEngine::new(&RedactionAdditions::default()).ok() }
    }

    /// May this setting be a secret?
    pub(crate) fn may_be_secret(&self, place: SettingPlace, name: &str, value: &str) -> bool {
        let known = |name: &str, value: &str| self.engine.as_ref().is_none_or(|engine| engine.is_secret(name, value));
        is_secret(place, name, value, known)
            || (!value.is_empty()
                && !is_plain(value)
                && !value.starts_with('/')
                && is_doubtful(telling_name(place, name)))
    }

    /// Which of these arguments may be secrets: by what they look like, or by the option that each is the value of
    /// (`--api-key X`, `--api-key=X`), which is judged as the name of a variable is.
    pub(crate) fn secret_arguments(&self, args: &[String]) -> Vec<usize> {
        let before = |at: usize| at.checked_sub(1).and_then(|at| args.get(at)).map(String::as_str);
        let secret = args.iter().enumerate().filter(|(at, arg)| self.may_be_argument(before(*at), arg));
        secret.map(|(at, _)| at).collect()
    }

    /// Arguments as they may be shown.
    pub(crate) fn shown_arguments(&self, args: &[String]) -> Vec<String> {
        let secret = self.secret_arguments(args);
        let shown = |(at, arg): (usize, &String)| if secret.contains(&at) { HIDDEN.to_owned() } else { arg.clone() };
        args.iter().enumerate().map(shown).collect()
    }

    fn may_be_argument(&self, before: Option<&str>, arg: &str) -> bool {
        if looks_like_one(arg) {
            return true;
        }
        if let Some((name, value)) = arg.split_once('=')
            && is_name(name)
        {
            return self.may_be_value(name, value);
        }
        // Another option is no value; what begins with one hyphen alone may be a key.
        if arg.starts_with("--") || (arg.starts_with('-') && arg.len() <= 2) {
            return false;
        }
        match before.filter(|before| before.starts_with('-') && is_name(before)) {
            Some(option) => self.may_be_value(option, arg),
            None => self.may_be_value("", arg),
        }
    }

    /// May the value of this option be a secret?
    fn may_be_value(&self, option: &str, value: &str) -> bool {
        if PATH_BEGINNINGS.iter().any(|beginning| value.starts_with(beginning)) {
            return false;
        }
        let header = value.split_once(':').filter(|_| HEADER_OPTIONS.contains(&option));
        if let Some((name, value)) = header {
            return self.may_be_secret(SettingPlace::Header, name.trim(), value.trim());
        }
        let has_query = || {
            let parsed =
                url::Url::parse(value).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "ws" | "wss"));
            parsed.is_some_and(|url| {
                url.query_pairs().any(|(name, value)| self.may_be_secret(SettingPlace::Query, &name, &value))
            })
        };
        self.may_be_secret(SettingPlace::Variable, option.trim_start_matches('-'), value) || has_query()
    }
}

/// A switch or a number.
fn is_plain(value: &str) -> bool {
    matches!(value, "true" | "false") || value.parse::<f64>().is_ok()
}

/// The name, as far as it tells what the value is.
fn telling_name(place: SettingPlace, name: &str) -> &str {
    if place == SettingPlace::Variable && name == WORKING_FOLDER { "" } else { name }
}

fn is_doubtful(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| plain.contains(part));
    let ends = |endings: &[&str]| endings.iter().any(|ending| plain.ends_with(ending));
    (has(&WORDS) && !has(&HARMLESS)) || (ends(&ENDINGS) && !ends(&HARMLESS_ENDINGS))
}

/// Is this a header whose only purpose is to show a secret?
pub(crate) fn is_standard_header(name: &str) -> bool {
    let standard = ["authorization", "proxy-authorization", "cookie", "x-api-key"];
    standard.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Does the value look like a secret by itself?
pub(crate) fn looks_like_one(value: &str) -> bool {
    let value = value.split_once('=').map_or(value, |(_, behind)| if behind.is_empty() { value } else { behind });
    let begins = BEGINNINGS.iter().any(|beginning| value.starts_with(beginning) && value.len() >= beginning.len() + 8);
    begins || has_password(value) || is_opaque(value)
}

/// A URL with a password in it.
fn has_password(value: &str) -> bool {
    url::Url::parse(value).is_ok_and(|url| url.password().is_some())
}

fn is_opaque(value: &str) -> bool {
    let of_a_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '=' | '.');
    value.len() >= OPAQUE_CHARS_MIN
        && value.chars().all(of_a_key)
        && value.chars().any(|c| c.is_ascii_digit())
        && value.chars().any(|c| c.is_ascii_alphabetic())
        // Names of packages and hosts are words; keys are not.
        && value.split(['-', '_', '.']).any(|part| part.len() >= OPAQUE_CHARS_MIN / 2 && part.chars().any(|c| c.is_ascii_digit()))
}

/// An option, or the name of a variable, in front of `=`.
fn is_name(text: &str) -> bool {
    let plain = text.trim_start_matches('-');
    plain.starts_with(|c: char| c.is_ascii_alphabetic())
        && plain.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// The name of the credential for a setting of a server.
pub(crate) fn credential_name(server: &str, setting: &str) -> String {
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c.to_ascii_lowercase() } else { '_' };
    let name: String = format!("{server}_{setting}").chars().map(plain).collect();
    name.trim_start_matches('.').chars().take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names_or_their_looks() {
        let judge = SecretJudge::new();
        for (name, value, expected) in [
            ("BRAVE_API_KEY", "abc", true),
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "x", true),
            ("POSTGRES_CONNECTION_STRING", "postgres://u:p@h/d", true),
            ("DATABASE_URL", "postgres://u:p@h/d", true),
            ("DATABASE_URL", "postgres://h/d", false),
            ("WHATEVER", "ghp_abcdefghijklmnop", true),
            ("WHATEVER", "0123456789abcdef0123456789abcdef", true),
            ("DB_PASS", "hunter2", true),
            ("SMTP_PASSWD", "hunter2", true),
            ("MYSQL_PWD", "hunter2", true),
            ("DBPASS", "hunter2", true),
            ("CONTRASENA", "hunter2", true),
            ("OTP", "hunter2", true),
            ("PWD", "notes", false),
            ("OLDPWD", "notes", false),
            ("PWD", "ghp_abcdefghijklmnop", true),
            ("ALLOW_BYPASS", "always", false),
            ("COMPASS", "north", false),
            ("NODE_ENV", "production", false),
            ("MAX_TOKENS", "4096", false),
            ("AUTH_TYPE", "basic", false),
            ("SSL_KEY_FILE", "/etc/ssl/key.pem", false),
            ("API_KEY", "", false),
            ("USE_TOKEN", "true", false),
            ("MEMORY_FILE_PATH", "/people/me/memory.json", false),
            ("PACKAGE", "some-quite-long-package-name-without-digits", false),
        ] {
            assert_eq!(judge.may_be_secret(SettingPlace::Variable, name, value), expected, "{name}={value}");
        }
        let header = |name: &str, value: &str| judge.may_be_secret(SettingPlace::Header, name, value);
        assert!(header("Authorization", "Bearer x") && header("PWD", "x") && !header("x-team", "a"));
        assert!(!header("Authorization", ""), "what is empty says nothing");
    }

    #[test]
    fn an_argument_is_a_secret_by_its_option_as_a_variable_is_by_its_name() {
        let judge = SecretJudge::new();
        for (line, secret) in [
            ("--figma-api-key=figd_abc --stdio", &[0][..]),
            ("--api-key=hunter2", &[0]),
            ("--api-key hunter2", &[1]),
            ("--token tok_abc --verbose", &[1]),
            ("--password=hunter2", &[0]),
            ("-password -hunter2", &[1]),
            ("--access-token sbp_0123456789abcdef0123456789abcdef01234567", &[1]),
            ("--token=ghp_abcdefghijklmnop", &[0]),
            ("x mongodb://u:p@h/d", &[1]),
            ("API_TOKEN=hunter2 node", &[0]),
            ("--header Authorization:hunter2", &[1]),
            ("-H X-Team:red", &[]),
            ("mcp-remote https://h.example/mcp?api_key=hunter2", &[1]),
            ("https://h.example/mcp?page=2", &[]),
            ("--token --verbose", &[]),
            ("--token -v", &[]),
            ("--token", &[]),
            ("--api-key=", &[]),
            ("--max-tokens 4096", &[]),
            ("--auth-type basic", &[]),
            ("--keyring-provider subprocess", &[]),
            ("--ssh-key ~/.ssh/id_rsa --key-file=./key.pem --password-file /run/secrets/p", &[]),
            ("-y @modelcontextprotocol/server-filesystem@2025.8.21 /srv/notes", &[]),
            ("--transport stdio --mode=fast", &[]),
        ] {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(judge.secret_arguments(&args), secret, "{line}");
        }
    }

    /// Names are compounded of words that people use, so that no list of one side can have a word that the other has not.
    #[test]
    fn an_import_makes_a_credential_of_whatever_the_door_refuses() {
        let judge = SecretJudge::new();
        let engine = RedactionEngine::new(&RedactionAdditions::default()).unwrap();
        let words = [
            "ACCESS",
            "API",
            "AUTH",
            "BOT",
            "CLIENT",
            "COOKIE",
            "CREDENTIALS",
            "CVV",
            "DB",
            "DSN",
            "ID",
            "JWT",
            "KEY",
            "LICENSE",
            "OTP",
            "PASS",
            "PASSCODE",
            "PASSPHRASE",
            "PASSWD",
            "PASSWORD",
            "PASSWORT",
            "PAT",
            "PGPASS",
            "PIN",
            "PWD",
            "SECRET",
            "SENHA",
            "SESSION",
            "SIGNATURE",
            "SSN",
            "TOKEN",
            "URL",
            "USER",
            "WEBHOOK",
        ];
        let names = words.iter().flat_map(|first| {
            let two = words.iter().flat_map(move |second| [format!("{first}_{second}"), format!("{first}{second}")]);
            std::iter::once((*first).to_owned()).chain(two)
        });
        let mut refused = 0;
        for name in names {
            for place in [SettingPlace::Variable, SettingPlace::Header, SettingPlace::Query] {
                for value in ["hunter2", "password=hunter2", "/run/secrets/x"] {
                    let is_refused = is_secret(place, &name, value, |name, value| engine.is_secret(name, value));
                    refused += usize::from(is_refused);
                    assert!(!is_refused || judge.may_be_secret(place, &name, value), "{place:?} {name}={value}");
                }
            }
        }
        assert!(refused > 1_000, "{refused}");
    }

    #[test]
    fn a_credential_has_a_name_that_is_fit_for_a_file() {
        assert_eq!(credential_name("brave-search", "BRAVE_API_KEY"), "brave-search_brave_api_key");
        assert_eq!(credential_name(".x", "a/../b"), "x_a_.._b");
        assert!(credential_name("a", &"x".repeat(500)).len() <= NAME_CHARS_MAX);
    }
}
