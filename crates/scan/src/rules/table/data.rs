//! Rules about secrets, the conversation and the person, and where they go.

use super::{ANYWHERE, ARGUMENT, DEFINITION, DESTINATION, GIVE, OUTPUT, SECRET};
use crate::FindingKind::DataExfiltration;
use crate::lexicon::WordMark::*;
use crate::rules::{ScanRule, rule};

/// The rules.
pub(super) const RULES: &[ScanRule] = &[
    // Secrets.
    rule("secret", DataExfiltration, 3, 8, &[&[Read], SECRET], "speaks of reading secrets").affirmative(),
    rule("secret", DataExfiltration, 6, 8, &[&[Read, Pass, Send], &[SecretPath]], "asks for a file that holds secrets")
        .affirmative()
        .only(DEFINITION),
    rule("secret", DataExfiltration, 5, 8, &[&[Read, Send], &[SecretPath]], "speaks of a file that holds secrets")
        .affirmative()
        .only(OUTPUT),
    rule(
        "secret",
        DataExfiltration,
        5,
        ANYWHERE,
        &[&[SecretPath], GIVE],
        "a file that holds secrets is to be handed over",
    )
    .affirmative(),
    rule(
        "secret",
        DataExfiltration,
        9,
        14,
        &[&[Read], SECRET, &[Pass, Send]],
        "secrets are to be read and handed over",
    )
    .affirmative(),
    rule("secret", DataExfiltration, 7, 8, &[&[Modal, Before], SECRET, &[Hand, Send]], "secrets are to be handed over")
        .affirmative(),
    rule(
        "secret",
        DataExfiltration,
        8,
        10,
        &[&[Modal, Before], &[Read, Pass, Send], &[SecretPath]],
        "asks for a file that holds secrets",
    )
    .affirmative(),
    rule(
        "secret",
        DataExfiltration,
        8,
        8,
        &[&[Pass, Send], SECRET, ARGUMENT],
        "secrets are to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule("secret", DataExfiltration, 6, 6, &[&[Modal], GIVE, SECRET], "secrets are to be handed over")
        .affirmative()
        .only(DEFINITION),
    rule("secret", DataExfiltration, 8, 2, &[&[Pass, Send], &[Every], SECRET], "all secrets are to be handed over")
        .affirmative(),
    rule(
        "secret",
        DataExfiltration,
        7,
        8,
        &[ARGUMENT, &[Modal], &[Hold], SECRET],
        "secrets are to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule("secret", DataExfiltration, 6, 8, &[&[Send], SECRET], "secrets are to be sent").affirmative().only(OUTPUT),
    rule("secret", DataExfiltration, 6, 8, &[&[Model, Before], &[Read], SECRET], "asks for secrets").affirmative(),
    rule("secret", DataExfiltration, 8, 6, &[SECRET, &[Modal], &[Hand, Send]], "secrets have to be handed over")
        .only(DEFINITION),
    rule(
        "secret",
        DataExfiltration,
        9,
        8,
        &[&[EveryTool], &[Modal], &[Pass, Hold], SECRET],
        "secrets are to go into other calls",
    )
    .only(DEFINITION),
    // The conversation and the person.
    rule("context", DataExfiltration, 6, 8, &[GIVE, &[Prompt]], "asks for the conversation or the prompt")
        .affirmative()
        .only(DEFINITION),
    rule(
        "context",
        DataExfiltration,
        9,
        8,
        &[&[Modal, Every, Before, AsAlso], &[Pass, Send], &[Prompt]],
        "asks for the conversation or the prompt",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "context",
        DataExfiltration,
        9,
        10,
        &[&[Pass, Send], &[Prompt], ARGUMENT],
        "the conversation is to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "context",
        DataExfiltration,
        9,
        10,
        &[ARGUMENT, &[Pass, Hold, Send], &[Prompt]],
        "the conversation is to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "context",
        DataExfiltration,
        9,
        10,
        &[&[Prompt], &[Modal], &[Hand, Pass, Send]],
        "the conversation is to be handed over",
    )
    .only(DEFINITION),
    rule(
        "context",
        DataExfiltration,
        8,
        10,
        &[&[Prompt], &[Pass, Hold], ARGUMENT],
        "the conversation is to be handed over",
    )
    .only(DEFINITION),
    rule("context", DataExfiltration, 6, 2, &[&[Every], &[Prompt]], "asks for all of the conversation")
        .only(DEFINITION),
    rule("context", DataExfiltration, 8, 4, &[&[Read, Send], &[Prompt]], "asks for the prompt or the conversation")
        .only(OUTPUT),
    rule(
        "context",
        DataExfiltration,
        8,
        10,
        &[&[Url, Host], &[Prompt]],
        "the conversation is to be put into an address",
    ),
    rule(
        "personal",
        DataExfiltration,
        5,
        6,
        &[&[Modal, Before, AsAlso, Model], &[Read, Pass, Send], &[Personal]],
        "asks for personal data",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "personal",
        DataExfiltration,
        8,
        6,
        &[&[Pass, Send], &[Personal], ARGUMENT],
        "personal data is to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "personal",
        DataExfiltration,
        6,
        8,
        &[&[Send, Pass], &[Personal], &[Public]],
        "personal data is given to others",
    )
    .affirmative(),
    rule(
        "personal",
        DataExfiltration,
        7,
        8,
        &[&[Public], &[Send, Pass, Read], &[Personal]],
        "personal data is given to others",
    )
    .affirmative(),
    rule(
        "personal",
        DataExfiltration,
        6,
        8,
        &[&[Send], &[Personal], DESTINATION],
        "personal data is sent to a fixed place",
    )
    .affirmative(),
    rule(
        "slot",
        DataExfiltration,
        3,
        6,
        &[&[Before, AsAlso], &[Pass, Send], ARGUMENT],
        "more is to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "slot",
        DataExfiltration,
        3,
        6,
        &[&[Read], &[Lookup], &[Pass, Send]],
        "something is to be read and handed over",
    )
    .only(DEFINITION),
    rule(
        "slot",
        DataExfiltration,
        4,
        5,
        &[&[Pass], &[Lookup], &[Quoted, Slot]],
        "content is to be put into an argument",
    )
    .only(DEFINITION),
    // A fixed destination.
    rule("send", DataExfiltration, 4, 8, &[&[Send, Hand], DESTINATION], "sends to a fixed place")
        .affirmative()
        .only(DEFINITION),
    rule(
        "send",
        DataExfiltration,
        8,
        10,
        &[&[Modal, When, Every, EveryTool, AsAlso], &[Send, Hand], &[Email, Account, Host]],
        "everything is to be sent to a fixed place",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "send",
        DataExfiltration,
        8,
        8,
        &[&[Modal, Every, EveryTool, AsAlso], &[Send, Hand], &[Url]],
        "everything is to be sent to a fixed place",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "send",
        DataExfiltration,
        8,
        10,
        &[&[Every, Personal, Prompt], DESTINATION, &[Modal, EveryTool, Before]],
        "everything is to be sent to a fixed place",
    )
    .only(DEFINITION),
    rule(
        "send",
        DataExfiltration,
        8,
        8,
        &[&[Send, Pass], &[Every, EveryTool, Prompt, Personal], DESTINATION],
        "everything is to be sent to a fixed place",
    )
    .affirmative(),
    rule("send", DataExfiltration, 4, 8, &[&[Public], &[Send, Hand]], "something is given to others").only(DEFINITION),
    rule("send", DataExfiltration, 5, 6, &[&[Send, Hand], &[Public]], "something is given to others").only(DEFINITION),
    rule("copy", DataExfiltration, 8, 8, &[&[CopyTo], DESTINATION], "a copy goes to a fixed address").only(DEFINITION),
    rule("copy", DataExfiltration, 8, 4, &[&[Modal, Every], &[CopyTo]], "a copy of everything is made")
        .affirmative()
        .only(DEFINITION),
    rule("copy", DataExfiltration, 5, 8, &[&[CopyTo], &[EveryTool, Every]], "a copy of everything is made")
        .only(DEFINITION),
    rule("money", DataExfiltration, 7, 8, &[&[Money], &[Account]], "money goes to a fixed account"),
    rule(
        "mine",
        DataExfiltration,
        8,
        10,
        &[&[Quoted, Slot, Parameter], &[Pass, Read, Invoke], SECRET],
        "secrets are to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "mine",
        DataExfiltration,
        8,
        12,
        &[&[Pass, Read, Hold], &[Mine, UsersOwn], &[Quoted, Parameter]],
        "what is not the tool's business is to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "mine",
        DataExfiltration,
        8,
        12,
        &[&[Mine], &[Quoted, Parameter]],
        "what is not the tool's business is to be put into an argument",
    )
    .only(DEFINITION),
    rule(
        "mine",
        DataExfiltration,
        7,
        10,
        &[&[Quoted, Parameter, Slot], &[Mine]],
        "what is not the tool's business is to be put into an argument",
    )
    .affirmative()
    .only(DEFINITION),
    rule("mine", DataExfiltration, 6, 8, &[&[Must, Modal], &[Mine]], "asks for what is not the tool's business")
        .affirmative()
        .only(DEFINITION),
    rule("mine", DataExfiltration, 5, 6, &[&[Pass, Read, Send], &[Mine]], "asks for what is not the tool's business")
        .affirmative()
        .only(DEFINITION),
    rule("mine", DataExfiltration, 8, 6, &[&[Pass, Send, Hand], &[UsersOwn], SECRET], "asks for the user's secrets")
        .affirmative()
        .only(DEFINITION),
    rule("mine", DataExfiltration, 8, 8, &[SECRET, &[Mutate, Pass], &[WithTool]], "secrets are given to another tool")
        .affirmative()
        .only(DEFINITION),
    rule("mine", DataExfiltration, 5, 8, &[&[Mine], &[Pass, Send]], "asks for what is not the tool's business")
        .only(DEFINITION),
];
