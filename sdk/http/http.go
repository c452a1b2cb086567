// Package http sends requests through the host, without net/http: a module stays near
// 4 MB. Code that needs net/http itself imports package sdk/nethttp instead.
//
// A request goes where the operator's grants allow it, and is refused with ErrDenied
// elsewhere. TLS, the pool of connections, compression and the checks of addresses are
// the host's. It adds what makes effects idempotent unless the job sets it (Idempotency-Key:
// the run's id; Wasmjob-Fence), traceparent and User-Agent; Host, Connection,
// and Transfer-Encoding are its own. In the value of a header it replaces
// {{secret:NAME}} by a secret that is granted for the address; the job never has it.
//
// While a goroutine waits for an answer the others run. All functions may be called by
// several goroutines. Errors of the host wrap an sdk.Errno and say the host's reason:
// ErrDenied, ErrQuota (requests, bytes), ErrTooLarge (a head over abi.MaxHead),
// ErrInvalid, ErrTimeout, ErrUnavailable (no connection, or it broke) and ErrCancelled
// (the item may no longer be this host's).
package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
	"github.com/wasmjob/wasmjob/sdk/internal/handle"
)

// MaxRedirects is how many redirects are followed.
const MaxRedirects = 10

// Header maps canonical names, such as Content-Type, to their values, as in net/http.
type Header map[string][]string

// Get returns the first value of a header, regardless of the case of its name; "" without one.
func (h Header) Get(name string) string {
	if values := h[canonical(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set replaces the values of a header by one.
func (h Header) Set(name, value string) { h[canonical(name)] = []string{value} }

// Add adds a value.
func (h Header) Add(name, value string) {
	name = canonical(name)
	h[name] = append(h[name], value)
}

func canonical(name string) string {
	b := []byte(name)
	upper := true
	for i, c := range b {
		switch {
		case upper && 'a' <= c && c <= 'z':
			b[i] = c - ('a' - 'A')
		case !upper && 'A' <= c && c <= 'Z':
			b[i] = c + ('a' - 'A')
		}
		upper = c == '-'
	}
	return string(b)
}

// Request is a request to send.
type Request struct {
	// Method is GET if it is empty.
	Method string
	// URL is absolute: http or https.
	URL    string
	Header Header
	// Body is sent while it is read, concurrently with the response; nil sends none. Body may still be read after Do has
	// returned, until the response's body is closed or at its end. It is not closed. If it has a method Len() int
	// (bytes.Reader, strings.Reader), or Header has Content-Length, the length is sent first; otherwise the body is sent
	// in chunks.
	Body io.Reader
	// FollowRedirects follows up to MaxRedirects redirects, each of which must be granted. As in net/http, 301, 302 and
	// 303 become GET; for 307 and 308 the body is sent again if it is an io.Seeker, otherwise the redirect itself is
	// returned. Headers with secrets (Authorization, Cookie, {{secret:NAME}}) are not sent to another host.
	FollowRedirects bool
}

// Response is the response to a request.
type Response struct {
	Status int // 200, …
	Header Header
	// Body is never nil. The caller must close it, or read it to its end.
	Body io.ReadCloser
	// URL is the URL of the response, after redirects.
	URL string
}

// Get sends a GET request and follows redirects.
func Get(ctx context.Context, url string) (*Response, error) {
	return Do(ctx, Request{URL: url, FollowRedirects: true})
}

// Post sends a POST request with a body of the type, and follows redirects.
func Post(ctx context.Context, url, contentType string, body io.Reader) (*Response, error) {
	return Do(ctx, Request{Method: "POST", URL: url, Header: Header{"Content-Type": {contentType}}, Body: body, FollowRedirects: true})
}

// Do sends a request, and returns when the head of the response has arrived, whatever its status. When ctx is done, the
// request and the reading of the body end with the context's error.
func Do(ctx context.Context, req Request) (*Response, error) {
	r := request{ctx: ctx, Request: req}
	if r.Method == "" {
		r.Method = "GET"
	}
	for range MaxRedirects + 1 {
		resp, err := r.send()
		if err != nil || !req.FollowRedirects {
			return resp, err
		}
		if again, err := r.redirect(resp); !again {
			if err != nil {
				resp.Body.Close()
				return nil, err
			}
			return resp, nil
		}
		resp.Body.Close()
	}
	return nil, fmt.Errorf("http: %d redirects, which is too many", MaxRedirects+1)
}

// request is a request on its way through redirects.
type request struct {
	Request
	ctx context.Context
	up  *upload // of the newest hop
}

// send does one hop.
func (r *request) send() (*Response, error) {
	head, err := r.head()
	if err != nil {
		return nil, err
	}
	h, err := handle.Open(func() int32 { return border.HTTPOpen(head) })
	if err != nil {
		return nil, err
	}
	stop := r.ctx.Done()
	r.up = &upload{h: h, stop: stop, failed: make(chan error, 1), done: make(chan struct{})}
	if r.Body == nil {
		err = h.Finish(stop)
	} else {
		go r.up.send(r.Body)
		runtime.Gosched() // a short body is complete before the response is asked for, and goes out with its length
	}
	status := int32(0)
	if err == nil {
		status, err = h.Do(stop, border.HTTPStatus)
	}
	var header Header
	if err == nil {
		header, err = headers(h, stop)
	}
	if err != nil {
		h.Close()
		select {
		case err = <-r.up.failed:
		default:
		}
		return nil, reason(r.ctx, err)
	}
	r.up.answered.Store(true)
	return &Response{Status: int(status), Header: header, Body: &download{ctx: r.ctx, h: h, stop: stop}, URL: r.URL}, nil
}

// head is the request as the host reads it.
func (r *request) head() ([]byte, error) {
	list := []string{r.Method, r.URL}
	if body, ok := r.Body.(interface{ Len() int }); ok && r.Header.Get("Content-Length") == "" {
		list = append(list, "Content-Length", strconv.Itoa(body.Len()))
	}
	names := make([]string, 0, len(r.Header))
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range r.Header[name] {
			list = append(list, name, value)
		}
	}
	if slices.ContainsFunc(list, func(s string) bool { return strings.IndexByte(s, 0) >= 0 }) {
		return nil, fmt.Errorf("http: there is a NUL byte in the request: %w", sdk.ErrInvalid)
	}
	return abi.AppendList(nil, list...), nil
}

func headers(h *handle.Handle, stop <-chan struct{}) (Header, error) {
	var failed error
	list, _ := border.Whole(2048, func(buf []byte) int32 {
		n, err := h.Do(stop, func(id int32) int32 { return border.HTTPHeaders(id, buf) })
		if failed = err; err != nil {
			return int32(abi.ErrInvalid)
		}
		return n
	})
	if failed != nil {
		return nil, failed
	}
	pairs, err := abi.ParseList(list)
	if err != nil {
		return nil, err
	}
	header := make(Header)
	for i := 0; i+1 < len(pairs); i += 2 {
		header.Add(pairs[i], pairs[i+1])
	}
	return header, nil
}

// redirect makes the next request of a response that says so.
func (r *request) redirect(resp *Response) (again bool, err error) {
	location := resp.Header.Get("Location")
	if location == "" || !slices.Contains([]int{301, 302, 303, 307, 308}, resp.Status) {
		return false, nil
	}
	if resp.Status >= 307 && r.Body != nil {
		body, ok := r.Body.(io.Seeker)
		if !ok {
			return false, nil
		}
		resp.Body.Close()
		<-r.up.done
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return false, fmt.Errorf("http: send the body again: %w", err)
		}
	}
	from, err := url.Parse(r.URL)
	if err != nil {
		return false, fmt.Errorf("http: %w", err)
	}
	to, err := from.Parse(location)
	if err != nil {
		return false, fmt.Errorf("http: redirect: %w", err)
	}
	header := make(Header)
	for name, values := range r.Header {
		keep := values
		if to.Host != from.Host || to.Scheme != from.Scheme {
			keep = withoutSecrets(name, values)
		}
		if len(keep) > 0 {
			header[name] = keep
		}
	}
	if resp.Status < 307 && r.Method != "HEAD" {
		r.Method, r.Body = "GET", nil
		delete(header, "Content-Type")
	}
	r.URL, r.Header = to.String(), header
	return true, nil
}

// withoutSecrets are the values of a header that may go to another host.
func withoutSecrets(name string, values []string) []string {
	switch canonical(name) {
	case "Authorization", "Cookie", "Proxy-Authorization":
		return nil
	}
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return strings.Contains(v, "{{secret:") })
}

// upload sends the body of a request, in a goroutine of its own.
type upload struct {
	h      *handle.Handle
	stop   <-chan struct{}
	failed chan error // has room for the error of the job's reader
	done   chan struct{}
	// answered is set when the response has come: it can be read, whatever becomes of the body.
	answered atomic.Bool
	err      error // of the handle: the response says the same, or came before
}

func (u *upload) Write(p []byte) (n int, err error) {
	n, u.err = u.h.Write(u.stop, p)
	return n, u.err
}

func (u *upload) send(body io.Reader) {
	defer close(u.done)
	_, err := io.Copy(u, body)
	switch {
	case u.err != nil:
	case err != nil:
		u.failed <- fmt.Errorf("http: body of the request: %w", err)
		if !u.answered.Load() {
			u.h.Close()
		}
	default:
		u.h.Finish(u.stop)
	}
}

// download is the body of a response.
type download struct {
	ctx  context.Context
	h    *handle.Handle
	stop <-chan struct{}
	err  error // once it is at its end
}

func (d *download) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	n, err := d.h.Read(d.stop, p)
	if err != nil {
		err = reason(d.ctx, err)
		d.err = err
		d.h.Close() // the host has a number of handles only
	}
	return n, err
}

func (d *download) Close() error {
	d.h.Close()
	return nil
}

// reason is the context's error in the place of that of a wait that it has ended.
func reason(ctx context.Context, err error) error {
	if !errors.Is(err, handle.ErrStopped) {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, ctx.Err()) {
		return cause
	}
	return ctx.Err()
}
