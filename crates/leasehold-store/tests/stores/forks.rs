//! A process that forks, as programs in C and Python do, and goes on in both processes without starting another program. The
//! tests of projects on disk use this too.

/// Forks this process. The child does `work` and ends: with success if that answered true. Answers the child's process id.
///
/// For a process that was started to play a part, and has no other test running in it.
#[allow(unsafe_code, reason = "only the C library can fork without starting a program")]
pub fn fork(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the C library makes its own locks usable in the child; the child uses none that another thread of this process can
    // have been holding, and ends without running anything of the test runner.
    unsafe {
        match libc::fork() {
            0 => {
                // Whatever goes wrong in the test, nothing stays behind for long.
                libc::alarm(60);
                let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                libc::_exit(i32::from(!worked.unwrap_or(false)))
            }
            child => child,
        }
    }
}

/// Forks a process that does nothing for a minute but keep what it has inherited, the standard streams excepted.
#[allow(unsafe_code, reason = "only the C library can fork without starting a program")]
pub fn fork_idle() -> i32 {
    fork(|| {
        // SAFETY: nothing in the child uses the streams.
        unsafe {
            for stream in 0..=2 {
                libc::close(stream);
            }
            libc::pause();
        }
        false
    })
}

/// Whether the child answered true.
pub fn has_succeeded(child: i32) -> bool {
    let child = rustix::process::Pid::from_raw(child).expect("a process");
    let ended = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
    ended.is_ok_and(|ended| ended.is_some_and(|(_, status)| status.exit_status() == Some(0)))
}
