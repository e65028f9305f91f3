//! What is the same in the rows of every database: how an event, a request and a meta are laid flat into columns.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::event::{EndReason, EventKind};
use leasehold_core::job::{JobText, Status};
use leasehold_core::lease::{Bid, OnSilence, Request};
use leasehold_core::{Fence, LeaseId, Meta, Owner, Reason, StoreTime, TabId, Ttl};
use serde_json::{Value, json};

/// What differs between the kinds of event, laid flat.
#[derive(Default)]
pub(crate) struct Flat<'a> {
    pub(crate) kind: &'a str,
    pub(crate) until: Option<StoreTime>,
    pub(crate) party: Option<&'a str>,
    pub(crate) note: Option<&'a str>,
    pub(crate) meta: Option<String>,
}

impl<'a> From<&'a EventKind> for Flat<'a> {
    fn from(kind: &'a EventKind) -> Self {
        let flat = |kind| Self { kind, ..Self::default() };
        match kind {
            EventKind::Granted { expires_at, meta } => {
                Self { until: Some(*expires_at), meta: meta_text(meta), ..flat("granted") }
            }
            EventKind::Ended { because: EndReason::Released } => flat("released"),
            EventKind::Ended { because: EndReason::Expired } => flat("expired"),
            EventKind::Ended { because: EndReason::Disconnected } => flat("disconnected"),
            EventKind::Ended { because: EndReason::TakenOver { by, reason } } => {
                Self { party: Some(by.as_str()), note: Some(reason.as_str()), ..flat("taken_over") }
            }
            EventKind::Ended { because: EndReason::ForceReleased { by, reason } } => {
                Self { party: Some(by.as_str()), note: Some(reason.as_str()), ..flat("force_released") }
            }
            EventKind::Ended { because: EndReason::HandedOver { to } } => {
                Self { party: Some(to.as_str()), ..flat("handed_over") }
            }
            EventKind::Shortened { expires_at } => Self { until: Some(*expires_at), ..flat("shortened") },
            EventKind::Resumed { expires_at } => Self { until: Some(*expires_at), ..flat("resumed") },
            EventKind::HandoverRequested { by, on_silence } => {
                let note = Some(on_silence_word(*on_silence));
                Self { party: Some(by.as_str()), note, ..flat("handover_requested") }
            }
            EventKind::HandoverTold { by, ends_at } => {
                Self { party: Some(by.as_str()), until: Some(*ends_at), ..flat("handover_told") }
            }
            EventKind::HandoverRefused { by, silent } => Self {
                party: Some(by.as_str()),
                note: silent.then_some("silent"),
                ..flat("handover_refused")
            },
            EventKind::HandoverWithdrawn { by } => {
                Self { party: Some(by.as_str()), ..flat("handover_withdrawn") }
            }
        }
    }
}

impl Flat<'_> {
    /// The kind that was laid flat; `None` when it cannot be right.
    pub(crate) fn parse(&self) -> Option<EventKind> {
        let party = || Owner::parse(self.party?).ok();
        let ended = |because| EventKind::Ended { because };
        Some(match self.kind {
            "granted" => {
                EventKind::Granted { expires_at: self.until?, meta: parse_meta(self.meta.as_deref())? }
            }
            "released" => ended(EndReason::Released),
            "expired" => ended(EndReason::Expired),
            "disconnected" => ended(EndReason::Disconnected),
            "taken_over" => {
                ended(EndReason::TakenOver { by: party()?, reason: Reason::parse(self.note?).ok()? })
            }
            "force_released" => {
                ended(EndReason::ForceReleased { by: party()?, reason: Reason::parse(self.note?).ok()? })
            }
            "handed_over" => ended(EndReason::HandedOver { to: party()? }),
            "shortened" => EventKind::Shortened { expires_at: self.until? },
            "resumed" => EventKind::Resumed { expires_at: self.until? },
            "handover_requested" => {
                EventKind::HandoverRequested { by: party()?, on_silence: parse_on_silence(self.note?)? }
            }
            "handover_told" => EventKind::HandoverTold { by: party()?, ends_at: self.until? },
            "handover_refused" => EventKind::HandoverRefused { by: party()?, silent: self.note.is_some() },
            "handover_withdrawn" => EventKind::HandoverWithdrawn { by: party()? },
            _ => return None,
        })
    }
}

/// Where a job stands, laid flat.
pub(crate) struct FlatStatus<'a> {
    pub(crate) word: &'a str,
    /// The result, or the error.
    pub(crate) note: Option<&'a str>,
    /// The fence of the attempt that finished it.
    pub(crate) by: Option<u64>,
}

impl<'a> From<&'a Status> for FlatStatus<'a> {
    fn from(status: &'a Status) -> Self {
        match status {
            Status::Queued => Self { word: "queued", note: None, by: None },
            Status::Ready { result, by } => {
                Self { word: "ready", note: Some(result.as_str()), by: Some(by.get()) }
            }
            Status::Failed { error, by } => {
                Self { word: "failed", note: Some(error.as_str()), by: by.map(Fence::get) }
            }
        }
    }
}

impl FlatStatus<'_> {
    /// The status that was laid flat; `None` when it cannot be right.
    pub(crate) fn parse(&self) -> Option<Status> {
        let by = self.by.map(|by| Fence::new(by).ok()).map_or(Some(None), |by| by.map(Some))?;
        match (self.word, self.note) {
            ("queued", None) => by.is_none().then_some(Status::Queued),
            ("ready", Some(note)) => Some(Status::Ready { result: JobText::parse(note).ok()?, by: by? }),
            ("failed", Some(note)) => Some(Status::Failed { error: JobText::parse(note).ok()?, by }),
            _ => None,
        }
    }
}

pub(crate) fn request_text(request: &Request) -> String {
    let mut text = json!({
        "seq": request.seq,
        "lease_id": request.bid.lease_id.reveal(),
        "owner": request.bid.owner.as_str(),
        "ttl_ms": request.bid.ttl.as_millis(),
        "meta": request.bid.meta.iter().collect::<BTreeMap<_, _>>(),
        "on_silence": on_silence_word(request.on_silence),
        "countdown_ms": request.countdown.as_millis(),
        "told_at": request.told_at.map(StoreTime::as_millis),
        "lapses_at": request.lapses_at.as_millis(),
    });
    // Left out where there is none, as in the rows of files that knew no tabs: a checksum is over this text.
    if let (Some(text), Some(tab)) = (text.as_object_mut(), &request.bid.tab) {
        text.insert("tab".to_owned(), json!(tab.as_str()));
    }
    text.to_string()
}

/// `Some(None)` when there is none; `None` when what is there cannot be right.
pub(crate) fn parse_request(text: Option<&str>) -> Option<Option<Box<Request>>> {
    let Some(text) = text else { return Some(None) };
    let value: Value = serde_json::from_str(text).ok()?;
    let number = |name: &str| value.get(name)?.as_u64();
    let word = |name: &str| value.get(name)?.as_str();
    let told_at = match value.get("told_at")? {
        Value::Null => None,
        told_at => Some(StoreTime::from_millis(told_at.as_u64()?)),
    };
    let bid = Bid {
        lease_id: LeaseId::parse(word("lease_id")?).ok()?,
        owner: Owner::parse(word("owner")?).ok()?,
        tab: parse_tab(word("tab"))?,
        ttl: ttl(number("ttl_ms")?)?,
        meta: meta_from(value.get("meta")?)?,
    };
    Some(Some(Box::new(Request {
        seq: number("seq")?,
        bid,
        on_silence: parse_on_silence(word("on_silence")?)?,
        countdown: ttl(number("countdown_ms")?)?,
        told_at,
        lapses_at: StoreTime::from_millis(number("lapses_at")?),
    })))
}

fn on_silence_word(on_silence: OnSilence) -> &'static str {
    match on_silence {
        OnSilence::Grant => "grant",
        OnSilence::Refuse => "refuse",
    }
}

fn parse_on_silence(word: &str) -> Option<OnSilence> {
    match word {
        "grant" => Some(OnSilence::Grant),
        "refuse" => Some(OnSilence::Refuse),
        _ => None,
    }
}

pub(crate) fn meta_text(meta: &Meta) -> Option<String> {
    // Strings can always be written.
    let pairs = || meta.iter().collect::<BTreeMap<_, _>>();
    (!meta.is_empty()).then(|| serde_json::to_string(&pairs()).unwrap_or_default())
}

pub(crate) fn parse_meta(text: Option<&str>) -> Option<Meta> {
    text.map_or(Some(Meta::default()), |text| meta_from(&serde_json::from_str(text).ok()?))
}

fn meta_from(value: &Value) -> Option<Meta> {
    let pairs = value.as_object()?.iter();
    let pairs: Option<Vec<_>> =
        pairs.map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
    Meta::new(pairs?).ok()
}

/// `Some(None)` when there is none; `None` when what is there cannot be right.
pub(crate) fn parse_tab(text: Option<&str>) -> Option<Option<TabId>> {
    text.map_or(Some(None), |text| TabId::parse(text).ok().map(Some))
}

pub(crate) fn ttl(millis: u64) -> Option<Ttl> {
    Ttl::new(Duration::from_millis(millis)).ok()
}
