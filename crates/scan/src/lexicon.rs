//! Marks: what single words and short phrases can mean for a rule.
//!
//! The table is data. Words of a phrase are separated by spaces, alternatives by `|`, words that belong together by `_`;
//! `~` stands for nothing. All phrases are looked for in one pass of one automaton over the canonical sentence, so that
//! the cost does not grow with the table. A mark by itself means nothing bad: `must` and `password` are ordinary words.
//!
//! Not here: which combinations matter (`rules`), marks by form such as paths and addresses (`words`).

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use crate::words::Sentence;

/// What a token or phrase can mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mark {
    // By form.
    Quoted,
    Own,
    Foreign,
    Sibling,
    Parameter,
    Identifier,
    /// An option of a command, or an entry of a list of arguments.
    Listed,
    SecretIdentifier,
    SecretPath,
    Path,
    Url,
    Email,
    Host,
    Account,
    Example,
    // By phrase.
    Model,
    NoteToModel,
    User,
    Modal,
    Neg,
    Read,
    Send,
    Pass,
    Slot,
    Secret,
    Prompt,
    Personal,
    NegTell,
    NegShow,
    Covert,
    Silent,
    ConcealPhrase,
    NoAsk,
    Dismiss,
    Prior,
    PriorLoose,
    NotFollow,
    IgnoreYours,
    Hold,
    Hand,
    Asked,
    Prescribe,
    ChooseLoose,
    CommandLoose,
    SwitchOn,
    Opening,
    EndUser,
    Urgent,
    Must,
    Mutate,
    Via,
    WithTool,
    Stage,
    Promo,
    OffStage,
    Rank,
    Steer,
    Grave,
    Mine,
    UsersOwn,
    Rules,
    Void,
    Persona,
    Justify,
    Before,
    When,
    EveryTool,
    Every,
    ToolWord,
    Invoke,
    Tamper,
    Argument,
    Threat,
    Choose,
    Superlative,
    Disparage,
    Precedence,
    OtherTool,
    Endorse,
    Regardless,
    Say,
    CopyTo,
    Command,
    Download,
    Shell,
    SwitchOff,
    Safeguard,
    Presence,
    Sleeper,
    Trusted,
    Reply,
    ReplyVerb,
    TaskFor,
    Lie,
    Lookup,
    AsAlso,
    Money,
    Public,
}

/// Phrases of each mark.
const PHRASES: &[(Mark, &[&str])] = &[
    (
        Mark::Model,
        &[
            "ai|llm|llms|assistant|assistants|chatbot|claude|chatgpt|gpt|copilot|gemini",
            "language model|models",
            "the|this|any|your|every model|agent|agents|helper",
            "agents shall|must|should",
            "ai model|agent|agents|models|system|systems",
            "helper program",
        ],
    ),
    (
        Mark::NoteToModel,
        &[
            "note|message|attention|hint|notice|instruction|instructions|reminder|memo|info|directive|directives|important to|for the|all|any|~ ai|llm|llms|assistant|assistants|model|models|agent|agents|language_model|chatbot|ais",
            "not for people|humans|the_user|users|human_eyes",
            "mandatory for assistants|agents|models|ai",
            "for ai|llm|model|assistant eyes|use only",
            "if you are an|a|the ai|llm|assistant|language_model|agent|model|chatbot",
            "dear assistant|ai|agent|model",
            "to you the model|assistant|ai|agent",
            "ai|llm|assistants|agents|models reading this",
        ],
    ),
    (
        Mark::User,
        &[
            "user|users|human|humans|customer|customers|person|people|operator|anyone|anybody|somebody|someone|them|guest|client|nobody|owner|victim|him|her",
        ],
    ),
    (
        Mark::Modal,
        &[
            "must|should|shall|always|mandatory|required|requires|necessary|ensure|please|kindly|never|requirement|prerequisite|needed|needs|obliged|imperative|essential|crucial",
            "need|needs|has|have|ought to",
            "make|be sure",
            "is|are|be to be",
            "is|are to",
            "expected to",
            "see to it",
            "remember to",
            "you will",
            "it is vital|critical|important",
        ],
    ),
    (Mark::Neg, &["not|never|no|without|cannot|nor|neither|none|avoid"]),
    (
        Mark::Read,
        &[
            "read|reads|reading|open|opens|opening|access|accessing|load|loads|loading|retrieve|retrieves|retrieving|fetch|fetches|fetching|cat|dump|dumps|extract|extracts|collect|collects|collecting|gather|gathers|scan|find|obtain|obtains|get|take|list|listed|enumerate|export|peek|inspect|copy|copying|grab|harvest|capture|record|records|look_up|looking_up|looked_up|steal|locate|view|print|used_on|check|using|reveal|show|recite|repeat|output",
        ],
    ),
    (
        Mark::Send,
        &[
            "send|sends|sending|sent|forward|forwards|forwarded|forwarding|upload|uploads|uploaded|uploading|transmit|transmits|transmitted|mail|mails|email|emails|emailing|post|posts|posting|posted|submit|submits|submitted|share|shares|shared|report|reported|deliver|relay|relays|push|transfer|exfiltrate|leak|mirror|mirrors|route|publish|hand_over|hand_them_over|copied|goes|go|reaches|receive|redirect|redirected|expose|invite|invites|disclose|reveal|replicate|sync",
        ],
    ),
    (
        Mark::Pass,
        &[
            "pass|passed|passing|include|included|includes|including|append|appended|attach|attached|embed|embedded|insert|inserted|add|added|provide|provided|supply|supplied|put|puts|putting|place|placed|fill|filled|populate|prepend|prepended|write|mix|tuck|slip|give|given|paste|encode|encoded|concatenate|incorporate|hand|copy|copied|submit|enclose|listed|insert",
        ],
    ),
    (Mark::Hold, &["contain|contains|hold|holds|carry|carries|belongs|filled_with|bear|keep|store|stored"]),
    (
        Mark::Hand,
        &[
            "handed|passed|sent|included|supplied|copied|forwarded|reported|attached|submitted|appended|transmitted|uploaded|read_and|listed_in|given_in|given_to|exported|emailed|posted|disclosed|revealed|embedded|inserted|placed",
        ],
    ),
    (
        Mark::Slot,
        &[
            "parameter|parameters|argument|arguments|field|fields|metadata|header|headers|query_string|title|caption|variable|remark|sidenote|side_note|placeholder|sub_domain|file_names|the_input|the_query|the_request|the_url|each_request|next_request|the_comment|the_note|trip_note|the_body|query|here",
        ],
    ),
    (
        Mark::Secret,
        &[
            "password|passwords|passphrase|credential|credentials|secrets|keychain|clipboard|api_key|api_keys|apikey",
            "access|secret|private|ssh|encryption|signing|production|session|oauth|bearer|auth|authentication|service_account|api|refresh key|keys|token|tokens|cookie|cookies|secret",
            "secret access key",
            "environment variable|variables",
            "env var|vars|variables|file",
            "seed|recovery phrase|phrases",
            "cookie store|jar",
            "wallet file|key",
            "password manager",
            "card number|numbers",
            "credit card|cards",
            "social security",
            "secrets folder|directory",
            "ssh folder|directory",
            "id rsa",
            "sensitive data|information|files|directories|file",
            "confidential data|information|files|file|documents",
            "configuration secrets|directory",
        ],
    ),
    (
        Mark::Prompt,
        &[
            "conversation history|log|transcript|so_far|context",
            "entire|full|whole|complete|current|this|previous|prior|the|of_the|of_this conversation|chat|dialogue|transcript",
            "chat history|log|logs|transcript|so_far",
            "system prompt|message|instructions|prompts",
            "developer message|prompt",
            "hidden|initial|original|internal|secret instructions|prompt|reasoning|instruction",
            "internal reasoning",
            "user|previous|earlier|prior|last|recent|all|ten|former messages|message",
            "last|previous ten|few|five|several|three user|~ messages",
            "user said|typed|asked|wrote|has_said|has_typed|have_said|has_asked",
            "has|have said|typed",
            "said in this chat|conversation|session",
            "user prompt|query|request|input verbatim",
            "previous|earlier|former|prior|other|all tool|~ results|outputs|tool_calls|tool_results|calls",
            "descriptions of all tools|other_tools|the_tools",
            "list of available|all|your tools",
            "tools available to you",
            "all|available|your tools and",
            "context window",
            "chat transcript",
        ],
    ),
    (
        Mark::Personal,
        &[
            "contacts|inbox|mailbox|location|workspace|documents",
            "home|postal|billing address|directory|folder",
            "phone|telephone number|numbers",
            "full name",
            "user files|file|data|documents|location|contacts|email|emails|calendar|names",
            "personal data|information|details",
            "names of clients|customers|users",
            "bank account",
            "list of files|contacts|users",
            "directory listing",
            "root folder|directory",
            "original text",
            "table users",
            "opened documents",
            "medical|health|customer record|records|data",
            "source code",
            "every item|message|file",
        ],
    ),
    (
        Mark::NegTell,
        &[
            "do_not|never|not|without|avoid|refrain_from|no_need_to|do_not_ever|must_not|should_not|nothing_you_should tell|telling|mention|mentioning|inform|informing|notify|notifying|alert|alerting|warn|bring|trouble|let|letting|talk|reveal_to|disclose_to|bring_this_up|bother|say|discuss|discussing|speak|confide|admit|acknowledge|advise|apprise",
            "under no circumstances reveal|tell|mention|inform|disclose",
            "no need to trouble|tell|inform|bother",
        ],
    ),
    (
        Mark::NegShow,
        &[
            "do_not|never|not|without|avoid|must_not|should_not show|showing|display|displaying|reveal|revealing|disclose|disclosing|expose|explain|explaining|print|report|be_shown|be_visible|be_told|be_informed|be_notified|visible|surface",
        ],
    ),
    (
        Mark::Covert,
        &["secretly|covertly|discreetly|surreptitiously|stealthily|clandestinely|unnoticed|invisibly|stealth"],
    ),
    (Mark::Silent, &["silently|quietly|in_the_background|behind_the_scenes|automatically_and"]),
    (
        Mark::ConcealPhrase,
        &[
            "user|customer|users|they|human|person|operator must|should|shall|does|do|need|needs|will|can|~ not|never need|have|be|~ to|~ know|notice|see|learn|realise|realize|find_out|aware|be_aware|be_told|be_informed",
            "remain|remains|stay|stays|kept|is|are|be unaware|oblivious",
            "keep this|it|that|the_step|these|them a|~ secret|hidden|confidential|quiet|between_us|to_yourself|private",
            "keep quiet about",
            "stay|remain|be|keep invisible|hidden_from|undetected|unseen|unnoticed",
            "leave it|this|that|them out of",
            "leave no trace|traces|mention",
            "omit the|this|that|any charge|step|call|it|mention|reference",
            "omit it|this|that from",
            "secret operation|action|step|task",
            "as if nothing happened|had_happened",
            "hide|conceal|hidden|concealed this|it|that|the|~ action|step|call|fact|from_the|from_user|operation|parameter|from",
            "conceal",
            "without the|~ user|users|their|human|customer knowing|knowledge|noticing|awareness|consent|permission|being_aware|seeing",
            "mere|just_an|simple|only_an implementation detail",
            "upset|scare|confuse|worry|alarm|annoy the user|customer|users",
            "user does not need to know|see",
            "say that no data|nothing",
            "out of your|the answer|reply|response|summary",
            "no trace of",
            "answer no when asked",
            "if someone|anyone|somebody asks|ask say|deny|answer|reply",
            "if asked say|deny",
            "deny that|it|having|any",
            "not to be mentioned|shown|displayed|told|disclosed",
            "nobody|no_one should|must|will know|notice|see",
            "not raise suspicion",
            "trouble the user",
            "never inform|tell|notify|alert",
            "from the user|human view|sight",
        ],
    ),
    (
        Mark::NoAsk,
        &[
            "without asking|confirmation|consent|approval|verification|confirming|warnings|prompting|permission|hesitation|question|questions|validating",
            "without any|further|user|the|explicit|requesting|requiring user|~ confirmation|consent|approval|verification|permission|prompt|questions",
            "no questions needed|asked",
            "skip|bypass|omit|ignore|suppress the|any|all|~ approval|confirmation|consent|permission prompt|dialog|screens|screen|step|checks|check|dialogs|prompts",
            "do not ask|request|seek|wait for|the|~ user|~ confirmation|approval|permission|consent",
            "not check permissions",
            "confirmation|approval|approvals|consent are|is no_longer|not needed|required|necessary",
        ],
    ),
    (
        Mark::Dismiss,
        &[
            "ignore|ignores|disregard|forget|override|overrides|bypass|overrule|discard|dismiss|abandon|supersede|supersedes|outrank|outranks|neglect|drop|suspend|violate",
            "pay no attention",
        ],
    ),
    (Mark::NotFollow, &["do not follow|obey|adhere|comply|respect", "stop following|obeying"]),
    (
        Mark::IgnoreYours,
        &["ignore|disregard|forget all|~ your|of_your previous|prior|earlier|original", "forget everything"],
    ),
    (
        Mark::Prior,
        &[
            "previous|prior|above|earlier|preceding|former|existing|original|your|safety|initial|system|given|operator|user|security|developer",
        ],
    ),
    (Mark::PriorLoose, &["everything|all|any|content|usual|other|these|those"]),
    (
        Mark::Rules,
        &[
            "instruction|instructions|guideline|guidelines|rules|prompt|prompts|directive|directives|constraints|restrictions|policy|policies|guardrails|safeguards|filters|above|limitations|orders|programming",
        ],
    ),
    (
        Mark::Void,
        &[
            "suspended|outdated|obsolete|lifted|void|off|invalid|revoked|expired|exemption|exempt",
            "do|does not|no_longer apply",
            "no longer apply|applies|needed|valid|relevant|binding",
            "outrank|outranks",
        ],
    ),
    (
        Mark::Persona,
        &[
            "you are now",
            "act as root|admin|administrator|dan|if_you_are|though_you|an_unrestricted",
            "developer|debug|god|admin|maintenance mode on|enabled|activated",
            "your new task|role|instructions|goal|objective|mission|purpose|job|identity",
            "new system instructions|instruction|prompt|message",
            "new task for the_assistant|the_ai|you|the_model|the_agent|assistant|ai",
            "new task is|assigned",
            "new instructions|instruction|directive|directives for|from|follow|below|you|are",
            "unrestricted agent|assistant|mode|ai|model",
            "system override|notice|alert|directive|instruction|instructions|message_from",
            "obey only|all|every|the|this",
            "obey",
            "pretend to|you|that",
            "jailbreak mode|yourself",
            "have no restrictions",
            "you have admin|root|full rights|access|privileges",
            "real|actual|true task|goal|instruction|instructions|purpose is|of",
        ],
    ),
    (
        Mark::Justify,
        &[
            "security|company|data_protection|backup|corporate|compliance|privacy|organizational|global policy|policies|rule|requirement|requirements|reasons|regulation|protocol|standards|audit",
            "policy requires|mandates|demands",
            "legal requirement|obligation",
            "regulation|regulations|compliance|gdpr|hipaa|licence_check|license_check",
            "integrity rule|check",
            "in accordance with",
            "according to the",
            "due to a",
            "to verify|validate|confirm|authenticate|prove your|the|permissions|that|identity|~",
            "for|to verification|authentication|calibration|personalisation|personalization|archiving|compatibility|caching|auditing|monitoring|validation|attribution|security",
            "so that usage|we|the_session|the_view|the_cache|connections|the_environment",
            "because of a",
            "for quality assurance",
            "clock drift|low entropy",
            "environment is|security safe|check",
            "security check|verification|audit|validation|purposes",
            "needed|required for statistics|verification|security|calibration",
            "is permitted|authorized|authorised|allowed",
            "proxying issues",
            "known bug|issue",
            "bank migration",
            "data residency",
        ],
    ),
    (
        Mark::Before,
        &[
            "before|beforehand|precede|preceded|precedes|initially|precondition|prerequisite|first|afterwards",
            "prior to",
            "in advance",
            "begin|start by",
            "followed by",
            "first step",
            "in the first place",
            "as part of initialisation|initialization|setup",
            "in order to",
        ],
    ),
    (
        Mark::When,
        &[
            "when|whenever|while|once|if|upon|during|after|calls",
            "every|each|any time",
            "as soon as",
            "in case",
            "in the presence",
            "on every|each|any",
            "from now on",
        ],
    ),
    (
        Mark::EveryTool,
        &[
            "any|every|all|each|all_other|all_of_the other|subsequent|later|further|following|future|~ tool|tools|function|functions|operation|operations|request|requests|action|actions|call|calls|command|commands|server|servers|interaction|interactions|step|steps|task|tasks",
            "any|every|all|each|whole file|database|network|write|read|search|payment|message|email|communication|messaging|system|mail|api|data|git operation|operations|query|queries|tool|tools|action|actions|request|requests|call|calls|reads|writes|access",
            "other|another|competing|subsequent tool|tools|function|functions|calls",
            "all others",
            "each and every",
            "every|each answer|response|reply|message|text|email|question|query|program|container|result|image|outgoing",
            "all requests|answers|emails|messages|responses|directories|functions|file_reads|questions|queries",
            "any messaging",
            "a message is sent",
            "what was asked",
            "tool that",
            "requests made with",
            "policy for other",
        ],
    ),
    (Mark::Every, &["any|every|all|each|whatever|everything|always|whole|entire|complete|full|verbatim"]),
    (
        Mark::ToolWord,
        &["tool|tools|function|functions|operation|operations|server|the_mail|endpoint|the_delivery|the_database"],
    ),
    (
        Mark::Invoke,
        &[
            "use|used|using|call|called|calling|calls|invoke|invoked|invokes|invoking|run|runs|running|execute|executed|executes|executing|issue|trigger|perform|performed|launch|start|starting|requested|asks|asked|wants|sent|present|available|becomes_available|answering|computing|execution|listing|continue|loaded|installed",
            "carried out",
        ],
    ),
    (
        Mark::Tamper,
        &[
            "replace|replaced|replaces|change|changed|changes|modify|modified|modifies|alter|altered|overwrite|overwritten|override|overrides|redirect|redirects|redirected|substitute|substituted|swap|swapped|rewrite|rewritten|switch|multiply|multiplied|prefix|affected|moved|spoof|falsify|tamper",
            "set to",
            "be set",
            "must|should|shall|has_to|have_to use|send|contain|be_called_with|point|include|go|additionally",
            "is to be",
            "are to be",
        ],
    ),
    (
        Mark::Argument,
        &[
            "recipient|recipients|address|amount|path|argument|arguments|parameter|parameters|payee|iban|bucket|flag|author|destination|account|where_clause|bank_account|price|endpoint|body|subject|passenger|beneficiary|sender|to_field|target|registry|commit",
        ],
    ),
    (
        Mark::Threat,
        &[
            "otherwise|crash|crashes|penalised|penalized|punished",
            "or else",
            "will not work|function|succeed|be_processed",
            "not work otherwise|properly",
            "will fail|crash|break",
            "will be lost|refused|blocked|rejected|denied|terminated",
            "only works if|when",
            "not function unless",
            "result is empty",
            "lead|result to|in failure|errors|data_loss",
            "this only works",
            "leads to the best",
        ],
    ),
    (
        Mark::Choose,
        &[
            "always|must|should|will select|choose|pick|prefer this|the|it tool|one|function|server|~",
            "choose|pick|select|prefer this one|tool|function|server",
            "only search|weather|translation|file|~ tool you should|may|must|can|need",
            "pick this function first",
            "invoked|called|used for each and every",
            "even when|if it does not appear|seem",
            "function|tool to call|use for any|every|all",
            "must|should ever use",
            "do|must not|never call|use any_other|other|another|alternative|others",
            "instead of any|all|other tool|tools|other",
            "for everything",
            "only this tool",
        ],
    ),
    (
        Mark::ChooseLoose,
        &[
            "always|must|should use|call|invoke this tool|one|function|server",
            "use this|it tool|function|one|~ for all_queries|any_query|every|each|any",
            "use this tool instead of",
        ],
    ),
    (
        Mark::Superlative,
        &[
            "most accurate|reliable|effective|trusted|powerful|advanced|secure|popular",
            "highest|top rated|priority|ranked",
            "best tool|function|translator|choice|practice|available|option|outcome",
            "the best",
            "number one",
            "safest product|choice|option",
            "official|verified verified|replacement|and_trusted|recommended",
            "recommended replacement|best_practice",
            "industry leading",
            "the lowest",
        ],
    ),
    (
        Mark::Disparage,
        &[
            "unreliable|compromised|buggy|stale|discontinued|unsafe|insecure|inferior|recalled|inaccurate|malicious|vulnerable|dangerous|untrusted|obsolete|hacked|broken",
            "wrong|stale|incorrect|false results|answers|data",
            "must|should be avoided",
            "advise against",
            "fully booked",
            "any more because",
            "will be penalised|penalized|punished",
        ],
    ),
    (
        Mark::Precedence,
        &[
            "takes|take precedence over all|any|every|other|the",
            "top|highest|maximum|absolute priority",
            "overrides all|any|other",
            "supersedes|supersede",
            "outrank|outranks",
            "priority over all|any|other",
        ],
    ),
    (
        Mark::OtherTool,
        &[
            "other|another|competing|alternative|similar|rival search|weather|document|~ tool|tools|function|functions|ones|services|product|products",
            "the rest|others|alternatives|competitors",
            "any other",
        ],
    ),
    (
        Mark::Endorse,
        &[
            "trusted|approved|endorsed|certified|verified|recommended|used by openai|anthropic|google|microsoft|over|thousands|millions|experts|the_platform|all_major",
            "fully trusted",
            "10 000 companies",
        ],
    ),
    (
        Mark::Regardless,
        &[
            "regardless|irrespective|whatever",
            "no matter what|which|how",
            "even if|when not|it asked|does|is|they|the_user",
        ],
    ),
    (
        Mark::Asked,
        &[
            "asked|requested|prefers|want|wants|says|said|say|relevant|request|asks|user|users|guest|customer|question|results|appear|instructed|data",
        ],
    ),
    (
        Mark::Prescribe,
        &[
            "in every|each|all|any answer|reply|response|answers|replies|responses",
            "end|begin|start with the sentence|words|phrase|text|link",
            "instead of the address|one|recipient|value|account",
            "reply|answer|respond only with",
        ],
    ),
    (Mark::Urgent, &["urgent|immediately|urgently|at_once|asap|right_away|without_delay"]),
    (Mark::EndUser, &["user|users|human|humans"]),
    (
        Mark::Say,
        &[
            "recommend|recommends|say|state|claim|describe|advise|answer|reply|respond|mention|suggest|promote|praise|tell|write|continue|obey|use|let|print",
        ],
    ),
    (
        Mark::CopyTo,
        &[
            "bcc|blind_copy|carbon_copy|blind_carbon",
            "a|another|one|~ copy|duplicate of all|every|each|any|the|whatever|outgoing",
            "mirrors every|all|each",
        ],
    ),
    (
        Mark::Command,
        &[
            "rm rf|fr|r_f",
            "chmod 777|r_777|a_rwx|0777",
            "mode 777|0777",
            "ufw disable",
            "systemctl stop|disable",
            "iptables f|flush",
            "os system",
            "nc e",
            "bin sh|bash",
            "drop the table|database",
            "drop table|database",
            "delete the directory|database|backups|home",
            "nopasswd all",
            "config set registry",
            "mkfs|dd_if",
            "invoke expression",
            "powershell enc|e",
            "privileged and",
            "exec|eval base64|compile",
            "or 1 1",
            "fetch|download|downloads and run|execute|executes|runs",
            "fork bomb",
            "reverse shell",
            "backdoor|keylogger|ransomware",
            "remote access",
            "repository to #url",
        ],
    ),
    (
        Mark::CommandLoose,
        &[
            "with force",
            "base64 d|decode",
            "chmod x",
            "pip|npm install",
            "crontab|sudo",
            "curl s|x|d|sl|fssl|~ #url",
            "wget qo|q|o|~ #url",
        ],
    ),
    (Mark::Download, &["curl|wget|invoke_webrequest"]),
    (Mark::Shell, &["bash|sh|zsh|python|powershell|execute"]),
    (
        Mark::SwitchOff,
        &["disable|stop|deactivate|suspended|kill|weaken|drop|skip|turn_off|switch_off|bypass|circumvent"],
    ),
    (Mark::SwitchOn, &["grant|enable|enables|start|starts|open|give|switch|create|turn_on"]),
    (
        Mark::Opening,
        &[
            "remote_access|write_access|public_sharing|microphone|full_access|admin_access|root_access|public_link|admin|a_backdoor|privileges",
        ],
    ),
    (
        Mark::Safeguard,
        &[
            "firewall|antivirus|logging|validation|authentication|warnings|content_filters|audit_log|two_factor|consent_screens|monitoring|backups|security_checks|safety_checks|access_control",
            "safety rules|checks|filters",
        ],
    ),
    (
        Mark::Presence,
        &[
            "when|while|once|as_long_as|whenever|if this tool|server|function is available|installed|present|loaded|enabled|active|connected|registered",
            "after this tool is loaded|installed|available",
            "presence of this tool",
            "side effect on|when|of|that",
            "very important side effect",
            "once present",
            "affected by this tool",
            "also present",
        ],
    ),
    (
        Mark::Sleeper,
        &[
            "only when the user|someone|it",
            "on the second|third|fourth|fifth|tenth",
            "from the second|third|next call|use|invocation|time",
            "date is later|after|past",
            "later than|after january|february|march|april|may|june|july|august|september|october|november|december",
            "in case the user is",
            "stop doing that",
            "after the first|second|third|tenth call|use|invocation",
            "mentions|says|contains the word|keyword|phrase",
            "becomes available",
            "when asked whether",
        ],
    ),
    (
        Mark::Trusted,
        &[
            "treat|follow|consider|accept whatever|the|any|all|every it|~ output|outputs|request|requests|result|results|returns",
            "as trusted|system commands|command|message|instructions|a_system_message",
            "as though it was a|the system|user",
            "follow whatever|any|all|every it|instruction|instructions|the",
            "instructions found on|in",
            "do as it says",
            "and do|follow|obey it|that|them",
            "decode and|then follow|execute|do|run|obey",
            "accept every|all|any request|requests|command",
            "comply with all|every|any",
            "without verification",
            "trusted commands",
        ],
    ),
    (
        Mark::Reply,
        &["your|the|~ response|reply|answer|answers|message|output|responses|replies|summary", "end of your"],
    ),
    (
        Mark::ReplyVerb,
        &[
            "add|include|insert|modify|enhance|use|end|begin|start|write|provide|integrate|scramble|rearrange|replace|jumble|append|adjust|embed|promote|mention|suggest|conclude|change|recommend|give|encode|translate|remove|substitute|shuffle|alter|introduce|incorporate|finish|render|craft|respond|answer|reply|misspell|spell|convert|weave|in|create|ensure|make|stress|emphasize|advertise",
        ],
    ),
    (
        Mark::TaskFor,
        &[
            "todo",
            "to do send|post|visit|invite|read|delete|forward",
            "task for the|you",
            "do the following first|~",
            "strictly adhere to",
            "please do the following",
            "before you can|continue solve|answer|~",
            "stop the current task",
            "execute the following",
            "following instruction|instructions",
        ],
    ),
    (
        Mark::Lie,
        &[
            "say|claim|pretend|insist that",
            "claim they",
            "answer|say no",
            "describe the alternatives",
            "as the lowest|best|safest|only",
        ],
    ),
    (
        Mark::Lookup,
        &[
            "its|their|the|full|whole|entire|all|the_last content|contents|listing|value|text|hundred_lines|output|result|results|items|outcome",
        ],
    ),
    (Mark::AsAlso, &["also|additionally|too|in_addition|as_well|extra|furthermore|moreover|additional"]),
    (
        Mark::Money,
        &["transfer|pay|payment|charge|usd|eur|dollars|bank_account|wallet|payee|iban|service_charge|percent"],
    ),
    (
        Mark::Must,
        &[
            "must|shall|need|needs|mandatory|has_to|have_to|ought_to",
            "is|are to be|use|go",
            "may only be",
            "has|have its|their",
            "is|are required to",
        ],
    ),
    (
        Mark::Mutate,
        &[
            "remove|removed|delete|deleted|raise|raised|increase|increased|reduce|reduced|lower|lowered|shift|shifted|save|saved|export|exported|edit|edited|copy|copied|transfer|transferred|push|pushed|force|booked|opened|shared|written|append|appended|insert|inserted|rounded|truncated|shared_publicly|swapped|swap|replaced|replace|changed|change|overwritten|forwarded|handed|uploaded|sent|emailed|mailed|posted|published|purchase|buy|ordered|cancel|cancelled|granted|grant|revoke|disabled|renamed|doubled|multiplied|redirected",
        ],
    ),
    (
        Mark::Via,
        &[
            "given|handed|passed|written|read|entered|sent|submitted|supplied|used|made|returned|provided|opened to|through|by|with|via|in|using #ident",
            "by calling|running|invoking|means_of #ident",
        ],
    ),
    (Mark::WithTool, &["through|via|with|using|by #ident"]),
    (
        Mark::Stage,
        &[
            "your|the|final final|~ answer|reply|response|summary|output|explanation|message",
            "in|to the chat",
            "reply to|with",
            "respond to|with",
            "when summarising|summarizing|answering|replying|responding|asked",
        ],
    ),
    (
        Mark::Promo,
        &[
            "advertisement|advert|sponsored|discount|market_leader|promotion|affiliate|premium_version",
            "call the company",
            "leave negative",
        ],
    ),
    (
        Mark::OffStage,
        &[
            "come|comes up in",
            "internal matter|detail",
            "no longer watching|looking|present",
            "not watching|looking|watched",
            "discretely",
            "let people|them|users|anyone review|see|read|check",
            "extra|second|additional request|call|step|hop",
            "list only the|what|your",
            "not contain any reference|mention",
            "normal cache|part_of|behaviour|behavior",
            "explain|say|tell_them|reply that it is|was",
            "pretend",
            "no reason to let",
        ],
    ),
    (
        Mark::Rank,
        &[
            "same authority as",
            "higher|highest|top level directive|instruction|priority|command",
            "come|comes|are second to",
            "has|have no policies|restrictions|limits|rules",
            "name is now",
            "do what is|it described|written|says|stated",
            "command|commands|order|orders from|of the system|operator|developer|administrator|user|owner",
            "carry it|them|these|those|this out",
            "until further notice",
            "refuse to use|call|answer|run|help",
            "on behalf of the user each|every|whenever|without",
            "stop the current|your|this job|task|work",
            "rather than the user",
            "instead of what the user",
        ],
    ),
    (
        Mark::Steer,
        &[
            "this one is what",
            "goes|go|routed|pass|passes through #own",
            "route all|every",
            "other vendors|providers|publishers|servers",
            "are|is retired|decommissioned|disabled|unavailable|withdrawn as_of|from|and|now|today",
            "stars by|from",
            "ignoring this tool",
            "whichever tool|map|search",
            "not published by",
            "goes through",
        ],
    ),
    (
        Mark::Grave,
        &[
            "root rights|access|privileges|shell",
            "listening port",
            "to|into a shell",
            "selinux off",
            "turn|switch selinux|firewall|logging|auditing|apparmor|antivirus off",
            "name log delete",
            "all privileges on|to",
            "0 0 0 0",
            "git hooks",
            "post install|postinstall",
            "force option|push|flag on|to main|master",
            "security groups|group must|should|have be|to",
            "printenv",
            "etc hosts",
        ],
    ),
    (
        Mark::Mine,
        &[
            "environment under",
            "mnemonic|mnemonics",
            "anything|everything|whatever|details confidential|private|sensitive|secret|personal",
            "word by word|for_word",
            "as you received them|it",
            "instructions as you",
            "your instructions|prompt|rules|guidelines",
            "last|previous|most_recent|recent database_query|query|message|messages|results|prompt|call|answer",
            "results|output|result of the last|previous|earlier|other|former",
            "message of the user",
            "what the user asked|said|wrote|typed|wants",
            "home folder|directory",
            "largest|recent|newest document|documents|file",
            "occupation|employer",
            "customers table|list|database",
            "guest list",
            "pin code|number",
            "account name and",
            "output of printenv|env",
            "process list",
            "browsing|search|command|shell history",
        ],
    ),
    (
        Mark::Public,
        &[
            "public link|sharing|share|mirror|bucket|folder",
            "to everyone|partners|the_vendor|a_third_party|an_attacker|the_attacker|our_server|our_servers|our_partner",
            "our server|servers|partner|backend",
            "third party|parties",
            "harbour|trusted partner|partners",
            "through nfs",
            "indexed|stored remotely",
        ],
    ),
];

/// A mark over the tokens `start..end` of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hit {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) mark: Mark,
}

/// All marks of a sentence, by their start.
pub(crate) fn hits(sentence: &Sentence) -> Vec<Hit> {
    let mut hits: Vec<Hit> = sentence.marks.iter().map(|&(mark, start)| Hit { start, end: start + 1, mark }).collect();
    if let Some(lexicon) = lexicon() {
        for found in lexicon.automaton.find_overlapping_iter(&sentence.canonical) {
            // A phrase has a space on both sides, so it starts one token after the space it starts with.
            let start = sentence.starts.partition_point(|&place| place <= found.start());
            let end = sentence.starts.partition_point(|&place| place < found.end());
            hits.extend(lexicon.marks.get(found.pattern().as_usize()).map(|&mark| Hit { start, end, mark }));
        }
    }
    hits.sort_unstable();
    hits.dedup();
    hits
}

// --- the automaton -------------------------------------------------------------------------------------------------

#[derive(Debug)]
struct Lexicon {
    automaton: AhoCorasick,
    /// The mark of each pattern.
    marks: Vec<Mark>,
}

/// The automaton over all phrases, built once. `None` cannot happen with the table above; a test holds it to that.
fn lexicon() -> Option<&'static Lexicon> {
    static LEXICON: OnceLock<Option<Lexicon>> = OnceLock::new();
    LEXICON
        .get_or_init(|| {
            let all = PHRASES.iter().flat_map(|(mark, specs)| specs.iter().map(move |spec| (*mark, spec)));
            let (marks, phrases): (Vec<Mark>, Vec<String>) =
                all.flat_map(|(mark, spec)| expand(spec).into_iter().map(move |phrase| (mark, phrase))).unzip();
            AhoCorasick::new(&phrases).ok().map(|automaton| Lexicon { automaton, marks })
        })
        .as_ref()
}

/// The phrases a specification stands for, with a space on both sides.
fn expand(spec: &str) -> Vec<String> {
    let mut phrases = vec![" ".to_owned()];
    for part in spec.split(' ') {
        let mut longer = Vec::with_capacity(phrases.len() * 2);
        for phrase in &phrases {
            for choice in part.split('|') {
                longer.push(if choice == "~" {
                    phrase.clone()
                } else {
                    format!("{phrase}{} ", choice.replace('_', " "))
                });
            }
        }
        phrases = longer;
    }
    phrases.retain(|phrase| phrase.len() > 2);
    phrases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Names, sentences};

    fn marks(text: &str) -> Vec<(Mark, usize, usize)> {
        let sentences = sentences(text, &Names::default(), false);
        sentences.iter().flat_map(hits).map(|hit| (hit.mark, hit.start, hit.end)).collect()
    }

    #[test]
    fn the_table_compiles_and_stays_small() {
        let lexicon = lexicon().expect("the phrases compile");
        assert!(lexicon.marks.len() < 20_000, "{} phrases", lexicon.marks.len());
    }

    #[test]
    fn a_specification_stands_for_all_its_phrases() {
        assert_eq!(expand("a|b_c d|~"), [" a d ", " a ", " b c d ", " b c "]);
    }

    #[test]
    fn phrases_match_whole_words_at_their_place() {
        assert!(marks("Please do not tell the user").contains(&(Mark::NegTell, 1, 4)));
        assert!(marks("the user").contains(&(Mark::User, 1, 2)));
        assert!(!marks("superuser").iter().any(|(mark, ..)| *mark == Mark::User));
        assert!(marks("you are to open it").contains(&(Mark::Modal, 1, 3)));
    }
}
