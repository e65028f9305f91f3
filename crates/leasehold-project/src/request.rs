//! What programs say about a request to hand the project over, between its bytes and its meaning: programs have no channel to
//! each other, so the last thing that was said is in a file (`.lock.request`), which the holder and the asker read twice a
//! second. It is advice, like all news: a file that is damaged, old or forged makes a program ask or answer in vain, and no more.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::lease::OnSilence;
use leasehold_core::time::{StoreTime, whole_millis};
use leasehold_core::{Fence, Meta, Owner, Reason};
use leasehold_project_rules::options::{ON_SILENCE, ask};
use leasehold_project_rules::record::{LONGEST, label_text};
use leasehold_project_rules::{Ask, News, Say};
use serde::{Deserialize, Serialize};

/// A request to hand the project over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverRequest {
    /// Why, for people at the holder.
    pub reason: Reason,
    /// How long the holder has, from when it was told.
    pub countdown: Duration,
    /// What its silence means.
    pub on_silence: OnSilence,
}

/// Ten seconds, and silence is a refusal.
impl Default for HandoverRequest {
    fn default() -> Self {
        Self { reason: Reason::default(), countdown: Duration::from_secs(10), on_silence: OnSilence::Refuse }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    /// A word of [`Say::WORDS`]; `released` when the holder has given the project back, `acquired` when it was taken over.
    say: String,
    fence: u64,
    /// When it was written: what is said again is heard again.
    at: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    owner: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    label: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    countdown_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_silence: Option<String>,
}

const RELEASED: &str = "released";
const ACQUIRED: &str = "acquired";

/// What to write for this news.
pub(crate) fn print(news: &News, now: StoreTime) -> Option<Vec<u8>> {
    let at = now.as_millis();
    let blank = |say: &str, fence: Fence| Note {
        say: say.to_owned(),
        fence: fence.get(),
        at,
        owner: String::new(),
        label: String::new(),
        reason: String::new(),
        countdown_ms: None,
        on_silence: None,
    };
    let note = match news {
        News::Acquired { owner, fence, why } => Note {
            owner: owner.as_str().to_owned(),
            reason: why.as_ref().map(|why| why.as_str().to_owned()).unwrap_or_default(),
            ..blank(ACQUIRED, *fence)
        },
        News::Released { fence } => blank(RELEASED, *fence),
        News::Handover { fence, say, ask } => Note {
            owner: ask.asker.as_str().to_owned(),
            label: label_text(&ask.label).unwrap_or_default().to_owned(),
            reason: ask.why.as_str().to_owned(),
            countdown_ms: Some(whole_millis(ask.countdown) as f64),
            on_silence: ON_SILENCE
                .iter()
                .find(|(known, _)| *known == ask.on_silence)
                .map(|(_, word)| (*word).into()),
            ..blank(say.as_str(), *fence)
        },
    };
    serde_json::to_vec(&note).ok()
}

/// What the file says; `None` if that makes no sense.
pub(crate) fn read(bytes: &[u8]) -> Option<News> {
    let note: Note = serde_json::from_slice(bytes).ok().filter(|_| bytes.len() <= LONGEST)?;
    let fence = Fence::new(note.fence).ok()?;
    if note.say == RELEASED {
        return Some(News::Released { fence });
    }
    let owner = Owner::parse(&note.owner).ok()?;
    let why = Reason::parse(&note.reason).ok()?;
    if note.say == ACQUIRED {
        return Some(News::Acquired { owner, fence, why: Some(why).filter(|why| !why.as_str().is_empty()) });
    }
    let (say, _) = Say::WORDS.into_iter().find(|(_, word)| *word == note.say)?;
    let (countdown, on_silence) = ask(note.countdown_ms, note.on_silence.as_deref()).ok()?;
    let ask = Ask { asker: owner, label: Meta::label(&note.label).ok()?, why, countdown, on_silence };
    Some(News::Handover { fence, say, ask: Arc::new(ask) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test fails by panicking
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let fence = Fence::new(7).unwrap();
        let ask = Ask {
            asker: Owner::parse("process 7 on here").unwrap(),
            label: Meta::label("Ben").unwrap(),
            why: Reason::parse("a typo").unwrap(),
            countdown: Duration::from_millis(2_500),
            on_silence: OnSilence::Grant,
        };
        let blank = Ask { label: Meta::default(), why: Reason::default(), ..ask.clone() };
        let (owner, why) = (ask.asker.clone(), ask.why.clone());
        let acquired = |why| News::Acquired { owner: owner.clone(), fence, why };
        let mut all = vec![News::Released { fence }, acquired(None), acquired(Some(why))];
        for (say, _) in Say::WORDS {
            for ask in [&ask, &blank] {
                all.push(News::Handover { fence, say, ask: Arc::new(ask.clone()) });
            }
        }
        for news in all {
            let bytes = print(&news, StoreTime::from_millis(1)).unwrap();
            assert_eq!(read(&bytes), Some(news));
        }
    }

    #[test]
    fn nonsense_is_not_heard() {
        let good = r#"{"say":"asked","fence":7,"at":1,"owner":"a"}"#;
        assert!(read(good.as_bytes()).is_some());
        let long = good.replace("\"a\"", &format!("\"{}\"", "a".repeat(LONGEST)));
        for bad in [
            "",
            "[]",
            "{}",
            &good.replace("asked", "ask"),
            &good.replace('7', "-7"),
            &good.replace('7', "9007199254740992"),
            &good.replace("\"a\"", "\"\""),
            &good.replace("\"at\":1", "\"at\":1,\"countdownMs\":-1"),
            &good.replace("\"at\":1", "\"at\":1,\"onSilence\":\"maybe\""),
            &long,
        ] {
            assert_eq!(read(bad.as_bytes()), None, "{bad:.80}");
        }
    }
}
