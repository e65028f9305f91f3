//! The words that telemetry counts by. The lists are closed: a word that is not in its list is counted as `other` and never
//! kept, so that no caller can write personal data into the counts.

/// Declares a closed list: each variant and its word.
macro_rules! names {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`.")] $variant,)*
            /// A word that is not in this list.
            Other,
        }

        impl $name {
            /// The whole list.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)* Self::Other];

            /// The name that this word stands for.
            pub fn of(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    _ => Self::Other,
                }
            }

            /// Its word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other => "other",
                }
            }
        }
    };
}

names! {
    /// What happened: the events of a project lock and of an autosave.
    EventName {
        Session = "autosave.session",
        Readonly = "autosave.lock.readonly",
        Attempt = "lock:attempt",
        Waiting = "lock:waiting",
        Held = "lock:held",
        Acquired = "lock:acquired",
        RenewScheduled = "lock:renew-scheduled",
        Renewed = "lock:renewed",
        Warning = "lock:warning",
        ReleaseRequested = "lock:release-requested",
        Released = "lock:released",
        Error = "lock:error",
        HandoverRequested = "lock:handover-requested",
        HandoverWithdrawn = "lock:handover-withdrawn",
        HandoverTold = "lock:handover-told",
        Available = "lock:available",
        Saved = "autosave.saved",
        SaveFailed = "autosave.save-failed",
        Restored = "autosave.restored",
        RestoreFailed = "autosave.restore-failed",
        Unavailable = "autosave.unavailable",
    }
}

names! {
    /// Why, or how: of a read-only entry, a warning, an acquire or a failed save.
    Reason {
        FallbackConflict = "fallback-conflict",
        LeaseStale = "lease-stale",
        AcquireTimeout = "acquire-timeout",
        RenewFailed = "renew-failed",
        ReleaseFailed = "release-failed",
        Irrecoverable = "irrecoverable",
        FallbackEngaged = "fallback-engaged",
        FallbackDegraded = "fallback-degraded",
        HeartbeatDelayed = "heartbeat-delayed",
        ClockSkew = "clock-skew",
        WebLock = "web-lock",
        FileLock = "file-lock",
        WriteFailed = "write-failed",
        NoSpace = "no-space",
        NotSerialisable = "not-serialisable",
        StaleBase = "stale-base",
    }
}

names! {
    /// The code of the last error, in the words of either profile.
    Code {
        WebLockUnsupported = "web-lock-unsupported",
        WebLockUnavailable = "web-lock-unavailable",
        WebLockAborted = "web-lock-aborted",
        AcquireDenied = "acquire-denied",
        AcquireTimeout = "acquire-timeout",
        FallbackConflict = "fallback-conflict",
        FallbackOpenFailed = "fallback-open-failed",
        FallbackReadFailed = "fallback-read-failed",
        FallbackWriteFailed = "fallback-write-failed",
        LeaseMismatch = "lease-mismatch",
        LeaseStale = "lease-stale",
        LeaseExpired = "lease-expired",
        RenewFailed = "renew-failed",
        ReleaseFailed = "release-failed",
        StaleBase = "stale-base",
    }
}

impl EventName {
    /// The name of an event of the lock. Entering read-only is published as `autosave.lock.readonly`.
    pub fn of_lock(word: &str) -> Self {
        match word {
            "lock:readonly-entered" => Self::Readonly,
            _ => Self::of(word),
        }
    }

    /// Whether it is counted by reason.
    pub const fn has_reason(self) -> bool {
        matches!(self, Self::Readonly | Self::Warning | Self::Acquired | Self::SaveFailed)
    }

    /// Whether it is counted by the code of the last error.
    pub const fn has_code(self) -> bool {
        matches!(self, Self::Readonly | Self::Error)
    }

    /// Whether it has a histogram of how long it took.
    pub const fn is_timed(self) -> bool {
        matches!(self, Self::Acquired | Self::Saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_leads_back_to_its_name() {
        for name in EventName::ALL {
            assert_eq!(EventName::of(name.as_str()), *name);
        }
        for reason in Reason::ALL {
            assert_eq!(Reason::of(reason.as_str()), *reason);
        }
        for code in Code::ALL {
            assert_eq!(Code::of(code.as_str()), *code);
        }
    }

    #[test]
    fn read_only_is_published_under_its_own_name() {
        assert_eq!(EventName::of_lock("lock:readonly-entered").as_str(), "autosave.lock.readonly");
        assert_eq!(EventName::of_lock("lock:renewed"), EventName::Renewed);
        assert_eq!(EventName::of_lock("anna@example.com").as_str(), "other");
    }
}
