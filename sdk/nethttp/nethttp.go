// Package nethttp makes net/http work in a guest. It is imported for that effect alone:
//
//	import _ "github.com/wasmjob/wasmjob/sdk/nethttp"
//
// http.Get, http.DefaultClient, http.Client{} and whatever else uses
// http.DefaultTransport send their requests through the host then, as package sdk/http
// does, with the same grants and errors; a request for another Host than its URL's is
// refused. A transport made by Clone of it, and one of the program's own, speak HTTP
// themselves and need connections: see package sdk/nethttp/clones.
//
// A guest with net/http has about 11 MB, one with sdk/http about 4 MB. Natively the package
// does the same: a test's host answers, and without one nothing does.
package nethttp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	sdkhttp "github.com/wasmjob/wasmjob/sdk/http"
)

// A guest has no other network, and code that uses net/http is not to be changed.
func init() {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return // the program has a transport of its own, and knows better
	}
	t.RegisterProtocol("http", Transport{})
	t.RegisterProtocol("https", Transport{})
	// Of what is cloned from it, which does not have the protocols.
	t.Proxy = nil
	t.ForceAttemptHTTP2 = false
	t.DialContext = unconnected
	t.DialTLSContext = unconnected
}

// unconnected is the network of a module that imports no connections: their import would
// be refused where only requests are granted.
func unconnected(_ context.Context, _, address string) (net.Conn, error) {
	return nil, fmt.Errorf("dial %s: a transport that is not http.DefaultTransport needs connections: import _ %q, and have %q granted", address,
		"github.com/wasmjob/wasmjob/sdk/nethttp/clones", "net")
}

// Transport is an http.RoundTripper on the host's requests, for an http.Client of the
// program's own. It may be used by several goroutines.
type Transport struct{}

// RoundTrip implements http.RoundTripper.
func (Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body := &requestBody{ReadCloser: req.Body}
	to := *req.URL
	to.User = nil // the client has made a header of it
	r := sdkhttp.Request{Method: req.Method, URL: to.String(), Header: make(sdkhttp.Header)}
	for name, values := range req.Header {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding":
			continue // of connections, which are the host's
		}
		r.Header[name] = values
	}
	if req.Body != nil && req.Body != http.NoBody {
		r.Body = body
	}
	if req.Host != "" && req.Host != req.URL.Host {
		r.Header.Set("Host", req.Host)
	}
	if req.ContentLength > 0 {
		r.Header.Set("Content-Length", strconv.FormatInt(req.ContentLength, 10))
	}
	resp, err := sdkhttp.Do(req.Context(), r)
	if err != nil {
		body.Close()
		return nil, err
	}
	length := int64(-1)
	if n, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	return &http.Response{
		Status: strconv.Itoa(resp.Status) + " " + http.StatusText(resp.Status), StatusCode: resp.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header(resp.Header), Body: responseBody{resp.Body, body}, ContentLength: length, Request: req,
	}, nil
}

// requestBody is closed once: at its end, or when it is not needed any more.
type requestBody struct {
	io.ReadCloser
	once sync.Once
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.Close()
	}
	return n, err
}

func (b *requestBody) Close() error {
	var err error
	b.once.Do(func() {
		if b.ReadCloser != nil {
			err = b.ReadCloser.Close()
		}
	})
	return err
}

// responseBody closes the request's body, too.
type responseBody struct {
	io.ReadCloser
	request io.Closer
}

func (b responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.request.Close()
	return err
}
