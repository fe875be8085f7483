//! Hostile and honest texts for the html guard; to add a case is to add a line.

use super::super::expectations::{names_the_rule, tells_apart};
use super::*;

const HOSTILE: [&str; 52] = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//x>",
    "<script/x>",
    "<scr\0ipt>",
    "</script><b>",
    "<iframe src=x>",
    "<object data=x>",
    "<embed src=x>",
    "<applet code=x>",
    "<meta http-equiv=refresh content=0>",
    "<base href=//x>",
    "<link rel=stylesheet href=//x>",
    "<style>*{}</style>",
    "<svg/onload=alert(1)>",
    "<svg><use href=x>",
    "<math><mtext>",
    "<img src=x onerror=alert(1)>",
    "<img src=x OnErRoR = alert(1)>",
    "<img/src=x/onerror=alert(1)>",
    "<img src=\"x\"onerror=alert(1)>",
    "<img alt=\">\" onerror=alert(1)>",
    "<b onwhatever=x>",
    "<body onload=x>",
    "<b x=a\" onwhatever=x>",
    "<video title=&quot; onplaying=x>",
    "<details open ontoggle=x>",
    "<img\nonerror\n=\nx>",
    "\" onmouseover=\"alert(1)",
    "' autofocus onfocus='x",
    "x onerror=alert(1)",
    "javascript:alert(1)",
    "  JavaScript:alert(1)",
    "java\tscript:alert(1)",
    "java\r\nscript:alert(1)",
    "javascript: alert (1)",
    "javascript:location=name",
    "javascript://%0aalert",
    "vbscript:msgbox(1)",
    "<a href=javascript:alert(1)>",
    "<a href=\"javascript:alert(1)\">",
    "[x](javascript:alert(1))",
    "<form action='javascript:alert(1)'>",
    "data:text/html,<b>",
    "data:text/html;base64,PHNj",
    "DATA:image/svg+xml,x",
    "<a href=\"data:text/html,x\">",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
    "&#x3c;script>",
    "&#0000060script>",
    "&amp;lt;script&amp;gt;",
    "&#106;avascript&colon;alert&lpar;1)",
];

const HONEST: [&str; 36] = [
    "",
    "hello",
    "a < b",
    "a<b and c>d",
    "I <3 you",
    "<b>bold</b>",
    "<a href=\"https://example.com/\">x</a>",
    "<img src=\"a.png\" alt=\"one = 1\">",
    "<p class=\"x\">on = off</p>",
    "one = 1",
    "only = yes",
    "once=true",
    "turn it on = now",
    "online=true",
    "option=3",
    "JavaScript: The Good Parts",
    "javascript: a language",
    "learn javascript: arrays (and maps)",
    "TypeScript and JavaScript",
    "the script was good",
    "manuscript: a draft (first)",
    "description = x",
    "objects and links",
    "<strong>style</strong>",
    "<scripture>",
    "<linked>",
    "&amp; &lt; &gt; &quot;",
    "R&D &#169; 2024",
    "AT&T",
    "data: text, numbers",
    "metadata:text/html",
    "data:image/png;base64,iVBOR",
    "use &lt;b&gt; for bold",
    "O'Brien said \"hi\"",
    "onomatopoeia = sound",
    "größe < länge",
];

#[test]
fn what_executes_is_refused_and_markup_passes() {
    tells_apart(broken_by, &HOSTILE, &HONEST);
}

#[test]
fn what_cannot_be_told_apart_is_refused_and_known() {
    for text in ["JavaScript: The Good Parts (2008)", "set onclick=handler in the code"] {
        assert!(broken_by(text).is_some(), "{text:?}");
    }
}

#[test]
fn the_broken_rule_is_named() {
    names_the_rule(
        broken_by,
        &[("<script>", "element"), ("<b onx=y>", "event"), ("javascript:a()", "program"), ("data:text/html,x", "page")],
    );
}

#[test]
fn stripping_deletes_scripts_handlers_and_programs_however_nested() {
    for (text, expected) in [
        ("a<script>x</script>b", "ab"),
        ("a<SCRIPT src=x>b", "ab"),
        ("a</script>b", "ab"),
        ("<scr<script>x</script>ipt>y", "y"),
        ("javajavascript:script:x", "x"),
        ("<img src=x onerror = y>", "<img src=x  y>"),
        ("a < b", "a < b"),
        ("<b>x</b>", "<b>x</b>"),
    ] {
        assert_eq!(strip(text), expected, "{text:?}");
    }
    let deep = (0..40).fold("<script>".to_owned(), |inner, _| format!("<scr{inner}ipt>"));
    assert_eq!(strip(&deep), "");
}
