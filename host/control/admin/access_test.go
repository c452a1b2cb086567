package admin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/engine"
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

// TestReportFor: who may not see all jobs sees its own, and no file's name.
func TestReportFor(t *testing.T) {
	t.Parallel()
	r := Report{Status: engine.Status{Jobs: []*engine.JobStatus{{Name: "etl-1"}, {Name: "pay"}}, Refused: []engine.Refusal{{File: "pay.yaml"}}}, Reason: "compiling: pay.wasm",
		Compiling: []Compiling{{Module: "pay.wasm"}}, Warnings: []string{"pay"}, About: About{Plugins: "/srv/pay", Grants: "/srv/pay/grants.yaml", Alerts: "/srv/pay/alerts.yaml", Users: "/srv/pay/users.yaml", GuestLog: "/srv/pay/log"}}
	team := auth.Principal{Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"etl-*"}}}}
	seen, err := json.Marshal(r.For(team))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(seen); strings.Contains(text, "pay") || !strings.Contains(text, "etl-1") {
		t.Errorf("a viewer of etl-* sees %s", text)
	}
	if got := r.For(auth.HostToken(auth.ByHostToken)); !reflect.DeepEqual(got, r) {
		t.Errorf("who may see all jobs sees %+v", got)
	}
	if len(r.Status.Jobs) != 2 {
		t.Error("the report itself was changed")
	}
}

// TestReportFor_history: where the history is, is for who operates all jobs; others see its kind.
func TestReportFor_history(t *testing.T) {
	t.Parallel()
	const problem = "dial tcp 10.1.2.3:5432: connection refused"
	roles := func(role auth.Role, jobs string) auth.Principal {
		return auth.Principal{Bindings: []auth.Binding{{Role: role, Jobs: []string{jobs}}}}
	}
	for _, c := range []struct{ where, kind string }{
		{"postgres://wasmjob@db.internal:5432/history?sslmode=require", "postgres"}, {"mysql://wasmjob@db.internal/history", "mysql"},
		{"sqlite:/var/lib/wasmjob/history.db", "sqlite"}, {"/var/lib/wasmjob/events.jsonl", "file"}, {"memory", "memory"},
	} {
		r := Report{About: About{History: c.where}, History: &History{File: c.where, Problem: problem, Dropped: 3}}
		for _, p := range []auth.Principal{roles(auth.RoleViewer, "*"), roles(auth.RoleOperator, "etl-*"), {}} {
			got := r.For(p)
			if got.About.History != c.kind || got.History.File != c.kind || got.History.Problem != "the host's log says why" || got.History.Dropped != 3 {
				t.Errorf("%s: %v sees %+v, %+v", c.where, p.Bindings, got.About, got.History)
			}
		}
		for _, p := range []auth.Principal{roles(auth.RoleOperator, "*"), auth.HostToken(auth.ByHostToken)} {
			if got := r.For(p); !reflect.DeepEqual(got, r) {
				t.Errorf("%s: %v sees %+v, %+v", c.where, p.Bindings, got.About, got.History)
			}
		}
		if r.History.File != c.where || r.History.Problem != problem {
			t.Error("the report itself was changed")
		}
	}
	if got := (Report{}).For(auth.Principal{}); got.About.History != "" || got.History != nil {
		t.Errorf("without a history: %+v", got)
	}
}

// TestOpen: what is answered to anybody goes by the setting.
func TestOpen(t *testing.T) {
	t.Parallel()
	metrics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for open, want := range map[auth.Open][2]int{"": {200, 200}, auth.OpenAuto: {200, 200}, auth.OpenAll: {200, 200}, auth.OpenHealth: {200, 401}, auth.OpenNone: {401, 401}} {
		s := start(t, Options{Metrics: metrics, Access: Access{Open: open}})
		health, _ := ask(t, s, "GET", "/readyz", nil)
		code, _ := ask(t, s, "GET", "/metrics", nil)
		if health != want[0] || code != want[1] {
			t.Errorf("%q: %d and %d, want %v", open, health, code, want)
		}
		if code, _ := ask(t, s, "GET", "/metrics", map[string]string{"Authorization": "Bearer " + token}); code != 200 {
			t.Errorf("%q: metrics with the token: %d", open, code)
		}
	}
}

// TestTLS: a client on this machine trusts the certificate that the note names, another
// one that of an authority, and neither a server that shows another one.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, file := selfSigned(t, filepath.Join(dir, "cert.pem"))
	_, other := selfSigned(t, filepath.Join(dir, "other.pem"))
	report := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	s := start(t, Options{API: report, Access: Access{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Link: func(user string) string { return "/login/link?code=" + user }}})
	note := Note{Address: s.Address().String(), Token: token, PID: os.Getpid(), Certificate: file}
	notes := filepath.Join(dir, "notes")
	if _, _, err := note.Leave([]string{notes}); err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(dir, "token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		where Where
		want  string // in the error; empty: there is none
	}{
		"by the note":            {Where{Dirs: []string{notes}}, ""},
		"by the note's address":  {Where{Dirs: []string{notes}, Address: s.Address().String()}, ""},
		"by an authority":        {Where{Address: s.Address().String(), TokenFile: tokenFile, CA: file}, ""},
		"by another authority":   {Where{Address: s.Address().String(), TokenFile: tokenFile, CA: other}, "certificate signed by unknown authority"},
		"by this machine's":      {Where{Address: s.Address().String(), TokenFile: tokenFile, CA: SystemCA}, "certificate signed by unknown authority"},
		"by a file that is none": {Where{Address: s.Address().String(), TokenFile: tokenFile, CA: tokenFile}, "no certificate in PEM form"},
		"by no file":             {Where{Address: s.Address().String(), TokenFile: tokenFile, CA: filepath.Join(dir, "none")}, "no such file"},
		"without TLS":            {Where{Address: s.Address().String(), TokenFile: tokenFile}, "--ca system"},
	} {
		client, err := Find(t.Context(), c.where)
		if err == nil {
			_, err = client.Status(t.Context())
		}
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	client, err := Find(t.Context(), Where{Dirs: []string{notes}})
	if err != nil {
		t.Fatal(err)
	}
	if link, err := client.ByUser("ann").LoginLink(t.Context()); err != nil || link != "https://"+s.Address().String()+"/login/link?code=ann" {
		t.Errorf("the link %s, %v", link, err)
	}
	// Another server took the host's place.
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "does not show the certificate") {
		t.Errorf("another certificate: %v", err)
	}
	plain := start(t, Options{})
	if _, err := NewClient(plain.Address(), token).LoginLink(t.Context()); err == nil || !strings.Contains(err.Error(), "no login links") {
		t.Errorf("a host without links: %v", err)
	}
}

// selfSigned makes a certificate for 127.0.0.1 and writes it to a file.
func selfSigned(t *testing.T, file string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
