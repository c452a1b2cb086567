package peers

import (
	"context"
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
)

// maxAnswer bounds the answer of a peer, in bytes.
const maxAnswer = 256 << 20

// NewTransport returns what requests to peers go through; it keeps connections.
func NewTransport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     time.Minute,
	}
}

// Get asks a peer for a path, such as /v1/peer/runs?job=x, and reads the JSON of its
// answer into a value.
func (p *Peers) Get(ctx context.Context, transport http.RoundTripper, peer Peer, path string, into any) error {
	return p.ask(ctx, transport, http.MethodGet, peer, path, into)
}

// Post has a peer change something.
func (p *Peers) Post(ctx context.Context, transport http.RoundTripper, peer Peer, path string) error {
	var none struct{}
	return p.ask(ctx, transport, http.MethodPost, peer, path, &none)
}

func (p *Peers) ask(ctx context.Context, transport http.RoundTripper, method string, peer Peer, path string, into any) error {
	if peer.API == "" {
		return errors.New("it has no API (--admin off)")
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(peer.API, "/")+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("its address %s is none: %w", peer.API, err)
	}
	if err := p.Sign(req, peer.ID); err != nil {
		return err
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", peer.API, plain(err))
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", peer.API, plain(err))
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", peer.API, resp.Status, detail(body))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: its answer is not a host's: %w", peer.API, err)
	}
	return nil
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

// detail is what a refusal says.
func detail(body []byte) string {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		return "it is not a host, or a proxy is before it"
	}
	return problem.Detail
}
