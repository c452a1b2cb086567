package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth"
)

// rolesOf is a source that takes a header's word for who asks.
type rolesOf map[string][]auth.Binding

func (s rolesOf) Identify(r *http.Request) (auth.Principal, error) {
	name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	bindings, ok := s[name]
	if !ok {
		return auth.Principal{}, auth.ErrNone
	}
	return auth.Principal{Name: name, Method: auth.ByToken, Bindings: bindings}, nil
}

// TestGuarded: the API knows who asks; what is open is for who may see all jobs if it is
// closed, and a login link for who has the host's token.
func TestGuarded(t *testing.T) {
	t.Parallel()
	guard := auth.NewGuard(zap.NewNop(), func(*http.Request) string { return "10.0.0.7" }, rolesOf{
		"viewer": {{Role: auth.RoleViewer, Jobs: []string{"etl-*"}}}, "root": {{Role: auth.RoleAdmin, Jobs: []string{"*"}}},
	})
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := auth.From(r.Context())
		_, _ = fmt.Fprintf(w, "%s %s from %s", r.URL.Path, p, p.From)
	})
	s := start(t, Options{API: api, Access: Access{Guard: guard, Open: auth.OpenNone}})
	for _, c := range []struct {
		method, path, who string
		code              int
		say               string
	}{
		{"GET", "/v1/status", "viewer", 200, "/v1/status token viewer from 10.0.0.7"},
		{"GET", "/v1/status", "", 401, auth.NotSignedIn},
		{"GET", "/v1/status", "nobody", 401, auth.NotSignedIn},
		{"GET", "/healthz", "viewer", 403, "you need the role viewer for *"},
		{"GET", "/healthz", "root", 200, "ok"},
		{"GET", "/healthz", "", 401, auth.NotSignedIn},
		{"POST", LinkPath, "root", 403, "for who has the host's own token; you are token root"},
		{"POST", LinkPath, "", 401, auth.NotSignedIn},
	} {
		header := map[string]string{}
		if c.who != "" {
			header["Authorization"] = "Bearer " + c.who
		}
		if code, body := ask(t, s, c.method, c.path, header); code != c.code || !strings.Contains(body, c.say) {
			t.Errorf("%s %s by %q: %d %s", c.method, c.path, c.who, code, body)
		}
	}
	resp, err := http.Get("http://" + s.Address().Name + "/nothing")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("the headers: %v", resp.Header)
	}
}

// TestOpen: what is answered to anybody goes by the setting.
func TestOpen(t *testing.T) {
	t.Parallel()
	metrics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for open, want := range map[auth.Open][2]int{"": {200, 200}, auth.OpenAuto: {200, 200}, auth.OpenAll: {200, 200}, auth.OpenHealth: {200, 401}, auth.OpenNone: {401, 401}} {
		s := start(t, Options{Metrics: metrics, Documents: metrics, Access: Access{Open: open}})
		health, _ := ask(t, s, "GET", "/readyz", nil)
		code, _ := ask(t, s, "GET", "/metrics", nil)
		for _, path := range []string{"/docs", "/docs/kill", "/schemas/job.json"} {
			if documents, _ := ask(t, s, "GET", path, nil); documents != want[0] {
				t.Errorf("%q: %s: %d, want %d", open, path, documents, want[0])
			}
		}
		if health != want[0] || code != want[1] {
			t.Errorf("%q: %d and %d, want %v", open, health, code, want)
		}
		if code, _ := ask(t, s, "GET", "/metrics", map[string]string{"Authorization": "Bearer " + token}); code != 200 {
			t.Errorf("%q: metrics with the token: %d", open, code)
		}
	}
}
