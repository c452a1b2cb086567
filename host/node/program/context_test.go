package program

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/contexts"
)

// asked is a server that notes who asked it last.
type asked struct {
	address, token string
	last           chan string
}

// listening starts a server that says that it has no job but "of-NAME".
func listening(t *testing.T, name string) *asked {
	t.Helper()
	a := &asked{token: name + strings.Repeat("0", 32-len(name)), last: make(chan string, 10)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.last <- r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"records":[{"name":"of-` + name + `"}],"counts":{}}`))
	}))
	t.Cleanup(s.Close)
	a.address = strings.TrimPrefix(s.URL, "http://")
	return a
}

// TestContexts: a command asks the context in use, or the one that is named; flags go
// before it, and no token is sent to an address that was given without it.
func TestContexts(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, ".config", "wasmjob", "contexts.yaml")
	prod, staging := listening(t, "prod"), listening(t, "staging")
	for name, a := range map[string]*asked{"prod": prod, "staging": staging} {
		if err := os.WriteFile(filepath.Join(home, name+".token"), []byte(a.token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home, "TMPDIR=" + home}
	do := func(args ...string) result { t.Helper(); return runCLI(t, env, args...) }
	do("context").expect(t, exitOK, "there are no contexts")
	do("context", "use", "prod").expect(t, exitFailure, `there is no context "prod", and no other`)
	do("context", "set", "prod", "--token-file", "x").expect(t, exitUsage, `context "prod": admin: is missing`)
	do("context", "set", "a b", "--admin", prod.address).expect(t, exitUsage, `found "a b" as the name`)
	do("context", "set", "prod", "--admin", "nonsense").expect(t, exitUsage, "--admin")
	do("context", "set", "prod", "--admin", prod.address, "--token-file", filepath.Join(home, "prod.token")).expect(t, exitOK, "prod is set")
	do("context", "set", "staging", "--admin", staging.address, "--token-file", filepath.Join(home, "staging.token")).expect(t, exitOK, "staging is set")
	do("context", "set", "zk", "--registry", "zookeeper://127.0.0.1:1", "--namespace", "jobs").expect(t, exitOK, "zk is set")
	do("context", "set", "zk", "--admin", prod.address).expect(t, exitUsage, `context "zk": registry: found beside admin`)
	r := do("context", "list")
	r.expect(t, exitOK, prod.address, filepath.Join(home, "staging.token"), "zookeeper://127.0.0.1:1", "jobs")
	if first := strings.Split(r.out, "\n")[1]; !strings.HasPrefix(first, "*") || !strings.Contains(first, "prod") {
		t.Errorf("the first context is not in use:\n%s", r.out)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), prod.token) {
		t.Errorf("%v: %s", err, text)
	}

	is := func(a *asked, args ...string) {
		t.Helper()
		r := do(append([]string{"job", "list"}, args...)...)
		r.expect(t, exitOK)
		select {
		case got := <-a.last:
			if got != "Bearer "+a.token {
				t.Errorf("%v: the token is %q, want %q", args, got, a.token)
			}
		default:
			t.Errorf("%v: another host was asked: %s", args, r.out)
		}
	}
	is(prod)
	is(staging, "--context", "staging")
	do("context", "use", "staging").expect(t, exitOK, "staging is in use")
	is(staging)
	is(prod, "--context", "prod")
	is(prod, "--context", "staging", "--admin", prod.address, "--token-file", filepath.Join(home, "prod.token"))
	do("job", "list", "--admin", prod.address).expect(t, exitFailure, "its token is not known here")
	if got := <-prod.last; strings.Contains(got, staging.token) {
		t.Errorf("the token of the context in use was sent to another address: %q", got)
	}
	env = append(env, "WASMJOB_ADMIN="+prod.address, "WASMJOB_ADMIN_TOKEN_FILE="+filepath.Join(home, "prod.token"))
	is(prod)
	is(staging, "--context", "staging")
	env = env[:len(env)-2]

	do("job", "list", "--context", "prd").expect(t, exitUsage, `--context: there is no context "prd"; did you mean "prod"?`, file)
	do("job", "list", "--context", "prod", "--zk", "127.0.0.1:1").expect(t, exitUsage, `context "prod" in `+file, "it names a host, --zk the registry itself")
	do("job", "history", "--context", "zk").expect(t, exitUsage, "it names a registry, and this command asks a host")
	do("job", "items", "pay", "--context", "zk", "--admin", prod.address).expect(t, exitUsage, "--admin asks a host, --registry the registry itself")
	do("__complete", "job", "list", "--context", "").expect(t, exitOK, "prod", "staging", "zk")
	do("__complete", "context", "use", "").expect(t, exitOK, "prod", "staging", "zk")

	do("context", "set", "ensemble", "--zk", "127.0.0.1:1,127.0.0.1:2", "--namespace", "jobs").expect(t, exitOK, "ensemble is set")
	do("context", "list").expect(t, exitOK, "zookeeper://127.0.0.1:1,127.0.0.1:2")
	do("context", "set", "ensemble", "--zk", "127.0.0.1:1", "--registry", "zookeeper://127.0.0.1:2").expect(t, exitFailure, "[registry zk]")
	do("context", "rm", "ensemble").expect(t, exitOK)
	do("context", "set", "gone", "--admin", "127.0.0.1:1", "--token-file", filepath.Join(home, "prod.token")).expect(t, exitOK)
	do("job", "list", "--context", "gone").expect(t, exitFailure, `context "gone" in `+file+": no host is running here: nothing answers at 127.0.0.1:1", "--admin ADDRESS")
	do("job", "list", "--admin", "127.0.0.1:1").expect(t, exitFailure, "wasmjob: no host is running here: nothing answers at 127.0.0.1:1")

	do("context", "rm", "staging").expect(t, exitFailure, `context "staging" is in use; have commands ask another one first: wasmjob context use NAME (gone, prod, zk)`)
	is(staging)
	do("context", "rm", "zk").expect(t, exitOK, "zk is removed\n")
	do("context", "rm", "gone").expect(t, exitOK)
	do("context", "use", "prod").expect(t, exitOK)
	do("context", "rm", "staging").expect(t, exitOK, "staging is removed\n")
	do("context", "rm", "prod").expect(t, exitOK, "prod is removed, and no context is left: commands ask the host that runs here\n")
	do("job", "list").expect(t, exitFailure, "no host is running here")
	if err := os.WriteFile(file, []byte("contexts:\n  prod: {admn: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"job", "list"}, {"job", "list", "--context", "prod"}} {
		do(args...).expect(t, exitUsage, file+":2:10: contexts.prod: unknown field \"admn\"; did you mean \"admin\"?")
	}
	do("context").expect(t, exitFailure, file+":2:10")
	env = append(env, contexts.Variable+"="+filepath.Join(home, "other.yaml"))
	do("context").expect(t, exitOK, "there are no contexts")
	env = []string{"HOME=", "XDG_CONFIG_HOME="}
	do("context").expect(t, exitUsage, "no file with contexts is known", contexts.Variable)
}
