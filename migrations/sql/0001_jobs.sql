-- Jobs, queues, slots, idempotency keys and history.
--
-- `doze.` stands for the schema chosen at run time; nothing relies on search_path.
-- Every time is the database's. Tables are private to Doze: read them through
-- its API, its command or the views, since columns may change in any release.

-- Names. Domains, which look at a value when it comes in: a CHECK of the table would do so again at each claim
-- of the job. A regular expression with a bound ({0,63}), or in another collation, takes ten times as long.
CREATE DOMAIN doze.queue_name AS text
    CONSTRAINT queue_name CHECK (octet_length(VALUE) <= 64 AND VALUE COLLATE "C" ~ '^[A-Za-z0-9][A-Za-z0-9_.-]*$');
CREATE DOMAIN doze.kind_name AS text
    CONSTRAINT kind_name CHECK (octet_length(VALUE) <= 128 AND VALUE COLLATE "C" ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]*$');

-- A queue and its settings.
CREATE TABLE doze.queues (
    queue      doze.queue_name PRIMARY KEY,
    -- How many drains may run at once, which bounds the connections they open.
    slots      smallint    NOT NULL DEFAULT 4,
    -- Claims stop while set.
    paused_at  timestamptz,
    -- Whether done jobs are kept. Failed and cancelled ones always are.
    history    boolean     NOT NULL DEFAULT true,
    -- A job whose lease has expired this often has failed.
    max_reaps  smallint    NOT NULL DEFAULT 3,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT queues_slots CHECK (slots BETWEEN 1 AND 1000),
    CONSTRAINT queues_max_reaps CHECK (max_reaps BETWEEN 1 AND 100)
);

-- Who has been asked to come to a queue: one row for each, made with it.
--
-- It is updated at each wake, as the slots are, in place (HOT) if vacuum can do its work. Where it cannot,
-- since some old snapshot is open, all versions of a row stay, and whoever looks for it by a key that
-- stays the same meets them all. So the key has an epoch, which moves on now and then, and the row is
-- looked for from its newest epoch on: `epoch >= (SELECT epoch … ORDER BY epoch DESC LIMIT 1)`. An epoch only grows,
-- so an update that has to wait for the row's lock still finds it.
CREATE TABLE doze.bells (
    queue      doze.queue_name NOT NULL REFERENCES doze.queues ON DELETE CASCADE,
    epoch      bigint      NOT NULL DEFAULT 0,
    -- The bell: until then somebody has been asked to drain this queue and has not come yet.
    bell_until timestamptz,
    -- The one alarm outside the database that is set for this queue.
    armed_at   timestamptz,
    armed_id   uuid,
    -- Looks for due jobs begin there: none that is committed and rung for is due before. What vacuum may
    -- not remove beside a snapshot that stays open lies below and is not walked over.
    floor      timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (queue, epoch),
    CONSTRAINT bells_armed CHECK ((armed_at IS NULL) = (armed_id IS NULL))
) WITH (fillfactor = 50);
-- One row a queue, said in a way that no look for a queue's row goes by.
CREATE UNIQUE INDEX bells_one ON doze.bells (md5(queue));

-- A slot: one drain's right to run.
--   free  nobody holds it
--   open  its drain will look for jobs again soon, so an enqueue need not ring
--   busy  its drain has all it can run, so it promises nothing
CREATE TABLE doze.slots (
    queue        doze.queue_name NOT NULL REFERENCES doze.queues ON DELETE CASCADE,
    slot         smallint NOT NULL,
    epoch        bigint   NOT NULL DEFAULT 0, -- follows that of the bell: see there
    state        text     NOT NULL DEFAULT 'free',
    token        uuid,
    locked_until timestamptz,
    PRIMARY KEY (queue, slot, epoch),
    CONSTRAINT slots_state CHECK (state IN ('free', 'open', 'busy')),
    CONSTRAINT slots_held CHECK ((state = 'free') = (token IS NULL) AND (token IS NULL) = (locked_until IS NULL))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX slots_one ON doze.slots (md5(queue || ' ' || slot));

-- Live jobs only: queued (no token) or running (a token and a lease).
-- A finished job leaves this table for history.
--
-- A claim changes token, locked_until and attempts, and no index mentions these:
-- so each claim is a HOT update that writes no index, which more than doubles
-- the jobs a second that the claim by status reaches. The price: running rows
-- stay in the ready index and are skipped by a look at the row. There are at
-- most slots x batch of them.
CREATE TABLE doze.jobs (
    id           uuid        PRIMARY KEY,
    queue        doze.queue_name NOT NULL,
    kind         doze.kind_name  NOT NULL,
    priority     smallint    NOT NULL DEFAULT 0,
    run_at       timestamptz NOT NULL DEFAULT now(),
    -- Fence: a claim sets a fresh token and counts an attempt; whoever cannot
    -- name both changes nothing. Attempts are never given back.
    token        uuid,
    locked_until timestamptz NOT NULL DEFAULT '-infinity',
    attempts     integer     NOT NULL DEFAULT 0,
    -- What the handler reported; reaches max_attempts: failed for good.
    failures     integer     NOT NULL DEFAULT 0,
    max_attempts integer     NOT NULL DEFAULT 10,
    -- Leases that expired, i.e. drains that vanished. Above zero: runs alone.
    reaps        smallint    NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    key          text,
    last_error   text,
    -- json, not jsonb: it comes back byte for byte.
    payload      json        NOT NULL,
    CONSTRAINT jobs_priority CHECK (priority BETWEEN -10 AND 10),
    CONSTRAINT jobs_lease CHECK ((token IS NULL) = (locked_until = '-infinity')),
    CONSTRAINT jobs_max_attempts CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT jobs_counters CHECK (attempts >= 0 AND reaps >= 0 AND failures >= 0 AND failures < max_attempts),
    CONSTRAINT jobs_key CHECK (key <> '')
) WITH (
    fillfactor = 45,                         -- room for each row's claimed version, which has 16 bytes more (at 50, one in 15 had none)
    autovacuum_vacuum_scale_factor = 0.01,   -- every job leaves a dead row behind, so vacuum early,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0         -- and do not dawdle
);

-- The order of claims: urgent first, then by due time, then by id (UUIDv7: by age).
CREATE INDEX jobs_ready ON doze.jobs (queue, priority, run_at, id);
-- Jobs whose drain vanished: claimed one at a time.
CREATE INDEX jobs_alone ON doze.jobs (queue, priority, run_at, id) WHERE reaps > 0;

-- Idempotency keys. One row decides who holds a key, under one row lock, so two
-- enqueues of one key never both win, even while its job moves to history.
CREATE TABLE doze.keys (
    kind       text        NOT NULL,
    key        text        NOT NULL,
    job_id     uuid        NOT NULL,
    -- How long the key stays taken after its job has finished. Zero: it is free at once.
    hold       interval    NOT NULL,
    -- infinity while the job is live.
    expires_at timestamptz NOT NULL DEFAULT 'infinity',
    PRIMARY KEY (kind, key),
    CONSTRAINT keys_hold CHECK (hold >= interval '0')
);
CREATE INDEX keys_expires ON doze.keys (expires_at) WHERE expires_at < 'infinity';

-- Finished jobs. Append-only: a row is inserted once and never updated.
--
-- Done and cancelled jobs lie in a ring of eight partitions, one a day of the
-- epoch modulo eight; pruning truncates whole days, which leaves nothing to
-- vacuum and needs no DDL at run time, hence no owner's rights and no process
-- that must create tomorrow's partition. Failed jobs wait for a person in a
-- partition of their own (-1).
CREATE TABLE doze.history (
    id           uuid        NOT NULL,
    bucket       smallint    NOT NULL,
    queue        doze.queue_name NOT NULL,
    kind         doze.kind_name  NOT NULL,
    state        text        NOT NULL,
    priority     smallint    NOT NULL,
    run_at       timestamptz NOT NULL,
    attempts     integer     NOT NULL,
    failures     integer     NOT NULL,
    max_attempts integer     NOT NULL,
    reaps        smallint    NOT NULL,
    created_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL,
    key          text,
    last_error   text,
    payload      json        NOT NULL,
    -- With the time, since an id that its caller chose may come again and finish again.
    PRIMARY KEY (id, finished_at, bucket),
    CONSTRAINT history_state CHECK (state IN ('done', 'failed', 'cancelled')),
    CONSTRAINT history_bucket CHECK ((state = 'failed') = (bucket = -1))
) PARTITION BY LIST (bucket);

CREATE TABLE doze.history_failed PARTITION OF doze.history FOR VALUES IN (-1);
CREATE INDEX history_failed_finished ON doze.history_failed (finished_at);
CREATE TABLE doze.history_0 PARTITION OF doze.history FOR VALUES IN (0);
CREATE TABLE doze.history_1 PARTITION OF doze.history FOR VALUES IN (1);
CREATE TABLE doze.history_2 PARTITION OF doze.history FOR VALUES IN (2);
CREATE TABLE doze.history_3 PARTITION OF doze.history FOR VALUES IN (3);
CREATE TABLE doze.history_4 PARTITION OF doze.history FOR VALUES IN (4);
CREATE TABLE doze.history_5 PARTITION OF doze.history FOR VALUES IN (5);
CREATE TABLE doze.history_6 PARTITION OF doze.history FOR VALUES IN (6);
CREATE TABLE doze.history_7 PARTITION OF doze.history FOR VALUES IN (7);

-- Where a job that ends in this state now belongs.
CREATE FUNCTION doze.history_bucket(state text) RETURNS smallint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN state = 'failed' THEN -1 ELSE (floor(extract(epoch FROM now()) / 86400)::bigint % 8)::smallint END;

-- Empties the days of the ring that ended more than keep ago, and returns how
-- many. A day in use, or one that somebody reads right now, is left for the
-- next sweep. Which days are old follows from the calendar alone: the last day
-- that could have written to a partition decides, whatever it holds.
CREATE FUNCTION doze.prune_history(keep interval) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    today   bigint := floor(extract(epoch FROM clock_timestamp()) / 86400);
    last    bigint;
    filled  boolean;
    emptied integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    FOR back IN 1..7 LOOP
        last := today - back;
        -- The oldest day's partition is tomorrow's: whoever is at its rows when the day turns has begun to use it.
        CONTINUE WHEN back = 7 AND to_timestamp((today + 1) * 86400) < clock_timestamp() + interval '10 minutes';
        CONTINUE WHEN to_timestamp((last + 1) * 86400) > now() - keep;
        BEGIN
            EXECUTE format('SELECT EXISTS (SELECT FROM doze.history_%s)', last % 8) INTO filled;
            CONTINUE WHEN NOT filled;
            EXECUTE format('TRUNCATE doze.history_%s', last % 8);
            emptied := emptied + 1;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END LOOP;
    RETURN emptied;
END
$$;

-- Executable by everyone unless taken away.
REVOKE ALL ON FUNCTION doze.history_bucket(text), doze.prune_history(interval) FROM PUBLIC;

-- What a dashboard may see: every job, live or finished, without its payload.
CREATE VIEW doze.job_list AS
SELECT id, queue, kind, CASE WHEN token IS NULL THEN 'queued' ELSE 'running' END AS state,
       priority, run_at, attempts, failures, max_attempts, reaps, created_at,
       NULL::timestamptz AS finished_at, key, last_error
  FROM doze.jobs
UNION ALL
SELECT id, queue, kind, state, priority, run_at, attempts, failures, max_attempts, reaps, created_at,
       finished_at, key, last_error
  FROM doze.history;
