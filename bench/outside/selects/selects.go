// Package selects is what is measured of a database: the same natively and in a guest.
package selects

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// warm is how many queries are made before time counts.
const warm = 20

// Run connects, and returns how long n queries took. Each is a round trip: the statement is prepared
// before.
func Run(ctx context.Context, config *pgx.ConnConfig, n int) (took time.Duration, err error) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	var began time.Time
	for i := range warm + n {
		if i == warm {
			began = time.Now()
		}
		var one int
		if err := c.QueryRow(ctx, "select 1").Scan(&one); err != nil || one != 1 {
			return 0, fmt.Errorf("select 1: %d, %w", one, err)
		}
	}
	return time.Since(began), nil
}
