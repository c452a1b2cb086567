package httpx

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
)

// Limits of one request. A handler that takes longer, such as one that streams, sets
// deadlines of its own through http.ResponseController.
const (
	// HeaderTimeout is for the whole header, BodyTimeout for header and body.
	HeaderTimeout = 5 * time.Second
	BodyTimeout   = 10 * time.Second
	// AnswerTimeout is for the answer, from the end of the header on.
	AnswerTimeout = 30 * time.Second
	// IdleTimeout is how long a connection waits for its next request.
	IdleTimeout = time.Minute
	// MaxHeader is in bytes. A header of HTTP/1.1 can have up to 8 KiB more: net/http counts
	// what it reads of the connection, adds 4 KiB, and does not count what it had read before.
	MaxHeader = 16 << 10
)

// Limit gives a server the limits of header and time.
func Limit(s *http.Server) {
	s.ReadHeaderTimeout = HeaderTimeout
	s.ReadTimeout = BodyTimeout
	s.WriteTimeout = AnswerTimeout
	s.IdleTimeout = IdleTimeout
	s.MaxHeaderBytes = MaxHeader
}

// AtOnce has next answer that many requests at once, and answers further ones with 503: while a client does not read
// its answer, the answer and what compresses it stay in memory. The connection of a refused request ends, and with it
// whatever else was sent on it without waiting for answers.
func AtOnce(most int, next http.Handler) http.Handler {
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Connection", "close")
			http.Error(w, "too many answers are under way; ask again in a second", http.StatusServiceUnavailable)
		}
	})
}

// InTurn has next answer that many requests at once; further ones wait for their turn, in the order in which they came. It is for
// answers that are made in a moment, and that are written behind next: no client holds up others by not reading its own.
func InTurn(most int, next http.Handler) http.Handler {
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		case <-r.Context().Done(): // the client has gone
		}
	})
}

// Body refuses bodies of more than most bytes: at once if the header says so, else when
// they have been read so far.
func Body(most int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > most {
			p := auth.NewProblem(auth.TooLarge, http.StatusRequestEntityTooLarge, "the body has %d bytes, expected at most %d", r.ContentLength, most)
			p.Header = http.Header{"Connection": {"close"}} // nothing of it is read
			p.ServeHTTP(w, r)
			return
		}
		r.Body = body{http.MaxBytesReader(w, r.Body, most), w}
		next.ServeHTTP(w, r)
	})
}

// body ends the connection if it cannot be read to its end: net/http takes a body that was
// wrapped and closed for one that was read, and what still comes of it for the next request.
type body struct {
	io.ReadCloser
	w http.ResponseWriter
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended(err)
	return n, err
}

func (b body) Close() error {
	err := b.ReadCloser.Close()
	b.ended(err)
	return err
}

func (b body) ended(err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		b.w.Header().Set("Connection", "close")
	}
}

// policy lets pages load only their own files, forbids inline scripts, and forbids frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// onlyTLS makes browsers use TLS for the site's name for a year, on all of its ports (HSTS).
const onlyTLS = "max-age=31536000"

func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// Headers sets what every answer has. A handler may replace Cache-Control where an
// answer may be kept.
func (s *Site) Headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		// Browsers ignore it without TLS and for IP addresses. For localhost they would hold
		// every other program of the machine to it.
		if s.Secure(r) && !isLocalhost(strings.TrimSuffix(hostname(r), ".")) {
			h.Set("Strict-Transport-Security", onlyTLS)
		}
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// Not no-referrer: browsers would send forms with "Origin: null".
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
