package httpx

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCompression: text of some size is compressed for whoever takes it, and event streams leave
// event by event.
func TestCompression(t *testing.T) {
	t.Parallel()
	compressed, err := Compression()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("<tr><td>job</td></tr>\n", 4000)
	answers := func(kind string, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		compressed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, text)
		})).ServeHTTP(w, r)
		return w
	}
	for _, kind := range []string{"text/html; charset=utf-8", "application/json", "application/problem+json"} {
		w := answers(kind, "gzip, br")
		z, err := gzip.NewReader(w.Body)
		if err != nil || w.Header().Get("Content-Encoding") != "gzip" || !strings.Contains(w.Header().Get("Vary"), "Accept-Encoding") {
			t.Fatalf("%s: %v, %v", kind, w.Header(), err)
		}
		size := w.Body.Len()
		if got, err := io.ReadAll(z); err != nil || string(got) != text || size > len(text)/20 {
			t.Errorf("%s: %d bytes in place of %d, %v", kind, size, len(text), err)
		}
		if w := answers(kind, ""); w.Header().Get("Content-Encoding") != "" || w.Body.String() != text {
			t.Errorf("%s: compressed for who does not take it: %v", kind, w.Header())
		}
	}
	next := make(chan bool, 1)
	server := httptest.NewServer(compressed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range next {
			_, _ = io.WriteString(w, "data: x\n\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	})))
	defer server.Close()
	defer close(next)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	next <- true
	a, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	b := make([]byte, len("data: x\n\n"))
	for range 3 { // the next event is made when the last one is here
		if _, err := io.ReadFull(a.Body, b); err != nil || string(b) != "data: x\n\n" || a.Header.Get("Content-Encoding") != "" {
			t.Fatalf("%q %v %v", b, a.Header, err)
		}
		next <- true
	}
}
