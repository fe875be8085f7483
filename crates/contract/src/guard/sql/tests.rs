//! Hostile and honest texts for the sql guard; to add a case is to add a line.

use super::super::expectations::{names_the_rule, tells_apart};
use super::*;

const HOSTILE: [&str; 67] = [
    "\"; DROP TABLE documents;--",
    "Robert'); DROP TABLE students;--",
    "x'; DELETE FROM users WHERE 'a'='a",
    "1; DROP TABLE x",
    "1;drop database x",
    "'; INSERT INTO users VALUES (1)",
    "'; UPDATE users SET admin=1 WHERE name='x",
    "'; TRUNCATE users",
    "'; EXEC xp_cmdshell('dir')",
    "'; ALTER TABLE x ADD y int",
    "'; CREATE USER x",
    "'; GRANT ALL ON x TO y",
    "'; SELECT pg_sleep(5)",
    "'; select * from users",
    "'; SELECT 1",
    "'; WAITFOR DELAY '0:0:5'",
    "'; DECLARE @x varchar(10)",
    "'; COPY x FROM '/etc/passwd'",
    "'; ATTACH DATABASE '/x.php' AS lol",
    "' DROP TABLE users",
    "admin'--",
    "admin' --",
    "admin'#",
    "admin' #",
    "admin'/*",
    "1 --",
    "1/**/OR/**/1=1",
    "UN/**/ION SELECT 1",
    "' OR '1'='1",
    "' OR 1=1",
    "' or 1=1#",
    "x' OR 'a'='a",
    "a'or'1'='1",
    "\" or \"\"=\"",
    "' or ''='",
    "') or ('1'='1",
    "') OR 1=1--",
    "' or 1 -- ",
    "' or true or '",
    "' || '1'='1",
    "' OR x=x OR '",
    "' and 1=2 and 'a'='a",
    "' OR NOT 1=2 OR '",
    "' OR 'a' LIKE 'a",
    "' OR name IS NOT NULL OR '",
    "' or role='admin",
    "1 OR 1=1",
    "1 or 2>1",
    "' UNION SELECT password FROM users",
    "1 union all select null",
    "' UNION (SELECT 1)",
    "' AND SLEEP(5) AND 'x",
    "'||(SELECT password FROM users)||'",
    "x' INTO OUTFILE '/x.php",
    "a\0b",
    "' or 1 like 1 or '",
    "' or name like '%",
    "x'or name like '%",
    "' or id in (1,2) or '",
    "' or length(password)>5 or '",
    "' or u.id=1 or '",
    "' or 1+1=2 or '",
    "' or 'a b c'='a b c",
    "' or 'a b c d e f g h i j k l m n o p q r'='a",
    "' OR EXISTS(SELECT 1 FROM users) OR '",
    "x' ; shutdown --",
    "'; exec sp_who",
];

const HONEST: [&str; 52] = [
    "",
    "O'Brien",
    "D'Angelo; O'Neill",
    "select a seat",
    "drop me a line; thanks",
    "please sit; select a seat",
    "delete the draft; update me tomorrow",
    "the union selected a leader",
    "the European Union",
    "it's this or that",
    "it's late -- really",
    "1999--2001",
    "well -- maybe",
    "rock 'n' roll",
    "'tis him or she is late",
    "the 'blue' or 'red' one",
    "the dogs' bowls",
    "5 o'clock and 6 o'clock",
    "C#",
    "Room #5",
    "issue #12; see #13",
    "'C#' is a language",
    "a = b",
    "a=1 or b=2",
    "price < 5 and > 2",
    "x or y",
    "black and white",
    "SELECT",
    "create or drop a table",
    "Drop Table Diner",
    "insert into the slot",
    "where and when",
    "50% off; today only",
    "AT&T; R&D",
    "He said \"yes\"; she said \"no\"",
    "\"select one\"",
    "(select one from the list)",
    "call me (maybe)",
    "“quoted” and ‘quoted’",
    "don’t or do",
    "user@example.com",
    "a * b / c",
    "größe; länge",
    "日本語; 中文",
    "3.14 or 2.71",
    "'tis him or someone like him",
    "he said 'a' or something like 'b'",
    "Côte d'Or",
    "save first; shutdown later",
    "do it; truncate the logs",
    "done; exec team meets at 5",
    "width=\"5\" height=\"6\"",
];

#[test]
fn statements_are_refused_and_sentences_pass() {
    tells_apart(broken_by, &HOSTILE, &HONEST);
}

#[test]
fn what_cannot_be_told_apart_is_refused_and_known() {
    for text in ["first sit; select a seat from the list", "'yes' -- he said", "wait for it--", "src/*.rs"] {
        assert!(broken_by(text).is_some(), "{text:?}");
    }
}

#[test]
fn the_broken_rule_is_named() {
    names_the_rule(
        broken_by,
        &[
            ("'; drop table x", "statement"),
            ("admin'--", "comment"),
            ("' or 1=1", "condition"),
            ("1 union select 2", "UNION"),
            ("x' and sleep(1)", "function"),
        ],
    );
}

#[test]
fn stripping_deletes_comment_markers_and_stacking() {
    for (text, expected) in [
        ("a; drop table b;--", "a drop table b"),
        ("x -/**/- y", "x  y"),
        ("a;", "a;"),
        ("a; b; ", "a b; "),
        ("O'Brien", "O'Brien"),
    ] {
        assert_eq!(strip(text), expected, "{text:?}");
    }
}
