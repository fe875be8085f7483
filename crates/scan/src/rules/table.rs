//! The table of rules: family, kind, weight, largest gap, slots, reason. Order has no meaning; families do.

use super::{Rule, Scope, rule};
use crate::FindingKind::{
    Concealment, CrossToolReference, DangerousCommand, DataExfiltration, InstructionToModel, ToolPreference,
};
use crate::lexicon::Mark::{self, *};

/// Any distance within the sentence.
const ANYWHERE: usize = usize::MAX / 2;
const DEFINITION: Scope = Scope::Definition;
const OUTPUT: Scope = Scope::Output;

const TOOL: &[Mark] = &[Foreign, Identifier, SecretIdentifier];
const ANY_TOOL: &[Mark] = &[Foreign, Identifier, SecretIdentifier, Sibling, EveryTool];
const DESTINATION: &[Mark] = &[Url, Email, Host, Account];
const SECRET: &[Mark] = &[Secret, SecretPath, SecretIdentifier];
const GIVE: &[Mark] = &[Pass, Send, Hand];
const ARGUMENT: &[Mark] = &[Slot, Quoted, Parameter];
const ACT: &[Mark] = &[Read, Send, Pass, Invoke, Tamper];

/// All rules.
pub(crate) const RULES: &[Rule] = &[
    // Keeping something from the user.
    rule("conceal", Concealment, 12, 6, &[&[NegTell], &[User]], "tells the model to keep something from the user")
        .only(DEFINITION),
    rule("conceal", Concealment, 12, 6, &[&[NegTell], &[EndUser]], "tells the model to keep something from the user")
        .only(OUTPUT),
    rule("conceal", Concealment, 5, 7, &[&[NegShow], &[User]], "something is not to be shown to the user"),
    rule("conceal", Concealment, 4, 0, &[&[NegTell]], "something is not to be told").only(DEFINITION),
    rule("conceal", Concealment, 9, 0, &[&[Covert]], "asks for something to be done in secret"),
    rule("conceal", Concealment, 7, 4, &[&[Silent], &[Send, Read, Pass, Invoke]], "an action is to happen silently")
        .only(DEFINITION),
    rule("conceal", Concealment, 7, 2, &[&[Send, Hand], &[Silent]], "something is sent silently").only(DEFINITION),
    rule("conceal", Concealment, 9, 0, &[&[ConcealPhrase]], "speaks of what the user shall not notice")
        .only(DEFINITION),
    rule("conceal", Concealment, 7, 0, &[&[ConcealPhrase]], "speaks of what the user shall not notice").only(OUTPUT),
    rule("no-ask", InstructionToModel, 4, 0, &[&[NoAsk]], "asks to act without the user's consent").affirmative(),
    rule(
        "no-ask",
        InstructionToModel,
        8,
        6,
        &[&[Modal, Model, Trusted], &[NoAsk]],
        "asks to act without the user's consent",
    )
    .affirmative(),
    // Overriding what the model was told.
    rule(
        "override",
        InstructionToModel,
        12,
        2,
        &[&[Dismiss, NotFollow], &[Prior], &[Rules]],
        "tells the model to set its instructions aside",
    ),
    rule("override", InstructionToModel, 10, 0, &[&[IgnoreYours]], "tells the model to set its instructions aside"),
    rule(
        "override",
        InstructionToModel,
        8,
        1,
        &[&[Dismiss], &[PriorLoose], &[Rules]],
        "tells the model to set its instructions aside",
    ),
    rule("override", InstructionToModel, 3, 3, &[&[Dismiss], &[Rules]], "sets rules aside"),
    rule("override", InstructionToModel, 8, 3, &[&[Rules], &[Void]], "declares rules void").only(DEFINITION),
    rule("override", InstructionToModel, 8, 6, &[&[Rules], &[Precedence, Dismiss]], "puts its own rules above others"),
    rule("persona", InstructionToModel, 8, 0, &[&[Persona]], "gives the model a new task or role"),
    rule("trusted", InstructionToModel, 5, 0, &[&[Trusted]], "asks to follow what comes from elsewhere").affirmative(),
    // Speaking to the model.
    rule("model", InstructionToModel, 7, 0, &[&[NoteToModel]], "addresses the model, not a person").only(DEFINITION),
    rule("model", InstructionToModel, 8, 0, &[&[NoteToModel]], "addresses the model, not a person").only(OUTPUT),
    rule("model", InstructionToModel, 5, 3, &[&[Model], &[Modal]], "tells the model what it has to do"),
    rule(
        "model",
        InstructionToModel,
        4,
        2,
        &[&[Model], &[Send, Pass, Read, Tamper]],
        "tells the model what it has to do",
    ),
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
    // Other tools.
    rule("order", CrossToolReference, 4, 4, &[&[Before], &[EveryTool]], "wants to come before other tools")
        .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        6,
        10,
        &[&[Before, When], &[EveryTool], &[Modal], &[Read, Send, Pass, Tamper]],
        "adds a step to the use of other tools",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        10,
        &[&[Before, When], &[EveryTool], TOOL, &[Modal, Invoke]],
        "makes the model call another tool at every use",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        10,
        &[&[Before, When], &[EveryTool], &[Modal], &[Invoke], TOOL],
        "makes the model call another tool at every use",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        10,
        &[&[EveryTool], &[Modal], &[Before], TOOL],
        "makes the model call another tool at every use",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        5,
        &[&[EveryTool], &[Modal], &[Send, Tamper, Hand]],
        "rules over the use of other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        7,
        8,
        &[&[When], &[User], &[Invoke], &[Before], &[Read, Invoke, Pass]],
        "adds a step to what the user asks for",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        3,
        6,
        &[&[Before], &[Invoke], &[Read, Send, Pass]],
        "adds a step before its own use",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        5,
        8,
        &[&[When, Before], TOOL, &[Before, AsAlso], TOOL],
        "orders calls of other tools",
    )
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        6,
        &[&[When], ANY_TOOL, &[Invoke], &[Tamper, Argument, Send]],
        "changes what other tools do",
    )
    .only(DEFINITION),
    rule("shadow", CrossToolReference, 6, 6, &[&[When], TOOL, &[Invoke], &[Modal]], "changes what other tools do")
        .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        6,
        &[&[Tamper], &[Argument, Slot], ANY_TOOL],
        "changes the arguments of other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        6,
        &[ANY_TOOL, &[Tamper], &[Argument, Prompt]],
        "changes the arguments of other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        6,
        &[&[Argument, Slot], ANY_TOOL, &[Tamper]],
        "changes the arguments of other tools",
    )
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        8,
        &[ANY_TOOL, &[Modal, Tamper], DESTINATION],
        "sends the data of other tools elsewhere",
    )
    .only(DEFINITION),
    rule("shadow", CrossToolReference, 7, 4, &[ANY_TOOL, &[Modal], &[Tamper]], "changes what other tools do")
        .affirmative()
        .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        8,
        &[&[ToolWord], &[Modal, Tamper], &[Argument, Slot, Quoted, Tamper], DESTINATION],
        "changes the arguments of other tools",
    )
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        6,
        8,
        &[&[Tamper], &[Argument], DESTINATION],
        "puts a fixed value into an argument",
    )
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        7,
        8,
        &[&[Argument], &[Tamper], DESTINATION],
        "puts a fixed value into an argument",
    )
    .only(DEFINITION),
    rule("shadow", CrossToolReference, 5, 10, &[&[Tamper], DESTINATION], "replaces something by what is elsewhere")
        .only(DEFINITION),
    rule("shadow", CrossToolReference, 2, 2, &[&[Tamper], &[Argument]], "changes an argument").only(DEFINITION),
    rule("presence", CrossToolReference, 7, 0, &[&[Presence]], "acts by being present, not by being called")
        .only(DEFINITION),
    rule("foreign", CrossToolReference, 2, 4, &[&[Modal], &[Invoke], TOOL], "requires another tool").only(DEFINITION),
    rule("foreign", CrossToolReference, 3, 4, &[TOOL, &[Modal], &[Invoke]], "requires another tool").only(DEFINITION),
    rule("foreign", CrossToolReference, 4, 4, &[&[AsAlso], &[Invoke], TOOL], "wants another tool called as well")
        .only(DEFINITION),
    // Being chosen.
    rule("prefer", ToolPreference, 6, 0, &[&[Choose]], "asks to be chosen").only(DEFINITION),
    rule("prefer", ToolPreference, 3, 0, &[&[ChooseLoose]], "asks to be used").only(DEFINITION),
    rule("praise", ToolPreference, 3, 0, &[&[Superlative]], "praises itself").only(DEFINITION),
    rule("praise", ToolPreference, 4, 0, &[&[Endorse]], "claims to be endorsed").only(DEFINITION),
    rule(
        "disparage",
        ToolPreference,
        6,
        6,
        &[&[OtherTool, EveryTool, Foreign, Identifier], &[Disparage]],
        "runs other tools down",
    )
    .only(DEFINITION),
    rule("disparage", ToolPreference, 4, 6, &[&[Disparage], &[OtherTool]], "runs others down").only(DEFINITION),
    rule("precedence", ToolPreference, 6, 0, &[&[Precedence]], "claims precedence").only(DEFINITION),
    rule(
        "regardless",
        InstructionToModel,
        3,
        8,
        &[&[Modal, Say, Choose], &[Regardless]],
        "something is prescribed in every case",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "regardless",
        InstructionToModel,
        8,
        8,
        &[&[Modal, Say, Choose], &[Regardless], &[Asked]],
        "an answer is prescribed whatever was asked",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "regardless",
        InstructionToModel,
        8,
        8,
        &[&[Regardless], &[Asked], &[Modal, Say]],
        "an answer is prescribed whatever was asked",
    )
    .only(DEFINITION),
    rule("regardless", InstructionToModel, 8, ANYWHERE, &[&[Regardless], &[Account]], "a fixed value is prescribed")
        .only(DEFINITION),
    rule("regardless", InstructionToModel, 8, 0, &[&[Prescribe]], "an answer is prescribed").only(DEFINITION),
    rule("lie", InstructionToModel, 6, 0, &[&[Lie]], "puts words into the model's mouth").only(DEFINITION),
    // Commands.
    rule(
        "command",
        DangerousCommand,
        8,
        6,
        &[&[Modal, When, Before, AsAlso, Pass, Model, EveryTool, Invoke], &[Command]],
        "asks for a dangerous command",
    )
    .affirmative()
    .only(DEFINITION),
    rule("command", DangerousCommand, 5, 4, &[&[Modal, Before, AsAlso, Model], &[CommandLoose]], "asks for a command")
        .affirmative()
        .only(DEFINITION),
    rule("command", DangerousCommand, 8, 6, &[&[Command], &[EveryTool, Before]], "asks for a dangerous command")
        .only(DEFINITION),
    rule("command", DangerousCommand, 3, 0, &[&[Command]], "names a dangerous command").only(DEFINITION),
    rule("command", DangerousCommand, 9, 10, &[&[Download], &[Url, Host], &[Shell]], "downloads and runs code"),
    rule("command", DangerousCommand, 7, 6, &[&[Pass], &[SecretPath]], "writes where a system keeps its keys")
        .affirmative()
        .only(DEFINITION),
    rule("command", DangerousCommand, 8, 6, &[&[Modal, Invoke], &[Command]], "asks for a dangerous command")
        .only(OUTPUT),
    rule("safeguard", DangerousCommand, 6, 4, &[&[SwitchOff], &[Safeguard]], "switches a safeguard off")
        .affirmative()
        .only(DEFINITION),
    rule("safeguard", DangerousCommand, 5, 5, &[&[SwitchOn], &[Opening]], "opens a door")
        .affirmative()
        .only(DEFINITION),
    // Small things that add up.
    rule("justify", InstructionToModel, 2, ANYWHERE, &[&[Justify], &[Modal, Before]], "gives a reason of authority")
        .only(DEFINITION),
    rule(
        "justify",
        InstructionToModel,
        2,
        ANYWHERE,
        &[&[Modal, Before, Read, Pass], &[Justify]],
        "gives a reason of authority",
    )
    .only(DEFINITION),
    rule("urgent", InstructionToModel, 3, 6, &[&[Modal], &[Urgent]], "presses for time").only(DEFINITION),
    rule("urgent", InstructionToModel, 3, 8, &[&[Urgent], &[Modal]], "presses for time").only(DEFINITION),
    rule("threat", InstructionToModel, 2, 0, &[&[Threat]], "threatens with failure").only(DEFINITION),
    rule(
        "sleeper",
        InstructionToModel,
        6,
        0,
        &[&[Sleeper]],
        "acts on a condition that has nothing to do with the tool",
    )
    .only(DEFINITION),
    rule("also", InstructionToModel, 1, 6, &[&[AsAlso], ACT], "does something besides").only(DEFINITION),
    // What was returned.
    rule("reply", InstructionToModel, 8, 5, &[&[ReplyVerb], &[Reply]], "prescribes the answer").only(OUTPUT),
    rule("reply", InstructionToModel, 8, 3, &[&[Reply], &[ReplyVerb]], "prescribes the answer").only(OUTPUT),
    rule("task", InstructionToModel, 8, 0, &[&[TaskFor]], "gives the model a task").only(OUTPUT),
    // Broader forms of the above, each weaker.
    rule(
        "order",
        CrossToolReference,
        8,
        8,
        &[&[When, Before, Every, EveryTool], TOOL, &[Must], &[Mutate]],
        "makes other tools change things",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        10,
        &[&[When, Every], &[Must], &[Mutate], &[WithTool, Via]],
        "makes other tools change things",
    )
    .affirmative()
    .only(DEFINITION),
    rule("order", CrossToolReference, 8, 10, &[&[When], &[Mutate], &[WithTool]], "makes other tools change things")
        .affirmative()
        .only(DEFINITION),
    rule("order", CrossToolReference, 7, 5, &[&[Via], &[Must]], "prescribes what goes into another tool")
        .affirmative()
        .only(DEFINITION),
    rule("order", CrossToolReference, 7, 4, &[&[Every], TOOL, &[Must]], "prescribes what another tool does")
        .affirmative()
        .only(DEFINITION),
    rule("order", CrossToolReference, 8, 8, &[TOOL, &[Must], &[Before, When], TOOL], "orders calls of other tools")
        .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        4,
        4,
        &[&[Before], &[Invoke], &[Modal], &[Invoke], TOOL],
        "wants another tool called first",
    )
    .only(DEFINITION),
    rule("order", CrossToolReference, 8, 8, &[&[Every], &[Must], TOOL, &[AsAlso]], "hands everything to another tool")
        .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        7,
        6,
        &[&[When, Every], TOOL, &[Must], &[Invoke]],
        "makes the model call another tool",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        7,
        8,
        &[&[When], TOOL, &[Before], &[Mutate, Tamper]],
        "adds a step before another tool",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        10,
        &[&[Every, EveryTool], &[Must], &[Mutate, Tamper], &[Argument, Money]],
        "changes what is given to other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        8,
        &[&[EveryTool], &[Must], &[Argument], &[Mutate]],
        "changes what is given to other tools",
    )
    .affirmative()
    .only(DEFINITION),
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
    rule("stage", InstructionToModel, 5, 6, &[&[Stage], &[Must], &[Neg, Hold]], "prescribes the answer")
        .only(DEFINITION),
    rule("stage", InstructionToModel, 7, 4, &[&[Say, Stage], &[EveryTool]], "prescribes every answer")
        .affirmative()
        .only(DEFINITION),
    rule("promo", ToolPreference, 2, 0, &[&[Promo]], "speaks of advertising").only(DEFINITION),
    rule("promo", ToolPreference, 8, 8, &[&[Stage, Say, EveryTool, When], &[Promo]], "makes the model advertise")
        .only(DEFINITION),
    rule("offstage", Concealment, 5, 0, &[&[OffStage]], "something is to stay out of sight").only(DEFINITION),
    rule(
        "offstage",
        Concealment,
        9,
        8,
        &[&[OffStage], &[Neg, OffStage, Stage, User]],
        "something is to stay out of sight",
    )
    .only(DEFINITION),
    rule("offstage", Concealment, 8, 8, &[&[Neg], &[OffStage]], "something is to stay out of sight").only(DEFINITION),
    rule("offstage", Concealment, 8, 8, &[&[When, User], &[OffStage]], "something is to stay out of sight")
        .only(DEFINITION),
    rule("rank", InstructionToModel, 6, 0, &[&[Rank]], "claims authority").affirmative().only(DEFINITION),
    rule("rank", InstructionToModel, 9, 10, &[&[Rank, Trusted], &[Rank, Prompt, EveryTool]], "claims authority")
        .affirmative()
        .only(DEFINITION),
    rule("prefer", ToolPreference, 5, 0, &[&[Steer]], "steers the model away from other tools").only(DEFINITION),
    rule(
        "prefer",
        ToolPreference,
        8,
        10,
        &[&[Steer, EveryTool], &[Steer, EveryTool, Disparage, Own]],
        "steers the model away from other tools",
    )
    .only(DEFINITION),
    rule("grave", DangerousCommand, 5, 0, &[&[Grave]], "names a dangerous change").affirmative().only(DEFINITION),
    rule(
        "grave",
        DangerousCommand,
        8,
        8,
        &[&[Modal, Must, Before, When, Invoke, Tamper], &[Grave]],
        "asks for a dangerous change",
    )
    .affirmative()
    .only(DEFINITION),
    rule("grave", DangerousCommand, 8, 8, &[&[Grave], &[Before, Must, AsAlso]], "asks for a dangerous change")
        .only(DEFINITION),
    rule(
        "grave",
        DangerousCommand,
        8,
        8,
        &[&[Tamper], &[SecretPath], DESTINATION],
        "replaces a file that a system trusts",
    )
    .affirmative()
    .only(DEFINITION),
];
