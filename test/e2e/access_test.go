package e2e_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"
	"time"
)

// certificate writes one for this machine, and its key.
func (p *place) certificate(cert, key string) {
	p.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(p.path(cert), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(p.path(key), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), 0o600)); err != nil {
		p.t.Fatal(err)
	}
}

// moment lies between two questions to a host.
func moment(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(50 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// TestClusterOverTLS: hosts with certificates of their own show the whole cluster, each of
// them, also after one has another certificate; and a browser that has signed in at one of
// them is known to the others.
func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("clock", "cron: 0 0 0 1 1 ?", "shardingTotalCount: 2")
	var hosts []*member
	for _, name := range []string{"a", "b"} {
		c.certificate(name+".pem", name+".key")
		hosts = append(hosts, c.add("--admin-tls-cert", c.path(name+".pem"), "--admin-tls-key", c.path(name+".key")))
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{
		Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}, // who is asked is not what is tried
	}
	get := func(address string) (int, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body
	}
	links := make([]string, len(hosts))
	for i, m := range hosts {
		links[i] = strings.TrimSpace(m.place.must("access", "login"))
	}
	base := func(link string) string { at, _, _ := strings.Cut(link, "/login"); return at }
	if code, body := get(base(links[1]) + "/v1/hosts"); code != http.StatusUnauthorized {
		t.Errorf("before it signs in: %d %s", code, body)
	}
	for end := time.Now().Add(patience); ; {
		code, body := get(links[0])
		if code == http.StatusSeeOther {
			break
		}
		if code != http.StatusServiceUnavailable || time.Now().After(end) { // the host has no session yet
			t.Fatalf("the login link: %d %s", code, body)
		}
		moment(t)
	}
	// all waits until a host shows both, and none of them is silent.
	all := func(base string) {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			code, body := get(base + "/v1/hosts")
			var list []struct{ API, Silent string }
			if code != http.StatusOK || json.Unmarshal(body, &list) != nil {
				t.Fatalf("%s: %d %s", base, code, body)
			}
			silent := 0
			for _, h := range list {
				if h.Silent != "" || !strings.HasPrefix(h.API, "https://") {
					silent++
				}
			}
			if len(list) == len(hosts) && silent == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s shows %s", base, body)
			}
			moment(t)
		}
	}
	for _, link := range links {
		all(base(link))
	}
	before, err := os.ReadFile(c.path("b.pem"))
	if err != nil {
		t.Fatal(err)
	}
	c.certificate("b.pem", "b.key")
	shown := func() []byte {
		t.Helper()
		conn, err := tls.Dial("tcp", strings.TrimPrefix(base(links[1]), "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: conn.ConnectionState().PeerCertificates[0].Raw})
	}
	for end := time.Now().Add(patience); bytes.Equal(shown(), before); {
		if time.Now().After(end) {
			t.Fatal("the other certificate is not shown")
		}
		moment(t)
	}
	for _, link := range links {
		all(base(link))
	}
	hosts[1].place.must("status") // by the note, which names the certificate's file
}
