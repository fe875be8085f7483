//! Networks: sockets, names, and requests to where nobody allowed them.
//!
//! A socket that can be made counts as an escape already, so none is ever connected.

use crate::{any_of, blocked, escaped, Parameters, Report};

/// Hosts are refused by this code of `wasi:http`.
const HTTP_REQUEST_DENIED: u8 = 15;

#[link(wasm_import_module = "wasi:http/types@0.2.0")]
extern "C" {
    #[link_name = "[constructor]fields"]
    pub fn fields() -> i32;
    #[link_name = "[method]fields.append"]
    fn fields_append(list: i32, name: *const u8, name_len: usize, value: *const u8, value_len: usize, answer: *mut u8);
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

#[link(wasm_import_module = "wasi:sockets/udp-create-socket@0.2.0")]
extern "C" {
    #[link_name = "create-udp-socket"]
    fn create_udp_socket(family: i32, answer: *mut u8);
}

#[link(wasm_import_module = "wasi:sockets/instance-network@0.2.0")]
extern "C" {
    #[link_name = "instance-network"]
    fn instance_network() -> i32;
}

#[link(wasm_import_module = "wasi:sockets/ip-name-lookup@0.2.0")]
extern "C" {
    #[link_name = "resolve-addresses"]
    fn resolve_addresses(network: i32, name: *const u8, len: usize, answer: *mut u8);
}

#[link(wasm_import_module = "wasi:random/random@0.2.0")]
extern "C" {
    #[link_name = "get-random-bytes"]
    pub fn get_random_bytes(len: i64, answer: *mut u8);
}

/// Room for any answer above, aligned for 64-bit members.
#[repr(C, align(8))]
pub struct Answer([u8; 128]);

impl Answer {
    pub fn new() -> Self {
        Self([0; 128])
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    fn word(&self, at: usize) -> i32 {
        i32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
}

const IPV4: i32 = 0;
const IPV6: i32 = 1;

/// The attempt of that name, if it is one of these.
pub fn attempt(id: &str, parameters: &Parameters) -> Option<Report> {
    let port = parameters.get("port");
    Some(match id {
        "loopback_of_the_host" | "unspecified_address" | "round_the_proxy" => socket(create_tcp_socket, IPV4),
        "mapped_address" => socket(create_tcp_socket, IPV6),
        "datagram_to_loopback" => any_of([socket(create_udp_socket, IPV4), socket(create_udp_socket, IPV6)]),
        "name_lookup" => looks_up("localhost"),
        "request_without_permission" => asks(&[], &format!("127.0.0.1:{port}")),
        "api_of_the_gateway" => asks(&[], parameters.get("api")),
        "proxy_to_undeclared_name" => asks(&[], "undeclared.invalid:443"),
        "proxy_to_undeclared_port" => asks(&[], "declared.invalid:25"),
        "proxy_to_loopback" => {
            let hosts =
                ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"];
            any_of(hosts.iter().map(|host| asks(&[], &format!("{host}:{port}"))))
        }
        "proxy_to_metadata" => any_of(["169.254.169.254:80", "[fd00:ec2::254]:80"].iter().map(|at| asks(&[], at))),
        "proxy_plain_to_loopback" => {
            asks(&[("host", "declared.invalid"), ("Host", "declared.invalid:443")], &format!("127.0.0.1:{port}"))
        }
        _ => return None,
    })
}

fn socket(create: unsafe extern "C" fn(i32, *mut u8), family: i32) -> Report {
    let mut answer = Answer::new();
    // SAFETY: the answer is larger than what is written.
    unsafe { create(family, answer.as_mut_ptr()) };
    if answer.0[0] == 0 { escaped("a socket was made") } else { blocked(format!("the socket answered {}", answer.0[4])) }
}

fn looks_up(name: &str) -> Report {
    let mut answer = Answer::new();
    // SAFETY: as above; the name is live memory of the stated length.
    unsafe { resolve_addresses(instance_network(), name.as_ptr(), name.len(), answer.as_mut_ptr()) };
    if answer.0[0] == 0 { escaped("a name was looked up") } else { blocked(format!("the name answered {}", answer.0[4])) }
}

/// Adds a header; whether it was taken.
pub fn append(list: i32, name: &str, value: &[u8]) -> bool {
    let mut answer = Answer::new();
    // SAFETY: as above.
    unsafe {
        fields_append(list, name.as_ptr(), name.len(), value.as_ptr(), value.len(), answer.as_mut_ptr());
    }
    answer.0[0] == 0
}

/// Sends a plain request; escaped if anything but the rules ends it.
fn asks(headers: &[(&str, &str)], authority: &str) -> Report {
    let mut answer = Answer::new();
    // SAFETY: handles are used once, in the order the interface asks for; pointers are to live memory of the stated
    // length, and the answer is larger than each of the results.
    unsafe {
        let list = fields();
        for (name, value) in headers {
            append(list, name, value.as_bytes());
        }
        let request = outgoing_request(list);
        if set_path(request, 1, "/".as_ptr(), 1) != 0
            || set_scheme(request, 1, 0, std::ptr::null(), 0) != 0
            || set_authority(request, 1, authority.as_ptr(), authority.len()) != 0
        {
            return blocked("the request was not accepted");
        }
        handle(request, 0, 0, answer.as_mut_ptr());
        if answer.0[0] != 0 {
            return blocked(format!("the request answered {}", answer.0[8]));
        }
        let future = answer.word(8);
        block(subscribe(future));
        get_response(future, answer.as_mut_ptr());
        // option, result, result; the innermost payload is aligned to eight bytes.
        if answer.0[0] == 1 && answer.0[8] == 0 && answer.0[16] == 1 && answer.0[24] == HTTP_REQUEST_DENIED {
            return blocked("the request was denied");
        }
        escaped(format!("the request went out: {}", answer.0[24]))
    }
}
