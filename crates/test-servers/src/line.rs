//! A line between a client and a server that can be cut, as a network does it: nothing is refused and nothing is closed,
//! what is sent does not arrive. What was under way arrives when the line is mended.
//!
//! Each connection has a thread for each direction; all of them end with the line or with either end of the connection.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use base::MutexExt as _;

/// Connections that one line carries at once; further ones are closed.
const CONNECTIONS_MAX: usize = 512;
/// Bytes carried in one go.
const CHUNK: usize = 16 * 1024;

/// A line to a port of loopback.
#[derive(Debug)]
pub struct LoopbackLine {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    to: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    is_gone: bool,
    open: Vec<TcpStream>,
}

impl LoopbackLine {
    /// A line that carries everything to this port of loopback.
    pub fn to(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
        let own = listener.local_addr().context("a listener without a port")?.port();
        let shared = Arc::new(Shared { to: port, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                if accepting.state().is_gone {
                    return;
                }
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || shared.carry(&stream));
            }
        });
        Ok(Self { port: own, shared })
    }

    /// Where clients connect.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing arrives, in neither direction.
    pub fn cut(&self) {
        self.shared.set(|state| state.is_cut = true);
    }

    /// What waits arrives, and everything after it.
    pub fn mend(&self) {
        self.shared.set(|state| state.is_cut = false);
    }
}

impl Drop for LoopbackLine {
    fn drop(&mut self) {
        self.shared.set(|state| {
            state.is_gone = true;
            for stream in state.open.drain(..) {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        // Whoever accepts looks up.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_unpoisoned()
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits while the line is cut. False: it is gone.
    fn passes(&self) -> bool {
        let waited = self.changed.wait_while(self.state(), |state| state.is_cut && !state.is_gone);
        !waited.unwrap_or_else(PoisonError::into_inner).is_gone
    }

    fn carry(self: &Arc<Self>, near: &TcpStream) {
        if !self.keep(near) || !self.passes() {
            return;
        }
        let Ok(far) = TcpStream::connect(("127.0.0.1", self.to)) else { return };
        let copies = (near.try_clone(), far.try_clone());
        let (Ok(near_again), Ok(far_again)) = copies else { return };
        if !self.keep(&far) {
            return;
        }
        let back = Arc::clone(self);
        std::thread::spawn(move || back.copy(&far_again, &near_again));
        self.copy(near, &far);
    }

    /// Notes a stream, to be closed with the line; forgets those that are closed.
    fn keep(&self, stream: &TcpStream) -> bool {
        let Ok(copy) = stream.try_clone() else { return false };
        let mut state = self.state();
        state.open.retain(|stream| stream.peer_addr().is_ok());
        let room = !state.is_gone && state.open.len() < 2 * CONNECTIONS_MAX;
        if room {
            state.open.push(copy);
        }
        drop(state);
        room
    }

    fn copy(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut chunk = vec![0; CHUNK];
        while let Ok(count) = from.read(&mut chunk) {
            let read = chunk.get(..count).unwrap_or_default();
            if !self.passes() || read.is_empty() || to.write_all(read).is_err() {
                break;
            }
        }
        for stream in [from, to] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::LoopbackLine;

    #[test]
    fn a_cut_line_holds_what_is_sent_until_it_is_mended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = LoopbackLine::to(listener.local_addr().unwrap().port()).unwrap();
        let mut near = TcpStream::connect(("127.0.0.1", line.port())).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut byte = [0];
        near.write_all(b"a").unwrap();
        far.read_exact(&mut byte).unwrap();
        line.cut();
        near.write_all(b"b").unwrap();
        far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(far.read(&mut byte).is_err(), "nothing arrives, and nothing is closed");
        line.mend();
        far.set_read_timeout(None).unwrap();
        far.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"b");
        drop(line);
        assert_eq!(far.read(&mut byte).unwrap(), 0);
    }
}
