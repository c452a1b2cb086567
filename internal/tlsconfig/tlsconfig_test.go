package tlsconfig

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
)

// withCBC are the suites of TLS 1.2 with CBC that Go can still speak, weak those beside them
// without forward secrecy or authentication, all for the key of the test's certificate (RSA).
func withCBC() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA, tls.TLS_RSA_WITH_AES_128_CBC_SHA256,
	}
}

// shake makes a handshake, and returns what it came to.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	at, from := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- tls.Server(at, server).HandshakeContext(t.Context()) }()
	c := tls.Client(from, client)
	err := c.HandshakeContext(t.Context())
	_ = from.Close() // or the server would wait
	if failed := <-ended; err == nil {
		err = failed
	}
	return c.ConnectionState(), err
}

// TestSuites lets clients and servers that have CBC only, or an older TLS, meet ours.
func TestSuites(t *testing.T) {
	t.Parallel()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close()
	server := func(c *tls.Config) *tls.Config {
		c.Certificates = certificate.TLS.Certificates
		return c
	}
	client := func(c *tls.Config) *tls.Config {
		c.InsecureSkipVerify = true // it is about suites
		return c
	}
	old := func(suites ...uint16) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS12, CipherSuites: suites}
	}
	if _, err := shake(t, server(old(withCBC()...)), client(old(withCBC()...))); err != nil {
		t.Fatalf("two that have CBC do not meet, so that the rest shows nothing: %v", err)
	}
	for _, suite := range append(withCBC(), tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384) {
		if got, err := shake(t, server(New()), client(old(suite))); err == nil {
			t.Errorf("our server speaks %s", tls.CipherSuiteName(got.CipherSuite))
		}
		if got, err := shake(t, server(old(suite)), client(New())); err == nil {
			t.Errorf("our client speaks %s", tls.CipherSuiteName(got.CipherSuite))
		}
	}
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		before := &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: version}
		if _, err := shake(t, server(New()), client(before.Clone())); err == nil {
			t.Errorf("our server speaks %s", tls.VersionName(version))
		}
		if _, err := shake(t, server(before.Clone()), client(New())); err == nil {
			t.Errorf("our client speaks %s", tls.VersionName(version))
		}
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		other := &tls.Config{MaxVersion: version}
		if got, err := shake(t, server(New()), client(other.Clone())); err != nil || got.Version != version {
			t.Errorf("our server with a client of %s: %s, %v", tls.VersionName(version), tls.VersionName(got.Version), err)
		}
		if got, err := shake(t, server(other.Clone()), client(New())); err != nil || got.Version != version {
			t.Errorf("our client with a server of %s: %s, %v", tls.VersionName(version), tls.VersionName(got.Version), err)
		}
	}
	if got, err := shake(t, server(New()), client(New())); err != nil || got.Version != tls.VersionTLS13 {
		t.Errorf("ours among each other: %s, %v", tls.VersionName(got.Version), err)
	}
}
