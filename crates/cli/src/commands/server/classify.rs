//! `gantry server classify`: what the tools of a server do to the world, said for many at once. (X-31)
//!
//! What a server hints decides nothing by itself: it is a proposal, and this is where a person accepts it. Each class is
//! sent with the digest of what was looked at, so that a server cannot change its word between the look and the yes.

use clap::Args;
use contract::ids::TenantId;
use contract::nearest::nearest;
use serde_json::{Value, json};

use super::path;
use super::review::{is_called, is_open, known, text};
use crate::client::{ServerClient, segment};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, visible};

/// The classes that can be given, in the order of the help.
const CLASSES: [&str; 4] = ["pure", "idempotent", "irreversible", "unclassified"];
/// What becomes of a call of a tool of this class, unless activations or policies say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassifiedCall {
    /// For programs.
    pub(crate) word: &'static str,
    pub(crate) text: &'static str,
}

impl ClassifiedCall {
    pub(crate) fn of(class: &str) -> Self {
        match class {
            "irreversible" => Self {
                word: "refused",
                text: "is refused (E3208): it needs a key and an approval, and this version has no approvals",
            },
            "compensatable" => Self { word: "needs_key", text: "runs with an idempotency key" },
            "pure" | "idempotent" => Self { word: "runs", text: "runs" },
            _ => Self { word: "runs", text: "runs, and is not repeated if nobody knows what came of it" },
        }
    }

    pub(crate) fn is_refused(self) -> bool {
        self.word == "refused"
    }
}

/// Most characters of a description in a question.
const DESCRIPTION_CHARS_MAX: usize = 200;

/// Say what the tools of a server do to the world, for many at once
///
/// Without anything but the name it shows what is known and what the server's own hints propose, and changes nothing.
///
/// gantry server classify github --trust-hints
/// gantry server classify github --pure 'get_*' --pure 'list_*' --irreversible 'delete_*'
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ServerClassifyCommand {
    /// What it is called
    #[arg(value_name = "SERVER")]
    name: String,
    /// Accept what the server hints, for every tool that nobody has classified yet
    #[arg(long)]
    trust_hints: bool,
    /// Tools that only read; `*` stands for any characters (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pure: Vec<String>,
    /// Tools that may be called twice as well as once (repeatable)
    #[arg(long, value_name = "PATTERN")]
    idempotent: Vec<String>,
    /// Tools whose effects nothing brings back (repeatable)
    #[arg(long, value_name = "PATTERN")]
    irreversible: Vec<String>,
    /// Tools about which nobody knows: takes a class back (repeatable)
    #[arg(long, value_name = "PATTERN")]
    unclassified: Vec<String>,
    /// Ask about each tool that nobody has classified yet
    #[arg(long, conflicts_with_all = ["trust_hints", "dry_run"])]
    interactive: bool,
    /// Show what would be said, and say nothing
    #[arg(long)]
    dry_run: bool,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// What is to be said about a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Proposal {
    tool: String,
    now: String,
    becomes: String,
    because: String,
    /// Of what was looked at.
    digest: Option<String>,
}

impl ServerClassifyCommand {
    pub(super) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let client = context.client()?;
        let tools = known(&client, &self.name, self.tenant.as_ref()).await?;
        let mut proposals = self.named(&tools)?;
        if self.trust_hints {
            proposals.extend(hinted(&tools, &proposals));
        }
        if self.interactive {
            proposals.extend(asked(&context.printer, &tools, &proposals)?);
        }
        if self.says_nothing() {
            let document = json!({ "tools": tools.iter().map(with_calls).collect::<Vec<_>>() });
            context.printer.answer(&document, |printer| overview(printer, &self.name, &tools));
            return Ok(());
        }
        proposals.retain(|proposal| proposal.now != proposal.becomes);
        if !self.dry_run {
            if !self.is_meant(&context.printer, &proposals) {
                return Err(CommandFailure::new("nothing was classified").hint(
                    "name the tools that only read by --pure, and those that may be called twice by --idempotent",
                ));
            }
            for proposal in &proposals {
                self.say(&client, proposal).await?;
            }
        }
        let document = json!({
            "dry_run": self.dry_run,
            "classified": proposals.iter().map(Proposal::document).collect::<Vec<_>>(),
        });
        context.printer.answer(&document, |printer| outcome(printer, &proposals, self.dry_run));
        let left = still_open(&tools, &proposals);
        if left > 0 {
            context.printer.note(&format!(
                "{left} of {} tools stay unclassified: `gantry server classify {}` shows them, `--interactive` asks",
                tools.len(),
                self.name
            ));
        }
        Ok(())
    }

    /// Says which tools nobody could call any more, before anything is said; whoever sits there is asked.
    fn is_meant(&self, printer: &Printer, proposals: &[Proposal]) -> bool {
        let refused: Vec<&Proposal> = proposals.iter().filter(|proposal| proposal.closes()).collect();
        for Proposal { tool, becomes, because, .. } in &refused {
            let call = ClassifiedCall::of(becomes).text;
            printer.warn(&format!("`{tool}` becomes {becomes} ({because}): a call of it {call}"));
        }
        let question = || format!("classify {} tools whose calls are refused from then on?", refused.len());
        // Whoever was asked about each of them has said so already.
        refused.is_empty() || self.interactive || !printer.can_ask() || printer.confirm(&question())
    }

    fn says_nothing(&self) -> bool {
        !self.trust_hints && !self.interactive && self.patterns().next().is_none()
    }

    /// Every pattern with its class.
    fn patterns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let of = [&self.pure, &self.idempotent, &self.irreversible, &self.unclassified];
        CLASSES.into_iter().zip(of).flat_map(|(class, patterns)| patterns.iter().map(move |it| (class, it.as_str())))
    }

    /// What the patterns say. A tool that two of them classify differently, and a pattern for which there is no tool, are
    /// mistakes, and nothing is said at all then.
    fn named(&self, tools: &[Value]) -> Result<Vec<Proposal>, CommandFailure> {
        for (_, pattern) in self.patterns() {
            if !tools.iter().any(|tool| is_meant(tool, pattern)) {
                return Err(no_such_tool(&self.name, pattern, tools));
            }
        }
        let mut proposals = Vec::new();
        for tool in tools {
            let mut said = self.patterns().filter(|(_, pattern)| is_meant(tool, pattern));
            let Some((class, pattern)) = said.next() else { continue };
            if let Some((other, against)) = said.find(|(other, _)| *other != class) {
                let id = text(tool, "tool_id");
                return Err(CommandFailure::usage(format!(
                    "`{id}` is {class} by `{pattern}` and {other} by `{against}`: nothing was classified"
                ))
                .hint("make the patterns narrower, so that each tool has one class"));
            }
            proposals.push(Proposal::new(tool, class, format!("named by {pattern}")));
        }
        Ok(proposals)
    }

    async fn say(&self, client: &ServerClient, proposal: &Proposal) -> Result<(), CommandFailure> {
        let rest = format!("/tools/{}/classify", segment(&proposal.tool));
        let mut body = json!({ "side_effect_policy": proposal.becomes });
        if let (Some(body), Some(digest)) = (body.as_object_mut(), &proposal.digest) {
            body.insert("digest".to_owned(), json!(digest));
        }
        client.post(&path(&self.name, &rest, self.tenant.as_ref()), &body).await?;
        Ok(())
    }
}

impl Proposal {
    fn new(tool: &Value, class: &str, because: String) -> Self {
        let newest = tool.pointer("/proposed/digest").or_else(|| tool.pointer("/accepted/digest"));
        Self {
            tool: text(tool, "tool_id").to_owned(),
            now: class_of(tool).to_owned(),
            becomes: class.to_owned(),
            because,
            digest: newest.and_then(Value::as_str).map(str::to_owned),
        }
    }

    fn document(&self) -> Value {
        let Self { tool, now, becomes, because, .. } = self;
        let call = call(becomes);
        json!({ "tool_id": tool, "was": now, "side_effect_policy": becomes, "because": because, "call": call })
    }

    /// Could it be called before, and not after?
    fn closes(&self) -> bool {
        ClassifiedCall::of(&self.becomes).is_refused() && !ClassifiedCall::of(&self.now).is_refused()
    }
}

fn call(class: &str) -> Value {
    let ClassifiedCall { word, text } = ClassifiedCall::of(class);
    json!({ "outcome": word, "message": format!("a call {text}") })
}

/// What is known of a tool, with what becomes of a call by its class, and by the one that is proposed.
fn with_calls(tool: &Value) -> Value {
    let mut tool = tool.clone();
    let suggested = Some(text(&tool, "suggested_policy")).filter(|class| !class.is_empty()).map(call);
    let now = call(class_of(&tool));
    if let Some(members) = tool.as_object_mut() {
        members.insert("call".to_owned(), now);
        members.extend(suggested.map(|call| ("suggested_call".to_owned(), call)));
    }
    tool
}

/// What the hints of a server say about tools that nobody has classified and no pattern names. Words that nobody has
/// accepted propose nothing.
fn hinted(tools: &[Value], named: &[Proposal]) -> Vec<Proposal> {
    let suggestion = |tool: &Value| {
        let class = text(tool, "suggested_policy");
        let because = || format!("its server hints {}", hints(tool));
        (!class.is_empty()).then(|| Proposal::new(tool, class, because()))
    };
    open(tools, named).filter(|tool| !is_open(tool)).filter_map(suggestion).collect()
}

/// What a person at the terminal says about each of them.
fn asked(printer: &Printer, tools: &[Value], named: &[Proposal]) -> Result<Vec<Proposal>, CommandFailure> {
    if !printer.can_ask() {
        return Err(CommandFailure::usage("there is nobody to ask: this is not a terminal")
            .hint("name the tools by --pure, --idempotent and --irreversible, or take the hints by --trust-hints"));
    }
    let mut proposals = Vec::new();
    for tool in open(tools, named) {
        let suggested = text(tool, "suggested_policy");
        let definition = tool.get("proposed").or_else(|| tool.get("accepted"));
        let description = definition.and_then(|it| it.pointer("/definition/description")?.as_str()).unwrap_or_default();
        let short: String = description.chars().take(DESCRIPTION_CHARS_MAX).collect();
        printer.note(&format!("\n{}: {}", text(tool, "tool_id"), visible(short.trim())));
        let default = if suggested.is_empty() { "skip" } else { suggested };
        if !suggested.is_empty() {
            printer.note(&format!("  its server hints {}", hints(tool)));
        }
        match choice(printer, default) {
            Choice::Class(class) => proposals.push(Proposal::new(tool, class, "said by you".to_owned())),
            Choice::Skip => {}
            Choice::Stop => break,
        }
    }
    Ok(proposals)
}

/// What somebody answers about a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Class(&'static str),
    Skip,
    Stop,
}

fn choice(printer: &Printer, default: &str) -> Choice {
    loop {
        let question =
            format!("[p]ure, [i]dempotent, i[r]reversible (calls are refused), [s]kip, [q]uit; Enter is {default}:");
        // An end of the input is no answer to anything that is still open.
        let Some(answer) = printer.ask(&question) else { return Choice::Stop };
        if let Some(choice) = understood(&answer, default) {
            return choice;
        }
    }
}

/// `None` if the answer is none.
fn understood(answer: &str, default: &str) -> Option<Choice> {
    let word = if answer.trim().is_empty() { default } else { answer.trim() };
    match word {
        "p" | "pure" => Some(Choice::Class("pure")),
        "i" | "idempotent" => Some(Choice::Class("idempotent")),
        "r" | "irreversible" => Some(Choice::Class("irreversible")),
        "s" | "skip" => Some(Choice::Skip),
        "q" | "quit" => Some(Choice::Stop),
        _ => None,
    }
}

/// The tools that nobody has classified, and nothing named already.
fn open<'a>(tools: &'a [Value], named: &[Proposal]) -> impl Iterator<Item = &'a Value> {
    let is_named = |tool: &Value| named.iter().any(|proposal| proposal.tool == text(tool, "tool_id"));
    tools.iter().filter(move |tool| class_of(tool) == "unclassified" && !is_named(tool)).collect::<Vec<_>>().into_iter()
}

fn still_open(tools: &[Value], proposals: &[Proposal]) -> usize {
    let taken_back = proposals.iter().filter(|proposal| proposal.becomes == "unclassified").count();
    open(tools, proposals).count() + taken_back
}

fn class_of(tool: &Value) -> &str {
    match text(tool, "side_effect_policy") {
        "" => "unclassified",
        class => class,
    }
}

fn hints(tool: &Value) -> String {
    let hints = tool.get("hints").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    hints.collect::<Vec<_>>().join(", ")
}

/// Whether a pattern means a tool, by any of the names it has.
fn is_meant(tool: &Value, pattern: &str) -> bool {
    let id = text(tool, "tool_id");
    let local = id.split_once('.').map_or(id, |(_, local)| local);
    is_called(tool, pattern) || [id, local, text(tool, "upstream_tool")].into_iter().any(|name| fits(pattern, name))
}

/// Whether a name is what a pattern describes, in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    // The last part must be at the end; of the others the first place is as good as any later one.
    let (middle, tail) = rest.rsplit_once('*').map_or(("", rest), |(middle, tail)| (middle, tail));
    for part in middle.split('*') {
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(tail)
}

fn no_such_tool(server: &str, pattern: &str, tools: &[Value]) -> CommandFailure {
    let names: Vec<&str> = tools.iter().map(|tool| text(tool, "upstream_tool")).collect();
    let failure = CommandFailure::usage(format!("no tool of `{server}` is called `{pattern}`: nothing was classified"));
    match nearest(pattern.trim_matches('*'), names) {
        Some(near) => failure.hint(format!("did you mean `{}`?", visible(near))),
        None => failure.hint(format!("`gantry server classify {server}` shows those it has")),
    }
}

fn overview(printer: &Printer, server: &str, tools: &[Value]) -> String {
    if tools.is_empty() {
        return format!("nothing is known of tools of `{server}`; `gantry server list` says how it fares");
    }
    let rows = tools.iter().map(|tool| {
        let undecided = class_of(tool) == "unclassified" && !is_open(tool);
        let proposal = if undecided { text(tool, "suggested_policy") } else { "" };
        let class = if proposal.is_empty() { class_of(tool) } else { proposal };
        let call = ClassifiedCall::of(class).text.to_owned();
        [text(tool, "tool_id").to_owned(), class_of(tool).to_owned(), proposal.to_owned(), hints(tool), call]
    });
    let mut page = printer.table(["TOOL", "CLASS", "PROPOSED", "ITS SERVER HINTS", "A CALL WITH THAT CLASS"], rows);
    let proposed = hinted(tools, &[]).len();
    let open = open(tools, &[]).count();
    if proposed > 0 {
        page.push_str(&format!("\n\naccept the {proposed} proposed: gantry server classify {server} --trust-hints"));
    }
    if open > proposed {
        page.push_str(&format!(
            "\n{}say the {} others: gantry server classify {server} --pure 'get_*' …, or --interactive",
            if proposed > 0 { "" } else { "\n" },
            open - proposed
        ));
    }
    page
}

fn outcome(printer: &Printer, proposals: &[Proposal], dry_run: bool) -> String {
    if proposals.is_empty() {
        return "nothing to say: every tool that was meant has its class".to_owned();
    }
    let rows = proposals.iter().map(|it| {
        let call = ClassifiedCall::of(&it.becomes).text.to_owned();
        [it.tool.clone(), it.now.clone(), it.becomes.clone(), it.because.clone(), call]
    });
    let table = printer.table(["TOOL", "WAS", if dry_run { "WOULD BE" } else { "IS" }, "BECAUSE", "A CALL"], rows);
    if dry_run { format!("{table}\n\nnothing was changed") } else { table }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::PrinterOptions;

    fn tools() -> Vec<Value> {
        vec![
            json!({ "tool_id": "files.read_file", "upstream_tool": "readFile", "hints": ["read_only"],
                "suggested_policy": "pure", "accepted": { "digest": "sha256:a" } }),
            json!({ "tool_id": "files.list", "upstream_tool": "list", "hints": [], "accepted": { "digest": "sha256:b" },
                "proposed": { "digest": "sha256:c" } }),
            json!({ "tool_id": "files.changed", "upstream_tool": "changed", "state": "quarantined", "hints": ["read_only"],
                "suggested_policy": "pure" }),
            json!({ "tool_id": "files.remove", "upstream_tool": "remove", "hints": ["destructive"],
                "suggested_policy": "irreversible", "side_effect_policy": "idempotent" }),
        ]
    }

    fn command(patterns: &[(&str, &str)]) -> ServerClassifyCommand {
        let of = |class: &str| patterns.iter().filter(|it| it.0 == class).map(|it| it.1.to_owned()).collect();
        ServerClassifyCommand {
            name: "files".into(),
            trust_hints: false,
            pure: of("pure"),
            idempotent: of("idempotent"),
            irreversible: of("irreversible"),
            unclassified: of("unclassified"),
            interactive: false,
            dry_run: false,
            tenant: None,
        }
    }

    #[test]
    fn hints_are_taken_only_for_what_nobody_has_classified_or_named() {
        let found = hinted(&tools(), &[]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].tool.as_str(), found[0].becomes.as_str()), ("files.read_file", "pure"));
        assert_eq!(found[0].digest.as_deref(), Some("sha256:a"));
        let named = command(&[("idempotent", "read_*")]).named(&tools()).unwrap();
        assert!(hinted(&tools(), &named).is_empty());
    }

    #[test]
    fn patterns_mean_tools_by_every_name_they_have_and_the_newest_word_is_what_was_looked_at() {
        for pattern in ["list", "files.list", "l*", "*.list", "*"] {
            let said = command(&[("pure", pattern)]).named(&tools()).unwrap();
            let list = said.iter().find(|it| it.tool == "files.list").unwrap();
            assert_eq!(list.digest.as_deref(), Some("sha256:c"), "{pattern}");
        }
        assert_eq!(command(&[("pure", "readFile")]).named(&tools()).unwrap()[0].tool, "files.read_file");
    }

    #[test]
    fn a_tool_with_two_classes_and_a_pattern_without_a_tool_are_mistakes() {
        let two = command(&[("pure", "*"), ("irreversible", "remove")]).named(&tools()).unwrap_err();
        assert!(two.message.contains("files.remove") && two.message.contains("nothing was classified"), "{two:?}");
        let none = command(&[("pure", "lst")]).named(&tools()).unwrap_err();
        assert_eq!(none.hint.as_deref(), Some("did you mean `list`?"));
    }

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "ac", false),
            ("a*a", "a", false),
            ("**", "x", true),
            ("abc", "abcd", false),
            ("*bc", "abcd", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_class_says_what_becomes_of_a_call() {
        for (class, word) in
            [("pure", "runs"), ("idempotent", "runs"), ("unclassified", "runs"), ("irreversible", "refused")]
        {
            assert_eq!(ClassifiedCall::of(class).word, word);
        }
        let tool = json!({ "tool_id": "files.remove", "hints": ["destructive"], "suggested_policy": "irreversible",
            "accepted": { "digest": "sha256:a" } });
        let shown = with_calls(&tool);
        assert_eq!(shown["call"]["outcome"], "runs", "{shown}");
        assert_eq!(shown["suggested_call"]["outcome"], "refused", "{shown}");
        let proposals = hinted(&[tool], &[]);
        assert!(proposals[0].closes());
        let table = outcome(&Printer::new(PrinterOptions::default()), &proposals, true);
        assert!(table.contains("E3208"), "{table}");
        let again = Proposal { now: "irreversible".into(), ..proposals[0].clone() };
        assert!(!again.closes(), "it could not be called before either");
    }

    #[test]
    fn an_answer_is_a_letter_a_word_or_nothing() {
        assert_eq!(understood("", "pure"), Some(Choice::Class("pure")));
        assert_eq!(understood(" r\n", "pure"), Some(Choice::Class("irreversible")));
        assert_eq!(understood("", "skip"), Some(Choice::Skip));
        assert_eq!(understood("q", "pure"), Some(Choice::Stop));
        assert_eq!(understood("yes", "pure"), None);
    }

    #[test]
    fn the_overview_says_what_is_proposed_and_the_commands_that_accept_it() {
        let page = overview(&Printer::new(PrinterOptions::default()), "files", &tools());
        assert!(page.contains("accept the 1 proposed: gantry server classify files --trust-hints"), "{page}");
        assert!(page.contains("say the 2 others"), "{page}");
        assert!(page.contains("A CALL WITH THAT CLASS"), "{page}");
        assert_eq!(still_open(&tools(), &[]), 3);
    }
}
