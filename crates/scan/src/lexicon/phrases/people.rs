//! Phrases about who is spoken to and about, and what is kept from them.

use super::WordMark;

/// Phrases of each mark.
pub(super) const PHRASES: &[(WordMark, &[&str])] = &[
    (
        WordMark::Model,
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
        WordMark::NoteToModel,
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
        WordMark::User,
        &[
            "user|users|human|humans|customer|customers|person|people|operator|anyone|anybody|somebody|someone|them|guest|client|nobody|owner|victim|him|her",
        ],
    ),
    (WordMark::EndUser, &["user|users|human|humans"]),
    (
        WordMark::NegTell,
        &[
            "do_not|never|not|without|avoid|refrain_from|no_need_to|do_not_ever|must_not|should_not|nothing_you_should tell|telling|mention|mentioning|inform|informing|notify|notifying|alert|alerting|warn|bring|trouble|let|letting|talk|reveal_to|disclose_to|bring_this_up|bother|say|discuss|discussing|speak|confide|admit|acknowledge|advise|apprise",
            "under no circumstances reveal|tell|mention|inform|disclose",
            "no need to trouble|tell|inform|bother",
        ],
    ),
    (
        WordMark::NegShow,
        &[
            "do_not|never|not|without|avoid|must_not|should_not show|showing|display|displaying|reveal|revealing|disclose|disclosing|expose|explain|explaining|print|report|be_shown|be_visible|be_told|be_informed|be_notified|visible|surface",
        ],
    ),
    (
        WordMark::Covert,
        &["secretly|covertly|discreetly|surreptitiously|stealthily|clandestinely|unnoticed|invisibly|stealth"],
    ),
    (WordMark::Silent, &["silently|quietly|in_the_background|behind_the_scenes|automatically_and"]),
    (
        WordMark::ConcealPhrase,
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
        WordMark::NoAsk,
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
        WordMark::OffStage,
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
        WordMark::Asked,
        &[
            "asked|requested|prefers|want|wants|says|said|say|relevant|request|asks|user|users|guest|customer|question|results|appear|instructed|data",
        ],
    ),
];
