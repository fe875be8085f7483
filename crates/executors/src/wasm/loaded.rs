//! One component, compiled, linked and understood: which world it implements, and that everything it imports is there.

use std::sync::Arc;

use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};
use wasmtime_wasi::p2::bindings::CommandPre;

use super::library::LoadError;
use super::state::State;

/// The interfaces a component may import, without their versions.
const GIVEN: [&str; 13] = [
    "gantry:tool/checkpoints",
    "gantry:tool/host",
    "gantry:tool/invocation",
    "gantry:tool/secrets",
    "gantry:tool/types",
    "wasi:cli/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:http/outgoing-handler",
    "wasi:http/types",
    "wasi:io/",
    "wasi:random/",
    "wasi:sockets/",
];

/// A component that is ready to be instantiated.
pub struct LoadedComponent {
    pub(super) entry: Entry,
}

/// How a component is called.
pub(super) enum Entry {
    /// `gantry:tool/tool`: one function, JSON in and out.
    Tool { pre: InstancePre<State>, invoke: ComponentExportIndex },
    /// `wasi:cli/command`: parameters on stdin, result on stdout.
    Command(CommandPre<State>),
}

impl LoadedComponent {
    pub(super) fn new(engine: &Engine, linker: &Linker<State>, component: &Component) -> Result<Self, LoadError> {
        if let Some(unknown) = unknown_import(engine, component) {
            return Err(LoadError::UnknownImport(unknown));
        }
        let pre = linker.instantiate_pre(component).map_err(|error| {
            tracing::warn!(error = %format!("{error:#}"), "a component does not fit");
            LoadError::Unfit
        })?;
        let invoke = component
            .component_type()
            .get_export(engine, "invoke")
            .filter(|export| matches!(export.ty, ComponentItem::ComponentFunc(_)))
            .and_then(|_| component.get_export_index(None, "invoke"));
        let entry = match invoke {
            Some(invoke) => Entry::Tool { pre, invoke },
            None => Entry::Command(CommandPre::new(pre).map_err(|_| LoadError::NoEntry)?),
        };
        Ok(Self { entry })
    }

    /// `gantry:tool/tool` or `wasi:cli/command`.
    pub fn world(&self) -> &'static str {
        match self.entry {
            Entry::Tool { .. } => "gantry:tool/tool",
            Entry::Command(_) => "wasi:cli/command",
        }
    }
}

impl std::fmt::Debug for LoadedComponent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("world", &self.world()).finish_non_exhaustive()
    }
}

fn unknown_import(engine: &Engine, component: &Component) -> Option<Arc<str>> {
    let kind = component.component_type();
    kind.imports(engine)
        // A type by itself asks for nothing.
        .filter(|(_, import)| !matches!(import.ty, ComponentItem::Type(_)))
        .map(|(name, _)| name)
        .find(|name| !is_given(name))
        // The name is the component's own text: bounded before it goes anywhere.
        .map(|name| name.chars().filter(|c| !c.is_control()).take(128).collect::<String>().into())
}

fn is_given(import: &str) -> bool {
    let interface = import.split('@').next().unwrap_or_default();
    GIVEN.iter().any(|given| if given.ends_with('/') { interface.starts_with(given) } else { interface == *given })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_given_by_interface_and_not_by_prefix() {
        for given in
            ["wasi:cli/stdin@0.2.3", "wasi:http/types@0.2.0", "gantry:tool/host@1.0.0", "wasi:sockets/tcp@0.2.0"]
        {
            assert!(is_given(given), "{given}");
        }
        for unknown in
            ["wasi:http/incoming-handler@0.2.0", "gantry:tool/hosts@1.0.0", "wasi:nn/graph", "env", "wasi:clix/a"]
        {
            assert!(!is_given(unknown), "{unknown}");
        }
    }
}
