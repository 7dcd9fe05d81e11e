package queue

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Places are the cursor's, as claim.sql is given them.
func (c *Cursor) Places() ([]time.Time, []pgtype.UUID) { return c.at(), c.id() }
