-- Schema 2: jobs, beside their leases. No rule about jobs is in here either.

CREATE TABLE leasehold.job (
  key text COLLATE "C" PRIMARY KEY,
  payload text NOT NULL,
  status text NOT NULL,
  note text,
  by bigint,
  attempts bigint NOT NULL,
  max_attempts bigint,
  begun boolean NOT NULL,
  changed_at bigint NOT NULL
);
CREATE INDEX job_finished ON leasehold.job (changed_at) WHERE status <> 'queued';
