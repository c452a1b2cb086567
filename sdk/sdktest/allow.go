package sdktest

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// AllowHTTP lets the job send requests to the URLs that begin with a prefix, such as
// https://api.example.com or https://api.example.com/v1, and has handler answer them in
// the place of a server. The path of a prefix ends at a slash or at the end of a path.
// A later call with the same prefix replaces it; of several the longest counts. The
// handler runs in goroutines of its own, and has to end when its request's context
// does.
func (h *Host) AllowHTTP(prefix string, handler http.Handler) {
	h.AllowHTTPTrip(prefix, handlerTrip{handler})
}

// AllowHTTPTrip is [Host.AllowHTTP] for requests that trip answers, such as
// http.DefaultTransport, which sends them to a real server.
func (h *Host) AllowHTTPTrip(prefix string, trip http.RoundTripper) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.routes == nil {
		h.routes = make(map[string]http.RoundTripper)
	}
	h.routes[prefix] = trip
}

// AllowNet lets the job connect to a target, such as tcp://db:5432 or tls://db:6380, and
// has dial make the connections, such as one end of a net.Pipe, or one to a real
// server.
func (h *Host) AllowNet(target string, dial func() (net.Conn, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dials == nil {
		h.dials = make(map[string]func() (net.Conn, error))
	}
	h.dials[target] = dial
}

// route finds who answers for an address, or says why there is none.
func (h *Host) route(method string, u *url.URL) (http.RoundTripper, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.routes) == 0 {
		return nil, fmt.Sprintf("job_v1_http is not granted to job %q", h.context.JobName)
	}
	longest := ""
	for prefix := range h.routes {
		p, err := url.Parse(prefix)
		if err == nil && p.Scheme == u.Scheme && p.Host == u.Host && below(p.Path, u.Path) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	if longest == "" {
		return nil, fmt.Sprintf("http: %s %s://%s is not granted to job %q: the test allows %q", method, u.Scheme, u.Host, h.context.JobName, sorted(h.routes))
	}
	return h.routes[longest], ""
}

// below says whether a path is at or below another.
func below(prefix, path string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// secretName is how a header names a secret.
var secretName = regexp.MustCompile(`\{\{secret:([^}]*)\}\}`)

// withSecrets puts secrets into the value of a header.
func (h *Host) withSecrets(value string) (string, error) {
	var err error
	return secretName.ReplaceAllStringFunc(value, func(found string) string {
		name := secretName.FindStringSubmatch(found)[1]
		secret, ok := h.Secrets[name]
		if !ok {
			err = fmt.Errorf("the secret %q is not granted to job %q", name, h.context.JobName)
		}
		return secret
	}), err
}

// addHeaders adds what the host adds to the nth request of a run, unless the job has
// set it.
func (h *Host) addHeaders(header http.Header, n int) {
	h.mu.Lock()
	c := h.context
	h.mu.Unlock()
	key := c.RunID // one request, one key: if the run is tried again its requests have the same
	if n > 1 {
		key += "-" + strconv.Itoa(n)
	}
	for name, value := range map[string]string{
		"Idempotency-Key": key, "Wasmjob-Fence": strconv.FormatInt(c.Fence, 10), "Traceparent": c.Traceparent, "User-Agent": "wasmjob",
	} {
		if _, set := header[name]; !set && value != "" {
			header.Set(name, value)
		}
	}
}

// handlerTrip answers requests by a handler.
type handlerTrip struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t handlerTrip) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Host, req.RequestURI, req.RemoteAddr = cmp.Or(req.Host, req.URL.Host), req.URL.RequestURI(), "127.0.0.1:1"
	if req.Body == nil {
		req.Body = http.NoBody
	}
	body, into := io.Pipe()
	w := &responseWriter{header: make(http.Header), body: into, began: make(chan struct{})}
	go func() {
		defer func() {
			if r := recover(); r != nil {
				into.CloseWithError(fmt.Errorf("the test's handler panicked: %v", r))
			}
			w.WriteHeader(http.StatusOK)
			into.Close()
		}()
		t.handler.ServeHTTP(w, req)
	}()
	select {
	case <-w.began:
	case <-req.Context().Done():
		body.Close()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: w.status, Header: w.sent, Body: body, Request: req}, nil
}

// responseWriter is where the handler writes.
type responseWriter struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	began  chan struct{} // closed when the head has been written: then status and sent do not change
	status int
	sent   http.Header
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.began)
	})
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher: nothing is kept back.
func (w *responseWriter) Flush() { w.WriteHeader(http.StatusOK) }
