//! Being asked to end: Ctrl-C, or what `kill` sends.

use anyhow::Result;

/// Listens for signals from the moment it is made, so that none is missed between two steps.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Completes with the next signal, and with the exit code of a program that it ends at once.
    pub(crate) async fn next(&mut self) -> i32 {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
            130
        }
    }

    /// Completes with the first signal. A second one ends the program at once.
    pub(crate) async fn asked_to_end(mut self) {
        self.next().await;
        tokio::spawn(async move {
            let code = self.next().await;
            crate::logs::flush();
            std::process::exit(code);
        });
    }
}
