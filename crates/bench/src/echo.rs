//! The yardstick: an HTTP server that reads a body and answers with the same bytes, and does nothing else. Traces it takes in
//! silence, as a collector does.
//!
//! It stands on the same hyper as the product and on as many threads, so that the ratio shows what Gantry adds and not
//! what HTTP costs. It runs in a process of its own, as the product does, and ends when its standard input does, so that
//! it cannot outlive whoever started it.

use std::convert::Infallible;
use std::io::Read as _;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::neighbour::Neighbour;

/// Where traces are sent to. A collector that has taken them says nothing.
const COLLECTOR_PATH: &str = "/v1/traces";

/// `gantry-bench echo-server`: prints its address, then serves until standard input ends.
pub(crate) fn run() -> Result<()> {
    let (gone, owner_is_gone) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Whatever the outcome: without a writer there is nobody left to serve.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = gone.send(());
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        tokio::select! {
            outcome = serve() => outcome,
            _ = owner_is_gone => Ok(()),
        }
    })
}

async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // A client that goes away ends its own connection; that is no news here.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo)).await;
        });
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    if request.uri().path() == COLLECTOR_PATH {
        if !let_go(request.into_body()).await {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        return Ok(response);
    }
    match request.into_body().collect().await {
        Ok(body) => *response.body_mut() = Full::new(body.to_bytes()),
        Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
    }
    Ok(response)
}

/// Reads a body to its end and keeps nothing of it: a collector is elsewhere, and what it does with traces is not measured.
async fn let_go(mut body: Incoming) -> bool {
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}

/// Starts it.
pub(super) fn start() -> Result<Neighbour> {
    Neighbour::start(&["echo-server"])
}
