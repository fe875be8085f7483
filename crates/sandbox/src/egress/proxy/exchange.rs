//! One plain request and its response.
//!
//! Every request has an upstream connection of its own, so it is checked as if it were the first – the host of the next
//! request on a connection that stays may be another – and there is no connection to a server in which a smuggled
//! response could wait for somebody else. That costs a handshake for each plain request; what is in a hurry uses a tunnel.
//!
//! Both directions run at once: a server may answer before it has read all, and one that was asked to says `100` first.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncBufRead, AsyncWrite, BufReader};

use super::answer::Answer;
use super::body::{self, Body, Broken};
use super::head::{self, Request, Response};
use super::target::Url;
use super::tunnel::Activity;
use super::{Client, ProxyLimits};
use crate::egress::gate::EgressGate;

/// As many interim responses a server may send before the real one.
const INTERIM_MAX: usize = 16;

/// What both directions of an exchange know.
struct Exchange<'e> {
    request: &'e Request,
    url: &'e Url,
    limits: &'e ProxyLimits,
    activity: Activity,
    /// The client has got a byte, so it is too late for an answer of our own.
    begun: AtomicBool,
}

/// How an exchange ended.
enum End {
    /// The client has the whole response; after the last one its connection closes.
    Complete { last: bool },
    /// It has a part, or is gone itself.
    Broken,
    /// It has nothing yet.
    Unanswered(Answer),
}

/// Carries one request to its server and the response back. `false` if the client's connection is over with it.
pub(super) async fn forward(
    client: &mut Client,
    request: &Request,
    url: &Url,
    gate: &EgressGate,
    limits: &ProxyLimits,
) -> io::Result<bool> {
    let bare = request.method == "HEAD";
    let upstream = match gate.connect(&url.authority.host, url.authority.port).await {
        Ok(upstream) => upstream,
        Err(refused) => {
            // A body that nobody read would be taken for the next request.
            let stays = request.stays && matches!(request.body, Body::None | Body::Length(0));
            let answer = Answer::refusal(&refused, Some("http"), gate.owner());
            client.answer(&answer, limits, !stays, bare).await?;
            return Ok(stays);
        }
    };
    let (from_upstream, mut to_upstream) = tokio::io::split(upstream);
    let mut from_upstream = BufReader::new(from_upstream);
    let activity = Activity::new(limits.idle_timeout);
    let exchange = Exchange { request, url, limits, activity, begun: AtomicBool::new(false) };
    let mut sent = None;
    let end = {
        let mut send = pin!(exchange.send(&mut client.reader, &mut to_upstream));
        let mut receive = pin!(exchange.receive(&mut from_upstream, &mut client.writer));
        loop {
            tokio::select! {
                end = &mut receive => break end,
                result = &mut send, if sent.is_none() => match result {
                    Err(Broken::Source) => break End::Unanswered(Answer::new(400, "the body of the request is broken")),
                    // A server that reads no further may have said why.
                    result => sent = Some(result),
                },
                () = exchange.activity.lapse() => break End::Unanswered(Answer::IDLE_UPSTREAM),
            }
        }
    };
    match end {
        End::Complete { last } => Ok(!last && sent == Some(Ok(()))),
        End::Unanswered(answer) if !exchange.begun.load(Ordering::Relaxed) => {
            client.answer(&answer, limits, true, bare).await?;
            Ok(false)
        }
        // Cut off rather than ended, so that nobody takes a part for the whole.
        End::Broken | End::Unanswered(_) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

impl Exchange<'_> {
    async fn send<R, W>(&self, reader: &mut R, writer: &mut W) -> Result<(), Broken>
    where
        R: AsyncBufRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let head = self.request.render(self.url);
        self.activity.write_all(writer, &head).await.map_err(|_| Broken::Sink)?;
        let body = self.request.body;
        body::copy(reader, writer, body, body == Body::Chunked, &self.activity).await
    }

    async fn receive<R, W>(&self, reader: &mut R, writer: &mut W) -> End
    where
        R: AsyncBufRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        for _ in 0..=INTERIM_MAX {
            let Ok(head) = head::read(reader, self.limits.head_bytes_max).await else {
                return End::Unanswered(Answer::BAD_UPSTREAM);
            };
            self.activity.touch();
            let response = match Response::parse(&head, &self.request.method) {
                // Nobody was asked to switch protocols: the field that asks is left out.
                Ok(response) if response.status != 101 => response,
                _ => return End::Unanswered(Answer::BAD_UPSTREAM),
            };
            if response.is_interim() && !self.request.is_current {
                continue;
            }
            let chunked = self.request.is_current && response.body == Body::Chunked;
            let last = !self.request.stays || response.body == Body::UntilEnd;
            self.begun.store(true, Ordering::Relaxed);
            if self.activity.write_all(writer, &response.render(chunked, last)).await.is_err() {
                return End::Broken;
            }
            if response.is_interim() {
                continue;
            }
            let body = body::copy(reader, writer, response.body, chunked, &self.activity).await;
            return if body.is_ok() { End::Complete { last } } else { End::Broken };
        }
        End::Unanswered(Answer::BAD_UPSTREAM)
    }
}
