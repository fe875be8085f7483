//! Which values of a block are secrets: by what they are called, or by what they look like.
//!
//! Taking a plain value for a secret costs nothing, since the server gets it all the same; the other way round it would
//! stay in a file that people share. So in doubt it is one.

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
const HARMLESS: [&str; 8] =
    ["authtype", "authmode", "keyboard", "keyspace", "maxtokens", "monkey", "tokenlimit", "tokenizer"];
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

/// Is this setting a secret?
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    if value.is_empty() || matches!(value, "true" | "false") || value.parse::<f64>().is_ok() {
        return false;
    }
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let named = WORDS.iter().any(|word| plain.contains(word)) && !HARMLESS.iter().any(|word| plain.contains(word));
    // A path to a key is no key.
    (named && !value.starts_with('/')) || looks_like_one(value)
}

/// Is this header a secret?
pub(crate) fn is_secret_header(name: &str, value: &str) -> bool {
    !value.is_empty() && (is_standard_header(name) || is_secret(name, value))
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

/// An argument as it may be shown.
pub(crate) fn masked(arg: &str) -> &str {
    if looks_like_one(arg) { "(hidden)" } else { arg }
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
        for (name, value, expected) in [
            ("BRAVE_API_KEY", "abc", true),
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "x", true),
            ("POSTGRES_CONNECTION_STRING", "postgres://u:p@h/d", true),
            ("DATABASE_URL", "postgres://u:p@h/d", true),
            ("DATABASE_URL", "postgres://h/d", false),
            ("WHATEVER", "ghp_abcdefghijklmnop", true),
            ("WHATEVER", "0123456789abcdef0123456789abcdef", true),
            ("NODE_ENV", "production", false),
            ("MAX_TOKENS", "4096", false),
            ("AUTH_TYPE", "basic", false),
            ("SSL_KEY_FILE", "/etc/ssl/key.pem", false),
            ("API_KEY", "", false),
            ("USE_TOKEN", "true", false),
            ("MEMORY_FILE_PATH", "/people/me/memory.json", false),
            ("PACKAGE", "some-quite-long-package-name-without-digits", false),
        ] {
            assert_eq!(is_secret(name, value), expected, "{name}={value}");
        }
        assert!(is_secret_header("Authorization", "Bearer x") && !is_secret_header("x-team", "a"));
        assert_eq!(masked("--token=ghp_abcdefghijklmnop"), "(hidden)");
        assert_eq!(
            masked("@modelcontextprotocol/server-filesystem@2025.8.21"),
            "@modelcontextprotocol/server-filesystem@2025.8.21"
        );
    }

    #[test]
    fn a_credential_has_a_name_that_is_fit_for_a_file() {
        assert_eq!(credential_name("brave-search", "BRAVE_API_KEY"), "brave-search_brave_api_key");
        assert_eq!(credential_name(".x", "a/../b"), "x_a_.._b");
        assert!(credential_name("a", &"x".repeat(500)).len() <= NAME_CHARS_MAX);
    }
}
