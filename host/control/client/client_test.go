package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/host/control/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef0123456789"

// start serves until the test ends.
func start(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	if o.Token == "" {
		o.Token = token
	}
	if o.Address.Name == "" {
		o.Address = server.Address{Network: "tcp", Name: "127.0.0.1:0"}
	}
	if o.API == nil {
		o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path) })
	}
	o.Ready = func() (bool, string) { return true, "" }
	s, err := server.Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestTLS: a client on this machine trusts the certificate that the note names, another
// one that of an authority, and neither a server that shows another one.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, file := selfSigned(t, filepath.Join(dir, "cert.pem"))
	_, other := selfSigned(t, filepath.Join(dir, "other.pem"))
	report := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	s := start(t, server.Options{API: report, Access: server.Access{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Link: func(user string) string { return "/login/link?code=" + user }}})
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
	plain := start(t, server.Options{})
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
