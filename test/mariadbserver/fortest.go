package mariadbserver

import (
	"context"
	"errors"
	"os"
	"time"
)

// TB is what ForTest needs of a testing.TB.
type TB interface {
	Helper()
	Cleanup(func())
	Skip(args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// ForTest is a server for the time of a test. Where MariaDB is not installed the test
// is skipped, but never in CI: .ci/setup installs it.
func ForTest(t TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Start(ctx)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err, "; make setup does it")
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return s
}
