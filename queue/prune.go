package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MaxKeep is the longest that done and cancelled jobs are kept: their history is a ring of
// eight days, one of which is in use and one is being emptied.
const MaxKeep = 6 * 24 * time.Hour

// PruneHistory forgets done and cancelled jobs by whole days, those that ended more than keep
// ago, and returns how many days it emptied. Keep is at most [MaxKeep].
func (s *Store) PruneHistory(ctx context.Context, db DB, keep time.Duration) (days int, err error) {
	if keep < 0 || keep > MaxKeep {
		return 0, fieldError("keep", keep.String(), fmt.Sprintf("want 0 to %v", MaxKeep))
	}
	err = run(ctx, db, s.call("prune history", "prune_history", func(rows pgx.Rows) error { return rows.Scan(&days) }, ms(keep)))
	return days, err
}

// PruneFailed forgets up to limit failed jobs that ended more than keep ago, and returns how many.
func (s *Store) PruneFailed(ctx context.Context, db DB, keep time.Duration, limit int) (int, error) {
	return s.delete(ctx, db, s.call("prune failed", "prune_failed", nil, ms(keep), int32(limit)))
}

// PruneKeys forgets up to limit keys whose hold is over, and returns how many.
func (s *Store) PruneKeys(ctx context.Context, db DB, limit int) (int, error) {
	return s.delete(ctx, db, s.call("prune keys", "prune_keys", nil, int32(limit)))
}

func (s *Store) delete(ctx context.Context, db DB, c call) (int, error) {
	tag, err := db.Exec(ctx, c.sql, c.args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.op, err)
	}
	return int(tag.RowsAffected()), nil
}
