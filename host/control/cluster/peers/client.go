package peers

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

// Bounds of what a peer answers, in bytes: all of it, one line of a stream, a refusal.
const (
	maxAnswer  = 256 << 20
	maxLine    = 1 << 20
	maxRefusal = 64 << 10
)

// NewTransport returns the transport for requests to peers; it keeps connections. Over TLS the peer must show
// the certificate whose sum it has published.
func (p *Peers) NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: time.Second}
	return &http.Transport{
		DialContext: dialer.DialContext,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			config := tlsconfig.New()
			config.InsecureSkipVerify = true // in place of it:
			config.VerifyConnection = func(state tls.ConnectionState) error { return p.published(address, state) }
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
		},
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     time.Minute,
	}
}

// published reports whether a certificate is that of the peer with the address.
func (p *Peers) published(address string, state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("it shows no certificate")
	}
	shown := CertificateSum(state.PeerCertificates[0].Raw)
	for _, peer := range p.List() {
		at, err := url.Parse(peer.API)
		if err == nil && at.Host == address && peer.Certificate == shown {
			return nil
		}
	}
	return errors.New("it does not show the certificate that it has published in the registry")
}

// CertificateSum is how a host publishes the certificate that its API shows, in DER.
func CertificateSum(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Get asks a peer for a path, such as /v1/peer/runs?job=x, and reads the JSON of its
// answer into a value.
func (p *Peers) Get(ctx context.Context, transport http.RoundTripper, peer Peer, path string, into any) error {
	resp, err := p.ask(ctx, transport, http.MethodGet, peer, path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", peer.API, plain(err))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: its answer is not a host's: %w", peer.API, err)
	}
	return nil
}

// Post has a peer change something.
func (p *Peers) Post(ctx context.Context, transport http.RoundTripper, peer Peer, path string) error {
	resp, err := p.ask(ctx, transport, http.MethodPost, peer, path)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Stream asks a peer for a path, and gives each line of the answer to a function, until
// the answer or ctx ends.
func (p *Peers) Stream(ctx context.Context, transport http.RoundTripper, peer Peer, path string, line func([]byte)) error {
	resp, err := p.ask(ctx, transport, http.MethodGet, peer, path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // no more is read
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", peer.API, plain(err))
	}
	return nil
}

// ask returns a good answer, whose body the caller closes.
func (p *Peers) ask(ctx context.Context, transport http.RoundTripper, method string, peer Peer, path string) (*http.Response, error) {
	if peer.API == "" {
		return nil, errors.New("it serves no API to other hosts (--admin off, or a socket)")
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(peer.API, "/")+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("its address %s is none: %w", peer.API, err)
	}
	if err := p.Sign(req, peer.ID); err != nil {
		return nil, err
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", peer.API, plain(err))
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", peer.API, plain(err))
	}
	said := detail(body)
	switch {
	case resp.StatusCode == http.StatusBadRequest, resp.StatusCode == http.StatusUnprocessableEntity: // this host's requests are valid here
		return nil, fmt.Errorf("%s is of another version, and does not know what it is asked for: %s", peer.API, said)
	case resp.StatusCode == http.StatusNotFound && said == noHost:
		said = "it is of an earlier version, or no host, or a proxy is before it"
	}
	return nil, fmt.Errorf("%s answers %s: %s", peer.API, resp.Status, said)
}

// plain leaves out what net/http repeats.
func plain(err error) error {
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nothing answers there")
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("it has not answered in time")
	}
	return err
}

// noHost is what is said of a refusal that is none of a host.
const noHost = "it is not a host, or a proxy is before it"

// detail is what a refusal says.
func detail(body []byte) string {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		return noHost
	}
	return problem.Detail
}
