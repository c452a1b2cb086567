package database

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/historytest"
	"github.com/wasmjob/wasmjob/test/mariadbserver"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(tests{m})
}

// openStore opens a store for a URL.
func openStore(t *testing.T, url, credentials, spool string) *Store {
	t.Helper()
	c, err := Parse(url, credentials)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Config: c, Spool: spool, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func sqliteURL(t *testing.T) (string, string) {
	return "sqlite:" + filepath.Join(t.TempDir(), "h.db"), ""
}

// databaseName is a name for a test's own.
func databaseName(t *testing.T) string {
	name := strings.Map(func(r rune) rune {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			return r
		}
		return '_'
	}, strings.ToLower(t.Name()))
	return fmt.Sprintf("t%d_%s", shared.names.Add(1), name[max(0, len(name)-50):])
}

func TestContract(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		historytest.Run(t, func(t *testing.T) history.Store {
			url, credentials := fresh(t)
			return openStore(t, url, credentials, t.TempDir())
		})
	})
}

// onPostgres makes databases on a server.
func onPostgres(p *pgserver.Server) func(*testing.T) (string, string) {
	return func(t *testing.T) (string, string) {
		t.Helper()
		name := databaseName(t)
		if _, err := p.Query(t.Context(), "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
		return strings.Replace(p.URL(), "/"+pgserver.Database+"?", "/"+name+"?", 1), pgserver.User + ":" + p.Password
	}
}

// onMariaDB does likewise.
func onMariaDB(m *mariadbserver.Server) func(*testing.T) (string, string) {
	return func(t *testing.T) (string, string) {
		t.Helper()
		name := databaseName(t)
		if _, err := m.Query(t.Context(), "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(m.URL(), mariadbserver.Database) + name, mariadbserver.User + ":" + m.Password
	}
}
