package users

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/password"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
	"github.com/wasmjob/wasmjob/test/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	someHash = "$argon2id$v=19$m=8192,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	someSum  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// full is a file with everything.
const full = `# who may do what
users:
  - name: ann
    password: ` + someHash + `
    roles:
      operator: [etl-*, report]
      viewer: "*"
    certificates: ["CN=ann,O=Example", "CN=ann,OU=sre,O=Example"]
  - {name: bob@example.com, roles: {admin: "*"}}
tokens:
  - {name: ci, id: ABCDEFGH1234, sha256: ` + someSum + `, roles: {author: [etl-*]}, created: 2026-11-23T17:00:00Z, expires: "2027-02-21"}
oidc:
  name: Example SSO
  issuer: https://sso.example.com/realms/ops
  clientId: wasmjob
  clientSecretFile: client-secret
  scopes: [openid, email, groups]
  nameClaim: preferred_username
  groupsClaim: roles
  groups:
    sre: {admin: "*"}
    "team etl": {operator: etl-*, viewer: "*"}
`

// secretFiles stands for the files that a users file names.
func secretFiles(name string) ([]byte, error) {
	if name == "/etc/wasmjob/client-secret" {
		return []byte("hush\n"), nil
	}
	return nil, errors.New("cannot be read: it does not exist")
}

func TestParse(t *testing.T) {
	t.Parallel()
	s, err := parse("/etc/wasmjob/users.yaml", []byte(full), secretFiles)
	if err != nil {
		t.Fatal(err)
	}
	ann, ok := s.User("ann")
	want := []auth.Binding{{Role: auth.RoleOperator, Jobs: []string{"etl-*", "report"}}, {Role: auth.RoleViewer, Jobs: []string{"*"}}}
	if !ok || !reflect.DeepEqual(ann.Bindings, want) || ann.Password.String() != someHash || len(ann.Certificates) != 2 {
		t.Errorf("ann: %+v", ann)
	}
	if u, ok := s.Subject("CN=ann,OU=sre,O=Example"); !ok || u.Name != "ann" {
		t.Errorf("the certificate's user: %+v", u)
	}
	if _, ok := s.Subject("CN=bob"); ok {
		t.Error("a subject that is no user's is one")
	}
	if names := len(s.Users()); names != 2 || !s.Passwords() {
		t.Errorf("%d users", names)
	}
	if list := s.Tokens(); len(list) != 1 || list[0].Name != "ci" || !list[0].Expires.Equal(time.Date(2027, 2, 21, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("tokens: %+v", list)
	}
	p := s.Provider()
	if p.Name != "Example SSO" || p.ClientSecret != "hush" || p.NameClaim != "preferred_username" || p.GroupsClaim != "roles" || len(p.Scopes) != 3 {
		t.Errorf("the provider: %+v", p)
	}
	if got := p.Mapped([]string{"x", "team etl", "sre", "sre"}); !reflect.DeepEqual(got, []string{"sre", "team etl"}) {
		t.Errorf("mapped: %q", got)
	}
	if got := len(p.Bindings([]string{"team etl", "gone"})); got != 2 {
		t.Errorf("%d bindings", got)
	}
}

// TestMistakes: each is named with its line and field, and what was expected.
func TestMistakes(t *testing.T) {
	t.Parallel()
	editor := schemas.New(t, Schema())
	editor.Check(t, full, nil)
	for text, want := range map[string]string{
		"":                         "u.yaml: the file is empty, expected users",
		"# nothing":                "u.yaml: the file is empty",
		"- a":                      "u.yaml:1:1: found a list, expected the fields users, tokens and oidc",
		"user: []":                 `u.yaml:1:1: unknown field "user"; did you mean "users"?`,
		"users: [":                 "u.yaml:1:1: not YAML",
		"users: []\n---\na: 1":     "found 2 YAML documents",
		"users: &x []\ntokens: *x": "found an alias",
		"users: ann":               `u.yaml:1:8: users: found "ann", expected a list`,
		"users: [{}]":              "u.yaml:1:9: users.name: is missing",
		"users: [{name: ann}]":     "u.yaml:1:9: users.roles: is missing, expected roles",
		"users: [{name: 'a b', roles: {viewer: '*'}}]":                                                                      `users.name: found the name "a b", expected at most 64`,
		"users: [{name: -a, roles: {viewer: '*'}}]":                                                                         "a letter or digit first",
		"users:\n- {name: ann, roles: {viewer: '*'}}\n- {name: ann, roles: {viewer: '*'}}":                                  `u.yaml:3:10: users.name: there is a user "ann" already`,
		"users: [{name: ann, roles: {operater: '*'}}]":                                                                      `users.roles: found the role "operater", expected one of viewer, operator, author, admin; did you mean "operator"?`,
		"users: [{name: ann, roles: {operator: 'a/b'}}]":                                                                    `users.roles.operator: found "a/b", expected one job's name or one pattern`,
		"users: [{name: ann, roles: {operator: '['}}]":                                                                      "one pattern",
		"users: [{name: ann, roles: {operator: []}}]":                                                                       "users.roles.operator: found an empty list",
		"users: [{name: ann, roles: {operator: {a: b}}}]":                                                                   "found a mapping, expected a list",
		"users: [{name: ann, roles: {viewer: '*'}, password: hunter2}]":                                                     "users.password: found no hash",
		"users: [{name: ann, roles: {viewer: '*'}, pasword: x}]":                                                            `unknown field "pasword"; did you mean "password"?`,
		"users: [{name: ann, roles: {viewer: '*'}, certificates: ['']}]":                                                    "found an empty subject",
		"users: [{name: a, roles: {viewer: '*'}, certificates: CN=x}, {name: b, roles: {viewer: '*'}, certificates: CN=x}]": `the subject "CN=x" is the user "a"'s already`,
		"tokens: [{name: ci, roles: {viewer: '*'}}]":                                                                        "tokens.id: is missing",
		"tokens: [{name: ci, id: short, sha256: " + someSum + ", roles: {viewer: '*'}, expires: 2027-01-01}]":               `tokens.id: found "short"`,
		"tokens: [{name: ci, id: ABCDEFGH, sha256: abc, roles: {viewer: '*'}, expires: 2027-01-01}]":                        "tokens.sha256: found no sum",
		"tokens: [{name: ci, id: ABCDEFGH, sha256: " + someSum + ", roles: {viewer: '*'}, expires: soon}]":                  `tokens.expires: found "soon", expected an instant`,
		"tokens: [{name: ci, id: ABCDEFGH, sha256: " + someSum + ", roles: {viewer: '*'}}]":                                 "tokens.expires: is missing",
		"tokens: [{name: a, id: ABCDEFGH, sha256: " + someSum + ", roles: {viewer: '*'}, expires: 2027-01-01}, {name: b, id: ABCDEFGH, sha256: " + someSum + ", roles: {viewer: '*'}, expires: 2027-01-01}]": "that no other token has",
		"oidc: {}": "oidc.issuer: is missing",
		"oidc: {issuer: 'http://sso.example.com', clientId: x, groups: {a: {viewer: '*'}}}": "expected an address that begins with https://",
		"oidc: {issuer: 'sso', clientId: x, groups: {a: {viewer: '*'}}}":                    "expected the provider's address",
		"oidc: {issuer: 'https://x', clientId: x}":                                          "oidc.groups: is missing",
		"oidc: {issuer: 'https://x', clientId: x, groups: {a: {vewer: '*'}}}":               `oidc.groups.a: found the role "vewer"`,
		"oidc: {issuer: 'https://x', clientId: x, clientSecretFile: none, groups: {}}":      "clientSecretFile: /etc/none cannot be read",
		"oidc: {issuer: 'https://x', clientId: x, clientSecret: hush, groups: {}}":          `unknown field "clientSecret"; did you mean "clientSecretFile"?`,
		"oidc: {issuer: 'https://x', clientId: x, scopes: ['a b'], groups: {}}":             `found "a b", expected a scope`,
	} {
		_, err := parse("/etc/u.yaml", []byte(text), secretFiles)
		editor.Check(t, text, err)
		var problems fields.Problems
		if !errors.As(err, &problems) || !strings.Contains(strings.ReplaceAll(err.Error(), "/etc/u.yaml", "u.yaml"), want) {
			t.Errorf("%s\n\t%v\nwant\t%s", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "hush")) {
			t.Errorf("the message shows a secret: %v", err)
		}
	}
	if editor.Refused < 15 {
		t.Errorf("the schema refuses %d of these files: it shows little", editor.Refused)
	}
	_, err := parse("/u.yaml", []byte("users:\n- {name: '', roles: {x: y}}\n- {name: ann, roles: {x: '*'}}\n"), secretFiles)
	var problems fields.Problems
	if !errors.As(err, &problems) || len(problems) != 2 || problems[0].Line != 2 || problems[1].Line != 3 {
		t.Errorf("all mistakes at once: %v", err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "users.yaml")
	if s, err := Read(name); err != nil || !s.Same(Empty()) {
		t.Errorf("no file: %v", err)
	}
	text := "users: [{name: ann, roles: {viewer: '*'}}]"
	for mode, want := range map[os.FileMode]string{0o600: "", 0o640: "", 0o644: "warning", 0o660: "others can write to it", 0o666: "others can write to it"} {
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
		s, err := Read(name)
		switch {
		case want == "" && (err != nil || len(s.Warnings()) > 0):
			t.Errorf("%04o: %v", mode, err)
		case want == "warning" && (err != nil || len(s.Warnings()) != 1):
			t.Errorf("%04o: %v", mode, err)
		case strings.HasPrefix(want, "others") && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%04o: %v", mode, err)
		}
	}
	for what, prepare := range map[string]func(string) error{
		"is a directory": func(n string) error { return os.Mkdir(n, 0o700) },
		"has more than":  func(n string) error { return os.WriteFile(n, make([]byte, MaxSize+1), 0o600) },
	} {
		n := filepath.Join(t.TempDir(), "u")
		if err := prepare(n); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(n); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	secret := filepath.Join(filepath.Dir(name), "client-secret")
	oidc := "oidc: {issuer: 'https://x', clientId: x, clientSecretFile: client-secret, groups: {a: {viewer: '*'}}}"
	if err := errors.Join(os.WriteFile(secret, []byte("hush"), 0o644), os.Chmod(secret, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(name, []byte(oidc)); err == nil || !strings.Contains(err.Error(), "everybody on this machine") {
		t.Errorf("a secret that everybody reads: %v", err)
	}
	if err := os.Chmod(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Parse(name, []byte(oidc)); err != nil || s.Provider().ClientSecret != "hush" {
		t.Errorf("%v", err)
	}
}

// edit changes a file and reads it.
func edit(t *testing.T, name string, change func(*Document) error) (*Set, string) {
	t.Helper()
	if err := Edit(name, change); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(name)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return s, string(data)
}

func TestEdit(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "new", "users.yaml")
	hash, err := password.Parse(someHash)
	if err != nil {
		t.Fatal(err)
	}
	roles := []auth.Binding{{Role: auth.RoleOperator, Jobs: []string{"etl-*", "no: yaml #"}}, {Role: auth.RoleViewer, Jobs: []string{"*"}}, {Role: auth.RoleOperator, Jobs: []string{"123"}}}
	s, text := edit(t, name, func(d *Document) error { return d.AddUser("ann", roles, hash, []string{"CN=ann,O=Ä \"x\""}) })
	if u, ok := s.User("ann"); !ok || u.Password.String() != someHash || len(u.Bindings) != 2 || !reflect.DeepEqual(u.Bindings[1].Jobs, []string{"etl-*", "no: yaml #", "123"}) {
		t.Errorf("%+v\n%s", u, text)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(text, schema.Line(SchemaName)+"\n# Who may do what") {
		t.Errorf("%v\n%s", err, text)
	}
	var token string
	expires := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	s, text = edit(t, name, func(d *Document) (err error) {
		token, err = d.AddToken("ci", roles, time.Unix(1e9, 0), expires)
		return err
	})
	if !strings.HasPrefix(token, TokenPrefix) || strings.Contains(text, token[len(TokenPrefix)+13:]) {
		t.Errorf("the token %s in\n%s", token, text)
	}
	if got, ok := s.Token(token); !ok || got.Name != "ci" || !got.Expires.Equal(expires) {
		t.Errorf("%+v, %t", got, ok)
	}
	for _, wrong := range []string{"", token[:len(token)-1], token + "x", strings.TrimPrefix(token, TokenPrefix), TokenPrefix + "_", TokenPrefix + "ABC_DEF", token[:len(TokenPrefix)+13]} {
		if _, ok := s.Token(wrong); ok {
			t.Errorf("%q is taken for a token", wrong)
		}
	}
	for _, bad := range []func(*Document) error{
		func(d *Document) error { return d.AddUser("ann", roles, hash, nil) },
		func(d *Document) error { return d.AddUser("a b", roles, hash, nil) },
		func(d *Document) error { return d.AddUser("bob", nil, hash, nil) },
		func(d *Document) error {
			return d.AddUser("bob", []auth.Binding{{Role: "root", Jobs: []string{"*"}}}, hash, nil)
		},
		func(d *Document) error { return d.AddUser("bob", roles, hash, []string{"CN=ann,O=Ä \"x\""}) },
		func(d *Document) error { return d.RemoveUser("anne") },
		func(d *Document) error { return d.SetPassword("bob", hash) },
		func(d *Document) error { return d.RevokeToken("cj") },
		func(d *Document) error { _, err := d.AddToken("ci", roles, expires, expires); return err },
		func(*Document) error { return errors.New("no") },
	} {
		if err := Edit(name, bad); err == nil {
			t.Error("a bad change is made")
		}
		if now, err := os.ReadFile(name); err != nil || string(now) != text {
			t.Fatalf("a change that failed has changed the file: %v\n%s", err, now)
		}
	}
	if err := Edit(name, func(d *Document) error { return d.RemoveUser("anne") }); err == nil || !strings.Contains(err.Error(), `did you mean "ann"?`) {
		t.Errorf("%v", err)
	}
	s, text = edit(t, name, func(d *Document) error {
		return errors.Join(d.RemoveUser("ann"), d.RevokeToken("ci"))
	})
	if len(s.Users())+len(s.Tokens()) > 0 {
		t.Errorf("they are still there:\n%s", text)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(name), ".*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", err, left)
	}
}

// TestEditKeepsTheRest: comments, order and what people wrote stay.
func TestEditKeepsTheRest(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "users.yaml")
	const text = `# ours

# people
users:
  # the boss
  - name: ann # since 2020
    roles:
      admin: "*"
  - name: bob
    roles: {viewer: ["*"]}
tokens: [] # none yet
# the end
`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	hash, err := password.Parse(someHash)
	if err != nil {
		t.Fatal(err)
	}
	s, now := edit(t, link, func(d *Document) error { return d.SetPassword("ann", hash) })
	u, _ := s.User("ann")
	for _, want := range []string{"# ours", "# people", "# the boss", "# since 2020", "# none yet", "# the end", someHash} {
		if !strings.Contains(now, want) {
			t.Errorf("%q is lost:\n%s", want, now)
		}
	}
	if u.Password.String() != someHash {
		t.Errorf("%+v", u)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v", err)
	}
	edit(t, name, func(d *Document) error {
		_, err := d.AddToken("ci", []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"*"}}}, time.Unix(1e9, 0), time.Unix(2e9, 0))
		return err
	})
	if err := os.WriteFile(name, []byte("users: [{name: bob}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Edit(name, func(*Document) error { return nil }); err == nil || !strings.Contains(err.Error(), "users.roles: is missing") {
		t.Errorf("a file with a mistake: %v", err)
	}
}

// TestEditOneAtATime: an edit within another one is refused, and loses nothing.
func TestEditOneAtATime(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "users.yaml")
	err := Edit(name, func(*Document) error { return Edit(name, func(*Document) error { return nil }) })
	if !errors.Is(err, filelock.ErrBusy) {
		t.Errorf("%v", err)
	}
}

// tokenFile is a file with a token that expires, and the token.
func tokenFile(t *testing.T, expires time.Time) (name, token string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "users.yaml")
	edit(t, name, func(d *Document) (err error) {
		token, err = d.AddToken("ci", []auth.Binding{{Role: auth.RoleOperator, Jobs: []string{"etl-*"}}}, expires.Add(-time.Hour), expires)
		return err
	})
	return name, token
}

// TestTokens: wrong, expired and revoked tokens, and other ways to be wrong.
func TestTokens(t *testing.T) {
	t.Parallel()
	expires := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	name, token := tokenFile(t, expires)
	live, err := Open(name, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	now := expires.Add(-time.Second)
	source := live.Tokens("the-host's-own", func() time.Time { return now })
	ask := func(header string) (auth.Principal, error) {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		return source.Identify(r)
	}
	if _, err := ask(""); !errors.Is(err, auth.ErrNone) {
		t.Errorf("no header: %v", err)
	}
	for _, header := range []string{"Bearer " + token, "bearer " + token} {
		if p, err := ask(header); err != nil || p.String() != "token ci" || !p.May(operation.Operate, "etl-1") || p.May(operation.Operate, "x") {
			t.Errorf("%s: %+v, %v", header, p, err)
		}
	}
	if p, err := ask("Bearer the-host's-own"); err != nil || p.String() != "host token" || !p.All(operation.Admin) {
		t.Errorf("the host's token: %+v, %v", p, err)
	}
	for header, want := range map[string]string{
		"Bearer ": "wrong, or was revoked", "Bearer wrong": "wrong, or was revoked", "Bearer the-host's-owN": "wrong, or was revoked", "Bearer " + token + "x": "wrong, or was revoked",
		"Basic " + token: "Authorization: Bearer", token: "Authorization: Bearer", "Bearer": "Authorization: Bearer", "x": "Authorization: Bearer",
	} {
		var p *auth.Problem
		if _, err := ask(header); !errors.As(err, &p) || p.Status != 401 || !strings.Contains(p.Detail, want) || strings.Contains(p.Detail, token) {
			t.Errorf("%s: %v", header, err)
		}
	}
	for _, c := range []struct{ bearer, user, want string }{ // who has the host's token says who it is; others do not
		{"the-host's-own", "root@vm", "host token (root@vm)"},
		{"the-host's-own", "root\x1b[2J@vm", `host token (root\x1b[2J@vm)`},
		{"the-host's-own", strings.Repeat("x", 1000), "host token (" + words.Clip(strings.Repeat("x", 1000)) + ")"},
		{token, "root@vm", "token ci"},
	} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Header = http.Header{"Authorization": {"Bearer " + c.bearer}, auth.UserHeader: {c.user}}
		if p, err := source.Identify(r); err != nil || p.String() != c.want {
			t.Errorf("%s of %q: %q, %v, want %q", c.bearer, c.user, p, err, c.want)
		}
	}
	now = expires
	if _, err := ask("Bearer " + token); err == nil || !strings.Contains(err.Error(), `the token "ci" has expired at 2027-01-01T00:00:00Z`) {
		t.Errorf("expired: %v", err)
	}
	if _, err := ask("Bearer " + token + "x"); err == nil || strings.Contains(err.Error(), "expired") {
		t.Errorf("a wrong secret learns of the token's end: %v", err)
	}
	if p, err := (&tokens{live: live, now: time.Now}).Identify(&http.Request{Header: http.Header{"Authorization": {"Bearer "}}}); err == nil {
		t.Errorf("a host without a token takes an empty one: %+v", p)
	}
}

// TestWatch: a change takes effect, a mistake leaves what was before and says so, and a
// revoked token ends.
func TestWatch(t *testing.T) {
	t.Parallel()
	name, token := tokenFile(t, time.Now().Add(time.Hour))
	core, logs := observer.New(zap.InfoLevel)
	live, err := Open(name, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- live.Watch(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	await := func(what string, good func() bool) {
		t.Helper()
		late, again := time.After(20*time.Second), time.NewTicker(10*time.Millisecond)
		defer again.Stop()
		for !good() {
			select {
			case <-again.C:
			case <-late:
				t.Fatalf("%s was not noticed: %v", what, logs.All())
			}
		}
	}
	has := func() bool { _, ok := live.Set().Token(token); return ok }
	edit(t, name, func(d *Document) error {
		return d.AddUser("ann", []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"*"}}}, password.Hash{}, nil)
	})
	await("a new user", func() bool { _, ok := live.Set().User("ann"); return ok })
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"users: [{name: x}]", "", "{", "tokens: 1"} {
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		await(fmt.Sprintf("%q", bad), func() bool { return live.Problem() != "" })
		if !has() {
			t.Fatalf("%q takes everything away", bad)
		}
		if err := os.WriteFile(name, good, 0o600); err != nil {
			t.Fatal(err)
		}
		await("the good file", func() bool { return live.Problem() == "" })
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	await("the removal", func() bool { return strings.Contains(live.Problem(), "was removed") })
	if !has() {
		t.Error("the removed file takes everything away")
	}
	if err := os.WriteFile(name, good, 0o600); err != nil {
		t.Fatal(err)
	}
	await("the file that came back", func() bool { return live.Problem() == "" })
	edit(t, name, func(d *Document) error { return d.RevokeToken("ci") })
	await("the revocation", func() bool { return !has() })
	if n := logs.FilterMessageSnippet("is not taken").Len(); n < 4 {
		t.Errorf("%d lines about mistakes", n)
	}
}

// TestReplaced: a file that is removed and made again at once is at no time taken for
// one without users.
func TestReplaced(t *testing.T) {
	t.Parallel()
	name, token := tokenFile(t, time.Now().Add(time.Hour))
	live, err := Open(name, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for range 2000 {
			if err := errors.Join(os.Rename(name, name+".away"), os.Rename(name+".away", name)); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for {
		live.look()
		if _, ok := live.Set().Token(token); !ok {
			t.Error("the file that was replaced takes everything away")
			<-ended
			return
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			if live.look(); live.Problem() != "" {
				t.Error(live.Problem())
			}
			return
		default:
		}
	}
}

// TestWatchFromNothing: the file, and its directory, may come later.
func TestWatchFromNothing(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "config", "wasmjob", "users.yaml")
	live, err := Open(name, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- live.Watch(ctx) }()
	edit(t, name, func(d *Document) error {
		return d.AddUser("ann", []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"*"}}}, password.Hash{}, nil)
	})
	late, again := time.After(20*time.Second), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for len(live.Set().Users()) == 0 {
		select {
		case <-again.C:
		case <-late:
			t.Fatal("the file was not noticed")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	none, err := Open("", zap.NewNop())
	if err != nil || !none.Set().Same(Empty()) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzParse: whatever a file holds, reading it ends with a set that can be used or with
// problems that have places, and what an edit writes is read.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte("users: [&x {name: a}, *x]\n"))
	f.Add([]byte("users: []\n"))
	f.Add([]byte("tokens: [{name: ci, id: ABCDEFGH, sha256: " + someSum + ", roles: {viewer: '*'}, expires: 2027-01-01}]"))
	f.Add([]byte("oidc: {issuer: 'https://x', clientId: x, groups: {a: {viewer: '*'}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse("/etc/wasmjob/users.yaml", data, secretFiles)
		if err != nil {
			var p fields.Problems
			if !errors.As(err, &p) || len(p) == 0 || s != nil {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, u := range s.Users() {
			for _, b := range u.Bindings {
				if err := b.Check(); err != nil {
					t.Errorf("%+v: %v", u, err)
				}
			}
			if _, err := password.Parse(u.Password.String()); err != nil && !u.Password.Zero() {
				t.Errorf("%+v: %v", u, err)
			}
		}
		if _, ok := s.Token(TokenPrefix + "_"); ok {
			t.Error("an empty token is taken")
		}
		if p := s.Provider(); p != nil {
			p.Bindings(p.Mapped([]string{"a", ""}))
			return // its secret is in no file here
		}
		d, err := open("/u.yaml", data)
		if err != nil {
			t.Fatalf("it is read and not edited: %v", err)
		}
		if err := d.AddUser("fuzz.user", []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"*"}}}, password.Hash{}, nil); err != nil {
			return
		}
		text, err := d.text()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("/u.yaml", text)
		if err != nil || len(again.Users()) != len(s.Users())+1 || len(again.Tokens()) != len(s.Tokens()) {
			t.Errorf("%v:\n%q\nbecame\n%q", err, data, text)
		}
	})
}

// TestSubject: as openssl x509 -noout -subject -nameopt RFC2253 prints that of a
// certificate which openssl has made.
func TestSubject(t *testing.T) {
	t.Parallel()
	block, _ := pem.Decode([]byte(ofOpenSSL))
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if got := Subject(c); got != `C=DE,OU=sre,O=Example\, Inc,CN=ann` {
		t.Errorf("the subject is %s", got)
	}
	if got := Subject(&x509.Certificate{Subject: pkix.Name{CommonName: "ann"}}); got != "CN=ann" {
		t.Errorf("the subject is %s", got)
	}
}

const ofOpenSSL = `-----BEGIN CERTIFICATE-----
MIIDYTCCAkmgAwIBAgIUbwlOfqlUSJrCvhXnhu2IlLuSvSEwDQYJKoZIhvcNAQEL
BQAwQDEMMAoGA1UEAwwDYW5uMRUwEwYDVQQKDAxFeGFtcGxlLCBJbmMxDDAKBgNV
BAsMA3NyZTELMAkGA1UEBhMCREUwHhcNMjYxMTIzMTc1NTMyWhcNMjYxMTI0MTc1
NTMyWjBAMQwwCgYDVQQDDANhbm4xFTATBgNVBAoMDEV4YW1wbGUsIEluYzEMMAoG
A1UECwwDc3JlMQswCQYDVQQGEwJERTCCASIwDQYJKoZIhvcNAQEBBQADggEPADCC
AQoCggEBALkjx6MouKFPT0vmPaf1ECGVl8FISjAjAE+BLDJcKXMqzGX3hmxwzad0
PG9PlSHZCzg4HFnQVYs4leuJgJOl/M/3SJg9srIkWrP5d11flwuZbpvkR2wy1rLB
kK4gXzppRHFccS/ggKjoABden6VdnwzwyaO9OL5pHhpknFqIDDN+R0mc6g71O8M2
04Zoy+w2fUuC0Qf/dBK1evz3a8t3YAtwslx0K4Xx9R5E4M7lwWU6YN6x9FKxdI4D
88iPH0U1slvDRyfocQwmU8ZDX8vXn3nCjBsWNMXg6rS4LZu3ffs3In7ep2a82n+P
1UFr8rDaDPufF7d6olkx6ISWLkSEdgkCAwEAAaNTMFEwHQYDVR0OBBYEFOJ015ld
TVqXlLPPa/HY1kTrsj6xMB8GA1UdIwQYMBaAFOJ015ldTVqXlLPPa/HY1kTrsj6x
MA8GA1UdEwEB/wQFMAMBAf8wDQYJKoZIhvcNAQELBQADggEBAALBRIb7WuAakK2X
ntKIVDWDjEV+vwK0k+rh3HH/51pGVhhCgxB84tTfBeGcWNgmwvrxpSy2ADNBwjTI
dOWjUeu5qm/ut5c6kZoAE5lWyAV3xpPwOgWBxXjtq+iqaeqyP2FrsZlJLiwl87P/
p5c15qVe8MvY1KXDXbL82x5y3I8qlqrlwEmlTp7WsH48cK2nWNAInTb/Z3pANL5o
CorUG2hYLpsa1CIhqT1IxSifpZnV7Wy1kf1nAQB/PxEfu6uvrC4SFbBPDkPX7BDq
9ktHotJeWSJxNHO0mMmeq5P0qkgOZkzXhfPyETNfYP5Xb8WZhfu3k6kwWoQ0GORL
FeJeQZ0=
-----END CERTIFICATE-----
`

// anothers gives the file to another user, if this process may; otherwise it is another user who asks. It returns who asks.
func anothers(t *testing.T, name string) ownership.User {
	t.Helper()
	u := ownership.Self()
	if u != 0 {
		return u + 1
	}
	if err := os.Chown(name, 65534, -1); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestOwners: a host takes no file that another user can change, at its start and later; commands do.
func TestOwners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, secret := filepath.Join(dir, "users.yaml"), filepath.Join(dir, "secret")
	text := "users: [{name: ann, roles: {viewer: '*'}}]\noidc: {name: x, issuer: https://id.example.com, clientId: c, clientSecretFile: secret, groups: {ops: {viewer: '*'}}}\n"
	if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.WriteFile(secret, []byte("s3cret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := Open(name, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	u := anothers(t, secret)
	if ownership.Self() == 0 { // else the users file is another's, too
		if _, err := openAs(u, name, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "secret: belongs to user ") {
			t.Errorf("%v, expected that the secret belongs to another user", err)
		}
	}
	u = anothers(t, name)
	if _, err := openAs(u, name, zap.NewNop()); err == nil || !strings.Contains(err.Error(), name+": belongs to user ") {
		t.Errorf("%v, expected that the file belongs to another user", err)
	}
	l.check = trusted(u)
	l.look()
	if !strings.Contains(l.Problem(), "belongs to user ") {
		t.Errorf("another user's file is taken later: %q", l.Problem())
	}
	if _, err := Read(name); err != nil {
		t.Errorf("a command cannot look at it: %v", err)
	}
}
