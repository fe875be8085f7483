//! Opening files that people name: plain files only.
//!
//! A pipe without a writer would hang a command before it has said a word, and a device may never end. The file is opened
//! without waiting and judged by what was opened, so that nothing can be put in its place in between.
//!
//! Not here: what is read on purpose from a stream (`-` and standard input).

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens a plain file for reading. Whatever else has that name is an error that says what it is.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {} and no plain file", name_of(kind))))
}

fn name_of(kind: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn plain_files_are_read_and_everything_else_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, pipe) = (folder.path().join("plain"), folder.path().join("pipe"));
        std::fs::write(&plain, "text").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut text = String::new();
        open(&plain).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        for (path, word) in
            [(pipe.as_path(), "a pipe"), (Path::new("/dev/zero"), "a device"), (folder.path(), "a folder")]
        {
            let error = open(path).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        assert_eq!(open(&folder.path().join("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
