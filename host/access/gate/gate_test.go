package gate

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/access/certificates"
	"github.com/wasmjob/wasmjob/host/access/cookie"
	"github.com/wasmjob/wasmjob/host/access/login"
	"github.com/wasmjob/wasmjob/host/access/signedout"
	"github.com/wasmjob/wasmjob/host/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keys are those of a cluster.
func keys() (cookie.Keys, bool) {
	return cookie.Keys{Cluster: "0123456789", Secret: make([]byte, 32)}, true
}

// TestGate: a login link begins a session that the guard knows, which is recorded; another
// users file is in force soon.
func TestGate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	changes := make(chan history.Change, 10)
	g, err := New(Options{Config: Config{Users: file}, Token: "the-host's-own-token", Keys: keys, Revoked: signedout.New("ns", time.Now, zap.NewNop()), Changed: func(c history.Change) { changes <- c }, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	r := httptest.NewRequest("GET", g.Login.Link(""), nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	g.Login.Handler().ServeHTTP(w, r)
	if c := <-changes; c.What != "sign in" || c.Who != "login link" || c.Error != "" || w.Code != 303 {
		t.Errorf("%d, %+v", w.Code, c)
	}
	r = httptest.NewRequest("GET", "/", nil)
	r.Host = "localhost"
	r.AddCookie(w.Result().Cookies()[0])
	if p, err := g.Guard.Identify(r); err != nil || !p.All(access.Admin) || g.Sessions.CSRF(p) == "" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := os.WriteFile(file, []byte("users: [{name: ann, roles: {viewer: '*'}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	late, again := time.After(20*time.Second), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for len(g.Users.Set().Users()) == 0 {
		select {
		case <-again.C:
		case <-late:
			t.Fatal("the users file was not noticed")
		}
	}
	cancel()
	if err := <-ended; err != nil || g.Close() != nil || g.TLS() != nil {
		t.Errorf("%v", err)
	}
}

// TestFailuresAreNotAllRecorded: who has not signed in cannot fill the history with
// failures, the log has all that were tried, and a sign-in is recorded nevertheless.
func TestFailuresAreNotAllRecorded(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	var changes []history.Change
	g, err := New(Options{Keys: keys, Changed: func(c history.Change) { changes = append(changes, c) }, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	visit := func(link string) {
		r := httptest.NewRequest("GET", link, nil)
		r.Host = "localhost"
		g.Login.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	began := time.Now()
	for range 18 { // more are refused before they are looked at
		visit(login.LinkPath + "?code=x")
	}
	most := 10 + int(time.Since(began)/(6*time.Second))
	if n := len(changes); n < 10 || n > most {
		t.Errorf("%d failures are recorded", n)
	}
	if n := logs.FilterMessage("sign in refused").Len(); n != 18 {
		t.Errorf("%d failures are in the log", n)
	}
	visit(g.Login.Link(""))
	if c := changes[len(changes)-1]; c.What != "sign in" || c.Error != "" {
		t.Errorf("%+v", c)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestStorm: attempts that a limit refused leave records with their number, as few from a thousand addresses
// as from one, and each is counted.
func TestStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		var changes []history.Change
		counted := make(map[string]int)
		g, err := New(Options{Keys: keys, Changed: func(c history.Change) { changes = append(changes, c) }, SignedIn: func(result string) { counted[result]++ }, Logger: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		visit := func(address, link string) {
			r := httptest.NewRequest("GET", link, nil)
			r.Host, r.RemoteAddr = "localhost", address+":1"
			g.Login.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
		throttled := func() (list []history.Change) {
			for _, c := range changes {
				if strings.Contains(c.Error, "too many attempts") {
					list = append(list, c)
				}
			}
			return list
		}
		for i := range 1000 {
			for range 21 { // the last is refused without a look at it
				visit(fmt.Sprintf("10.0.%d.%d", i/250, i%250), login.LinkPath+"?code=x")
			}
		}
		if list := throttled(); len(list) != 10 || list[0].From != "10.0.0.0" {
			t.Fatalf("%d are recorded: %+v", len(list), list)
		}
		if n := logs.FilterMessage("sign in refused").Len(); n != 20_010 {
			t.Errorf("%d failures are in the log", n)
		}
		time.Sleep(6 * time.Second)
		for range 3 {
			visit("10.0.0.1", login.LinkPath+"?code=x")
		}
		if list := throttled(); len(list) != 11 || !strings.Contains(list[10].Error, "; 990 more were refused so since the last record") {
			t.Errorf("%d are recorded, the last is %+v", len(list), list[len(list)-1])
		}
		visit("10.9.9.9", g.Login.Link(""))
		if want := map[string]int{ResultOK: 1, ResultRefused: 20_002, ResultThrottled: 1001}; !maps.Equal(counted, want) {
			t.Errorf("counted %v, want %v", counted, want)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	if err := os.WriteFile(file, []byte("users: ann"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Config{
		"users: ":                  {Users: file},
		"TLS of the admin address": {TLS: certificates.Files{Cert: "none", Key: "none"}},
		"the address of the site":  {URL: "x"},
	} {
		if _, err := New(Options{Config: c, Logger: zap.NewNop()}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestSharedKeys: hosts with one secret have the same keys, and none before they know what
// was signed out.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	secret, loaded := strings.Repeat("s", 26), false
	derive := func(purpose string) ([]byte, bool) { return []byte(purpose + secret), secret != "" }
	keys := SharedKeys(derive, func() bool { return loaded })
	if _, ok := keys(); ok {
		t.Error("there are keys before the list of sign-outs")
	}
	loaded = true
	if k, ok := keys(); !ok || k.Check() != nil {
		t.Errorf("%+v, %t", k, ok)
	}
	secret = ""
	if _, ok := keys(); ok {
		t.Error("there are keys without a secret")
	}
}
