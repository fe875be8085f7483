//! Bombs and floods. Each has a size at which it stops and says that it got away with it.

use std::io::Write as _;
use std::time::Duration;

use crate::network::{self, Answer};
use crate::{blocked, escaped, opaque, Report};

const MEMORY_BYTES_MAX: usize = 1 << 30;
const HANDLES_MAX: usize = 20_000;
const FLOOD_BYTES: usize = 1 << 30;
const LIFE_MAX: Duration = Duration::from_secs(60);
/// More than can be gone through in a minute.
const ROUNDS_MAX: u64 = 1 << 38;
const MIB: usize = 1 << 20;
/// Memory that is searched for leftovers.
const SEARCHED_BYTES: usize = 32 << 20;

/// The attempt of that name, if it is one of these.
pub fn attempt(id: &str) -> Option<Report> {
    Some(match id {
        "endless_loop" => {
            // Without a single call of the host, which could use the occasion.
            (0..ROUNDS_MAX).for_each(|round| drop(opaque(round)));
            escaped("nobody ended it")
        }
        "endless_sleep" => {
            std::thread::sleep(LIFE_MAX);
            escaped("nobody ended it")
        }
        "memory_at_once" => {
            let mut block = vec![0_u8; MEMORY_BYTES_MAX];
            block.chunks_mut(4096).for_each(|page| page[0] = 1);
            opaque(block[MIB]);
            escaped("there was no end to memory")
        }
        "memory_bit_by_bit" => {
            let blocks: Vec<_> = (0..MEMORY_BYTES_MAX / MIB).map(|_| vec![1_u8; MIB]).collect();
            opaque(blocks.len());
            escaped("there was no end to memory")
        }
        "memory_in_socket_buffers" => headers_without_end(),
        "memory_of_the_server" => {
            // The host is to make the list; whether it then fits into our own memory is another question.
            let mut answer = Answer::new();
            // SAFETY: the answer has room for a pointer and a length.
            unsafe { network::get_random_bytes(1 << 42, answer.as_mut_ptr()) };
            escaped("the server made four terabytes")
        }
        "descriptors_without_end" => {
            // SAFETY: making a handle needs nothing; all are kept.
            (0..HANDLES_MAX).for_each(|_| drop(unsafe { network::fields() }));
            escaped("there was no end to handles")
        }
        "stack_without_end" => escaped(format!("the bottom was {}", deeper(1))),
        "flood_stdout" => {
            flood(&mut std::io::stdout());
            escaped("a gigabyte was taken as an answer")
        }
        "flood_stderr" => {
            flood(&mut std::io::stderr());
            blocked("all of it was read, none of it kept")
        }
        "flood_stderr_without_lines" => {
            let chunk = vec![b'x'; MIB];
            (0..256).for_each(|_| std::io::stderr().write_all(&chunk).expect("stderr"));
            blocked("all of it was read, none of it kept")
        }
        "answer_then_flood" => {
            print!("{{\"escaped\": false, \"how\": \"answered first\"}}");
            flood(&mut std::io::stdout());
            escaped("a gigabyte was taken after the answer")
        }
        "leftovers_of_the_last_call" => leftovers(),
        _ => return None,
    })
}

fn flood(stream: &mut impl std::io::Write) {
    let chunk = [b"flood ".repeat(10_000), b"\n".to_vec()].concat();
    for _ in 0..FLOOD_BYTES / chunk.len() {
        stream.write_all(&chunk).expect("the stream");
    }
}

/// Header fields are kept by the host, outside of our own memory.
fn headers_without_end() -> Report {
    let (name, value) = ("x-bomb", vec![b'x'; 8 << 10]);
    let mut held = 0;
    while held < MEMORY_BYTES_MAX {
        // SAFETY: as in `network`.
        let list = unsafe { network::fields() };
        let mut taken = 0;
        while network::append(list, name, &value) && taken < MEMORY_BYTES_MAX {
            taken += value.len();
        }
        if taken == 0 {
            return blocked(format!("a header was refused after {held} bytes"));
        }
        held += taken;
    }
    escaped("there was no end to what the server keeps for it")
}

fn deeper(depth: u64) -> u64 {
    let next: fn(u64) -> u64 = opaque(deeper);
    let frame = opaque([depth; 64]);
    next(depth + 1) + opaque(frame)[63]
}

/// Looks through memory it has never written, for what the call before has left; then leaves something for the next.
fn leftovers() -> Report {
    let before = core::arch::wasm32::memory_grow::<0>(SEARCHED_BYTES / 65536);
    if before == usize::MAX {
        return blocked("there is no memory to search");
    }
    let start = (before * 65536) as *mut u8;
    // SAFETY: the pages are new and belong to nobody else.
    let fresh = unsafe { std::slice::from_raw_parts_mut(start, SEARCHED_BYTES) };
    let found = fresh.iter().filter(|byte| opaque(**byte) != 0).count();
    fresh.fill(0x5a);
    opaque(fresh[MIB]);
    if found > 0 {
        return escaped(format!("{found} bytes of an earlier call were there"));
    }
    blocked("fresh memory was empty")
}
