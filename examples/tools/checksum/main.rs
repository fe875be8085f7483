//! Checksum: a plain WASI program as a tool.
//!
//! The protocol is that of process tools in simple mode: the parameters are one JSON object on stdin, the result goes as
//! JSON to stdout, stderr is the log, and an exit code that is not zero says that the tool failed.

use std::fs;
use std::io::Read;

fn main() {
    let mut input = String::new();
    if std::io::stdin().read_to_string(&mut input).is_err() {
        fail("the parameters are not text");
    }
    let path = member(&input, "path").unwrap_or_else(|| fail("there is no `path`"));
    match fs::read(&path) {
        Ok(bytes) => {
            eprintln!("{} bytes read", bytes.len());
            println!("{{\"crc32\": \"{:08x}\", \"bytes\": {}}}", crc32(&bytes), bytes.len());
        }
        Err(error) => fail(&format!("`{path}` cannot be read: {error}")),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(1);
}

/// A string member of a flat JSON object. A real tool would use a JSON library.
fn member(json: &str, name: &str) -> Option<String> {
    let after = json.split_once(&format!("\"{name}\""))?.1.trim_start().strip_prefix(':')?.trim_start();
    let mut chars = after.strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => match chars.next()? {
                'u' => return None,
                escaped => text.push(escaped),
            },
            other => text.push(other),
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}
