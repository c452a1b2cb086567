package pgserver

import (
	"net"
	"os"
	"strconv"
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
	if err != nil || got != "1|x\n2|y" {
		t.Errorf("%q %v", got, err)
	}
	stranger := &Server{Port: s.Port, Password: "wrong", bin: s.bin}
	if _, err := stranger.Query(t.Context(), "select 1"); err == nil || !strings.Contains(err.Error(), "password authentication failed") {
		t.Errorf("with a wrong password: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("its files: %v", err)
	}
	if c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(s.Port)); err == nil {
		c.Close()
		t.Error("somebody still listens")
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if v := version("/usr/lib/postgresql/15/bin/initdb"); v != 15 {
		t.Errorf("%d", v)
	}
}
