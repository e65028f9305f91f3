-- Schema 5: the two trips of a command take and answer columns instead of JSON, and one function reads for a command alone and
-- for a batch. The tables are the same.

-- Commands of schema 4 that have read a slot are finished first. Later ones find the new version, and are refused by their own
-- check of it: for that, the function that they read with stays.
LOCK TABLE leasehold.slot;
DROP FUNCTION leasehold.write(bigint, bigint, bigint, text, text, text);

-- Trip 1: a row for each key, in the order of `keys`. With `waits`, it waits for keys that others have locked; more than one
-- such key could be a deadlock. Otherwise `is_locked` says which keys could be locked.
--
-- A session plans these statements once, while the tables may be new and without statistics, and keeps the plan when they have
-- grown: only plans that look up each key in an index stay good. A bitmap scan would be one, but it does not mark the
-- index entries of old versions as dead: it read thousands of them to count the leases of one busy owner.
CREATE FUNCTION leasehold.lock_and_read(
  keys text[], lease_ids uuid[], bidders text[], most bigint, waits boolean
) RETURNS TABLE (
  found_version bigint, found_position bigint, found_seq_floor bigint, found_last_fence bigint, found_clock bigint,
  found_offset bigint, found_recorded bigint, found_timeline bigint, found_raw bigint,
  found_key text, found_seq bigint, found_vacant_since bigint, found_owner text, found_tab text, found_lease_id uuid,
  found_fence bigint, found_acquired_at bigint, found_renewed_at bigint, found_expires_at bigint, found_ttl_ms bigint,
  found_leaving boolean, found_meta text, found_request text,
  ended_at bigint, ended_because text, leases bigint, is_locked boolean
) LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  locked boolean[];
BEGIN
  IF waits THEN
    PERFORM pg_advisory_xact_lock(leasehold.key_lock(w.key)) FROM unnest(keys) AS w(key);
    locked := array_fill(true, ARRAY[cardinality(keys)]);
  ELSE
    locked := ARRAY(SELECT pg_try_advisory_xact_lock(leasehold.key_lock(w.key))
      FROM unnest(keys) WITH ORDINALITY AS w(key, n) ORDER BY w.n);
  END IF;
  -- A statement of its own: it begins, and so sees the database, after the keys were locked.
  RETURN QUERY
    WITH store AS MATERIALIZED (
      SELECT s.version, s.position, s.seq_floor, s.last_fence, s.clock, s.clock_offset, s.timeline,
        leasehold.timeline(s.timeline) AS current, leasehold.clock_ms() AS raw
      FROM leasehold.store s WHERE s.id
    ), held AS MATERIALIZED (
      SELECT b.owner, (SELECT count(*) FROM
        (SELECT FROM leasehold.slot k WHERE k.owner = b.owner LIMIT most) AS one_of_them) AS leases
      FROM (SELECT DISTINCT d.owner FROM unnest(bidders) AS d(owner) WHERE d.owner IS NOT NULL) AS b
    )
    SELECT s.*, k.key, k.seq, k.vacant_since, k.owner, k.tab, k.lease_id, k.fence, k.acquired_at, k.renewed_at,
      k.expires_at, k.ttl_ms, k.leaving, k.meta, k.request, e.at, e.because,
      coalesce((SELECT h.leases FROM held h WHERE h.owner = w.bidder), 0), w.is_locked
    FROM unnest(keys, lease_ids, bidders, locked) WITH ORDINALITY AS w(key, lease_id, bidder, is_locked, n)
    CROSS JOIN store s
    LEFT JOIN leasehold.slot k ON k.key = w.key
    LEFT JOIN LATERAL (SELECT x.at, x.because FROM leasehold.ending x
      WHERE x.lease_id = w.lease_id AND x.key = w.key ORDER BY x.id DESC LIMIT 1) e ON true
    ORDER BY w.n;
END $$;

-- Trip 2: slots, endings and events, column by column. Answers the position of the last event; NULL when there is none. The
-- store's row comes late: from there on, others wait. Listeners are woken once, however many events there are.
CREATE FUNCTION leasehold.write(
  decided_at bigint, new_last_fence bigint,
  slot_keys text[], slot_seqs bigint[], slot_vacant_since bigint[], slot_due_at bigint[], slot_owners text[],
  slot_tabs text[], slot_lease_ids uuid[], slot_fences bigint[], slot_acquired_at bigint[], slot_renewed_at bigint[],
  slot_expires_at bigint[], slot_ttl_ms bigint[], slot_leaving boolean[], slot_metas text[], slot_requests text[],
  ending_keys text[], ending_lease_ids uuid[], ending_because text[],
  event_keys text[], event_seqs bigint[], event_at bigint[], event_fences bigint[], event_owners text[],
  event_kinds text[], event_until bigint[], event_parties text[], event_notes text[], event_metas text[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  told bigint := cardinality(event_keys);
  last bigint;
BEGIN
  INSERT INTO leasehold.slot (key, seq, vacant_since, due_at, owner, tab, lease_id, fence, acquired_at, renewed_at,
    expires_at, ttl_ms, leaving, meta, request)
  SELECT * FROM unnest(slot_keys, slot_seqs, slot_vacant_since, slot_due_at, slot_owners, slot_tabs, slot_lease_ids,
    slot_fences, slot_acquired_at, slot_renewed_at, slot_expires_at, slot_ttl_ms, slot_leaving, slot_metas,
    slot_requests)
  ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, vacant_since = excluded.vacant_since,
    due_at = excluded.due_at, owner = excluded.owner, tab = excluded.tab, lease_id = excluded.lease_id,
    fence = excluded.fence, acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at,
    expires_at = excluded.expires_at, ttl_ms = excluded.ttl_ms, leaving = excluded.leaving, meta = excluded.meta,
    request = excluded.request;
  IF cardinality(ending_keys) > 0 THEN
    INSERT INTO leasehold.ending (at, key, lease_id, because)
    SELECT decided_at, e.* FROM unnest(ending_keys, ending_lease_ids, ending_because) AS e;
  END IF;
  IF told > 0 THEN
    UPDATE leasehold.store s
    SET position = s.position + told, last_fence = greatest(s.last_fence, new_last_fence),
      clock = greatest(s.clock, decided_at)
    WHERE s.id RETURNING s.position INTO last;
    INSERT INTO leasehold.event (position, key, seq, at, fence, owner, kind, until, party, note, meta)
    SELECT last - told + e.n, e.key, e.seq, e.at, e.fence, e.owner, e.kind, e.until, e.party, e.note, e.meta
    FROM unnest(event_keys, event_seqs, event_at, event_fences, event_owners, event_kinds, event_until, event_parties,
      event_notes, event_metas) WITH ORDINALITY
      AS e(key, seq, at, fence, owner, kind, until, party, note, meta, n);
    PERFORM pg_notify('leasehold', '');
  END IF;
  RETURN last;
END $$;
