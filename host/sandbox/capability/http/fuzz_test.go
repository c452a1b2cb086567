package http

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
)

// FuzzHead holds what the parser lets through against what net/http would send.
func FuzzHead(f *testing.F) {
	for _, head := range [][]string{
		{"GET", "https://api.example.com/a/b?c=d#e"}, {"POST", "http://[::1]:8080/", "X", "a", "x", "b"},
		{"GET", "http://0x7f.1/"}, {"GET", "http://a@b/"}, {"GET", "http://a/%2e%2e/"}, {"GET", "http://a/", "Content-Length", "12"},
		{"GET", "http://a/", "Transfer-Encoding", "chunked"}, {"GET", "http://a/", "X", "a\r\nb"},
	} {
		f.Add(abi.AppendList(nil, head...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parse(b)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("a reason of %d bytes", len(err.Error()))
			}
			return
		}
		host := h.url.Hostname()
		if _, err := netip.ParseAddr(host); err != nil && strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Errorf("the host %q", host)
		}
		if h.url.User != nil || h.port == 0 || (h.url.Scheme != "http" && h.url.Scheme != "https") || h.url.Path[0] != '/' {
			t.Errorf("the URL %q", h.url)
		}
		r := &http.Request{Method: h.method, URL: h.url, Header: http.Header{}}
		for _, x := range h.headers {
			r.Header.Add(x.name, x.value)
		}
		var wire strings.Builder
		if err := r.Write(&wire); err != nil {
			t.Fatalf("net/http does not send it: %v", err)
		}
		lines := strings.Split(wire.String(), "\r\n")
		if parts := strings.Split(lines[0], " "); len(parts) != 3 || parts[0] != h.method || parts[2] != "HTTP/1.1" || strings.ContainsAny(wire.String(), "\x00") {
			t.Errorf("the request line %q", lines[0])
		}
		lengths, hosts := 0, 0
		for _, l := range lines {
			name, _, _ := strings.Cut(strings.ToLower(l), ":")
			switch name {
			case "content-length", "transfer-encoding":
				lengths++
			case "host":
				hosts++
			}
			if strings.ContainsAny(l, "\r\n") {
				t.Errorf("the line %q", l)
			}
		}
		if lengths > 1 || hosts != 1 {
			t.Errorf("%d lengths, %d hosts: %q", lengths, hosts, wire.String())
		}
	})
}
