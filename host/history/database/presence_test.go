package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wasmjob/wasmjob/host/history"
)

// TestPresence: after a question without an answer queries are refused for a while, until the
// database has answered anything; then the loader tries again.
func TestPresence(t *testing.T) {
	t.Parallel()
	silent := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		away bool
	}{
		"no answer":           {t.Context(), silent, true},
		"an answer":           {t.Context(), nil, false},
		"no rows":             {t.Context(), sql.ErrNoRows, false},
		"a refusal":           {t.Context(), &pgconn.PgError{Code: "57P03"}, false},
		"the question ended":  {ended, context.Canceled, false},
		"newer tables":        {t.Context(), fmt.Errorf("%w: found version 9", ErrNewer), false},
		"a file of the spool": {t.Context(), fmt.Errorf("reading x: %w", &fs.PathError{Op: "read", Path: "x", Err: errors.New("input/output error")}), false},
	} {
		p := newPresence()
		p.note(c.ctx, c.err)
		if err := p.err(); (err != nil) != c.away || (err != nil && !errors.Is(err, history.ErrUnavailable)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPresence()
		p.note(t.Context(), silent)
		time.Sleep(awayFor)
		if err := p.err(); err != nil {
			t.Errorf("after %s: %v", awayFor, err)
		}
		woken := make(chan time.Duration, 1)
		go func() {
			from := time.Now()
			wait(t.Context(), time.Hour, nil, p.back)
			woken <- time.Since(from)
		}()
		time.Sleep(time.Second)
		p.note(t.Context(), nil)
		if took := <-woken; took != time.Second {
			t.Errorf("the loader waited %s", took)
		}
		p.note(t.Context(), silent)
		p.note(t.Context(), nil)
		if err := p.err(); err != nil {
			t.Errorf("after an answer: %v", err)
		}
	})
}

// TestDatabaseThatDoesNotAnswer: the first query waits for a connection, those after it do not, and are answered without the database.
func TestDatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it accepts connections by the kernel alone
	config, err := Parse("postgres://"+l.Addr().String()+"/wasmjob?sslmode=disable", "wasmjob:secret")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Config: config, Spool: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var took []time.Duration
	for range 20 {
		from := time.Now()
		if page, err := s.Runs(t.Context(), history.Filter{}); err != nil || page.Missing != history.Away {
			t.Fatal(page.Missing, err)
		}
		took = append(took, time.Since(from))
	}
	long := 0
	for _, d := range took {
		if d > connectTimeout/2 {
			long++
		}
	}
	if long > 2 { // all of them, if each waits
		t.Errorf("%d of %d queries waited: %v", long, len(took), took)
	}
}
