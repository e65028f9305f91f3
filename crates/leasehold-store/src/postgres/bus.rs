//! Messages between the servers on one database: notifications on a channel of their own.
//!
//! The connection that listens for events hears them as well. Sending takes one trip, and no sync of the database's disk:
//! a message that a crash of the database loses was sent to servers that lose their connections in that moment.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::Inner;
use super::connect::{self, Connection, Param, Phase};
use super::trouble::TroubleResult;
use crate::Result;
use crate::bus::{Bus, Listening};

/// The channel. Only processes that want messages listen to it.
pub(super) const CHANNEL: &str = "leasehold_nodes";

/// PostgreSQL takes less than 8,000 bytes.
const LONGEST: usize = 7_900;

/// Texts that are equal and in one transaction arrive once: who sends the same text twice has to number it.
const NOTIFY: &str =
    "SELECT count(pg_notify('leasehold_nodes', text)) FROM unnest($1) WITH ORDINALITY AS t(text, number)";

const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = 4000; SET LOCAL synchronous_commit = off;";

/// The bus of a PostgreSQL store.
pub(super) struct PostgresBus(pub(super) Arc<Inner>);

#[async_trait]
impl Bus for PostgresBus {
    fn longest(&self) -> usize {
        LONGEST
    }

    async fn send(&self, texts: &[String]) -> Result<()> {
        // Not tried again: what a lost connection did with it is unknown, and a text must not arrive twice.
        notify(&self.0, texts).await.map_err(|trouble| trouble.error)
    }

    fn listen(&self) -> Listening {
        self.0.ears.hear_texts(&self.0.pool)
    }
}

async fn notify(inner: &Inner, texts: &[String]) -> TroubleResult<()> {
    let connection = Connection::new(inner).await?;
    let db = connection.get()?;
    let params: [Param<'_>; 1] = [(&texts, Type::TEXT_ARRAY)];
    let notified = async {
        let (begun, sent, ended) = tokio::join!(
            biased;
            db.batch_execute(BEGIN),
            db.query_typed(NOTIFY, &params),
            db.batch_execute("COMMIT"),
        );
        begun?;
        sent?;
        Ok(ended?)
    };
    connect::timely(notified, Phase::Committing).await?;
    connection.keep();
    Ok(())
}
