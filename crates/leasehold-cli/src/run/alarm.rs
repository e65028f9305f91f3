//! A timer on the clock of the deadlines, as the time namespace of this process has it: a holder's clock is its own, and the
//! kernel's timers go by the same. The runtime's own timers stand still while the machine sleeps; this one rings
//! as soon as it wakes up.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold_core::HolderTime;
use leasehold_store::clock::{Clock, HolderClock};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::sync::Notify;

/// One timer, on whose ringing a thread waits for as long as the process lasts.
pub(super) struct Alarm {
    timer: Arc<OwnedFd>,
    rung: Arc<Notify>,
}

pub(super) fn now() -> HolderTime {
    HolderTime::from_millis(HolderClock.millis())
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let timer = Arc::new(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?);
        let rung = Arc::new(Notify::new());
        let alarm = Self { timer: timer.clone(), rung: rung.clone() };
        std::thread::Builder::new().name("alarm".to_owned()).spawn(move || listen(&timer, &rung))?;
        Ok(alarm)
    }

    /// Completes at that time, at once if it has passed.
    pub(super) async fn ring_at(&self, time: HolderTime) -> io::Result<()> {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: millis / 1_000, tv_nsec: millis % 1_000 * 1_000_000 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        // It may have rung for an earlier setting.
        while now() < time {
            self.rung.notified().await;
        }
        Ok(())
    }
}

/// Passes on every ringing.
fn listen(timer: &OwnedFd, rung: &Notify) {
    let mut count = [0; 8];
    loop {
        match rustix::io::read(timer, &mut count) {
            Ok(_) => rung.notify_one(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn it_rings_when_it_is_time_and_not_for_an_earlier_setting() {
        let alarm = Alarm::new().unwrap();
        alarm.ring_at(HolderTime::ZERO).await.unwrap();
        alarm.ring_at(now()).await.unwrap();
        let start = now();
        tokio::select! {
            biased;
            rung = alarm.ring_at(start + Duration::from_secs(3_600)) => panic!("{rung:?}"),
            () = tokio::task::yield_now() => {}
        }
        alarm.ring_at(start + Duration::from_millis(30)).await.unwrap();
        assert!(now() >= start + Duration::from_millis(30));
    }
}
