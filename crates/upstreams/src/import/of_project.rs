//! A block that Claude Code keeps for one project, in the one file of a person: what is relative in it begins at the project, and
//! not where the file lies.

use std::path::{Path, PathBuf};

use super::{ClosedPath, ImportMachine, PathKind};

/// The machine, as it is seen from the project.
pub(super) struct OfProject<'m> {
    machine: &'m dyn ImportMachine,
    folder: PathBuf,
}

impl<'m> OfProject<'m> {
    /// None if the block is for no project, or does not say where that is.
    pub(super) fn at(machine: &'m dyn ImportMachine, folder: Option<&str>) -> Option<Self> {
        let folder = PathBuf::from(folder?);
        folder.is_absolute().then_some(Self { machine, folder })
    }
}

impl ImportMachine for OfProject<'_> {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        self.machine.kind(path)
    }

    fn programs(&self, name: &str) -> Vec<PathBuf> {
        self.machine.programs(name)
    }

    fn really(&self, path: &Path) -> PathBuf {
        self.machine.really(path)
    }

    fn links(&self, path: &Path) -> Vec<PathBuf> {
        self.machine.links(path)
    }

    fn text(&self, path: &Path) -> Option<String> {
        self.machine.text(path)
    }

    fn entries(&self, folder: &Path) -> Vec<PathBuf> {
        self.machine.entries(folder)
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.machine.variable(name)
    }

    fn file(&self) -> Option<PathBuf> {
        self.machine.file()
    }

    fn closed(&self, path: &Path, write: bool) -> Option<ClosedPath> {
        self.machine.closed(path, write)
    }

    fn is_gantry(&self, program: &str) -> bool {
        self.machine.is_gantry(program)
    }

    fn keeps_packages(&self) -> bool {
        self.machine.keeps_packages()
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(self.folder.clone())
    }

    fn project(&self) -> Option<PathBuf> {
        Some(self.folder.clone())
    }
}
