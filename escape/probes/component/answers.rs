//! Answers that are none, and ends that are no good ones.

use std::io::Write as _;

use crate::{host, opaque, Report};

/// The attempt of that name; it does not come back.
pub fn attempt(id: &str) -> Option<Report> {
    match id {
        "answer_not_json" => says(b"everything went fine"),
        "answer_empty" => says(b""),
        "answer_blank" => says(b" \n\t\n"),
        "answer_invalid_utf8" => says(b"{\"escaped\": \"\xff\xfe\xc0\x80\"}"),
        "answer_lone_surrogate" => says(b"{\"escaped\": \"\\ud800\"}"),
        "answer_deeply_nested" => says(&[b"[".repeat(100_000), b"]".repeat(100_000)].concat()),
        "answer_deeply_nested_objects" => {
            says(&[b"{\"a\":".repeat(50_000), b"1".to_vec(), b"}".repeat(50_000)].concat())
        }
        "answer_huge" => says(&[&b"{\"escaped\": \""[..], &b"x".repeat(8 << 20), b"\"}"].concat()),
        "answer_huge_number" => says(&[&b"{\"escaped\": "[..], &b"9".repeat(500_000), b"}"].concat()),
        "answer_twice" => says(b"{\"escaped\": true}{\"escaped\": true}"),
        "answer_same_member_twice" => says(b"{\"escaped\": false, \"escaped\": true}"),
        "answer_not_a_number" => says(b"{\"escaped\": NaN}"),
        "answer_with_zero_bytes" => says(b"{\"escaped\": true}\0\0\0"),
        "answer_of_another_shape" => says(b"[1, 2, 3]"),
        "answer_cut_off" => says(b"{\"escaped\": tr"),
        "answer_and_failure" => {
            says(b"{\"escaped\": true}");
            std::process::exit(3);
        }
        "crash_by_bad_address" => bad_address(),
        "crash_by_abort" => std::process::abort(),
        "crash_after_answer" => {
            says(b"{\"escaped\": true}");
            bad_address();
        }
        "closes_its_streams" => (0..3).for_each(host::close),
        _ => return None,
    }
    std::process::exit(0)
}

fn says(data: &[u8]) {
    let mut stdout = std::io::stdout();
    stdout.write_all(data).and_then(|()| stdout.flush()).expect("stdout");
}

/// Beyond the end of all memory a component can have been given.
fn bad_address() {
    let beyond = opaque(0xffff_fff0_usize) as *const u8;
    // SAFETY: there is none; the host must end it.
    unsafe { std::ptr::read_volatile(beyond) };
}
