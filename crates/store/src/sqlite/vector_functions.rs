//! The functions of the extension sqlite-vec, for one connection.
//!
//! The extension is linked into this program, and not loaded from a file. Its own documentation has it registered for every
//! connection of the process that is ever opened, which is not ours to decide in a library; here it is called for the
//! connections that compare vectors and for no others.
//!
//! Not here: tables of the extension (`vec0`). Ours are plain rows, and a file can be read without the extension.

use std::ffi::{c_char, c_int};
use std::mem::transmute;
use std::ptr::{null, null_mut};

use rusqlite::{Connection, ffi};

/// What the entry of every extension of SQLite is.
type Entry = unsafe extern "C" fn(*mut ffi::sqlite3, *mut *mut c_char, *const ffi::sqlite3_api_routines) -> c_int;

/// Gives a connection `vec_distance_cosine` and its relatives.
pub(super) fn provide(connection: &Connection) -> rusqlite::Result<()> {
    let mut message: *mut c_char = null_mut();
    #[expect(
        unsafe_code,
        reason = "the library offers nothing but a C function, and declares that without its arguments"
    )]
    // SAFETY: `sqlite3_vec_init` is the entry of an extension and has the type `Entry` in C (sqlite-vec.h); the crate
    // declares it without arguments, because it is made to be handed on. It is compiled with SQLITE_CORE against the SQLite
    // that is linked here, and so does not use the table of routines, for which it gets none. The place for a message is
    // valid for the call; what is put there was allocated by SQLite, is not read, and is given back to SQLite, which takes
    // null too. The handle is that of an open connection, which is borrowed and used by this thread alone while the call
    // lasts; the call registers functions and modules and keeps no reference of ours.
    let code = unsafe {
        let entry = transmute::<unsafe extern "C" fn(), Entry>(sqlite_vec::sqlite3_vec_init);
        let code = entry(connection.handle(), &raw mut message, null());
        ffi::sqlite3_free(message.cast());
        code
    };
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("sqlite-vec could not be set up".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_the_functions_only_if_they_were_provided() {
        let [with, without] = [(); 2].map(|()| Connection::open_in_memory().unwrap());
        provide(&with).unwrap();
        provide(&with).unwrap();
        let sql = "SELECT vec_distance_cosine(x'0000803f00000000', x'000000000000803f')";
        let distance: f64 = with.query_row(sql, [], |row| row.get(0)).unwrap();
        assert!((distance - 1.0).abs() < 1e-6, "{distance}");
        without.query_row(sql, [], |row| row.get::<_, f64>(0)).unwrap_err();
    }
}
