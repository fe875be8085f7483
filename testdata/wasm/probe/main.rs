//! A guest that tries things. The parameters are `{"do": ["verb", "argument", …]}`; the answer is `{"answer": …}` with what
//! came of it, so that a test can say what a guest with certain permissions may and may not do.
//!
//! Built by `build.sh` with Rust 1.63 for WASI 0.1 and turned into a `wasi:cli/command` component. What that Rust has no
//! name for (HTTP, sockets) is called by the canonical ABI.

use std::fs;
use std::io::{Read, Write};

fn main() {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).expect("parameters");
    let words = strings(&input);
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    eprintln!("the probe does {:?}", words);
    let answer = match words.as_slice() {
        ["read", path] => fs::read_to_string(path).map_err(|e| e.to_string()),
        ["write", path, text] => fs::write(path, text).map(|()| "written".to_owned()).map_err(|e| e.to_string()),
        ["remove", path] => fs::remove_file(path).map(|()| "removed".to_owned()).map_err(|e| e.to_string()),
        ["list", path] => list(path),
        ["link", target, path] => fs::hard_link(target, path).map(|()| "linked".to_owned()).map_err(|e| e.to_string()),
        ["rename", from, to] => fs::rename(from, to).map(|()| "renamed".to_owned()).map_err(|e| e.to_string()),
        ["environment"] => Ok(std::env::vars().map(|(name, value)| format!("{name}={value};")).collect()),
        ["arguments"] => Ok(std::env::args().collect::<Vec<_>>().join(" ")),
        ["exit", code] => std::process::exit(code.parse().expect("a number")),
        ["panic"] => panic!("as asked"),
        ["spin"] => loop {
            std::hint::spin_loop();
        },
        ["burn", rounds] => Ok(burn(rounds.parse().expect("a number"))),
        ["hold", megabytes] => Ok(hold(megabytes.parse().expect("a number"))),
        ["eat"] => eat(),
        ["recurse"] => Ok(recurse(1).to_string()),
        ["sleep"] => {
            std::thread::sleep(std::time::Duration::from_secs(3600));
            Ok("awake".to_owned())
        }
        ["raw", text] => {
            print!("{text}");
            return;
        }
        ["nothing"] => return,
        ["deep"] => {
            print!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
            return;
        }
        ["bytes"] => {
            std::io::stdout().write_all(b"\"\xff\xfe\"").expect("stdout");
            return;
        }
        ["flood", stream] => flood(stream),
        ["get", scheme, authority, path] => http::get(scheme, authority, path),
        ["socket"] => http::socket(),
        other => Err(format!("the probe does not know {other:?}")),
    };
    let (member, text) = match answer {
        Ok(text) => ("answer", text),
        Err(text) => ("refused", text),
    };
    println!("{{\"{member}\": {}}}", quoted(&text));
}

/// The string literals of a JSON text, in order; enough for parameters that consist of strings.
fn strings(text: &str) -> Vec<String> {
    let (mut found, mut chars) = (Vec::new(), text.chars());
    while chars.by_ref().any(|c| c == '"') {
        let mut literal = String::new();
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => match chars.next() {
                    Some('n') => literal.push('\n'),
                    Some(other) => literal.push(other),
                    None => break,
                },
                other => literal.push(other),
            }
        }
        found.push(literal);
    }
    found
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn list(path: &str) -> Result<String, String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| e.to_string())? {
        names.push(entry.map_err(|e| e.to_string())?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names.join(" "))
}

/// A value the compiler knows nothing about.
fn opaque<T: Copy>(value: T) -> T {
    // SAFETY: the reference is to a live value of a type that may be copied.
    unsafe { std::ptr::read_volatile(&value) }
}

fn burn(rounds: u64) -> String {
    let mut state = 1_u64;
    for round in 0..rounds {
        state = opaque(state.wrapping_mul(6364136223846793005).wrapping_add(round));
    }
    state.to_string()
}

fn hold(megabytes: usize) -> String {
    let mut block = vec![0_u8; megabytes << 20];
    for page in block.chunks_mut(4096) {
        page[0] = 1;
    }
    block.iter().map(|byte| u64::from(*byte)).sum::<u64>().to_string()
}

fn eat() -> ! {
    let mut blocks = Vec::new();
    loop {
        blocks.push(vec![1_u8; 1 << 20]);
        opaque(blocks.len());
    }
}

fn recurse(depth: u64) -> u64 {
    let deeper: fn(u64) -> u64 = opaque(recurse);
    let frame = opaque([depth; 64]);
    deeper(depth + 1) + opaque(frame)[63]
}

fn flood(stream: &str) -> Result<String, String> {
    let line = vec![b'x'; 64 << 10];
    for _ in 0..256 {
        let written = if stream == "stdout" { std::io::stdout().write_all(&line) } else { std::io::stderr().write_all(&line) };
        written.map_err(|e| e.to_string())?;
    }
    Ok("flooded".to_owned())
}

/// Where the host puts strings it returns.
#[no_mangle]
pub unsafe extern "C" fn cabi_realloc(old: *mut u8, old_len: usize, align: usize, len: usize) -> *mut u8 {
    use std::alloc::{alloc, realloc, Layout};
    if len == 0 {
        return align as *mut u8;
    }
    let moved = if old_len == 0 {
        alloc(Layout::from_size_align_unchecked(len, align))
    } else {
        realloc(old, Layout::from_size_align_unchecked(old_len, align), len)
    };
    if moved.is_null() {
        std::process::abort();
    }
    moved
}

mod http {
    #[link(wasm_import_module = "wasi:http/types@0.2.0")]
    extern "C" {
        #[link_name = "[constructor]fields"]
        fn fields() -> i32;
        #[link_name = "[constructor]outgoing-request"]
        fn outgoing_request(headers: i32) -> i32;
        #[link_name = "[method]outgoing-request.set-path-with-query"]
        fn set_path(request: i32, some: i32, text: *const u8, len: usize) -> i32;
        #[link_name = "[method]outgoing-request.set-scheme"]
        fn set_scheme(request: i32, some: i32, scheme: i32, text: *const u8, len: usize) -> i32;
        #[link_name = "[method]outgoing-request.set-authority"]
        fn set_authority(request: i32, some: i32, text: *const u8, len: usize) -> i32;
        #[link_name = "[method]future-incoming-response.subscribe"]
        fn subscribe(future: i32) -> i32;
        #[link_name = "[method]future-incoming-response.get"]
        fn get_response(future: i32, answer: *mut u8);
        #[link_name = "[method]incoming-response.status"]
        fn status(response: i32) -> i32;
    }

    #[link(wasm_import_module = "wasi:http/outgoing-handler@0.2.0")]
    extern "C" {
        fn handle(request: i32, some: i32, options: i32, answer: *mut u8);
    }

    #[link(wasm_import_module = "wasi:io/poll@0.2.0")]
    extern "C" {
        #[link_name = "[method]pollable.block"]
        fn block(pollable: i32);
    }

    #[link(wasm_import_module = "wasi:sockets/tcp-create-socket@0.2.0")]
    extern "C" {
        #[link_name = "create-tcp-socket"]
        fn create_tcp_socket(family: i32, answer: *mut u8);
    }

    /// Room for any answer above, aligned for 64-bit members.
    #[repr(C, align(8))]
    struct Answer([u8; 128]);

    impl Answer {
        fn word(&self, at: usize) -> i32 {
            i32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
        }
    }

    /// Sends a request and answers with the status, or the number of the error code.
    pub fn get(scheme: &str, authority: &str, path: &str) -> Result<String, String> {
        let scheme = if scheme == "https" { 1 } else { 0 };
        let mut answer = Answer([0; 128]);
        // SAFETY: handles are used once, in the order the interface asks for; pointers are to live memory of the stated
        // length, and `Answer` is larger than each of the results.
        unsafe {
            let request = outgoing_request(fields());
            if set_path(request, 1, path.as_ptr(), path.len()) != 0
                || set_scheme(request, 1, scheme, std::ptr::null(), 0) != 0
                || set_authority(request, 1, authority.as_ptr(), authority.len()) != 0
            {
                return Err("the request was not accepted".to_owned());
            }
            handle(request, 0, 0, answer.0.as_mut_ptr());
            if answer.0[0] != 0 {
                return Err(format!("error code {}", answer.0[8]));
            }
            let future = answer.word(8);
            block(subscribe(future));
            get_response(future, answer.0.as_mut_ptr());
            // option, result, result; the innermost payload is aligned to eight bytes.
            if answer.0[0] != 1 || answer.0[8] != 0 {
                return Err("there was no response".to_owned());
            }
            if answer.0[16] != 0 {
                return Err(format!("error code {}", answer.0[24]));
            }
            Ok(format!("status {}", status(answer.word(24))))
        }
    }

    /// Asks for a TCP socket.
    pub fn socket() -> Result<String, String> {
        let mut answer = Answer([0; 128]);
        // SAFETY: as above.
        unsafe { create_tcp_socket(0, answer.0.as_mut_ptr()) };
        if answer.0[0] == 0 { Ok("a socket".to_owned()) } else { Err(format!("error code {}", answer.0[4])) }
    }
}
