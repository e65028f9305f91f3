-- Schema 3: the tab of a holder is part of who holds the lease, and no longer stands in what is shown of the holder.
--
-- Adding the column waits for the transactions that have read a slot, and later ones find the new version: a server that
-- does not know this schema refuses its commands from here on, and has written nothing in between.

ALTER TABLE leasehold.slot ADD COLUMN tab text COLLATE "C";

-- Only documents had tabs. `-` stood for none. A meta without entries is NULL.
UPDATE leasehold.slot SET
  tab = nullif(meta::jsonb ->> 'tab', '-'),
  meta = nullif((meta::jsonb - 'tab')::text, '{}')
WHERE meta IS NOT NULL AND key LIKE 'doc/%' AND meta::jsonb ->> 'tab' COLLATE "C" ~ '^[!-~]{1,128}$';

UPDATE leasehold.slot SET
  request = (jsonb_set(request::jsonb, '{meta}', (request::jsonb -> 'meta') - 'tab')
    || CASE WHEN request::jsonb #>> '{meta,tab}' = '-' THEN '{}'::jsonb
       ELSE jsonb_build_object('tab', request::jsonb #> '{meta,tab}') END)::text
WHERE request IS NOT NULL AND key LIKE 'doc/%' AND request::jsonb #>> '{meta,tab}' COLLATE "C" ~ '^[!-~]{1,128}$';

-- As in schema 1, with the tab.
CREATE OR REPLACE FUNCTION leasehold.write(
  told bigint, new_last_fence bigint, decided_at bigint, new_slots text, new_endings text, new_events text
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  last bigint;
BEGIN
  INSERT INTO leasehold.slot SELECT * FROM jsonb_populate_recordset(NULL::leasehold.slot, new_slots::jsonb)
  ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, vacant_since = excluded.vacant_since,
    due_at = excluded.due_at, owner = excluded.owner, tab = excluded.tab, lease_id = excluded.lease_id,
    fence = excluded.fence, acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at,
    expires_at = excluded.expires_at, ttl_ms = excluded.ttl_ms, leaving = excluded.leaving, meta = excluded.meta,
    request = excluded.request;
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
