//! The system calls of [`inside::seccomp`](crate::inside::seccomp) in the words of a container runtime: the same list,
//! by name, with the same conditions.
//!
//! A runtime's filter compares 64 bits where the kernel looks at 32, and cannot say "none of these" of one argument. So
//! conditions on 32-bit arguments are masked, and the requests a program may not make of a terminal are excluded by
//! allowing everything that differs from them in some bit ([`all_but`]).

use serde_json::{Value, json};

use crate::inside::seccomp::{
    CLONE_NEW, CountedMemory, ENLARGING, LARGER_PIPE, LARGER_SOCKET, OWNERLESS_MEMORY, PLAIN, SystemCall,
    TERMINAL_INPUT, UNKNOWN,
};

/// The lower half of an argument, which is all the kernel looks at.
const HALF: u64 = 0xffff_ffff;

/// The member `linux.seccomp`.
pub(super) fn seccomp(counted: CountedMemory) -> Value {
    let mut plain = names(PLAIN);
    #[cfg(target_arch = "x86_64")]
    plain.extend(names(crate::inside::seccomp::PLAIN_X86_64));
    if counted == CountedMemory::OfProcesses {
        let (ownerless, enlarging) = (names(OWNERLESS_MEMORY), names(ENLARGING));
        plain.retain(|name| !ownerless.contains(name) && !enlarging.contains(name));
    }
    let mut rules = vec![
        json!({ "names": plain, "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": names(UNKNOWN), "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS }),
        when(&["clone"], &[masked(0, u64::from(CLONE_NEW), 0)]),
        when(&["socketpair"], &[masked(0, HALF, number(libc::AF_UNIX))]),
        when(&["personality"], &[masked(0, HALF, 0)]),
        when(&["personality"], &[masked(0, HALF, HALF)]),
    ];
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
            for protocol in [0, if kind == libc::SOCK_STREAM { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP }] {
                rules.push(when(
                    &["socket"],
                    &[masked(0, HALF, number(family)), masked(1, 0xf, number(kind)), masked(2, HALF, number(protocol))],
                ));
            }
        }
    }
    if counted == CountedMemory::OfProcesses {
        let mut unless = |call: &str, argument, excluded: &[i32]| {
            let excluded: Vec<u64> = excluded.iter().copied().map(number).collect();
            let others = all_but(&excluded).into_iter();
            rules.extend(others.map(|(mask, value)| when(&[call], &[masked(argument, mask, value)])));
        };
        unless("setsockopt", 1, &[libc::SOL_SOCKET]);
        unless("setsockopt", 2, &LARGER_SOCKET);
        unless("fcntl", 1, &LARGER_PIPE);
    }
    rules.extend(all_but(&TERMINAL_INPUT).into_iter().map(|(mask, value)| when(&["ioctl"], &[masked(1, mask, value)])));
    for kind in [libc::S_IFIFO, libc::S_IFREG, 0] {
        let node = |argument| masked(argument, u64::from(libc::S_IFMT), u64::from(kind));
        rules.push(when(&["mknodat"], &[node(2)]));
        #[cfg(target_arch = "x86_64")]
        rules.push(when(&["mknod"], &[node(1)]));
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": libc::EPERM,
        "architectures": [ARCHITECTURE],
        "syscalls": rules,
    })
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

fn names(calls: &[SystemCall]) -> Vec<&'static str> {
    calls.iter().map(|(constant, _)| constant.strip_prefix("SYS_").unwrap_or(constant)).collect()
}

/// All conditions of one rule hold together; rules for one call are alternatives.
fn when(names: &[&str], conditions: &[Value]) -> Value {
    json!({ "names": names, "action": "SCMP_ACT_ALLOW", "args": conditions })
}

fn masked(argument: u32, mask: u64, value: u64) -> Value {
    json!({ "index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" })
}

fn number(constant: i32) -> u64 {
    u64::from(constant.cast_unsigned())
}

/// Masks and values that together match every 32-bit number but the given ones.
fn all_but(excluded: &[u64]) -> Vec<(u64, u64)> {
    let mut matches = Vec::new();
    // Each excluded number is left at each bit for the first time; what leaves there and is no prefix of another one is
    // free from there on.
    for number in excluded {
        for bit in (0..32).rev() {
            let mask = (HALF << bit) & HALF;
            let value = (number & mask) ^ (1 << bit);
            let shared = excluded.iter().any(|other| other & mask == value);
            if !shared && !matches.contains(&(mask, value)) {
                matches.push((mask, value));
            }
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allowed(matches: &[(u64, u64)], number: u64) -> bool {
        matches.iter().any(|(mask, value)| number & mask == *value)
    }

    #[test]
    fn nothing_typed_on_a_terminal_passes_whatever_the_upper_half_says() {
        let matches = all_but(&TERMINAL_INPUT);
        for request in TERMINAL_INPUT {
            assert!(!allowed(&matches, request));
            assert!(!allowed(&matches, request | 0xdead_beef_0000_0000));
            assert!(allowed(&matches, request ^ 1) || TERMINAL_INPUT.contains(&(request ^ 1)));
        }
        assert!(allowed(&matches, libc::TCGETS) && allowed(&matches, libc::FIONREAD) && allowed(&matches, 0));
    }

    #[test]
    fn memory_of_no_process_is_not_on_the_list_where_only_processes_are_counted() {
        let (of_group, of_processes) = (seccomp(CountedMemory::OfGroup), seccomp(CountedMemory::OfProcesses));
        let allowed = |filter: &Value| filter["syscalls"][0]["names"].as_array().unwrap().clone();
        let (all, fewer) = (allowed(&of_group), allowed(&of_processes));
        let missing: Vec<&Value> = all.iter().filter(|name| !fewer.contains(name)).collect();
        let ownerless = [names(OWNERLESS_MEMORY), names(ENLARGING)].concat();
        assert_eq!((missing.len(), fewer.len()), (ownerless.len(), all.len() - ownerless.len()));
        assert!(missing.iter().all(|name| ownerless.contains(&name.as_str().unwrap())), "{missing:?}");
    }

    proptest! {
        #[test]
        fn every_number_but_the_excluded_ones_matches(excluded in prop::collection::vec(any::<u32>(), 1..6), number: u32) {
            let excluded: Vec<u64> = excluded.into_iter().map(u64::from).collect();
            let matches = all_but(&excluded);
            prop_assert_eq!(allowed(&matches, u64::from(number)), !excluded.contains(&u64::from(number)));
            for one in &excluded {
                prop_assert!(!allowed(&matches, *one));
                for bit in 0..32 {
                    let near = one ^ (1 << bit);
                    prop_assert_eq!(allowed(&matches, near), !excluded.contains(&near));
                }
            }
        }
    }
}
