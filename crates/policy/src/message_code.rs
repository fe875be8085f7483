//! HMAC-SHA256 over messages that two sides share a secret for: webhooks, callbacks, the doors of other queues.
//! (ASYNC-007, ASYNC-010, FLOW-006)
//!
//! Tokens are not made this way: whoever can check a shared secret can also forge with it, which is right between two
//! parties that know each other and wrong for anything handed on.
//!
//! Not here: what is covered and how it is written on the wire (`jobs::webhooks::signature`, `vendor_services::qstash`).

use ring::hmac;

/// Bytes of a code.
pub const CODE_BYTES: usize = 32;

/// The code of a message, given in parts that are joined without anything between them.
pub fn message_code(secret: &[u8], parts: &[&[u8]]) -> [u8; CODE_BYTES] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    for part in parts {
        context.update(part);
    }
    let mut code = [0; CODE_BYTES];
    for (byte, made) in code.iter_mut().zip(context.sign().as_ref()) {
        *byte = *made;
    }
    code
}

/// Is this the code of the message? Takes the same time wherever the first difference is.
pub fn is_message_code(secret: &[u8], parts: &[&[u8]], code: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), &parts.concat(), code).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn codes_are_those_of_rfc_4231() {
        for (secret, message, expected) in [
            (&[0x0b; 20][..], &b"Hi There"[..], "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
        ] {
            let (first, second) = message.split_at(4);
            let code = message_code(secret, &[first, second]);
            assert_eq!(hex(&code), expected);
            assert!(is_message_code(secret, &[message], &code));
            assert!(!is_message_code(secret, &[message], &code[1..]));
            assert!(!is_message_code(b"other", &[message], &code));
        }
    }
}
