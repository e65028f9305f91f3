//! The timeouts of a connection.
//!
//! A connection between two requests may be idle for a while; one that has begun to send the head of a request, or has
//! never sent one, may not. (Hyper's own timeout cannot tell these apart: it would close the connection of a client that
//! sends a heartbeat every ten seconds.)

use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Version;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Visitor;
use super::gate::Place;
use crate::config::Limits;
use crate::metrics::Cut;

/// How long a connection may be idle between two requests.
const REST: Duration = Duration::from_secs(75);

/// How long a connection has to close after it was told to.
const GOODBYE: Duration = Duration::from_secs(1);

/// The activity of a connection.
pub(super) struct Activity {
    state: Mutex<State>,
    head_time: Duration,
    /// How long a peer may read nothing of a response.
    stall_time: Duration,
}

struct State {
    /// How many requests are in progress.
    under_way: usize,
    is_http2: bool,
    /// The deadline for a whole head, while one is arriving.
    head_by: Option<Instant>,
    /// Until when it may be idle.
    rest_until: Instant,
    /// The deadline for the peer to read some of the response.
    take_by: Option<Instant>,
    /// Whether it was told to close after the requests in progress.
    is_closing: bool,
}

impl State {
    fn rest(&mut self) {
        self.rest_until = Instant::now() + if self.is_closing { GOODBYE } else { REST };
    }
}

/// What to do at a connection's deadline.
enum Due {
    Cut(Cut),
    Goodbye,
}

impl Activity {
    /// A new connection, which has to send the head of its first request.
    pub(super) fn new(limits: &Limits) -> Self {
        let now = Instant::now();
        let state = State {
            under_way: 0,
            is_http2: false,
            head_by: Some(now + limits.head_time),
            rest_until: now + REST,
            take_by: None,
            is_closing: false,
        };
        Self { state: Mutex::new(state), head_time: limits.head_time, stall_time: limits.body_time }
    }

    /// A request began. It is in progress until the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>, version: Version) -> UnderWay {
        let mut state = self.lock();
        state.under_way += 1;
        state.is_http2 = version == Version::HTTP_2;
        state.head_by = None;
        UnderWay(self.clone())
    }

    fn received(&self) {
        let mut state = self.lock();
        // In HTTP/2 these bytes may answer a ping; during a request they may be its body.
        if state.under_way == 0 && !state.is_http2 && state.head_by.is_none() {
            state.head_by = Some(Instant::now() + self.head_time);
        }
    }

    fn wrote(&self, made_progress: bool) {
        let mut state = self.lock();
        if made_progress {
            state.take_by = None;
        } else if state.take_by.is_none() {
            state.take_by = Some(Instant::now() + self.stall_time);
        }
    }

    /// The next deadline if nothing changes, and what to do then.
    fn deadline(&self) -> Option<(Instant, Due)> {
        let state = self.lock();
        let stalled = state.take_by.map(|by| (by, Due::Cut(Cut::Stalled)));
        let quiet = match state.head_by {
            _ if state.under_way > 0 => None,
            Some(by) if !state.is_closing => Some((by, Due::Cut(Cut::Head))),
            _ => Some((state.rest_until, Due::Goodbye)),
        };
        [stalled, quiet].into_iter().flatten().min_by_key(|(by, _)| *by)
    }

    /// It was told to close. Half a head does not keep it open.
    fn say_goodbye(&self) {
        let mut state = self.lock();
        state.is_closing = true;
        state.rest();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in progress, until the end of its response is sent.
pub(super) struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.under_way = state.under_way.saturating_sub(1);
        state.rest();
    }
}

/// The body of a response.
pub(super) struct Answer {
    body: Body,
    _under_way: UnderWay,
}

impl Answer {
    pub(super) fn new(body: Body, under_way: UnderWay) -> Self {
        Self { body, _under_way: under_way }
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that is being served.
pub(super) trait Served: Future<Output = hyper::Result<()>> {
    /// Ends it after the requests in progress.
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<S> Served for http1::UpgradeableConnection<TokioIo<Watched<S>>, Visitor>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<S> Served for http2::Connection<TokioIo<Watched<S>>, Visitor, TokioExecutor>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Drives a connection to its end; returns why it was closed early, if it was. The connection is pinned by the caller: a
/// future has room for its arguments and for what they are moved to, which would be four kilobytes for every watcher.
pub(super) async fn drive(
    mut connection: Pin<&mut impl Served>,
    activity: &Activity,
    shutdown: &CancellationToken,
) -> Option<Cut> {
    let mut over = pin!(shutdown.cancelled());
    let mut alarm = pin!(tokio::time::sleep(activity.head_time));
    let mut is_closing = false;
    // Deadlines change only while the connection is polled, so checking afterwards is soon enough.
    std::future::poll_fn(|cx| {
        if !is_closing && over.as_mut().poll(cx).is_ready() {
            is_closing = true;
            activity.say_goodbye();
            connection.as_mut().graceful_shutdown();
        }
        loop {
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            let Some((by, due)) = activity.deadline() else { return Poll::Pending };
            // Deadlines mostly move on, with every request. The alarm moves only when it goes off, which is seldom.
            if alarm.deadline() > by || alarm.is_elapsed() {
                alarm.as_mut().reset(by);
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if alarm.deadline() < by {
                continue;
            }
            match due {
                Due::Cut(cut) => return Poll::Ready(Some(cut)),
                Due::Goodbye if is_closing => return Poll::Ready(None),
                Due::Goodbye => {
                    is_closing = true;
                    activity.say_goodbye();
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    })
    .await
}

/// What an HTTP/2 connection begins with.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream that reports its reads and writes, and that holds its place in the limits.
pub(super) struct Watched<S> {
    stream: S,
    /// The first bytes, of which `first_left` are still to be given.
    first: [u8; PREFACE.len()],
    first_left: Range<usize>,
    activity: Arc<Activity>,
    _place: Place,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>, place: Place) -> Self {
        Self { stream, first: [0; PREFACE.len()], first_left: 0..0, activity, _place: place }
    }

    /// Whether the peer begins with HTTP/2. The bytes that say so are read again afterwards.
    ///
    /// Hyper's own way of finding out has room for both versions in each connection, and reads the head of the first request in
    /// two pieces, after which its buffer has twice the size: 8 KiB for every watcher.
    pub(super) async fn is_http2(&mut self) -> io::Result<bool>
    where
        S: AsyncRead + Unpin,
    {
        let mut first = [0; PREFACE.len()];
        let mut read = 0;
        while read < PREFACE.len() && PREFACE.starts_with(first.get(..read).unwrap_or_default()) {
            match self.read(first.get_mut(read..).unwrap_or_default()).await? {
                0 => break,
                more => read += more,
            }
        }
        (self.first, self.first_left) = (first, 0..read);
        Ok(first == PREFACE)
    }

    /// Gives what is left of the first bytes, as far as there is room; returns whether there was any.
    fn give_first(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let left = self.first.get(self.first_left.clone()).unwrap_or_default();
        let given = left.len().min(buffer.remaining());
        buffer.put_slice(left.get(..given).unwrap_or_default());
        self.first_left.start += given;
        given > 0
    }

    fn wrote<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.wrote(written.is_ready());
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let gave_first = self.give_first(buffer);
        // What has come after the first bytes belongs into the same buffer; if nothing has, they are enough.
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = if gave_first { Poll::Ready(Ok(())) } else { read };
        if buffer.filled().len() > before {
            self.activity.received();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.wrote(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
