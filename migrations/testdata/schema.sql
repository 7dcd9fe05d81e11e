-- What the migrations make, as this package's test writes it. To write it anew:
--   go test ./migrations -run Golden -update
schema closed to others
table bells with (fillfactor=50)
    queue doze.queue_name not null
    epoch bigint not null default 0
    bell_until timestamp with time zone
    armed_at timestamp with time zone
    armed_id uuid
    floor timestamp with time zone not null default '-infinity'::timestamp with time zone
    constraint bells_armed CHECK (((armed_at IS NULL) = (armed_id IS NULL)))
    constraint bells_pkey PRIMARY KEY (queue, epoch)
    constraint bells_queue_fkey FOREIGN KEY (queue) REFERENCES doze.queues(queue) ON DELETE CASCADE
    CREATE UNIQUE INDEX bells_one ON doze.bells USING btree (md5((queue)::text))
    CREATE UNIQUE INDEX bells_pkey ON doze.bells USING btree (queue, epoch)
table history partition by LIST (bucket)
    id uuid not null
    bucket smallint not null
    queue doze.queue_name not null
    kind doze.kind_name not null
    state text not null
    priority smallint not null
    run_at timestamp with time zone not null
    attempts integer not null
    failures integer not null
    max_attempts integer not null
    reaps smallint not null
    created_at timestamp with time zone not null
    finished_at timestamp with time zone not null
    key text
    last_error text
    payload json not null
    constraint history_bucket CHECK (((state = 'failed'::text) = (bucket = '-1'::integer)))
    constraint history_pkey PRIMARY KEY (id, finished_at, bucket)
    constraint history_state CHECK ((state = ANY (ARRAY['done'::text, 'failed'::text, 'cancelled'::text])))
    CREATE UNIQUE INDEX history_pkey ON ONLY doze.history USING btree (id, finished_at, bucket)
table history_0 partition of history FOR VALUES IN ('0')
    CREATE UNIQUE INDEX history_0_pkey ON doze.history_0 USING btree (id, finished_at, bucket)
table history_1 partition of history FOR VALUES IN ('1')
    CREATE UNIQUE INDEX history_1_pkey ON doze.history_1 USING btree (id, finished_at, bucket)
table history_2 partition of history FOR VALUES IN ('2')
    CREATE UNIQUE INDEX history_2_pkey ON doze.history_2 USING btree (id, finished_at, bucket)
table history_3 partition of history FOR VALUES IN ('3')
    CREATE UNIQUE INDEX history_3_pkey ON doze.history_3 USING btree (id, finished_at, bucket)
table history_4 partition of history FOR VALUES IN ('4')
    CREATE UNIQUE INDEX history_4_pkey ON doze.history_4 USING btree (id, finished_at, bucket)
table history_5 partition of history FOR VALUES IN ('5')
    CREATE UNIQUE INDEX history_5_pkey ON doze.history_5 USING btree (id, finished_at, bucket)
table history_6 partition of history FOR VALUES IN ('6')
    CREATE UNIQUE INDEX history_6_pkey ON doze.history_6 USING btree (id, finished_at, bucket)
table history_7 partition of history FOR VALUES IN ('7')
    CREATE UNIQUE INDEX history_7_pkey ON doze.history_7 USING btree (id, finished_at, bucket)
table history_failed partition of history FOR VALUES IN ('-1')
    CREATE INDEX history_failed_finished ON doze.history_failed USING btree (finished_at)
    CREATE UNIQUE INDEX history_failed_pkey ON doze.history_failed USING btree (id, finished_at, bucket)
view job_list
    id uuid
    queue doze.queue_name
    kind doze.kind_name
    state text
    priority smallint
    run_at timestamp with time zone
    attempts integer
    failures integer
    max_attempts integer
    reaps smallint
    created_at timestamp with time zone
    finished_at timestamp with time zone
    key text
    last_error text
 SELECT id,
    queue,
    kind,
        CASE
            WHEN (token IS NULL) THEN 'queued'::text
            ELSE 'running'::text
        END AS state,
    priority,
    run_at,
    attempts,
    failures,
    max_attempts,
    reaps,
    created_at,
    NULL::timestamp with time zone AS finished_at,
    key,
    last_error
   FROM doze.jobs
UNION ALL
 SELECT id,
    queue,
    kind,
    state,
    priority,
    run_at,
    attempts,
    failures,
    max_attempts,
    reaps,
    created_at,
    finished_at,
    key,
    last_error
   FROM doze.history;
table jobs with (autovacuum_analyze_scale_factor=0.05, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=1000, fillfactor=45)
    id uuid not null
    queue doze.queue_name not null
    kind doze.kind_name not null
    priority smallint not null default 0
    run_at timestamp with time zone not null default now()
    token uuid
    locked_until timestamp with time zone not null default '-infinity'::timestamp with time zone
    attempts integer not null default 0
    failures integer not null default 0
    max_attempts integer not null default 10
    reaps smallint not null default 0
    created_at timestamp with time zone not null default now()
    key text
    last_error text
    payload json not null
    constraint jobs_counters CHECK (((attempts >= 0) AND (reaps >= 0) AND (failures >= 0) AND (failures < max_attempts)))
    constraint jobs_key CHECK ((key <> ''::text))
    constraint jobs_lease CHECK (((token IS NULL) = (locked_until = '-infinity'::timestamp with time zone)))
    constraint jobs_max_attempts CHECK (((max_attempts >= 1) AND (max_attempts <= 1000)))
    constraint jobs_pkey PRIMARY KEY (id)
    constraint jobs_priority CHECK (((priority >= '-10'::integer) AND (priority <= 10)))
    CREATE INDEX jobs_alone ON doze.jobs USING btree (queue, priority, run_at, id) WHERE (reaps > 0)
    CREATE UNIQUE INDEX jobs_pkey ON doze.jobs USING btree (id)
    CREATE INDEX jobs_ready ON doze.jobs USING btree (queue, priority, run_at, id)
table keys
    kind text not null
    key text not null
    job_id uuid not null
    hold interval not null
    expires_at timestamp with time zone not null default 'infinity'::timestamp with time zone
    constraint keys_hold CHECK ((hold >= '00:00:00'::interval))
    constraint keys_pkey PRIMARY KEY (kind, key)
    CREATE INDEX keys_expires ON doze.keys USING btree (expires_at) WHERE (expires_at < 'infinity'::timestamp with time zone)
    CREATE UNIQUE INDEX keys_pkey ON doze.keys USING btree (kind, key)
table migrations
    version integer not null
    applied_at timestamp with time zone not null default now()
    constraint migrations_pkey PRIMARY KEY (version)
    CREATE UNIQUE INDEX migrations_pkey ON doze.migrations USING btree (version)
table queues
    queue doze.queue_name not null
    slots smallint not null default 4
    paused_at timestamp with time zone
    history boolean not null default true
    max_reaps smallint not null default 3
    created_at timestamp with time zone not null default now()
    constraint queues_max_reaps CHECK (((max_reaps >= 1) AND (max_reaps <= 100)))
    constraint queues_pkey PRIMARY KEY (queue)
    constraint queues_slots CHECK (((slots >= 1) AND (slots <= 1000)))
    CREATE UNIQUE INDEX queues_pkey ON doze.queues USING btree (queue)
table schedules with (fillfactor=50)
    name text not null
    queue doze.queue_name not null
    kind doze.kind_name not null
    payload json not null
    priority smallint not null default 0
    max_attempts integer not null default 10
    cron text not null
    time_zone text not null default 'UTC'::text
    catch_up text not null default 'latest'::text
    catch_up_limit integer not null default 10
    next_at timestamp with time zone
    paused_at timestamp with time zone
    created_at timestamp with time zone not null default now()
    updated_at timestamp with time zone not null default now()
    constraint schedules_catch_up CHECK (((catch_up = ANY (ARRAY['skip'::text, 'latest'::text, 'all'::text])) AND ((catch_up_limit >= 1) AND (catch_up_limit <= 1000))))
    constraint schedules_max_attempts CHECK (((max_attempts >= 1) AND (max_attempts <= 1000)))
    constraint schedules_name CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'::text))
    constraint schedules_pkey PRIMARY KEY (name)
    constraint schedules_priority CHECK (((priority >= '-10'::integer) AND (priority <= 10)))
    CREATE INDEX schedules_next ON doze.schedules USING btree (queue, next_at) WHERE (paused_at IS NULL)
    CREATE UNIQUE INDEX schedules_pkey ON doze.schedules USING btree (name)
table slots with (fillfactor=50)
    queue doze.queue_name not null
    slot smallint not null
    epoch bigint not null default 0
    state text not null default 'free'::text
    token uuid
    locked_until timestamp with time zone
    constraint slots_held CHECK ((((state = 'free'::text) = (token IS NULL)) AND ((token IS NULL) = (locked_until IS NULL))))
    constraint slots_pkey PRIMARY KEY (queue, slot, epoch)
    constraint slots_queue_fkey FOREIGN KEY (queue) REFERENCES doze.queues(queue) ON DELETE CASCADE
    constraint slots_state CHECK ((state = ANY (ARRAY['free'::text, 'open'::text, 'busy'::text])))
    CREATE UNIQUE INDEX slots_one ON doze.slots USING btree (md5((((queue)::text || ' '::text) || slot)))
    CREATE UNIQUE INDEX slots_pkey ON doze.slots USING btree (queue, slot, epoch)
table ticks
    schedule text not null
    tick timestamp with time zone not null
    job_id uuid not null
    constraint ticks_pkey PRIMARY KEY (schedule, tick)
    CREATE UNIQUE INDEX ticks_pkey ON doze.ticks USING btree (schedule, tick)
    CREATE INDEX ticks_tick ON doze.ticks USING btree (tick)
CREATE OR REPLACE FUNCTION doze.history_bucket(state text)
 RETURNS smallint
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN CASE WHEN (state = 'failed'::text) THEN '-1'::integer ELSE ((((floor((EXTRACT(epoch FROM now()) / (86400)::numeric)))::bigint % (8)::bigint))::smallint)::integer END
-- not executable by everyone
CREATE OR REPLACE FUNCTION doze.prune_history(keep interval)
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
$function$
-- not executable by everyone
CREATE OR REPLACE FUNCTION doze.tick(schedule text, seen timestamp with time zone, following timestamp with time zone, ids uuid[], times timestamp with time zone[])
 RETURNS SETOF uuid
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
$function$
-- not executable by everyone
type kind_name d CHECK (((octet_length(VALUE) <= 128) AND ((VALUE COLLATE "C") ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]*$'::text)))
type queue_name d CHECK (((octet_length(VALUE) <= 64) AND ((VALUE COLLATE "C") ~ '^[A-Za-z0-9][A-Za-z0-9_.-]*$'::text)))
