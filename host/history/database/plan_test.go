package database

import (
	"context"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

// TestPlansAreForTheirArguments: PostgreSQL plans each query for what it asks, also when it was asked
// often. A plan for any arguments does not know how many rows a time has: one of these compared each of
// 20,000 rows of a day with 100 names, which took 40 ms instead of 1.
func TestPlansAreForTheirArguments(t *testing.T) {
	t.Parallel()
	start := func(ctx context.Context) (*pgserver.Server, error) { return pgserver.Start(ctx, pgserver.Options{}) }
	address, credentials := onPostgres(shared.postgres.get(t, start, pgserver.ErrNotInstalled))(t)
	s := openStore(t, address, credentials, t.TempDir())
	s.db.SetMaxOpenConns(1) // which the plans are of
	begun := time.Now().Add(-time.Hour)
	for n := range 20 {
		aRun(s, "j", "h", begun.Add(time.Duration(n)*time.Second), abi.OutcomeOK)
	}
	ask := func() int {
		page, err := s.Fires(t.Context(), history.Filter{Jobs: []string{"j"}})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Records)
	}
	await(t, "fire of all in the database", func() bool { return ask() == 20 })
	for range 20 {
		ask()
	}
	var all, general int
	const plans = "SELECT count(*), sum(generic_plans) FROM pg_prepared_statements WHERE statement LIKE $1"
	if err := s.db.QueryRowContext(t.Context(), plans, "SELECT%wasmjob_executions%fire IN%").Scan(&all, &general); err != nil {
		t.Fatal(err)
	}
	if all == 0 || general != 0 {
		t.Errorf("%d statements were prepared, and a plan for any arguments was taken %d times", all, general)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
