//! A stream whose bytes are counted and, where the call has a bandwidth, paid for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

use super::meter::EgressMeter;
use super::throttle::Throttle;

/// A stream to upstream. Reading and writing wait for the call's bandwidth as well as for the stream; dropped, it makes
/// room for another connection of the call.
#[derive(Debug)]
pub struct MeteredStream<S> {
    stream: S,
    meter: Arc<EgressMeter>,
    throttle: Option<Arc<Throttle>>,
    /// One for each direction, as each has its own task to wake.
    read_pause: Pause,
    write_pause: Pause,
    /// The place among the connections of the call.
    _place: Option<OwnedSemaphorePermit>,
}

/// A wait for bandwidth that may be under way.
#[derive(Debug, Default)]
struct Pause(Option<Pin<Box<Sleep>>>);

impl<S> MeteredStream<S> {
    pub(super) const fn new(
        stream: S,
        meter: Arc<EgressMeter>,
        throttle: Option<Arc<Throttle>>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { stream, meter, throttle, read_pause: Pause(None), write_pause: Pause(None), _place: place }
    }

    /// The stream itself, for its addresses and options. What is read from or written to it directly is not counted.
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl Pause {
    /// Waits until the account is no longer overdrawn. Others may have drawn on it meanwhile, so it is asked again.
    fn poll_over(&mut self, throttle: &Throttle, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(sleep) = &mut self.0 {
                ready!(sleep.as_mut().poll(context));
                self.0 = None;
            }
            match throttle.blocked_until() {
                None => return Poll::Ready(()),
                Some(until) => self.0 = Some(Box::pin(tokio::time::sleep_until(until))),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let bytes = match &this.throttle {
            None => {
                let before = buf.filled().len();
                ready!(Pin::new(&mut this.stream).poll_read(context, buf))?;
                buf.filled().len().saturating_sub(before)
            }
            Some(throttle) => {
                ready!(this.read_pause.poll_over(throttle, context));
                let mut part = ReadBuf::new(buf.initialize_unfilled_to(throttle.chunk().min(buf.remaining())));
                ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
                let bytes = part.filled().len();
                buf.advance(bytes);
                throttle.pay(bytes);
                bytes
            }
        };
        this.meter.received(bytes);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut part = buf;
        if let Some(throttle) = &this.throttle {
            ready!(this.write_pause.poll_over(throttle, context));
            part = buf.get(..throttle.chunk()).unwrap_or(buf);
        }
        let bytes = ready!(Pin::new(&mut this.stream).poll_write(context, part))?;
        if let Some(throttle) = &this.throttle {
            throttle.pay(bytes);
        }
        this.meter.sent(bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    use super::*;

    /// A counted stream and its other end.
    fn stream(
        meter: &Arc<EgressMeter>,
        throttle: Option<&Arc<Throttle>>,
    ) -> (MeteredStream<DuplexStream>, DuplexStream) {
        let (near, far) = tokio::io::duplex(1 << 20);
        (MeteredStream::new(near, meter.clone(), throttle.cloned(), None), far)
    }

    fn throttle(bytes_per_second: u64) -> Arc<Throttle> {
        Arc::new(Throttle::new(NonZeroU64::new(bytes_per_second).unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_bandwidth_bytes_are_counted_and_not_held_up() {
        let (meter, before) = (Arc::new(EgressMeter::default()), Instant::now());
        let (mut near, mut far) = stream(&meter, None);
        near.write_all(&[1; 1000]).await.unwrap();
        far.write_all(&[2; 300]).await.unwrap();
        drop(far);
        let mut read = Vec::new();
        near.read_to_end(&mut read).await.unwrap();
        assert_eq!((read.len(), Instant::now() - before), (300, Duration::ZERO));
        let usage = meter.snapshot();
        assert_eq!((usage.bytes_sent, usage.bytes_received), (1000, 300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bandwidth_is_kept_over_all_streams_and_both_directions() {
        let (meter, throttle, before) = (Arc::new(EgressMeter::default()), throttle(100_000), Instant::now());
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..4 {
            let (mut near, mut far) = stream(&meter, Some(&throttle));
            far.write_all(&[0; 100_000]).await.unwrap();
            tasks.spawn(async move {
                if n % 2 == 0 {
                    near.write_all(&[0; 100_000]).await.unwrap();
                } else {
                    near.read_exact(&mut [0; 100_000]).await.unwrap();
                }
                // Kept, so that the other end is not gone before all is written.
                drop(far);
            });
        }
        tasks.join_all().await;
        let took = Instant::now() - before;
        assert!(took > Duration::from_millis(3700) && took <= Duration::from_millis(4010), "{took:?}");
        let usage = meter.snapshot();
        assert_eq!((usage.bytes_sent, usage.bytes_received), (200_000, 200_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_hour_saves_nothing_up() {
        let (meter, throttle) = (Arc::new(EgressMeter::default()), throttle(1000));
        let (mut near, _far) = stream(&meter, Some(&throttle));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let before = Instant::now();
        near.write_all(&[0; 5000]).await.unwrap();
        let took = Instant::now() - before;
        assert!(took >= Duration::from_millis(4800), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_byte_a_second_still_flows() {
        let (meter, throttle, before) = (Arc::new(EgressMeter::default()), throttle(1), Instant::now());
        let (mut near, mut far) = stream(&meter, Some(&throttle));
        near.write_all(b"abc").await.unwrap();
        let mut read = [0; 3];
        far.read_exact(&mut read).await.unwrap();
        let took = Instant::now() - before;
        assert!(&read == b"abc" && took > Duration::from_millis(1800) && took < Duration::from_secs(3), "{took:?}");
    }
}
