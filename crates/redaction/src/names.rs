//! Names of fields and variables that say that their value is a secret (VALID-010, X-17).
//!
//! A name is taken apart into its words, whatever the way of writing (`apiKey`, `api_key`, `API-KEY`), and its words decide:
//! the last one mostly, because `token` is a secret and `token_count` a number.

use crate::normalised_name::normalised;

/// Words that are a secret wherever they stand in a name, unless the last word says that it is about something else.
const ANYWHERE: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "creds",
    "passwords",
];
/// Last words that say that the name is *about* a secret and not one.
const ABOUT: [&str; 52] = [
    "id",
    "ids",
    "name",
    "names",
    "type",
    "kind",
    "count",
    "length",
    "len",
    "size",
    "policy",
    "field",
    "label",
    "hint",
    "url",
    "uri",
    "path",
    "file",
    "version",
    "expiry",
    "expires",
    "expiration",
    "at",
    "date",
    "ttl",
    "enabled",
    "required",
    "strength",
    "rules",
    "min",
    "max",
    "variable",
    "format",
    "algorithm",
    "source",
    "provider",
    "manager",
    "scope",
    "scopes",
    "status",
    "changed",
    "updated",
    "created",
    "rotation",
    "ref",
    "reference",
    "store",
    "arn",
    "prefix",
    "class",
    "question",
    "env",
];
/// Words before `token` that make something else of it: places in lists, words of models.
const NO_TOKEN: [&str; 27] = [
    "page",
    "next",
    "continuation",
    "sync",
    "prev",
    "previous",
    "cursor",
    "stop",
    "eos",
    "bos",
    "pad",
    "unk",
    "sep",
    "cls",
    "mask",
    "special",
    "start",
    "end",
    "per",
    "public",
    "max",
    "min",
    "total",
    "prompt",
    "completion",
    "input",
    "output",
];
/// Words before `key` that make a secret of it.
const KEYS: [&str; 44] = [
    "api",
    "access",
    "private",
    "secret",
    "auth",
    "authentication",
    "encryption",
    "signing",
    "master",
    "service",
    "account",
    "shared",
    "session",
    "ssh",
    "storage",
    "subscription",
    "client",
    "app",
    "application",
    "consumer",
    "deploy",
    "webhook",
    "hmac",
    "symmetric",
    "root",
    "admin",
    "rsa",
    "pgp",
    "gpg",
    "aes",
    "decryption",
    "license",
    "integration",
    "rest",
    "admin",
    "sdk",
    "write",
    "server",
    "primary",
    "secondary",
    "signature",
    "jwt",
    "bot",
    "security",
];
/// Words for a password that do not end with it, in the languages that forms are mostly written in.
const PASSWORDS: [&str; 13] = [
    "passwd",
    "passphrase",
    "passcode",
    "passwort",
    "kennwort",
    "wachtwoord",
    "contraseña",
    "contrasena",
    "senha",
    "motdepasse",
    "lösenord",
    "hasło",
    "пароль",
];
/// Names that are secrets as a whole, their words written together.
const WHOLE: [&str; 37] = [
    "cookies",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "creditcard",
    "creditcardnumber",
    "cardnumber",
    "cvv",
    "cvc",
    "cvv2",
    "ssn",
    "socialsecurity",
    "socialsecuritynumber",
    "authorization",
    "proxyauthorization",
    "cookie",
    "setcookie",
    "jwt",
    "bearer",
    "xapikey",
    "sessioncookie",
    "otp",
    "pwd",
    "passwd",
    "pass",
    "pgpass",
    "authtoken",
    "accesstoken",
    "refreshtoken",
    "idtoken",
    "clientsecret",
    "pat",
    "privkey",
    "connectionstring",
    "accesspin",
];

/// What a name says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameMeaning {
    /// Nothing.
    Nothing,
    /// It is some key: a secret if it looks like one.
    SomeKey,
    /// It is a secret.
    Secret,
    /// It is a password, which may be any word.
    Password,
}

/// The words of a name, in lower case: `maxTokens2` has `max` and `tokens`.
pub fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let letters: Vec<char> = normalised(name).chars().collect();
    for (place, letter) in letters.iter().copied().enumerate() {
        if !letter.is_alphanumeric() {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            continue;
        }
        let before = place.checked_sub(1).and_then(|place| letters.get(place)).copied();
        let after = letters.get(place + 1).copied();
        let new = letter.is_uppercase()
            && (before.is_some_and(|before| before.is_lowercase() || before.is_ascii_digit())
                || (before.is_some_and(char::is_uppercase) && after.is_some_and(char::is_lowercase)));
        if new && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        word.extend(letter.to_lowercase());
    }
    if !word.is_empty() {
        words.push(word);
    }
    // A number at the end counts, it does not name.
    while words.len() > 1 && words.last().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
        words.pop();
    }
    for word in &mut words {
        let kept = word.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
        if kept >= 3 {
            word.truncate(kept);
        }
    }
    words
}

/// Whether the value of a field of this name must not be seen, whatever it is.
pub fn is_sensitive(name: &str) -> bool {
    says(&words(name)) >= NameMeaning::Secret
}

/// What a name of these words says.
pub(crate) fn says(words: &[String]) -> NameMeaning {
    let Some(last) = words.last().map(String::as_str) else { return NameMeaning::Nothing };
    let before_last = words.len().checked_sub(2).and_then(|place| words.get(place)).map_or("", String::as_str);
    let has = |list: &[&str], word: &str| list.contains(&word);
    if words.iter().any(|word| word == "public" || word == "publishable") || has(&ABOUT, last) {
        return NameMeaning::Nothing;
    }
    if words.iter().any(|word| word.ends_with("password") || has(&PASSWORDS, word))
        || has(&["pwd", "pass", "pgpass", "passwords"], last)
    {
        return NameMeaning::Password;
    }
    if words.iter().any(|word| has(&ANYWHERE, word)) {
        return NameMeaning::Secret;
    }
    if words.len() <= 4 && has(&WHOLE, &words.concat()) {
        return NameMeaning::Secret;
    }
    match last {
        "token" if !has(&NO_TOKEN, before_last) => NameMeaning::Secret,
        "tokens" if has(&["access", "refresh", "auth", "api", "bearer", "session", "id"], before_last) => {
            NameMeaning::Secret
        }
        "key" | "keys" if has(&KEYS, before_last) => NameMeaning::Secret,
        "key" => NameMeaning::SomeKey,
        "auth" | "sig" | "signature" => NameMeaning::SomeKey,
        "apikey" | "apikeys" | "apitoken" | "accesskey" | "secretkey" | "privatekey" | "accesstoken" | "authtoken"
        | "refreshtoken" | "clientsecret" | "jwt" | "bearer" | "authorization" | "cookie" | "apisecret"
        | "appsecret" | "pat" | "webhook" => NameMeaning::Secret,
        _ => NameMeaning::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_in_every_way_of_writing() {
        for name in ["apiKey", "api_key", "API-KEY", "ApiKey", "api.key", "API_KEY_2", "apiKey2"] {
            assert_eq!(words(name), ["api", "key"], "{name}");
        }
        assert_eq!(words("XMLHttpRequest"), ["xml", "http", "request"]);
        assert_eq!(words("__"), Vec::<String>::new());
        for name in ["ｐａｓｓｗｏｒｄ", "pass\u{200b}word", "ＡＰＩ＿ｋｅｙ", "api\u{ad}Key"] {
            assert!(is_sensitive(name), "{name:?}");
        }
    }

    #[test]
    fn secrets_are_told_from_what_only_sounds_like_one() {
        let secrets = [
            "password",
            "Password",
            "PASSWORD",
            "userPassword",
            "db_password",
            "password_hash",
            "secret",
            "client_secret",
            "clientSecret",
            "token",
            "accessToken",
            "access_token",
            "refresh_token",
            "x-api-key",
            "apiKey",
            "api_key",
            "APIKEY",
            "private_key",
            "privateKey",
            "credit_card",
            "creditCard",
            "ssn",
            "social_security",
            "socialSecurityNumber",
            "credentials",
            "aws_secret_access_key",
            "Authorization",
            "Set-Cookie",
            "githubToken",
            "cvv",
            "cookies",
            "Passwort",
            "contraseña",
            "id_token",
            "pwd",
        ];
        for name in secrets {
            assert!(is_sensitive(name), "{name}");
        }
        let others = [
            "tokensUsed",
            "max_tokens",
            "token_count",
            "tokens",
            "tokenType",
            "token_type",
            "nextPageToken",
            "page_token",
            "tokenizer",
            "public_key",
            "publicToken",
            "key",
            "keyword",
            "monkey",
            "primaryColor",
            "author",
            "authority",
            "secretary",
            "password_policy",
            "passwordVariable",
            "credentialsId",
            "secret_name",
            "secret_length",
            "api",
            "apiUrl",
            "bucket_key",
            "key_name",
            "compass",
            "eos_token",
            "prompt_tokens",
            "total_tokens",
            "token_limit",
            "passed",
            "cardinality",
            "accessor",
        ];
        for name in others {
            assert!(!is_sensitive(name), "{name}");
        }
    }
}
