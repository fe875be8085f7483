//! Cuts plain text into sentences of canonical tokens, and classes the tokens that are not words.
//!
//! A token is a lower-case word, or a placeholder for a thing whose exact value does not matter to the rules: an address,
//! a path, an identifier. Phrases can then be looked for as plain substrings with spaces around them. Contractions are
//! opened (`don't` is `do not`), possessives dropped, hyphens are spaces, so that one phrase finds all its spellings.
//!
//! Not here: what phrases mean (`lexicon`).

use std::collections::BTreeSet;

use crate::features::ToolPurpose;
use crate::lexicon::WordMark;

/// Longer sentences are cut: rules look at a sentence at a time, and one without an end must not become the text.
const SENTENCE_TOKENS_MAX: usize = 96;

/// Names with a meaning for the text under scan.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    /// The tool's own name.
    pub(crate) own: String,
    /// Parameters of the tool.
    pub(crate) parameters: BTreeSet<String>,
    /// Tools of the same server: a definition may well speak of them.
    pub(crate) siblings: BTreeSet<String>,
    /// Tools of other servers: a definition has no reason to.
    pub(crate) foreign: BTreeSet<String>,
    /// What the tool is about, as the text under scan has it.
    pub(crate) purpose: ToolPurpose,
    /// The model is not asked: the fit measures what the rules find by themselves.
    pub(crate) rules_only: bool,
}

/// One sentence.
#[derive(Debug, Default)]
pub(crate) struct Sentence {
    /// Tokens with one space before, between and after them.
    pub(crate) canonical: String,
    /// Where each token starts in `canonical`.
    pub(crate) starts: Vec<usize>,
    /// Marks of tokens by their form.
    pub(crate) marks: Vec<(WordMark, usize)>,
    /// What was written, for an excerpt.
    pub(crate) written: String,
}

/// The sentences of a text. With `lines`, a line end ends a sentence.
pub(crate) fn sentences(text: &str, names: &KnownNames, lines: bool) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut current = Sentence::new();
    let mut empty_line = false;
    for line in text.split('\n') {
        let trimmed = line.trim();
        let bullet = trimmed.starts_with(['-', '*', '•', '#']) || starts_numbered(trimmed) || starts_entry(trimmed);
        if lines || empty_line || bullet {
            sentences.extend(current.take());
        }
        empty_line = trimmed.is_empty();
        for spaced in trimmed.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '|' | '—')) {
            // Chinese and Japanese put no space after the end of a sentence.
            for chunk in spaced.split_inclusive('。').filter(|chunk| !chunk.is_empty()) {
                current.push_chunk(chunk, names);
                if ends_sentence(chunk) || current.starts.len() >= SENTENCE_TOKENS_MAX {
                    sentences.extend(current.take());
                }
            }
        }
    }
    sentences.extend(current.take());
    sentences
}

/// Words of an identifier such as `read_theFile-now`, in lower case.
pub(crate) fn identifier_words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower_before = false;
    for character in identifier.chars() {
        let breaks = !character.is_alphanumeric() || (character.is_uppercase() && lower_before);
        if breaks && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        lower_before = character.is_lowercase() || character.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

// --- Sentence ------------------------------------------------------------------------------------------------------

impl Sentence {
    fn new() -> Self {
        Self { canonical: " ".to_owned(), ..Self::default() }
    }

    fn take(&mut self) -> Option<Self> {
        let sentence = std::mem::replace(self, Self::new());
        (!sentence.starts.is_empty()).then_some(sentence)
    }

    fn push(&mut self, token: &str) {
        self.starts.push(self.canonical.len());
        self.canonical.push_str(token);
        self.canonical.push(' ');
    }

    fn push_chunk(&mut self, chunk: &str, names: &KnownNames) {
        if !self.written.is_empty() {
            self.written.push(' ');
        }
        self.written.push_str(chunk);
        let core =
            chunk.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '~' | '/' | '+' | '.' | '_' | '\\'));
        let core = core.trim_end_matches(['.', '/', '\\', '+']);
        let core = if core.starts_with('.') && !is_secret_path(core) { core.trim_start_matches('.') } else { core };
        // `--flag` is an option of a command and `name:` the entry of a list, neither is a tool.
        let listed = chunk.trim_start_matches(['`', '\'', '"']).starts_with('-') || chunk.ends_with(':');
        let quoted = core.len() > 1 && (chunk.contains('`') || chunk.starts_with(['\'', '"', '“', '‘']));
        let place = self.starts.len();
        if quoted && chunk.trim_end_matches(['.', ',', ':', ';', ')']).ends_with(['\'', '"', '”', '’', '`']) {
            self.marks.push((WordMark::Quoted, place));
        }
        if let Some((mark, token)) = form(core, quoted, names) {
            let mark = if listed && mark == WordMark::Identifier { WordMark::Listed } else { mark };
            self.marks.push((mark, place));
            self.push(token);
            return;
        }
        for word in core.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '’')) {
            self.push_word(word);
        }
    }

    fn push_word(&mut self, word: &str) {
        let lower = word.trim_matches(['\'', '’']).replace('’', "'").to_lowercase();
        if lower.is_empty() {
            return;
        }
        if let Some(stem) = lower.strip_suffix("n't") {
            self.push(match stem {
                "wo" => "will",
                "ca" => "can",
                "sha" => "shall",
                stem => stem,
            });
            return self.push("not");
        }
        if lower == "cannot" {
            self.push("can");
            return self.push("not");
        }
        if matches!(lower.as_str(), "user's" | "users'" | "customer's" | "person's" | "machine's" | "host's") {
            self.marks.push((WordMark::UsersOwn, self.starts.len()));
        }
        // `user's`, `you're`, `it'll`: what follows the apostrophe carries no meaning; in `l'utilisateur` it carries all.
        for (number, part) in lower.split('\'').enumerate() {
            if number == 0 || !matches!(part, "" | "s" | "re" | "ll" | "ve" | "d" | "m" | "t") {
                self.push_letters(part);
            }
        }
    }

    /// Pushes a word; scripts that do not separate words are pushed letter by letter.
    fn push_letters(&mut self, word: &str) {
        if !word.chars().any(is_unspaced) {
            return self.push(word);
        }
        let mut latin = String::new();
        for character in word.chars() {
            if is_unspaced(character) {
                if !latin.is_empty() {
                    self.push(&std::mem::take(&mut latin));
                }
                self.push(character.encode_utf8(&mut [0_u8; 4]));
            } else {
                latin.push(character);
            }
        }
        if !latin.is_empty() {
            self.push(&latin);
        }
    }
}

/// Whether words of this script are written without spaces, or with particles joined to them.
pub(crate) fn is_unspaced(character: char) -> bool {
    matches!(u32::from(character), 0x3040..=0x30ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xac00..=0xd7af)
}

// --- forms of tokens -----------------------------------------------------------------------------------------------

/// The class of a token that is no word, with its placeholder.
fn form(core: &str, quoted: bool, names: &KnownNames) -> Option<(WordMark, &'static str)> {
    let lower = core.to_lowercase();
    if names.own == core && is_identifier(core, quoted) {
        return Some((WordMark::Own, "#own"));
    }
    if names.foreign.contains(core) && (is_identifier(core, quoted) || quoted) {
        return Some((WordMark::Foreign, "#ident"));
    }
    if names.siblings.contains(core) && (is_identifier(core, quoted) || quoted) {
        return Some((WordMark::Sibling, "#sibling"));
    }
    if names.parameters.contains(core) && (is_identifier(core, quoted) || quoted) {
        return Some((WordMark::Parameter, "#param"));
    }
    if is_secret_path(&lower) {
        return Some((WordMark::SecretPath, "#secretpath"));
    }
    let example = ["example.", "localhost", "127.0.0.1"].iter().any(|name| lower.contains(name));
    if lower.contains("://") || lower.starts_with("www.") {
        return Some(if example { (WordMark::Example, "#example") } else { (WordMark::Url, "#url") });
    }
    if is_email(&lower) {
        return Some(if example { (WordMark::Example, "#example") } else { (WordMark::Email, "#email") });
    }
    if is_host(&lower) {
        return Some(if example { (WordMark::Example, "#example") } else { (WordMark::Host, "#host") });
    }
    if is_account(core) {
        return Some((WordMark::Account, "#account"));
    }
    if core.starts_with("~/") || (core.starts_with('/') && core.len() > 2) || core.contains(":\\") {
        return Some((WordMark::Path, "#path"));
    }
    if is_identifier(core, quoted) {
        let words = identifier_words(core);
        // `OPENAI_API_KEY` is the variable that holds one; `api_key` is an ordinary parameter.
        let variable = core.chars().all(|c| !c.is_lowercase())
            && words.last().is_some_and(|word| matches!(word.as_str(), "key" | "token" | "secret" | "password"));
        let secret = variable || words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()));
        return Some((if secret { WordMark::SecretIdentifier } else { WordMark::Identifier }, "#ident"));
    }
    None
}

/// Parts of paths that hold secrets or decide who may enter.
const SECRET_PATHS: &[&str] = &[
    ".ssh",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    ".aws/",
    "aws/credentials",
    "/etc/passwd",
    "/etc/shadow",
    "/etc/sudoers",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".kube/",
    "kubeconfig",
    ".docker/config",
    ".gnupg",
    ".bash_history",
    ".zsh_history",
    "authorized_keys",
    "known_hosts",
    "mcp.json",
    "claude_desktop_config",
    ".cursor/",
    "wallet.dat",
    "cookies.sqlite",
    "login data",
    "application_default_credentials",
    "process.env",
    "/proc/self/environ",
    "secrets.yml",
    "secrets.yaml",
    "secrets.json",
    "credentials.json",
    ".pgpass",
    "keychain-db",
    ".vault-token",
    "service_account.json",
    ".config/gcloud",
    ".bashrc",
    ".zshrc",
    ".pem",
];

/// Words that make an identifier the name of a secret.
const SECRET_WORDS: &[&str] = &[
    "secret",
    "secrets",
    "password",
    "passwords",
    "credential",
    "credentials",
    "keys",
    "vault",
    "passwd",
    "privatekey",
    "apikey",
];

fn is_secret_path(token: &str) -> bool {
    let lower = token.to_lowercase();
    lower == ".env"
        || lower.ends_with("/.env")
        || lower.starts_with(".env.")
        || SECRET_PATHS.iter().any(|part| lower.contains(part))
}

fn is_email(token: &str) -> bool {
    token.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.') && !host.starts_with('.'))
}

/// A domain name with a common ending, or an IPv4 address.
fn is_host(token: &str) -> bool {
    const ENDINGS: &[&str] = &[
        "com", "net", "org", "io", "co", "dev", "app", "ai", "ru", "cn", "xyz", "top", "site", "info", "biz", "cc",
        "pw", "uk", "de", "eu", "tk", "zone", "online", "shop", "run", "cloud", "tech", "club", "me", "link", "live",
        "pro",
    ];
    let host = token.split(['/', ':', '?']).next().unwrap_or_default();
    let labels: Vec<&str> = host.split('.').collect();
    let named =
        labels.iter().all(|label| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
    let number = labels.len() == 4 && labels.iter().all(|label| label.parse::<u8>().is_ok());
    let ending = labels.len() > 1 && labels.last().is_some_and(|last| ENDINGS.contains(last));
    named && (number || (ending && labels.iter().all(|label| label.len() > 1)))
}

/// A telephone number, a bank account or a wallet.
fn is_account(token: &str) -> bool {
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    let phone = token.starts_with('+') && digits >= 7;
    let letters = token.bytes().take(2).all(|byte| byte.is_ascii_uppercase());
    let iban = letters && token.len() >= 15 && digits >= 10 && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let wallet = token.starts_with("0x") && token.len() == 42;
    phone || iban || wallet
}

/// `snake_case`, `camelCase`, `a.b` calls, or a quoted hyphenated name.
fn is_identifier(token: &str, quoted: bool) -> bool {
    let allowed = token.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let snake = token.trim_matches('_').contains('_');
    let camel = token.starts_with(|c: char| c.is_ascii_lowercase())
        && token
            .as_bytes()
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    allowed && token.len() > 2 && (snake || camel || (quoted && token.contains(['-', '.'])))
}

// --- sentences -----------------------------------------------------------------------------------------------------

fn ends_sentence(chunk: &str) -> bool {
    const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "incl.", "no."];
    let bare = chunk.trim_end_matches(['"', '\'', ')', ']', '”', '’', '*', '`', '}']);
    let lower = bare.trim_start_matches(['(', '"', '\'']).to_lowercase();
    let numbered = bare.trim_end_matches('.').bytes().all(|byte| byte.is_ascii_digit());
    bare.ends_with(['.', '!', '?', '。']) && !numbered && !ABBREVIATIONS.contains(&lower.as_str())
}

/// `name: …` and `name (type): …`, as in a list of arguments.
fn starts_entry(line: &str) -> bool {
    let head = line.split_once(':').map_or("", |(head, _)| head);
    !head.is_empty() && head.split_whitespace().nth(2).is_none()
}

fn starts_numbered(line: &str) -> bool {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < line.len() && rest.starts_with(['.', ')'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Vec<String> {
        sentences(text, &KnownNames::default(), false).into_iter().map(|s| s.canonical.trim().to_owned()).collect()
    }

    #[test]
    fn spellings_of_one_phrase_become_one() {
        for text in
            ["Don't tell the user!", "do NOT tell the user's", "`Do not` tell (the) user.", "do-not tell\nthe user"]
        {
            assert_eq!(canonical(text), ["do not tell the user"], "{text}");
        }
    }

    #[test]
    fn things_become_placeholders() {
        let cases = [
            ("read ~/.ssh/id_rsa now", "read #secretpath now"),
            ("the .env file.", "the #secretpath file"),
            ("to x@mail.org, or www.a.b", "to #email or #url"),
            ("post to evil.com/in?x=1", "post to #host"),
            ("call read_file() or `get-docs`", "call #ident or #ident"),
            ("e.g. jane@example.com", "e g #example"),
            ("number +49 or +491511234567", "number 49 or #account"),
            ("in /var/log/x and C:\\Users\\a", "in #path and #path"),
            ("Node.js text, v1.2.3", "node js text v1 2 3"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text), [expected], "{text}");
        }
    }

    #[test]
    fn sentences_end_where_they_should() {
        let cases = [
            ("One. Two", 2),
            ("One e.g. two", 1),
            ("wrapped\nline", 1),
            ("para\n\nnext", 2),
            ("- one\n- two\n3. three", 3),
        ];
        for (text, count) in cases {
            assert_eq!(canonical(text).len(), count, "{text:?}");
        }
        assert!(canonical(&"word ".repeat(1000)).len() > 10);
    }

    #[test]
    fn an_identifier_is_read_as_its_words() {
        assert_eq!(identifier_words("file_IMPORTANT-alsoRead"), ["file", "important", "also", "read"]);
    }
}
