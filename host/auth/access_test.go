package auth

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/event/operation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bind(t *testing.T, texts ...string) (list []Binding) {
	t.Helper()
	for _, s := range texts {
		b, err := ParseBinding(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}

// TestRoles holds the table to what docs/access.md says.
func TestRoles(t *testing.T) {
	t.Parallel()
	all := []operation.Action{operation.View, operation.Operate, operation.Author, operation.Admin}
	for i, name := range Roles() {
		for j, a := range all {
			if got, want := Role(name).May(a), j <= i; got != want {
				t.Errorf("%s may %s: %t, want %t", name, a, got, want)
			}
		}
	}
	if Role("root").May(operation.View) || Role("").May(operation.View) {
		t.Error("a role that does not exist may something")
	}
}

func TestPrincipal(t *testing.T) {
	t.Parallel()
	p := Principal{Name: "ann", Method: ByPassword, Bindings: bind(t, "operator=etl-*,report", "viewer=*")}
	for _, c := range []struct {
		action operation.Action
		job    string
		want   bool
	}{
		{operation.View, "anything", true}, {operation.View, "", true},
		{operation.Operate, "etl-1", true}, {operation.Operate, "report", true}, {operation.Operate, "etl", false}, {operation.Operate, "other", false},
		{operation.Operate, "", false}, {operation.Operate, "*", false}, {operation.Operate, "etl-*", true}, {operation.Operate, "x/etl-1", false},
		{operation.Author, "etl-1", false}, {operation.Admin, "etl-1", false},
	} {
		if got := p.May(c.action, c.job); got != c.want {
			t.Errorf("%s %q: %t, want %t", c.action, c.job, got, c.want)
		}
	}
	for a, want := range map[operation.Action][]string{operation.View: {"*"}, operation.Operate: {"etl-*", "report"}, operation.Author: {NoJob}} {
		if got := p.Patterns(a); !reflect.DeepEqual(got, want) {
			t.Errorf("patterns of %s: %q, want %q", a, got, want)
		}
	}
	var none Principal
	if none.May(operation.View, "x") || none.All(operation.View) || !reflect.DeepEqual(none.Patterns(operation.View), []string{NoJob}) {
		t.Error("the zero principal may something")
	}
	if h := HostToken(ByHostToken); !h.All(operation.Admin) || h.String() != "host token" {
		t.Errorf("the host's token: %+v", h)
	}
	for want, p := range map[string]Principal{"ann": {Name: "ann", Method: ByCertificate}, "token ann": {Name: "ann", Method: ByToken}, "oidc ann": {Name: "ann", Method: ByOIDC}, "unknown": {}} {
		if p.String() != want {
			t.Errorf("%+v is %q, want %q", p, p.String(), want)
		}
	}
}

func TestParseBinding(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"root=*": "role", "operater=*": "operator", "operator=": "pattern", "operator=a/b": "pattern", "operator=[": "pattern", "viewer=a,,b": "pattern", "": "role",
	} {
		if _, err := ParseBinding(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	b, err := ParseBinding("admin")
	if err != nil || b.String() != "admin=*" {
		t.Errorf("admin: %v, %v", b, err)
	}
}

// fixed is a source with one answer.
type fixed struct {
	p   Principal
	err error
}

func (f fixed) Identify(*http.Request) (Principal, error) { return f.p, f.err }

func problemOf(t *testing.T, w *httptest.ResponseRecorder) Problem {
	t.Helper()
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%s: %v: %s", w.Header().Get("Content-Type"), err, w.Body)
	}
	if p.Status != w.Code || p.Title == "" || p.Type == "" || p.Detail == "" {
		t.Fatalf("%d: %+v", w.Code, p)
	}
	return p
}

func TestGuard(t *testing.T) {
	t.Parallel()
	ann := Principal{Name: "ann", Method: ByPassword, Bindings: bind(t, "viewer=*")}
	core, logs := observer.New(zap.InfoLevel)
	from := func(*http.Request) string { return "10.0.0.7" }
	none := fixed{err: ErrNone}
	for name, c := range map[string]struct {
		sources []Source
		code    int
		detail  string
	}{
		"no source":                          {nil, 401, "sign in first"},
		"the second knows":                   {[]Source{none, fixed{p: ann}, fixed{err: errors.New("never asked")}}, 200, ""},
		"none knows":                         {[]Source{none, none}, 401, "/login"},
		"the first is sure that it is wrong": {[]Source{fixed{err: Unauthenticated("wrong")}, fixed{p: ann}}, 401, "wrong"},
		"ours":                               {[]Source{fixed{err: errors.New("file 42 is broken")}}, 503, "log says why"},
	} {
		g := NewGuard(zap.New(core), from, c.sources...)
		var seen Principal
		h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = From(r.Context()) }))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", http.NoBody))
		if w.Code != c.code {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
			continue
		}
		if c.code == 200 {
			if seen.Name != "ann" || seen.From != "10.0.0.7" {
				t.Errorf("%s: %+v", name, seen)
			}
			continue
		}
		if p := problemOf(t, w); !strings.Contains(p.Detail, c.detail) || strings.Contains(p.Detail, "42") || seen.Name != "" {
			t.Errorf("%s: %+v, seen %+v", name, p, seen)
		}
		if c.code == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
	}
	if logs.FilterMessageSnippet("cannot be found out").Len() != 1 {
		t.Errorf("the log: %v", logs.All())
	}
}

// TestGuardAtOnce: one sender has a share of the requests that are answered at once, and each gives
// its place back.
func TestGuardAtOnce(t *testing.T) {
	t.Parallel()
	who := Principal{Name: "ann", Method: ByPassword, Bindings: bind(t, "viewer=*")}
	g := NewGuard(zap.NewNop(), func(*http.Request) string { return "" }, fixed{p: who})
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", http.NoBody))
		return w
	}
	most := requests().Each
	for range most + 1 {
		if w := ask(); w.Code != 200 {
			t.Fatalf("one after the other: %d %s", w.Code, w.Body)
		}
	}
	for range most {
		if _, err := g.requests.Take(With(t.Context(), who)); err != nil {
			t.Fatal(err)
		}
	}
	w := ask()
	if p := problemOf(t, w); w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(p.Detail, "400 requests of ann are open") {
		t.Errorf("%d %v %+v", w.Code, w.Header(), p)
	}
}

// TestGuardStrangers: no more requests of unknown senders are answered at once than may be, the connections of others end, and those
// whose senders are known are answered.
func TestGuardStrangers(t *testing.T) {
	t.Parallel()
	known := Principal{Name: "ann", Method: ByPassword, Bindings: bind(t, "viewer=*")}
	from := func(*http.Request) string { return "" }
	begun, ends := make(chan struct{}), make(chan struct{})
	g := NewGuard(zap.NewNop(), from)
	pages := g.Pages(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(http.ResponseWriter, *http.Request, *Problem) {
		begun <- struct{}{}
		<-ends
	})
	ask := func(h http.Handler) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", http.NoBody))
		return w
	}
	var asking sync.WaitGroup
	for range strangersAtOnce {
		asking.Go(func() { ask(pages) })
		<-begun
	}
	if w := ask(pages); w.Code != 503 || w.Header().Get("Connection") != "close" || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more is answered with %d %v", w.Code, w.Header())
	}
	g.sources = []Source{fixed{p: known}}
	if w := ask(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) }))); w.Code != 202 {
		t.Errorf("a known sender is answered with %d", w.Code)
	}
	close(ends)
	asking.Wait()
}

// TestRequire: what is refused names role, job and what the user has, and is the same
// whether a job exists or not, which is not asked.
func TestRequire(t *testing.T) {
	t.Parallel()
	ctx := With(t.Context(), Principal{Name: "ann", Method: ByPassword, Bindings: bind(t, "viewer=etl-*")})
	var p *Problem
	for _, c := range []struct {
		action operation.Action
		job    string
		want   string // empty: allowed
	}{
		{operation.View, "etl-1", ""},
		{operation.View, "secret", `to view job "secret" you need the role viewer for it; ann has viewer of etl-*`},
		{operation.Operate, "etl-1", `to operate job "etl-1" you need the role operator for it; ann has viewer of etl-*`},
		{operation.Author, "etl-1", `the role author`},
		{operation.Admin, "", `to administer all jobs, or what is no job's, you need the role admin for *; ann has`},
	} {
		err := Require(ctx, c.action, c.job)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s %s: %v", c.action, c.job, err)
			}
			continue
		}
		if !errors.As(err, &p) || p.Status != 403 || p.Type != RoleMissing || !strings.Contains(p.Detail, c.want) {
			t.Errorf("%s %s: %v, want %s", c.action, c.job, err, c.want)
		}
	}
	if err := Require(t.Context(), operation.View, "etl-1"); !errors.As(err, &p) || p.Status != 401 {
		t.Errorf("without a principal: %v", err)
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	ctx := With(t.Context(), Principal{Name: "ci", Method: ByToken, From: "10.0.0.7"})
	c := Change(ctx, "disable", "cities")
	if c.Who != "token ci" || c.From != "10.0.0.7" || c.What != "disable" || c.Job != "cities" || c.Time.IsZero() {
		t.Errorf("%+v", c)
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	s := NewSecret("swordfish")
	if !s.Is("swordfish") || s.Is("swordfisH") || s.Is("") || s.Is("swordfish ") {
		t.Error("a secret is compared wrongly")
	}
	if (Secret{}).Is("") || NewSecret("").Is("") {
		t.Error("no secret equals nothing")
	}
}

// TestConstantTime looks through the sources of these rooms: what is named like a secret
// is compared by Secret, hmac.Equal or subtle alone.
func TestConstantTime(t *testing.T) {
	t.Parallel()
	secret := regexp.MustCompile(`(?i)^(sum|secret|state|nonce|csrf|code|token|given|password|mac|verifier)$`)
	files := 0
	err := filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		files++
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, n := range careless(f, secret) {
			t.Errorf("%s: a secret is compared in a time that depends on it", set.Position(n.Pos()))
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Fatalf("%d files: %v", files, err)
	}
	bad := "package p\nfunc f(token string, sum []byte) bool { return token == \"x\" || bytes.Equal(sum, nil) || token != \"\" || sum == nil }"
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", bad, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(careless(f, secret)); n != 2 {
		t.Errorf("of two careless comparisons %d are found", n)
	}
}

// careless are comparisons of secrets by == or bytes.Equal. Whether there is one at all is
// no secret.
func careless(f *ast.File, secret *regexp.Regexp) (found []ast.Node) {
	named := func(e ast.Expr) bool {
		switch x := e.(type) {
		case *ast.Ident:
			return secret.MatchString(x.Name)
		case *ast.SelectorExpr:
			return secret.MatchString(x.Sel.Name)
		}
		return false
	}
	empty := func(e ast.Expr) bool {
		switch x := e.(type) {
		case *ast.BasicLit:
			return x.Value == `""`
		case *ast.Ident:
			return x.Name == "nil"
		}
		return false
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.BinaryExpr:
			if (x.Op == token.EQL || x.Op == token.NEQ) && (named(x.X) || named(x.Y)) && !empty(x.X) && !empty(x.Y) {
				found = append(found, n)
			}
		case *ast.CallExpr:
			fun, ok := x.Fun.(*ast.SelectorExpr)
			if ok && fun.Sel.Name == "Equal" && len(x.Args) == 2 && (named(x.Args[0]) || named(x.Args[1])) {
				if pkg, ok := fun.X.(*ast.Ident); ok && pkg.Name != "hmac" {
					found = append(found, n)
				}
			}
		}
		return true
	})
	return found
}

// TestOutdated: an answer that lasts learns that its sender was removed, or has other roles.
func TestOutdated(t *testing.T) {
	t.Parallel()
	if Outdated(t.Context()) {
		t.Error("a context without a guard is outdated")
	}
	source := &fixed{p: Principal{Name: "ann", Method: ByPassword, Bindings: bind(t, "viewer=*")}}
	g := NewGuard(zap.NewNop(), func(*http.Request) string { return "" }, source)
	asked := 0
	g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked++
		if Outdated(r.Context()) {
			t.Error("nothing has changed")
		}
		source.p.Bindings = bind(t, "viewer=etl-*")
		if !Outdated(r.Context()) {
			t.Error("another role is not noticed")
		}
		source.p.Bindings = bind(t, "viewer=*")
		source.err = Unauthenticated("signed out")
		if !Outdated(r.Context()) {
			t.Error("the sign-out is not noticed")
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", http.NoBody))
	if asked != 1 {
		t.Error("the request was not let through")
	}
}
