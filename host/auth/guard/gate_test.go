package guard

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/auth/cookie"
	"github.com/wasmjob/wasmjob/host/auth/login"
	"github.com/wasmjob/wasmjob/host/auth/mtls"
	"github.com/wasmjob/wasmjob/host/auth/signedout"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/event/operation"
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
	g, err := New(Options{Config: Config{Users: file}, Token: "the-host's-own-token", Server: "10.0.0.1", Keys: keys, Revoked: signedout.New("ns", time.Now, zap.NewNop()), Changed: func(c history.Change) { changes <- c }, Logger: zap.NewNop()})
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
	if p, err := g.Guard.Identify(r); err != nil || !p.All(operation.Admin) || p.Session == "" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := os.WriteFile(file, []byte("users: [{name: ann, roles: {viewer: '*'}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-changes:
		if c.What != operation.SetUsers.String() || c.Who != "file users.yaml on host 10.0.0.1" || c.Before != "" || c.After != `{"user ann":"viewer=*"}` || len(g.Users.Set().Users()) != 1 {
			t.Errorf("%+v", c)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the users file was not noticed")
	}
	cancel()
	if err := <-ended; err != nil || g.Close() != nil || g.TLS() != nil {
		t.Errorf("%v", err)
	}
}

// TestChangedUsers: each entry of the users file that was added, changed or removed is recorded, and no secret of it.
func TestChangedUsers(t *testing.T) {
	t.Parallel()
	parse := func(text string) *users.Set {
		set, err := users.Parse("users.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	var changes []history.Change
	g := &Gate{options: Options{Config: Config{Users: "/etc/users.yaml"}, Changed: func(c history.Change) { changes = append(changes, c) }}}
	hash := func(salt string) string {
		return "$argon2id$v=19$m=32768,t=2,p=1$" + strings.Repeat(salt, 22) + "$" + strings.Repeat("A", 43)
	}
	token := func(id, name string) string {
		return "{name: " + name + ", id: " + id + ", sha256: " + strings.Repeat("0", 64) + ", roles: {operator: 'etl-*'}, created: 2026-01-01T00:00:00Z, expires: 2027-01-01T00:00:00Z}"
	}
	before := parse("users: [{name: ann, roles: {viewer: '*'}, password: '" + hash("A") + "'}, {name: bob, roles: {admin: '*'}}]\ntokens: [" + token("aaaaaaaa", "ci") + "]")
	g.changed(before, parse("# more\nusers: [{name: ann, roles: {viewer: '*'}, password: '"+hash("A")+"'}, {name: bob, roles: {admin: '*'}}]\ntokens: ["+token("aaaaaaaa", "ci")+"]"))
	if len(changes) != 0 {
		t.Errorf("a comment: %+v", changes)
	}
	g.changed(before, parse("users: [{name: ann, roles: {viewer: '*'}, password: '"+hash("Q")+"'}, {name: eve, roles: {author: 'a-*'}, certificates: ['CN=eve']}]\ntokens: ["+token("bbbbbbbb", "ci")+"]"))
	if len(changes) != 1 {
		t.Fatalf("%d records", len(changes))
	}
	got, _ := changes[0].Settings()
	want := []history.Setting{
		{Name: "token ci", Before: "operator=etl-*, until 2027-01-01T00:00:00Z", After: "operator=etl-*, until 2027-01-01T00:00:00Z, another secret", Had: true},
		{Name: "user ann", Before: "viewer=*, password", After: "viewer=*, password, another secret", Had: true},
		{Name: "user bob", Before: "admin=*", Had: true},
		{Name: "user eve", After: "author=a-*, certificate CN=eve"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, expected %+v", got, want)
	}
	all := new(strings.Builder)
	all.WriteString("users:\n")
	for n := range mostEntries + 3 {
		fmt.Fprintf(all, "- {name: u%03d, roles: {viewer: '*'}}\n", n)
	}
	g.changed(users.Empty(), parse(all.String()))
	if got, _ := changes[1].Settings(); len(got) != mostEntries+1 || got[0].After != "3, such as user u050" {
		t.Errorf("of very many: %+v", got)
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
		"TLS of the admin address": {TLS: mtls.Files{Cert: "none", Key: "none"}},
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
