-- Schedules: jobs that come again and again. Nobody waits for their time: whichever drain, sweep or
-- alarm comes first evaluates those that are due, and the next tick feeds the queue's alarm.
CREATE TABLE doze.schedules (
    name         text        PRIMARY KEY,
    queue        doze.queue_name NOT NULL,
    kind         doze.kind_name  NOT NULL,
    payload      json        NOT NULL,
    priority     smallint    NOT NULL DEFAULT 0,
    max_attempts integer     NOT NULL DEFAULT 10,
    cron         text        NOT NULL,
    time_zone    text        NOT NULL DEFAULT 'UTC',
    -- What becomes of ticks that nobody was awake for: none of them, the latest, or all up to catch_up_limit.
    catch_up     text        NOT NULL DEFAULT 'latest',
    catch_up_limit integer   NOT NULL DEFAULT 10,
    -- The next tick. Null: it never comes again.
    next_at      timestamptz,
    paused_at    timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT schedules_name CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'),
    CONSTRAINT schedules_priority CHECK (priority BETWEEN -10 AND 10),
    CONSTRAINT schedules_max_attempts CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT schedules_catch_up CHECK (catch_up IN ('skip', 'latest', 'all') AND catch_up_limit BETWEEN 1 AND 1000)
) WITH (fillfactor = 50);
-- The due ones of a queue, and its next tick.
CREATE INDEX schedules_next ON doze.schedules (queue, next_at) WHERE paused_at IS NULL;

-- Which tick became which job: a tick becomes one job, whoever evaluates it and however often.
CREATE TABLE doze.ticks (
    schedule text        NOT NULL,
    tick     timestamptz NOT NULL,
    job_id   uuid        NOT NULL,
    PRIMARY KEY (schedule, tick)
);
CREATE INDEX ticks_tick ON doze.ticks (tick);

-- Turns ticks of a schedule into jobs and moves it on to its next tick, if its next tick is still the
-- one that was seen; whoever is later changes nothing. Each job is due at its tick, so they
-- run in that order. Returns the ids of the jobs.
--
-- It runs with the owner's rights, so that drains and sweeps can make the jobs of schedules without
-- the right to make any others.
CREATE FUNCTION doze.tick(schedule text, seen timestamptz, following timestamptz, ids uuid[], times timestamptz[]) RETURNS SETOF uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH moved AS (
        UPDATE doze.schedules s SET next_at = tick.following
         WHERE s.name = tick.schedule AND s.next_at = tick.seen AND s.paused_at IS NULL
        RETURNING s.name, s.queue, s.kind, s.payload, s.priority, s.max_attempts
    ), fresh AS (
        INSERT INTO doze.ticks (schedule, tick, job_id)
        SELECT m.name, t.at, t.id FROM moved m, unnest(tick.ids, tick.times) AS t(id, at)
        ON CONFLICT DO NOTHING
        RETURNING tick AS at, job_id
    ), lowered AS ( -- the ticks may be from long ago: see queue/sql/lower_floor.sql
        UPDATE doze.bells b SET floor = least(b.floor, f.at)
          FROM (SELECT min(at) AS at FROM fresh) f, moved m
         WHERE b.queue = m.queue AND f.at IS NOT NULL
           AND b.epoch >= (SELECT e.epoch FROM doze.bells e WHERE e.queue = m.queue ORDER BY e.epoch DESC LIMIT 1)
    )
    INSERT INTO doze.jobs (id, queue, kind, priority, run_at, max_attempts, payload)
    SELECT f.job_id, m.queue, m.kind, m.priority, f.at, m.max_attempts, m.payload FROM moved m, fresh f
    RETURNING id
$$;
REVOKE ALL ON FUNCTION doze.tick(text, timestamptz, timestamptz, uuid[], timestamptz[]) FROM PUBLIC;
