//! What belongs to one call while it runs: the things of WASI it holds, its limits, its log. Gone when the call is.

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::host::Host;
use super::limits::{HANDLES_MAX, Limiter};
use super::outbound::Sender;

/// The data of one store.
pub(super) struct State {
    pub(super) limiter: Limiter,
    pub(super) host: Host,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    sender: Sender,
    table: ResourceTable,
}

impl State {
    pub(super) fn new(wasi: WasiCtx, sender: Sender, limiter: Limiter, host: Host) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        Self { limiter, host, wasi, http: WasiHttpCtx::new(), sender, table }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.sender, table: &mut self.table, ctx: &mut self.http }
    }
}
