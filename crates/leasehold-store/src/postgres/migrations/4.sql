-- Schema 4: which history of the database the rows belong to, so that a fail-over and a restore are noticed. `history.rs` says
-- what for.

-- `origin` is the cluster, the database and the table that the rows were written in; `timeline` is PostgreSQL's count of
-- fail-overs and recoveries to an earlier point. NULL where the database does not tell them.
ALTER TABLE leasehold.store ADD COLUMN origin text, ADD COLUMN timeline bigint;

-- Looked at by every command, so it reads no file. A standby has no timeline of its own until it is promoted.
CREATE FUNCTION leasehold.timeline(recorded bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN recorded IS NULL OR pg_is_in_recovery() THEN recorded
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint END
$$;

-- The history that the database has now. Some hosted databases forbid these functions.
CREATE FUNCTION leasehold.history(OUT origin text, OUT timeline bigint) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  origin := (SELECT c.system_identifier FROM pg_control_system() c) || '/' ||
    (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) || '/' ||
    (SELECT s.tableoid::bigint FROM leasehold.store s);
  timeline := leasehold.timeline(0);
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
  origin := NULL;
  timeline := NULL;
END $$;

-- Everything that is counted jumps if the rows come from another history than the database has now. Answers whether they did.
CREATE FUNCTION leasehold.begin_history() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  actual record;
BEGIN
  SELECT h.origin, h.timeline INTO actual FROM leasehold.history() h;
  IF pg_is_in_recovery() OR EXISTS (SELECT FROM leasehold.store s
      WHERE (s.origin, s.timeline) IS NOT DISTINCT FROM (actual.origin, actual.timeline)) THEN
    RETURN false;
  END IF;
  -- Of two servers that come here at once, the second waits, and finds nothing to do.
  UPDATE leasehold.store s SET origin = actual.origin, timeline = actual.timeline
  WHERE (s.origin, s.timeline) IS DISTINCT FROM (actual.origin, actual.timeline);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM leasehold.after_restore();
  RETURN true;
END $$;

UPDATE leasehold.store s SET (origin, timeline) = (SELECT h.origin, h.timeline FROM leasehold.history() h);

-- As in schema 1, with the timeline that is recorded and the one that the database has.
DROP FUNCTION leasehold.lock_and_read(text, uuid, text, bigint);
CREATE FUNCTION leasehold.lock_and_read(wanted text, wanted_id uuid, bidder text, most bigint)
RETURNS TABLE (
  found_version bigint, found_position bigint, found_seq_floor bigint, found_last_fence bigint, found_clock bigint,
  found_offset bigint, found_recorded bigint, found_timeline bigint, found_raw bigint, found_slot text, ended_at bigint,
  ended_because text, leases bigint
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(leasehold.key_lock(wanted));
  RETURN QUERY
    SELECT s.version, s.position, s.seq_floor, s.last_fence, s.clock, s.clock_offset, s.timeline,
      leasehold.timeline(s.timeline), leasehold.clock_ms(),
      (SELECT to_jsonb(k)::text FROM leasehold.slot k WHERE k.key = wanted), e.at, e.because,
      (SELECT count(*) FROM (SELECT FROM leasehold.slot k WHERE k.owner = bidder LIMIT most) AS held)
    FROM leasehold.store s LEFT JOIN LATERAL
      (SELECT x.at, x.because FROM leasehold.ending x
       WHERE x.lease_id = wanted_id AND x.key = wanted ORDER BY x.id DESC LIMIT 1) e ON true
    WHERE s.id;
END $$;
