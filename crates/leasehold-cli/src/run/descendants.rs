//! The descendants of this process. As a subreaper it becomes the parent of whatever its descendants leave behind, also of
//! what has left the command's process group. A child keeps its number until this process has waited for it, so that
//! signalling one by its number is safe.

use std::fs;
use std::path::Path;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpgid, getpgrp, kill_process, waitid, waitpid,
};

/// The threads of this process, each with a list of the children that it started.
const THREADS: &str = "/proc/self/task";

/// The children of this process; none where the kernel does not list them (`CONFIG_PROC_CHILDREN`).
pub(super) fn children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(THREADS) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(parse).collect::<Vec<_>>()).collect()
}

fn parse(number: &str) -> Option<Pid> {
    Pid::from_raw(number.parse().ok()?)
}

/// Whether this process has a child at all.
pub(super) fn is_any_left() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::All, look).is_ok()
}

/// Asks the children that have left the process group of this process to end.
pub(super) fn terminate_outside_the_group() {
    let group = getpgrp();
    for child in children().into_iter().filter(|child| getpgid(Some(*child)) != Ok(group)) {
        // That it has ended meanwhile is fine.
        let _ = kill_process(child, Signal::TERM);
        let _ = kill_process(child, Signal::CONT);
    }
}

/// Kills the children of this process but those that are `spared`. What they leave behind are its children next.
fn kill_children(spared: &[Pid]) -> Vec<Pid> {
    let children: Vec<Pid> = children().into_iter().filter(|child| !spared.contains(child)).collect();
    for child in &children {
        let _ = kill_process(*child, Signal::KILL);
    }
    children
}

/// Kills every descendant but those that were there before, and waits until they are gone.
pub(super) fn end_all_but(spared: &[Pid]) {
    if !Path::new("/proc/thread-self/children").exists() {
        return;
    }
    loop {
        let killed = kill_children(spared);
        // A list that is read while children come and go may lack one: whether there is any is asked as well.
        if killed.is_empty() && (!spared.is_empty() || !is_any_left()) {
            return;
        }
        for child in killed {
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
    }
}

/// One round of the same without waiting for anything. Answers whether a child is left.
pub(super) fn end_some() -> bool {
    for child in kill_children(&[]) {
        let _ = waitpid(Some(child), WaitOptions::NOHANG);
    }
    is_any_left()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_listed_until_it_was_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(children().contains(&pid) && is_any_left());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!children().contains(&pid));
    }
}
