package mtls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/config/ownership"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key, a.cert, a.pem = a.sign(template, nil)
	return a
}

// sign makes a certificate of the template, by itself if parent is nil.
func (a *authority) sign(template, parent *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue makes a certificate with its key.
func (a *authority) issue(template *x509.Certificate) (cert, key []byte) {
	a.t.Helper()
	k, _, cert := a.sign(template, a.cert)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *authority) server(name string) (cert, key []byte) {
	return a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

func (a *authority) client(subject pkix.Name, until time.Time, usage x509.ExtKeyUsage) *tls.Certificate {
	a.t.Helper()
	cert, key := a.issue(&x509.Certificate{Subject: subject, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{usage}})
	c, err := tls.X509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	return &c
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// files writes a server's certificate, and the authority of clients if there is one.
func files(t *testing.T, dir string, server, clients *authority) Files {
	t.Helper()
	cert, key := server.server("cron.internal")
	f := Files{Cert: write(t, filepath.Join(dir, "cert.pem"), cert), Key: write(t, filepath.Join(dir, "key.pem"), key)}
	if clients != nil {
		f.ClientCA = write(t, filepath.Join(dir, "ca.pem"), clients.pem)
	}
	return f
}

// serve answers with the name of the user whose certificate the client has.
func serve(t *testing.T, server *TLS, usersFile string) string {
	t.Helper()
	live, err := users.Open(usersFile, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	guard := auth.NewGuard(zap.NewNop(), func(*http.Request) string { return "" }, live.Certificates(func(*http.Request) error { return nil }))
	s := &http.Server{
		Handler: guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, auth.From(r.Context()).String()+" "+r.Proto)
		})),
		TLSConfig: server.Config(), ErrorLog: zap.NewStdLog(zap.NewNop()), ReadHeaderTimeout: 5 * time.Second,
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return "https://" + l.Addr().String()
}

// ask asks once, over a connection of its own, with a certificate or without.
func ask(t *testing.T, address string, ca *authority, cert *tls.Certificate) (string, error) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	config := &tls.Config{RootCAs: pool}
	if cert != nil {
		// Whatever authorities the server asks for.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "GET", address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// TestSuites: the server has no suite with CBC, also after its files were read again, which
// is per connection.
func TestSuites(t *testing.T) {
	t.Parallel()
	own := newAuthority(t, "servers")
	server, err := Open(files(t, t.TempDir(), own, own), time.Now, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(serve(t, server, ""), "https://")
	dial := func(suite uint16) error {
		config := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}
		c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := dial(tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256); err != nil {
		t.Errorf("with GCM: %v", err)
	}
	for _, suite := range []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256} {
		if dial(suite) == nil {
			t.Errorf("the server speaks %s", tls.CipherSuiteName(suite))
		}
	}
}

// TestClientCertificates: the subject of a certificate of our authority is a user; what
// others have signed, what has expired and what is for servers does not get a connection.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, clients, other := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "clients")
	server, err := Open(files(t, dir, own, clients), time.Now, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(dir, "users.yaml"), []byte("users: [{name: ann, roles: {viewer: '*'}, certificates: ['CN=ann,OU=sre,O=Example']}]"))
	address := serve(t, server, file)
	ann := pkix.Name{CommonName: "ann", OrganizationalUnit: []string{"sre"}, Organization: []string{"Example"}}
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		cert *tls.Certificate
		want string // in the answer
		ok   bool   // there is one: else the connection breaks off, in one way or another
	}{
		"ours":               {clients.client(ann, soon, x509.ExtKeyUsageClientAuth), "ann HTTP/2.0", true},
		"none":               {nil, "sign in first", true},
		"no user":            {clients.client(pkix.Name{CommonName: "bob"}, soon, x509.ExtKeyUsageClientAuth), `its subject \"CN=bob\" is no user's`, true},
		"of another CA":      {other.client(ann, soon, x509.ExtKeyUsageClientAuth), "", false},
		"expired":            {clients.client(ann, past, x509.ExtKeyUsageClientAuth), "", false},
		"of a server":        {clients.client(ann, soon, x509.ExtKeyUsageServerAuth), "", false},
		"of the servers' CA": {own.client(ann, soon, x509.ExtKeyUsageClientAuth), "", false},
	} {
		body, err := ask(t, address, own, c.cert)
		if c.ok && (err != nil || !strings.Contains(body, c.want)) {
			t.Errorf("%s: %q, %v; want %q", name, body, err, c.want)
		}
		if !c.ok && err == nil {
			t.Errorf("%s: %q, want no answer", name, body)
		}
	}
	if leaf := server.Certificate().Leaf; leaf == nil || leaf.VerifyHostname("cron.internal") != nil {
		t.Errorf("the server's own: %+v", leaf)
	}
	config := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11} // the version is what is tried
	if c, err := tls.Dial("tcp", strings.TrimPrefix(address, "https://"), config); err == nil {
		_ = c.Close()
		t.Error("TLS 1.1 is spoken")
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own := newAuthority(t, "servers")
	good := files(t, dir, own, own)
	_, otherKey := own.server("x")
	old, oldKey := own.issue(&x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	at := func(name string, data []byte) string { return write(t, filepath.Join(dir, name), data) }
	for want, f := range map[string]Files{
		"none.pem cannot be read: it does not exist": {filepath.Join(dir, "none.pem"), good.Key, ""},
		"private key does not match":                 {good.Cert, at("other", otherKey), ""},
		"has expired at":                             {at("old", old), at("oldkey", oldKey), ""},
		"failed to find any PEM data":                {at("text", []byte("hello")), good.Key, ""},
		"has no certificate in PEM form":             {good.Cert, good.Key, at("text2", []byte("hello"))},
		"is a directory":                             {dir, good.Key, ""},
	} {
		if _, err := Open(f, time.Now, zap.NewNop()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestWatch: another certificate is shown without a restart, and files that do not fit
// together leave the one before.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, next := newAuthority(t, "servers"), newAuthority(t, "next")
	f := files(t, dir, own, own)
	core, logs := observer.New(zap.InfoLevel)
	server, err := Open(f, time.Now, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	changes := make(chan struct{}, 10)
	go func() { done <- server.Watch(ctx, func() { changes <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	address := serve(t, server, "")
	await := func(what string, good func() bool) {
		t.Helper()
		late, again := time.After(20*time.Second), time.NewTicker(20*time.Millisecond)
		defer again.Stop()
		for !good() {
			select {
			case <-again.C:
			case <-late:
				t.Fatalf("%s was not noticed: %v", what, logs.All())
			}
		}
	}
	if _, err := ask(t, address, own, nil); err != nil {
		t.Fatal(err)
	}
	write(t, f.Key, []byte("half of a key"))
	await("a bad key", func() bool { return logs.FilterMessageSnippet("keeps its certificate").Len() > 0 })
	if _, err := ask(t, address, own, nil); err != nil {
		t.Errorf("after a bad key: %v", err)
	}
	cert, key := next.server("cron.internal")
	write(t, f.Cert, cert)
	write(t, f.Key, key)
	await("another certificate", func() bool { _, err := ask(t, address, next, nil); return err == nil })
	if _, err := ask(t, address, own, nil); err == nil {
		t.Error("the old certificate is still shown")
	}
	if n := len(changes); n != 1 {
		t.Errorf("%d changes are reported", n)
	}
	write(t, f.ClientCA, next.pem)
	user := own.client(pkix.Name{CommonName: "ann"}, time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth)
	await("another authority", func() bool { _, err := ask(t, address, next, user); return err != nil })
}

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

// TestOwners: a key that another user can change is not taken.
func TestOwners(t *testing.T) {
	t.Parallel()
	own := newAuthority(t, "servers")
	f := files(t, t.TempDir(), own, own)
	u := anothers(t, f.Key)
	if _, err := openAs(u, f, time.Now, zap.NewNop()); err == nil || !strings.Contains(err.Error(), ": belongs to user ") {
		t.Errorf("%v, expected that the key belongs to another user", err)
	}
}
