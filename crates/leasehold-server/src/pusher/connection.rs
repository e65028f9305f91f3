//! The IO of one socket: reads its messages, does what the conversation decides, and writes what the registry has for it.
//!
//! It is the only task that waits for the client. Others leave frames in its queue, and end it if that is full.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::conversation::{Action, Conversation, Now};
use super::message::{self, Frame, Refusal};
use super::registry::Line;
use super::{Pusher, SocketId};
use crate::App;

/// How long a client may take to accept a frame.
const WRITE: Duration = Duration::from_secs(10);

/// How long a connection has to close after it was told to.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves one socket, from its first frame to its end.
pub(crate) async fn serve(pusher: Arc<Pusher>, app: Arc<App>, mut socket: WebSocket) {
    let (line, frames) = Line::new();
    let Some(id) = pusher.connect(&app.hub, &line) else { return refuse(socket, Refusal::FULL).await };
    let over = {
        let connected = Connected::new(&pusher, &app, id);
        let start = Instant::now();
        let conversation = Conversation::new(id, &pusher.settings, Duration::ZERO);
        let mut connection = Connection { connected, line, frames, start, conversation };
        connection.run(&mut socket).await
    };
    if let Over::Close { before, refusal } = over {
        close(socket, before, &refusal).await;
    }
}

/// Tells a client that it may not connect, and closes the connection.
pub(crate) async fn refuse(socket: WebSocket, refusal: Refusal) {
    close(socket, None, &refusal).await;
}

async fn close(mut socket: WebSocket, before: Option<Frame>, refusal: &Refusal) {
    let closing = async {
        for frame in before.into_iter().chain([message::error(refusal, None)]) {
            socket.send(Message::Text(frame)).await?;
        }
        let (code, reason) = (refusal.code, refusal.message.as_ref().into());
        socket.send(Message::Close(Some(CloseFrame { code, reason }))).await?;
        // A connection that is dropped with something unread may lose the last frame.
        while let Some(Ok(_)) = socket.recv().await {}
        Ok::<_, axum::Error>(())
    };
    // The client may be gone already.
    let _ = timeout(GOODBYE, closing).await;
}

/// A socket in the registry, until it is dropped.
struct Connected<'a> {
    pusher: &'a Pusher,
    app: &'a App,
    id: SocketId,
}

impl<'a> Connected<'a> {
    fn new(pusher: &'a Pusher, app: &'a App, id: SocketId) -> Self {
        app.metrics.socket_opened();
        Self { pusher, app, id }
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.pusher.disconnect(self.id);
        self.app.metrics.socket_closed();
    }
}

/// How a connection ends.
enum Over {
    /// The client is gone, or cannot be reached any more.
    Gone,
    Close {
        before: Option<Frame>,
        refusal: Refusal,
    },
}

impl Over {
    fn close(refusal: Refusal) -> Self {
        Self::Close { before: None, refusal }
    }
}

struct Connection<'a> {
    connected: Connected<'a>,
    line: Arc<Line>,
    frames: mpsc::Receiver<Frame>,
    start: Instant,
    conversation: Conversation,
}

impl Connection<'_> {
    async fn run(&mut self, socket: &mut WebSocket) -> Over {
        let settings = &self.connected.pusher.settings;
        let hello = message::established(self.connected.id, settings.activity_timeout);
        if let Err(over) = self.write(socket, hello).await {
            return over;
        }
        let mut alarm = std::pin::pin!(tokio::time::sleep_until(self.deadline()));
        loop {
            let action = tokio::select! {
                biased;
                refusal = self.line.ended() => return Over::close(refusal),
                frame = self.frames.recv() => frame.map_or(Action::Nothing, Action::Reply),
                message = socket.recv() => match message {
                    Some(Ok(message)) => match self.read(message) {
                        Some(action) => action,
                        None => return Over::Gone,
                    },
                    Some(Err(_)) => return Over::close(Refusal::TOO_LONG),
                    None => return Over::Gone,
                },
                () = &mut alarm => {
                    let action = self.conversation.tick(settings, self.start.elapsed());
                    alarm.as_mut().reset(self.deadline());
                    action
                }
            };
            if let Err(over) = self.act(socket, action).await {
                return over;
            }
            // Deadlines mostly move on. The alarm is moved only when it goes off, or when a deadline is earlier.
            if self.deadline() < alarm.deadline() {
                alarm.as_mut().reset(self.deadline());
            }
        }
    }

    fn deadline(&self) -> Instant {
        self.start + self.conversation.deadline(&self.connected.pusher.settings)
    }

    /// What follows from a message; `None` if the client closes the connection.
    fn read(&mut self, message: Message) -> Option<Action> {
        let since_start = self.start.elapsed();
        match message {
            Message::Text(text) => {
                let now = Now { since_start, wall_millis: (self.connected.app.config.wall_clock)() };
                Some(self.conversation.hear(text.as_str(), &self.connected.pusher.settings, now))
            }
            Message::Ping(_) | Message::Pong(_) => Some(self.conversation.hear_control(since_start)),
            Message::Binary(_) => Some(Action::Close { before: None, refusal: Refusal::BINARY }),
            Message::Close(_) => None,
        }
    }

    async fn act(&mut self, socket: &mut WebSocket, action: Action) -> Result<(), Over> {
        let Connected { pusher, id, .. } = self.connected;
        match action {
            Action::Nothing => Ok(()),
            Action::Reply(frame) => self.write(socket, frame).await,
            Action::Join { channel, member } => match pusher.join(id, &channel, member.as_ref()) {
                Ok(()) => Ok(()),
                Err(why) => {
                    self.conversation.not_joined(&channel);
                    let refused = message::subscription_error(channel.as_str(), "LimitReached", why, 429);
                    self.write(socket, refused).await
                }
            },
            Action::Leave(channel) => {
                pusher.leave_channel(id, &channel);
                Ok(())
            }
            Action::Say { channel, frame } => {
                pusher.say(&channel, &frame, id);
                Ok(())
            }
            Action::SignIn { user, reply } => {
                pusher.sign_in(id, user);
                self.write(socket, reply).await
            }
            Action::Close { before, refusal } => Err(Over::Close { before, refusal }),
        }
    }

    /// Writes a frame. A client that does not take it in time is gone.
    async fn write(&self, socket: &mut WebSocket, frame: Frame) -> Result<(), Over> {
        tokio::select! {
            biased;
            written = timeout(WRITE, socket.send(Message::Text(frame))) => match written {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(Over::Gone),
            },
            refusal = self.line.ended() => Err(Over::close(refusal)),
        }
    }
}
