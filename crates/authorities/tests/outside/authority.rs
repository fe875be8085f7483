//! A server on this machine that answers as told and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What it does with every request.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Status and body, with a content type that means nothing.
    Answer(u16, Vec<u8>),
    /// Sends the client somewhere else.
    Redirect(String),
    /// Takes the request and is never heard of again.
    Silence,
    /// The answer, once the server is told to go on.
    OnCommand(Vec<u8>),
}

impl Behaviour {
    pub(crate) fn json(body: &Value) -> Self {
        Self::Answer(200, body.to_string().into_bytes())
    }

    pub(crate) fn text(body: &str) -> Self {
        Self::Answer(200, body.into())
    }
}

/// One request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Debug)]
struct Shared {
    behaviour: Mutex<Behaviour>,
    asked: Mutex<Vec<Asked>>,
    arrival: Notify,
    command: Notify,
}

#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Authority {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(behaviour),
            asked: Mutex::default(),
            arrival: Notify::new(),
            command: Notify::new(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().unwrap() = behaviour;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.asked.lock().unwrap().len()
    }

    /// Waits for a request to have come in.
    pub(crate) async fn arrival(&self) {
        self.shared.arrival.notified().await;
    }

    /// Lets the requests that wait for a command go on.
    pub(crate) fn go_on(&self) {
        self.shared.command.notify_waiters();
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An address on this machine where nobody listens, and nobody can while the socket is kept.
pub(crate) fn nobody() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let command = shared.command.notified();
    let path = uri.path().to_owned();
    shared.asked.lock().unwrap().push(Asked { method, path, headers, body });
    shared.arrival.notify_one();
    let behaviour = shared.behaviour.lock().unwrap().clone();
    match behaviour {
        Behaviour::Answer(status, body) => respond(status, body),
        Behaviour::Redirect(to) => {
            Response::builder().status(307).header("location", to).body(axum::body::Body::empty()).unwrap()
        }
        Behaviour::Silence => std::future::pending().await,
        Behaviour::OnCommand(body) => {
            command.await;
            respond(200, body)
        }
    }
}

fn respond(status: u16, body: Vec<u8>) -> Response {
    let mut response = body.into_response();
    *response.status_mut() = axum::http::StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", "text/html".parse().unwrap());
    response
}
