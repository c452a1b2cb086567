package program

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/auth/login"
	"github.com/wasmjob/wasmjob/host/cli/command"
)

const somePassword = "correct horse battery"

// TestUsersFile: what the commands write, and what they say to mistakes.
func TestUsersFile(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, ".config", "wasmjob", "users.yaml")
	secret, short := filepath.Join(home, "password"), filepath.Join(home, "short")
	if err := errors.Join(os.WriteFile(secret, []byte(somePassword+"\n"), 0o600), os.WriteFile(short, []byte("short"), 0o600)); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) result { t.Helper(); return runCLI(t, []string{"HOME=" + home}, args...) }
	do("access", "user", "list").expect(t, exitOK, "no users")
	do("access", "token", "list").expect(t, exitOK, "no tokens")
	do("access", "user", "add", "ann", "--password-file", secret).expect(t, exitUsage, "--role is missing")
	do("access", "user", "add", "ann", "--role", "operater=*", "--password-file", secret).expect(t, exitUsage, `did you mean "operator"?`)
	do("access", "user", "add", "a b", "--role", "viewer", "--password-file", secret).expect(t, exitUsage, `found the name "a b"`)
	do("access", "user", "add", "ann", "--role", "viewer").expect(t, exitUsage, "no terminal", "--password-file")
	do("access", "user", "add", "ann", "--role", "viewer", "--password-file", short).expect(t, exitFailure, "5 characters, expected at least 12")
	do("access", "user", "add", "ann", "--role", "operator=etl-*,report", "--role", "viewer", "--password-file", secret).expect(t, exitOK, "added ann to "+file+"\n")
	for name, args := range map[string][]string{"users": {"access", "user", "add", "ann", "--no-password", "--certificate", "CN=ann"}, "tokens": {"access", "token", "create", "ci"}} {
		other := filepath.Join(home, name) // no host has it by itself
		do(append(args, "--role", "viewer", "--users", other)...).expect(t, exitOK, other+", a new file, which a host reads with --users "+other)
	}
	if r := do("access", "user", "add", "bob", "--no-password", "--certificate", "CN=bob", "--role", "viewer", "--users", filepath.Join(home, "users")); strings.Contains(r.out, "new") {
		t.Errorf("%+v", r)
	}
	do("access", "user", "add", "ann", "--role", "viewer", "--no-password").expect(t, exitFailure, `there is a user "ann" already`)
	do("access", "user", "add", "deploy", "--role", "author", "--no-password", "--certificate", "CN=deploy,O=Example").expect(t, exitOK, "added deploy")
	do("access", "user", "list").expect(t, exitOK, "ann", "viewer=* operator=etl-*,report", "password", "author=*", "CN=deploy,O=Example")
	do("access", "user", "passwd", "an", "--password-file", secret).expect(t, exitFailure, `no user "an"`)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	do("access", "user", "passwd", "ann", "--password-file", secret).expect(t, exitOK, "another password")
	after, err := os.ReadFile(file)
	if err != nil || bytes.Equal(before, after) || bytes.Contains(after, []byte(somePassword)) {
		t.Errorf("%v:\n%s", err, after)
	}
	for _, bad := range []string{"never", "0d", "-1h", "2020-01-01", "99999d", "9999d"} {
		do("access", "token", "create", "ci", "--role", "viewer", "--expires", bad).expect(t, exitUsage, "--expires")
	}
	r := do("access", "token", "create", "ci", "--role", "operator=etl-*", "--expires", "30d")
	r.expect(t, exitOK, "shown here once")
	if token := strings.TrimSpace(r.out); !strings.HasPrefix(token, "wjt_") || strings.Contains(token, " ") {
		t.Errorf("the output is not the token alone: %q", r.out)
	}
	tokenFile := filepath.Join(home, "token")
	r = do("access", "token", "create", "cd", "--role", "viewer", "--out", tokenFile)
	r.expect(t, exitOK, "created the token cd", tokenFile)
	written, err := os.ReadFile(tokenFile)
	info, err2 := os.Stat(tokenFile)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if token := strings.TrimSpace(string(written)); info.Mode().Perm() != 0o600 || !strings.HasPrefix(token, "wjt_") || strings.Contains(r.out+r.err, token) {
		t.Errorf("mode %v, %q", info.Mode(), written)
	}
	do("access", "token", "create", "ce", "--role", "viewer", "--out", tokenFile).expect(t, exitFailure, tokenFile+" exists; --force writes over it")
	if r := do("access", "token", "list"); strings.Contains(r.out, "ce ") {
		t.Errorf("a token was created that is nowhere:\n%s", r.out)
	}
	do("access", "token", "create", "ce", "--role", "viewer", "--out", tokenFile, "--force").expect(t, exitOK, "created the token ce")
	if again, err := os.ReadFile(tokenFile); err != nil || bytes.Equal(again, written) {
		t.Errorf("%v %q", err, again)
	}
	do("access", "token", "list").expect(t, exitOK, "ci", "operator=etl-*", "in 30d")
	do("access", "token", "list", "-o", "json").expect(t, exitOK, `"name": "ci"`, `"role": "operator"`)
	listed := do("access", "user", "list", "--output", "yaml")
	listed.expect(t, exitOK, "- name: ann", "password: true", "certificates:")
	if strings.Contains(listed.out, "argon2") {
		t.Errorf("a hash is shown:\n%s", listed.out)
	}
	do("access", "token", "revoke", "c1").expect(t, exitFailure, `no token "c1"`, `did you mean "ci"?`)
	do("access", "token", "revoke", "ci").expect(t, exitOK, "revoked ci")
	do("access", "user", "remove", "ann").expect(t, exitOK, "removed ann")
	do("access", "user", "list").expect(t, exitOK, "deploy")
	do("access", "user", "ad").expect(t, exitUsage, `unknown command "ad"`)
	do("access", "user", "list", "--users", "off").expect(t, exitUsage, "--users is missing")
	if err := os.WriteFile(file, []byte("users: [{name: x}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	do("access", "user", "list").expect(t, exitFailure, file+":1:9: users.roles: is missing")
	do("access", "user", "remove", "x").expect(t, exitFailure, file+":1:9: users.roles: is missing")
}

// selfSigned writes a certificate for this machine, which also is its own authority, and its key.
func selfSigned(t *testing.T, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ann"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestAccessOfAHost runs a host with TLS and users, and asks it as each of them.
func TestAccessOfAHost(t *testing.T) {
	t.Parallel()
	dir := jobDir(t, "type: SIMPLE\nshardingTotalCount: 1\njobParameter: attrs\n")
	home := t.TempDir()
	in := func(name string) string { return filepath.Join(home, name) }
	selfSigned(t, in("cert.pem"), in("key.pem"))
	if err := os.WriteFile(in("password"), []byte(somePassword), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home}
	// A host that really runs here is none of this test's: its note lies elsewhere, and
	// what is asked without an address is asked of the one note here.
	do := func(args ...string) result { t.Helper(); return runCLI(t, env, args...) }
	for name, role := range map[string]string{"viewer": "viewer=cit*", "operator": "operator=cit*"} {
		r := do("access", "token", "create", name, "--role", role)
		r.expect(t, exitOK)
		if err := os.WriteFile(in(name), []byte(r.out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	do("access", "user", "add", "ann", "--role", "viewer=cit*", "--password-file", in("password")).expect(t, exitOK)
	signals := make(chan os.Signal, 2)
	logs := lineByLine{make(chan string, 10_000)}
	p := &program{Program: command.Program{Out: io.Discard, Err: logs, Environ: env, Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	ended := make(chan int)
	go func() {
		ended <- p.main(context.Background(), []string{"run", "--plugins", dir, "--admin", "127.0.0.1:0", "--server-ip", "127.0.0.1", "--log-format", "json", "--cache", "off",
			"--history", in("history"), "--admin-tls-cert", in("cert.pem"), "--admin-tls-key", in("key.pem"), "--admin-client-ca", in("cert.pem")})
	}()
	var entry struct{ Message, Admin, Console, TokenFile string }
	var first string
	for entry.Message != "host starts" {
		first = logs.await(t, `"message"`)
		if err := json.Unmarshal([]byte(first), &entry); err != nil {
			t.Fatal(err)
		}
	}
	note, err := os.ReadFile(entry.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	var left struct{ Token string }
	if err := json.Unmarshal(note, &left); err != nil || left.Token == "" || strings.Contains(first, left.Token) || strings.Contains(first, login.LinkPath) {
		t.Errorf("the log has a secret, or the file no token: %v %q\n%s", err, left.Token, first)
	}
	logs.await(t, "this host runs item 0")
	at := []string{"--admin", entry.Admin}
	ask := func(args ...string) result { t.Helper(); return do(append(args, at...)...) }
	ask("status").expect(t, exitOK, "cities")
	ask("status", "--token-file", in("viewer")).expect(t, exitOK, "cities")
	ask("job", "run", "cities", "--token-file", in("viewer")).expect(t, exitFailure, `to operate job "cities" you need the role operator for it; token viewer has viewer of cit*`)
	ask("job", "run", "other", "--token-file", in("operator")).expect(t, exitFailure, `to operate job "other" you need the role operator`)
	ask("job", "run", "cities", "--token-file", in("operator")).expect(t, exitOK)
	ask("job", "remove", "cities", "--token-file", in("operator")).expect(t, exitFailure, "you need the role author")
	ask("status", "--ca", in("cert.pem")).expect(t, exitOK, "cities")
	ask("status", "--ca", "system").expect(t, exitFailure, "certificate")

	pool := x509.NewCertPool()
	text, err := os.ReadFile(in("cert.pem"))
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	browser := &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	visit := func(method, address string, form url.Values) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	base := "https://" + entry.Admin
	if entry.Console != base {
		t.Errorf("the console is said to be at %q, want %s", entry.Console, base)
	}
	if code, body := visit("GET", base+"/v1/status", nil); code != 401 {
		t.Errorf("a browser before it signs in: %d %s", code, body)
	}
	link := ask("access", "login")
	link.expect(t, exitOK, base+login.LinkPath+"?code=")
	for i, want := range []int{303, 403} { // it is good once
		if code, body := visit("GET", strings.TrimSpace(link.out), nil); code != want {
			t.Errorf("visit %d of the link: %d %s", i, code, body)
		}
	}
	if code, body := visit("GET", base+"/v1/status", nil); code != 200 || !strings.Contains(body, "cities") {
		t.Errorf("a browser with a session: %d %s", code, body)
	}
	if code, body := visit("POST", base+"/v1/jobs/cities/trigger", nil); code != 403 {
		t.Errorf("a request with a browser's cookie that no page sends: %d %s", code, body)
	}
	browser.Jar, err = cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, body := visit("GET", base+login.Path, nil)
	if !strings.Contains(body, `name="password"`) {
		t.Fatalf("the login page: %s", body)
	}
	for _, c := range []struct {
		password string
		code     int
	}{{"wrong horse battery", 401}, {somePassword, 303}} {
		if code, body := visit("POST", base+login.Path, url.Values{"name": {"ann"}, "password": {c.password}}); code != c.code {
			t.Errorf("%s: %d %s", c.password, code, body)
		}
	}
	signals <- syscall.SIGTERM
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	history, err := os.ReadFile(in("history"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"who":"token operator","from":"127.0.0.1","what":"trigger","job":"cities"`, `"who":"login link (` + command.WhoAsks() + `)","from":"127.0.0.1","what":"sign in"`, `"who":"ann","from":"127.0.0.1","what":"sign in"`, "no user of this name with this password"} {
		if !strings.Contains(string(history), want) {
			t.Errorf("the history lacks %s:\n%s", want, history)
		}
	}
	if strings.Contains(string(history), somePassword) {
		t.Error("the history has the password")
	}
}

// TestAccessMistakes: what is wrong with the files of the admin address keeps the host from
// starting, and says where.
func TestAccessMistakes(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	in := func(name string) string { return filepath.Join(home, name) }
	selfSigned(t, in("cert.pem"), in("key.pem"))
	if err := os.WriteFile(in("users.yaml"), []byte("users:\n- {name: ann}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[string][]string{
		in("users.yaml") + ":2:3: users.roles: is missing": {"--users", in("users.yaml")},
		"none.pem cannot be read: it does not exist":       {"--admin-tls-cert", in("none.pem"), "--admin-tls-key", in("key.pem")},
		"TLS of the admin address":                         {"--admin-tls-cert", in("cert.pem"), "--admin-tls-key", in("cert.pem")},
		"and there is no TLS":                              {"--admin", "0.0.0.0:0"},
	} {
		args := append([]string{"run", "--plugins", home, "--server-ip", "127.0.0.1", "--cache", "off", "--admin", "127.0.0.1:0"}, flags...)
		runCLI(t, []string{"XDG_RUNTIME_DIR=" + home}, args...).expect(t, exitUsage, want)
	}
}

// TestLinkInATerminal: a host in a terminal prints a link to its console, which signs a browser
// in once.
func TestLinkInATerminal(t *testing.T) {
	t.Parallel()
	h := startHost(t, t.TempDir(), "--admin", "127.0.0.1:0", "--users", "off")
	line := strings.Fields(h.out.await(t, "/login/link?code="))
	link := line[slices.IndexFunc(line, func(word string) bool { return strings.HasPrefix(word, "http://127.0.0.1:") })]
	address, _, _ := strings.Cut(strings.TrimPrefix(link, "http://"), "/")
	h.await(t, "live, ready", "status", "--admin", address) // before, the page says that the registry is not reached yet
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	first := &http.Client{Jar: jar, Transport: &http.Transport{}}
	other := &http.Client{Transport: &http.Transport{}}
	defer first.CloseIdleConnections()
	defer other.CloseIdleConnections()
	get := func(c *http.Client) (path, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		page, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.Request.URL.Path, string(page)
	}
	if path, text := get(first); path != "/" || !strings.Contains(text, "No jobs yet") {
		t.Errorf("the link leads to %s: %s", path, text)
	}
	if path, text := get(other); strings.Contains(text, "No jobs yet") {
		t.Errorf("the link was used again: %s %s", path, text)
	}
}
