package peers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTLS: a peer is asked over TLS if it shows the certificate that it has published, and
// not asked at all if it shows another one. Another certificate is published by Renew.
func TestTLS(t *testing.T) {
	t.Parallel()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	asked := make(chan string, 10)
	var b *Peers
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		if err := b.Verify(r); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`"hello"`))
	}))
	defer server.Close()
	right := CertificateSum(server.Certificate().Raw)
	published := make(chan string, 1) // the newest
	published <- right
	a := New("ns", func() tree.ClusterDetail { return tree.ClusterDetail{} }, zap.NewNop())
	b = New("ns", func() tree.ClusterDetail {
		sum := <-published
		published <- sum
		return tree.ClusterDetail{API: server.URL, Certificate: sum}
	}, zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, p := range []*Peers{a, b} {
		c, err := s.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		p.Begun(c, "")
		go func() { ended <- p.Run(ctx) }()
	}
	defer func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	// know waits until a knows what b says of itself.
	know := func(sum string) Peer {
		t.Helper()
		late, again := time.After(20*time.Second), time.NewTicker(time.Millisecond)
		defer again.Stop()
		for {
			if list := a.List(); len(list) == 1 && list[0].Certificate == sum && list[0].ID == b.ID() {
				return list[0]
			}
			select {
			case <-again.C:
			case <-late:
				t.Fatalf("the peer is not known by %q: %+v", sum, a.List())
			}
		}
	}
	get := func(peer Peer) (answer string, err error) {
		transport := a.NewTransport() // each time another connection
		defer transport.CloseIdleConnections()
		err = a.Get(t.Context(), transport, peer, "/v1/peer/x", &answer)
		return answer, err
	}
	if answer, err := get(know(right)); err != nil || answer != "hello" {
		t.Errorf("%q, %v", answer, err)
	}
	<-asked
	for _, sum := range []string{CertificateSum([]byte("another")), ""} {
		<-published
		published <- sum
		b.Renew()
		if answer, err := get(know(sum)); err == nil || !strings.Contains(err.Error(), "does not show the certificate") {
			t.Errorf("published %q: %q, %v", sum, answer, err)
		}
	}
	select {
	case path := <-asked:
		t.Errorf("a server with another certificate is asked for %s", path)
	default:
	}
	<-published
	published <- right
	b.Renew()
	if answer, err := get(know(right)); err != nil || answer != "hello" {
		t.Errorf("%q, %v", answer, err)
	}
	one, ok := a.Derive("x")
	same, too := b.Derive("x")
	other, _ := a.Derive("y")
	if !ok || !too || string(one) != string(same) || string(one) == string(other) || len(one) != 32 {
		t.Errorf("derived: %x, %x, %x", one, same, other)
	}
	if _, ok := New("ns", nil, zap.NewNop()).Derive("x"); ok {
		t.Error("a secret is derived of no key")
	}
}
