-- Schema 1: leases, their events and their endings. No lease rule is in here: the database keeps rows and tells the time.

CREATE SCHEMA IF NOT EXISTS leasehold;

-- The one clock: milliseconds since 1970 on the database's machine. Tests put another function in its place.
CREATE FUNCTION leasehold.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
  $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- About the store as a whole. Free space in its page lets the one row be updated in place.
CREATE TABLE leasehold.store (
  id boolean PRIMARY KEY DEFAULT true CHECK (id),
  version bigint NOT NULL,
  last_fence bigint NOT NULL DEFAULT 0,
  position bigint NOT NULL DEFAULT 0,
  seq_floor bigint NOT NULL DEFAULT 0,
  clock bigint NOT NULL DEFAULT 0,
  clock_offset bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO leasehold.store (version) VALUES (1);

-- One row per key; "C" is the order of the bytes, which is the order of keys in every store.
CREATE TABLE leasehold.slot (
  key text COLLATE "C" PRIMARY KEY,
  seq bigint NOT NULL,
  vacant_since bigint NOT NULL,
  due_at bigint,
  owner text COLLATE "C",
  lease_id uuid,
  fence bigint,
  acquired_at bigint,
  renewed_at bigint,
  expires_at bigint,
  ttl_ms bigint,
  leaving boolean,
  meta text,
  request text
) WITH (fillfactor = 70);
CREATE INDEX slot_due ON leasehold.slot (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX slot_owner ON leasehold.slot (owner) WHERE owner IS NOT NULL;
CREATE INDEX slot_vacant ON leasehold.slot (vacant_since) WHERE owner IS NULL;

-- The outbox: what happened, in the order in which it was committed.
CREATE TABLE leasehold.event (
  position bigint PRIMARY KEY,
  key text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  at bigint NOT NULL,
  fence bigint NOT NULL,
  owner text COLLATE "C" NOT NULL,
  kind text NOT NULL,
  until bigint,
  party text,
  note text,
  meta text
);

-- The lease ids that are over.
CREATE TABLE leasehold.ending (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at bigint NOT NULL,
  key text COLLATE "C" NOT NULL,
  lease_id uuid NOT NULL,
  because text NOT NULL
);
CREATE INDEX ending_lease_id ON leasehold.ending (lease_id);
CREATE INDEX ending_at ON leasehold.ending (at);

-- The two trips of a command, as functions: a session plans what is in them once, and not for every command, even though
-- statements have no names here. `turn.rs` says what happens in them, and why in this order.

-- The number under which a key is locked: `LSHD` sets it apart from other users of advisory locks.
CREATE FUNCTION leasehold.key_lock(wanted text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
  $$ SELECT hashtextextended(wanted, 1280526404) $$;

-- Trip 1. The second statement begins, and so sees the database, after the first has got the lock.
CREATE FUNCTION leasehold.lock_and_read(wanted text, wanted_id uuid, bidder text, most bigint)
RETURNS TABLE (
  found_version bigint, found_position bigint, found_seq_floor bigint, found_last_fence bigint, found_clock bigint,
  found_offset bigint, found_raw bigint, found_slot text, ended_at bigint, ended_because text, leases bigint
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(leasehold.key_lock(wanted));
  RETURN QUERY
    SELECT s.version, s.position, s.seq_floor, s.last_fence, s.clock, s.clock_offset, leasehold.clock_ms(),
      (SELECT to_jsonb(k)::text FROM leasehold.slot k WHERE k.key = wanted), e.at, e.because,
      (SELECT count(*) FROM (SELECT FROM leasehold.slot k WHERE k.owner = bidder LIMIT most) AS held)
    FROM leasehold.store s LEFT JOIN LATERAL
      (SELECT x.at, x.because FROM leasehold.ending x
       WHERE x.lease_id = wanted_id AND x.key = wanted ORDER BY x.id DESC LIMIT 1) e ON true
    WHERE s.id;
END $$;

-- Trip 2. Answers the position of the last event; NULL when there is none. The store's row comes late: from there on,
-- others wait.
CREATE FUNCTION leasehold.write(
  told bigint, new_last_fence bigint, decided_at bigint, new_slots text, new_endings text, new_events text
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  last bigint;
BEGIN
  INSERT INTO leasehold.slot SELECT * FROM jsonb_populate_recordset(NULL::leasehold.slot, new_slots::jsonb)
  ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, vacant_since = excluded.vacant_since,
    due_at = excluded.due_at, owner = excluded.owner, lease_id = excluded.lease_id, fence = excluded.fence,
    acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at, expires_at = excluded.expires_at,
    ttl_ms = excluded.ttl_ms, leaving = excluded.leaving, meta = excluded.meta, request = excluded.request;
  IF new_endings <> '[]' THEN
    INSERT INTO leasehold.ending (at, key, lease_id, because)
    SELECT e.at, e.key, e.lease_id, e.because
    FROM jsonb_populate_recordset(NULL::leasehold.ending, new_endings::jsonb) e;
  END IF;
  IF told > 0 THEN
    UPDATE leasehold.store s
    SET position = s.position + told, last_fence = greatest(s.last_fence, new_last_fence),
      clock = greatest(s.clock, decided_at)
    WHERE s.id RETURNING s.position INTO last;
    INSERT INTO leasehold.event
    SELECT last - told + e.position, e.key, e.seq, e.at, e.fence, e.owner, e.kind, e.until, e.party, e.note, e.meta
    FROM jsonb_populate_recordset(NULL::leasehold.event, new_events::jsonb) e;
    PERFORM pg_notify('leasehold', e.seq || ' ' || e.key)
    FROM jsonb_populate_recordset(NULL::leasehold.event, new_events::jsonb) e;
  END IF;
  RETURN last;
END $$;

-- For whoever puts a database back to a backup: everything that is counted jumps ahead of what was lost with the rest.
CREATE FUNCTION leasehold.after_restore() RETURNS void LANGUAGE sql VOLATILE AS $$
  UPDATE leasehold.store SET last_fence = greatest(last_fence, leasehold.clock_ms()) + 4294967296,
    position = position + 4294967296, seq_floor = seq_floor + 4294967296;
  UPDATE leasehold.slot SET seq = seq + 4294967296;
  DELETE FROM leasehold.event;
$$;
