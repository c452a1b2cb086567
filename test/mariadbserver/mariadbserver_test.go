package mariadbserver

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServer: it answers who has the password, and leaves nothing behind.
func TestServer(t *testing.T) {
	t.Parallel()
	s := ForTest(t)
	got, err := s.Query(t.Context(), "create table t (a int, b text); insert into t values (1, 'x'), (2, 'y'); select * from t")
	if err != nil || got != "1\tx\n2\ty" {
		t.Errorf("%q %v", got, err)
	}
	stranger := &Server{Port: s.Port, Password: "wrong", client: s.client}
	if _, err := stranger.Query(t.Context(), "select 1"); err == nil || !strings.Contains(err.Error(), "Access denied") {
		t.Errorf("with a wrong password: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("its files: %v", err)
	}
}
