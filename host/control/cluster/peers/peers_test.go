package peers

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/test/registries"
)

// member is a host that has peers.
type member struct {
	*Peers
	t      *testing.T
	center registry.Center
	logs   *observer.ObservedLogs
}

// join starts a host in a session, until the test ends.
func join(t *testing.T, name string, c registry.Center) *member {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	m := &member{t: t, center: c, logs: logs,
		Peers: New("ns", func() tree.ClusterDetail {
			return tree.ClusterDetail{ServerIP: name, API: "http://" + name, Version: "v"}
		}, zap.New(core))}
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		run.Wait()
		if err := m.center.Close(); err != nil {
			t.Error(err)
		}
	})
	m.Begun(c, name+"1")
	return m
}

// sees are the other hosts that a host knows, by name.
func (m *member) sees() string {
	var names []string
	for _, p := range m.List() {
		names = append(names, p.ServerIP)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// until waits for what no event says: hosts learn of each other from the registry.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatal(what)
		}
	}
}

// trusts reports why a host does not take what another one asks; nil if it does.
func (m *member) trusts(other *member) error {
	r := httptest.NewRequest(http.MethodGet, "/v1/peer/x?a=b", nil)
	if err := other.Sign(r, m.ID()); err != nil {
		return err
	}
	return m.Verify(r)
}

// agree waits until all hosts know all others, and trust them.
func agree(t *testing.T, members ...*member) {
	t.Helper()
	until(t, "hosts do not find each other", func() bool {
		for _, m := range members {
			var others []string
			for _, o := range members {
				if o != m {
					others = append(others, o.self().ServerIP)
				}
			}
			slices.Sort(others)
			if m.sees() != strings.Join(others, " ") {
				return false
			}
			for _, p := range m.List() {
				i := slices.IndexFunc(members, func(o *member) bool { return o.self().ServerIP == p.ServerIP })
				if p.ID != members[i].ID() || members[i].trusts(m) != nil {
					return false
				}
			}
		}
		return true
	})
}

// TestHostsFindEachOther: all hosts that come at once agree on one key, and one that has
// gone is not known any more.
func TestHostsFindEachOther(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		var members []*member
		for n := range 5 {
			members = append(members, join(t, fmt.Sprint("h", n), dial()))
		}
		agree(t, members...)
		if p := members[0].List()[0]; p.API != "http://"+p.ServerIP || p.Version != "v" {
			t.Errorf("%+v", p)
		}
		if err := members[4].center.Close(); err != nil {
			t.Fatal(err)
		}
		agree(t, members[:4]...)
		secret, ok := members[0].Derive("test")
		other, _ := members[1].Derive("test")
		third, _ := members[1].Derive("another")
		if !ok || !bytes.Equal(secret, other) || bytes.Equal(secret, third) {
			t.Error("hosts derive different secrets, or one for all purposes")
		}
		for _, m := range members {
			if n := m.logs.Len(); n > 0 {
				t.Errorf("logged %v", m.logs.All())
			}
		}
	})
}

// TestExternalEdits: what somebody deletes or overwrites is there again, and hosts agree
// again; a signature with the key before is not taken then.
func TestExternalEdits(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		a, b := join(t, "a", dial()), join(t, "b", dial())
		agree(t, a, b)
		editor := dial()
		defer func() { _ = editor.Close() }() // it has nothing
		do := func(ops ...registry.Op) {
			t.Helper()
			if _, err := editor.Commit(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		all := tree.ClusterHosts("ns")
		// A host's node is deleted.
		before := b.ID()
		do(registry.Delete(tree.ClusterHost("ns", before), registry.AnyVersion))
		until(t, "it is not there again", func() bool { return b.ID() != before })
		agree(t, a, b)
		if n := b.logs.FilterMessageSnippet("once more").Len(); n != 1 {
			t.Errorf("logged %v", b.logs.All())
		}
		for name, data := range map[string]string{"another key": strings.Repeat("ab", keyBytes), "half a key": "abcd", "no key": "secret", "nothing": ""} {
			old := httptest.NewRequest(http.MethodGet, "/v1/peer/x", nil)
			id := b.ID()
			if err := a.Sign(old, id); err != nil {
				t.Fatal(err)
			}
			do(registry.Set(all, []byte(data), registry.AnyVersion))
			until(t, name+": it goes by the old id", func() bool { return b.ID() != id })
			agree(t, a, b)
			if err := b.Verify(old); err == nil {
				t.Errorf("%s: a signature with the old one is taken", name)
			}
			b.mu.Lock()
			key := hex.EncodeToString(b.key)
			b.mu.Unlock()
			if (key == data) != (name == "another key") {
				t.Errorf("%s: the key is %s", name, key)
			}
		}
		// All of it is deleted.
		nodes, err := editor.Read(t.Context(), registry.Children(all))
		if err != nil {
			t.Fatal(err)
		}
		var ops []registry.Op
		for _, name := range nodes[0].Names {
			ops = append(ops, registry.Delete(all+"/"+name, registry.AnyVersion))
		}
		do(append(ops, registry.Delete(all, registry.AnyVersion))...)
		agree(t, a, b)
	})
}

// TestNextSession: a host whose session has ended has another id in the next one; what was
// signed for the one before is not taken any more.
func TestNextSession(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		a, b := join(t, "a", dial()), join(t, "b", dial())
		agree(t, a, b)
		old := httptest.NewRequest(http.MethodGet, "/v1/peer/x", nil)
		if err := a.Sign(old, b.ID()); err != nil {
			t.Fatal(err)
		}
		if err := b.Verify(old); err != nil {
			t.Fatal(err)
		}
		before := b.ID()
		if err := b.center.Close(); err != nil {
			t.Fatal(err)
		}
		until(t, "it is known without a session", func() bool { return a.sees() == "" })
		b.center = dial()
		b.Begun(b.center, "b2")
		until(t, "it has its old id", func() bool { return b.ID() != before })
		agree(t, a, b)
		if err := b.Verify(old); err == nil || !strings.Contains(err.Error(), "is for host "+before) {
			t.Errorf("what was signed for the session before: %v", err)
		}
		if err := b.center.Close(); err != nil {
			t.Fatal(err)
		}
		// Of several sessions the newest counts.
		gone := dial()
		b.center = dial()
		b.Begun(gone, "b3")
		b.Begun(b.center, "b4")
		if err := gone.Close(); err != nil {
			t.Fatal(err)
		}
		agree(t, a, b)
		until(t, "it knows the sessions", func() bool {
			all := a.List()
			return len(all) == 1 && slices.Equal(all[0].Sessions, []string{"b1", "b2", "b3", "b4"})
		})
	})
}

// TestSelf_sessions: a host says which instance ids it had, the newest 100 of them, each once.
func TestSelf_sessions(t *testing.T) {
	t.Parallel()
	p := New("ns", func() tree.ClusterDetail { return tree.ClusterDetail{} }, zap.NewNop())
	for n := range 102 {
		p.Begun(nil, strconv.Itoa(n))
		p.Begun(nil, strconv.Itoa(n)) // it was in doubt, and is not any more
	}
	if got := p.Self().Sessions; len(got) != 100 || got[0] != "2" || got[99] != "101" {
		t.Errorf("%q", got)
	}
}

// TestRegistryThatFails: what the registry does not answer, or refuses, is tried again.
func TestRegistryThatFails(t *testing.T) {
	t.Parallel()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dial := func() registry.Center {
		c, err := s.Connect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	a := join(t, "a", dial())
	for _, fault := range []registrytest.Fault{registrytest.Refused, registrytest.LostAnswer, registrytest.LostRequest} {
		for call := 1; call <= 6; call++ {
			name := fmt.Sprint("b", fault, call)
			b := join(t, name, registrytest.Faulty(dial(), func(n int, _ string) registrytest.Fault {
				if n == call {
					return fault
				}
				return registrytest.NoFault
			}))
			agree(t, a, b)
			if err := b.center.Close(); err != nil {
				t.Fatal(err)
			}
			until(t, "it is known yet", func() bool { return a.sees() == "" })
		}
	}
}

// TestSignatures: what is not signed for this host, as it is, is refused.
func TestSignatures(t *testing.T) {
	t.Parallel()
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		a, b, c := join(t, "a", dial()), join(t, "b", dial()), join(t, "c", dial())
		agree(t, a, b, c)
		signed := func(method, uri string) *http.Request {
			t.Helper()
			r := httptest.NewRequest(method, uri, nil)
			if err := a.Sign(r, b.ID()); err != nil {
				t.Fatal(err)
			}
			return r
		}
		refused := func(what string, r *http.Request, want string) {
			t.Helper()
			if err := b.Verify(r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
		const not = "not that of a host of this namespace"
		if err := b.Verify(signed("GET", "/v1/peer/runs?job=a%20b&text=%2F")); err != nil {
			t.Error(err)
		}
		for what, change := range map[string]func(r *http.Request){
			"another path":   func(r *http.Request) { r.RequestURI = "/v1/peer/events?job=x" },
			"another query":  func(r *http.Request) { r.RequestURI = "/v1/peer/runs?job=y" },
			"a path escaped": func(r *http.Request) { r.RequestURI = "/v1/peer/%72uns?job=x" },
			"another method": func(r *http.Request) { r.Method = "POST" },
			"another nonce": func(r *http.Request) {
				parts := strings.Split(r.Header.Get("Authorization"), " ")
				parts[2] = "x"
				r.Header.Set("Authorization", strings.Join(parts, " "))
			},
			"a nonce more": func(r *http.Request) { r.Header.Set("Authorization", r.Header.Get("Authorization")+" x") },
			"no signature": func(r *http.Request) { r.Header.Set("Authorization", Scheme+b.ID()+" n ") },
			"an empty one": func(r *http.Request) { r.Header.Set("Authorization", Scheme) },
			"no hex":       func(r *http.Request) { r.Header.Set("Authorization", Scheme+b.ID()+" n zz") },
			"one of another namespace": func(r *http.Request) {
				r.Header.Set("Authorization", Scheme+b.ID()+" n "+hex.EncodeToString(sum(make([]byte, keyBytes), r.Method, r.RequestURI, b.ID(), "n")))
			},
		} {
			r := signed("GET", "/v1/peer/runs?job=x")
			change(r)
			refused(what, r, not)
		}
		bearer := signed("GET", "/v1/peer/runs")
		bearer.Header.Set("Authorization", "Bearer 0123456789abcdef")
		refused("a token", bearer, "found no Authorization: Wasmjob-Host")
		// What was for another host.
		r := signed("GET", "/v1/peer/runs")
		if err := c.Verify(r); err == nil || !strings.Contains(err.Error(), "the request is for host "+b.ID()+", this is "+c.ID()) {
			t.Errorf("replayed to another host: %v", err)
		}
		// A change is taken once, a question as often as it is sent.
		post := signed("POST", "/v1/peer/start?job=x")
		if err := b.Verify(post); err != nil {
			t.Error(err)
		}
		refused("a change once more", post, "was sent before")
		for range 2 {
			if err := b.Verify(r); err != nil {
				t.Error(err)
			}
		}
		b.mu.Lock()
		for n := range maxUsed {
			b.used[fmt.Sprint(n)] = true
		}
		b.mu.Unlock()
		id := b.ID()
		refused("a change too many", signed("POST", "/v1/peer/start?job=x"), "ask it again")
		until(t, "it takes no more changes", func() bool { return b.ID() != id })
		agree(t, a, b, c)
		if err := b.Verify(signed("POST", "/v1/peer/start?job=x")); err != nil {
			t.Error(err)
		}
	})
	// Before the first session nothing is signed, and nothing taken.
	p := New("ns", func() tree.ClusterDetail { return tree.ClusterDetail{} }, zap.NewNop())
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if err := p.Sign(r, "x"); !errors.Is(err, errNoKey) {
		t.Errorf("Sign: %v", err)
	}
	r.Header.Set("Authorization", Scheme+"x n 00")
	if err := p.Verify(r); !errors.Is(err, errNoKey) {
		t.Errorf("Verify: %v", err)
	}
	if _, ok := p.Derive("test"); ok {
		t.Error("a secret of no key")
	}
}

// FuzzVerify: nobody gets in without the key.
func FuzzVerify(f *testing.F) {
	p := New("ns", func() tree.ClusterDetail { return tree.ClusterDetail{} }, zap.NewNop())
	p.id, p.key = "b", bytes.Repeat([]byte{7}, keyBytes)
	f.Add("GET", "/v1/peer/x", "Wasmjob-Host b n 00")
	f.Add("POST", "/v1/peer/x", "Wasmjob-Host b  ")
	f.Fuzz(func(t *testing.T, method, uri, header string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.RequestURI = method, uri
		r.Header.Set("Authorization", header)
		if p.Verify(r) == nil {
			t.Errorf("%q %q %q is taken", method, uri, header)
		}
	})
}

// TestAnswers of peers that are not as they should be.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	a := join(t, "a", c)
	until(t, "no id", func() bool { return a.ID() != "" })
	ended := make(chan struct{})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = io.WriteString(w, `{"a":1}`)
		case "/half":
			_, _ = io.WriteString(w, `{"a":`)
		case "/proxy":
			http.Error(w, "<html>Bad Gateway", http.StatusBadGateway)
		case "/problem":
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"detail":"it is not so"}`)
		case "/new":
			http.NotFound(w, r)
		case "/filter":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"detail":"outcome: found \"UNKNOWN\""}`)
		case "/parts":
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"detail":"outcome: found \"UNKNOWN\""}`)
		case "/redirect":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
			close(ended)
		case "/lines":
			_, _ = io.WriteString(w, "one\n\ntwo\n")
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("x", maxLine+1))
		}
	}))
	defer other.Close()
	transport := a.NewTransport()
	defer transport.CloseIdleConnections()
	peer := Peer{"b", tree.ClusterDetail{API: other.URL}}
	ask := func(path string) (map[string]int, error) {
		var into map[string]int
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return into, a.Get(ctx, transport, peer, path, &into)
	}
	if _, err := ask("/good"); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{
		"/half": "its answer is not a host's", "/proxy": "502 Bad Gateway: it is not a host, or a proxy is before it", "/problem": "409 Conflict: it is not so",
		"/new": "404 Not Found: it is of an earlier version", "/filter": `is of another version, and does not know what it is asked for: outcome: found "UNKNOWN"`, "/parts": "is of another version",
		"/redirect": "302 Found", "/slow": "it has not answered in time", "/\x00": "its address",
	} {
		if _, err := ask(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	var lines []string
	if err := a.Stream(t.Context(), transport, peer, "/lines", func(l []byte) { lines = append(lines, string(l)) }); err != nil || strings.Join(lines, "|") != "one||two" {
		t.Errorf("%q, %v", lines, err)
	}
	if err := a.Stream(t.Context(), transport, peer, "/long", func([]byte) {}); err == nil {
		t.Error("a line without an end")
	}
	if err := a.Post(t.Context(), transport, peer, "/problem"); err == nil || !strings.Contains(err.Error(), "it is not so") {
		t.Errorf("Post: %v", err)
	}
	peer.API = ""
	if _, err := ask("/good"); err == nil || !strings.Contains(err.Error(), "serves no API to other hosts") {
		t.Errorf("without an address: %v", err)
	}
	peer.API = "http://127.0.0.1:1"
	if _, err := ask("/good"); err == nil || !strings.Contains(err.Error(), "nothing answers there") {
		t.Errorf("a closed port: %v", err)
	}
}
