// Package tlsconfig has the TLS versions and cipher suites that the host accepts, as a server and as a client.
// Connections of guests have their own, in host/sandbox/capability/dial.
package tlsconfig

import "crypto/tls"

// New returns a configuration for a server or a client: TLS 1.3, and TLS 1.2 with suites that
// have forward secrecy and authenticated encryption. Go would offer suites with CBC as well.
// The caller may add to it.
func New() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		CipherSuites: []uint16{ // of TLS 1.2; all of TLS 1.3 have both
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
	}
}
