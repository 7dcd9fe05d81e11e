-- Roles with least privilege, for `doze migrate --roles`: each may do what its functions' statements
-- (queue/sql) need, and nothing else. Nobody logs in as one of them; grant them to the logins
-- that do:
--
--   GRANT doze_drain TO my_handler;
--
-- The owner of the tables is whoever migrates. Idempotent, and needs the right to create
-- roles only if they are not there. Rights that an earlier version granted and that are no
-- longer needed are taken back.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['doze_enqueue', 'doze_drain', 'doze_sweep', 'doze_read', 'doze_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- made by another migration under way: roles belong to all databases
            END;
        END IF;
    END LOOP;
    -- An operator may do what an enqueuer and a dashboard may, and more.
    FOREACH name IN ARRAY ARRAY['doze_enqueue', 'doze_read'] LOOP
        IF NOT pg_catalog.pg_has_role('doze_admin', name, 'MEMBER') THEN
            EXECUTE pg_catalog.format('GRANT %I TO %I', name, 'doze_admin');
        END IF;
    END LOOP;
END
$$;

REVOKE ALL ON SCHEMA doze FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA doze FROM PUBLIC, doze_enqueue, doze_drain, doze_sweep, doze_read, doze_admin;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA doze FROM PUBLIC, doze_enqueue, doze_drain, doze_sweep, doze_read, doze_admin;

GRANT USAGE ON SCHEMA doze TO doze_enqueue, doze_drain, doze_sweep, doze_read, doze_admin;
GRANT SELECT ON doze.migrations TO doze_enqueue, doze_drain, doze_sweep, doze_read, doze_admin;

-- Enqueue: adds jobs, rings, and sets alarms. It reads no payload, not even its own, and changes no job.
GRANT INSERT (id, queue, kind, priority, run_at, max_attempts, key, payload) ON doze.jobs TO doze_enqueue;
GRANT SELECT (id, queue, priority, run_at, locked_until) ON doze.jobs TO doze_enqueue;
GRANT SELECT (queue, next_at, paused_at) ON doze.schedules TO doze_enqueue; -- for the next due time
GRANT SELECT (id) ON doze.history TO doze_enqueue; -- for the repeat of an insert
GRANT INSERT (kind, key, job_id, hold) ON doze.keys TO doze_enqueue;
GRANT SELECT, UPDATE (job_id, hold, expires_at) ON doze.keys TO doze_enqueue;
GRANT INSERT (queue), SELECT ON doze.queues TO doze_enqueue;
GRANT INSERT (queue), SELECT, UPDATE (bell_until, armed_at, armed_id, floor) ON doze.bells TO doze_enqueue;
GRANT INSERT (queue, slot), SELECT (queue, slot, epoch, state, locked_until) ON doze.slots TO doze_enqueue;

-- Drain: claims and finishes. It adds no job but those of schedules (doze.tick); a handler that enqueues
-- needs doze_enqueue too.
-- DELETE, because a finished job leaves jobs for history.
GRANT SELECT, DELETE, UPDATE (token, locked_until, attempts, reaps, run_at, failures, last_error) ON doze.jobs TO doze_drain;
GRANT SELECT, INSERT ON doze.history TO doze_drain;
GRANT SELECT, UPDATE (expires_at) ON doze.keys TO doze_drain;
GRANT INSERT (queue), SELECT ON doze.queues TO doze_drain;
GRANT INSERT (queue), SELECT, UPDATE (bell_until, armed_at, armed_id, floor, epoch) ON doze.bells TO doze_drain;
GRANT INSERT (queue, slot), SELECT, UPDATE (epoch, state, token, locked_until) ON doze.slots TO doze_drain;
GRANT SELECT ON doze.schedules TO doze_drain;
GRANT EXECUTE ON FUNCTION doze.history_bucket(text), doze.tick(text, timestamptz, timestamptz, uuid[], timestamptz[]) TO doze_drain;

-- Sweep: reaps, rings and prunes. It reads no payload and removes no live job.
GRANT SELECT (id, queue, priority, run_at, token, locked_until, reaps), UPDATE (token, locked_until, reaps) ON doze.jobs TO doze_sweep;
GRANT INSERT (queue), SELECT ON doze.queues TO doze_sweep;
GRANT INSERT (queue), SELECT, UPDATE (bell_until, armed_at, armed_id, floor) ON doze.bells TO doze_sweep;
GRANT INSERT (queue, slot), SELECT (queue, slot, epoch, state, locked_until) ON doze.slots TO doze_sweep;
GRANT SELECT (id), TRUNCATE ON doze.history_0, doze.history_1, doze.history_2, doze.history_3,
      doze.history_4, doze.history_5, doze.history_6, doze.history_7 TO doze_sweep;
-- UPDATE on a column is what locking a row for its deletion asks for. This one is the partition's
-- own number, which its partition lets nobody change.
GRANT SELECT (id, queue, finished_at, bucket), DELETE, UPDATE (bucket) ON doze.history_failed TO doze_sweep;
GRANT SELECT (kind, key, expires_at), DELETE, UPDATE (expires_at) ON doze.keys TO doze_sweep;
GRANT SELECT ON doze.schedules TO doze_sweep;
GRANT SELECT, DELETE, UPDATE (job_id) ON doze.ticks TO doze_sweep; -- UPDATE for locking, as above
GRANT EXECUTE ON FUNCTION doze.prune_history(interval), doze.tick(text, timestamptz, timestamptz, uuid[], timestamptz[]) TO doze_sweep;

-- Read: what a dashboard shows. No payloads, no fences.
GRANT SELECT ON doze.job_list, doze.queues TO doze_read;
GRANT SELECT (queue, slot, epoch, state, locked_until) ON doze.slots TO doze_read;
GRANT SELECT (queue, token, run_at) ON doze.jobs TO doze_read;
GRANT SELECT (queue) ON doze.history_failed TO doze_read;
GRANT SELECT (name, queue, kind, priority, max_attempts, cron, time_zone, catch_up, catch_up_limit, next_at, paused_at) ON doze.schedules TO doze_read;

-- Admin: the HTTP API's and the command's cancel, retry, pause and settings, and single jobs with
-- their payload.
GRANT SELECT, DELETE, UPDATE (run_at), INSERT (attempts, created_at, last_error) ON doze.jobs TO doze_admin;
GRANT SELECT, INSERT, DELETE ON doze.history TO doze_admin;
GRANT UPDATE (paused_at, slots, max_reaps, history) ON doze.queues TO doze_admin;
GRANT DELETE ON doze.slots TO doze_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON doze.schedules TO doze_admin;
GRANT EXECUTE ON FUNCTION doze.history_bucket(text) TO doze_admin;
