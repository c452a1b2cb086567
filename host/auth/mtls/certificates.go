// Package mtls gives the admin address its TLS: a certificate with its key, and
// the authorities whose certificates clients may show. The files are read again when they
// change; ones that do not fit together leave those before in use.
package mtls

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/filewatch"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

// maxFile bounds each file, in bytes.
const maxFile = 1 << 20

// Files are the names of PEM files.
type Files struct {
	// Cert is the certificate with those that lead to its authority, Key its private key.
	Cert, Key string
	// ClientCA are the authorities of clients' certificates; empty: none are asked for.
	ClientCA string
}

func (f Files) names() []string {
	list := []string{f.Cert, f.Key}
	if f.ClientCA != "" {
		list = append(list, f.ClientCA)
	}
	return list
}

// TLS is what the files say now. It is safe for concurrent use.
type TLS struct {
	files Files
	log   *zap.Logger
	now   func() time.Time
	user  ownership.User // who runs the host
	held  atomic.Pointer[held]
}

// held is one reading of the files. The configuration is kept with it, so that sessions
// are resumed among connections that were held to the same authorities, and no others.
type held struct {
	config      *tls.Config
	certificate *tls.Certificate
	text        []byte
}

// Open reads the files. The certificate must be valid by now.
func Open(f Files, now func() time.Time, log *zap.Logger) (*TLS, error) {
	return openAs(ownership.Self(), f, now, log)
}

func openAs(u ownership.User, f Files, now func() time.Time, log *zap.Logger) (*TLS, error) {
	t := &TLS{files: f, log: log, now: now, user: u}
	h, err := t.read()
	if err != nil {
		return nil, err
	}
	t.held.Store(h)
	return t, nil
}

// Config is for a server.
func (t *TLS) Config() *tls.Config {
	config := tlsconfig.New()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.held.Load().config, nil }
	return config
}

// Certificate is the one that is shown now.
func (t *TLS) Certificate() *tls.Certificate { return t.held.Load().certificate }

// Watch reads the files again whenever they change, until ctx ends, and calls changed
// when another certificate is shown. The error says that changes cannot be noticed.
func (t *TLS) Watch(ctx context.Context, changed func()) error {
	problem := ""
	return filewatch.Files(ctx, t.files.names, func() {
		h, err := t.read()
		if err != nil {
			if err.Error() != problem {
				t.log.Error("the admin address keeps its certificate: the files are not taken", zap.Error(err))
			}
			problem = err.Error()
			return
		}
		problem = ""
		if !bytes.Equal(h.text, t.held.Load().text) {
			t.held.Store(h)
			t.log.Info("the admin address has another certificate", zap.String("file", t.files.Cert), zap.Time("expires", h.certificate.Leaf.NotAfter))
			changed()
		}
	})
}

// read reads the files.
func (t *TLS) read() (*held, error) {
	var texts [][]byte
	for _, name := range t.files.names() {
		data, info, err := fields.ReadFile(name, maxFile)
		if err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
		if err := t.user.Check(name, info, ownership.Secret); err != nil {
			return nil, err
		}
		texts = append(texts, data)
	}
	c, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("%s with the key %s: %w", t.files.Cert, t.files.Key, err)
	}
	if c.Leaf == nil {
		return nil, errors.New(t.files.Cert + " has no certificate that can be read")
	}
	now := t.now()
	if now.After(c.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s has expired at %s", t.files.Cert, c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	config := tlsconfig.New()
	config.Certificates, config.NextProtos = []tls.Certificate{c}, []string{"h2", "http/1.1"}
	if t.files.ClientCA != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(texts[2]) {
			return nil, fmt.Errorf("%s has no certificate in PEM form, expected those of the authorities of clients", t.files.ClientCA)
		}
		// People without one may still sign in in another way.
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return &held{config, &c, bytes.Join(texts, nil)}, nil
}
