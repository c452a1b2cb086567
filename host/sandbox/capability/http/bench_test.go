package http

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
)

// large are quotas that no benchmark uses up.
var large = grants.Quotas{Requests: 1 << 30, InFlight: 64, Sent: 1 << 50, Received: 1 << 50}

// benchServer answers with as many bytes as the query asks for.
func benchServer(b *testing.B) string {
	piece := make([]byte, 64<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		left, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(left))
		for left > 0 {
			n, err := w.Write(piece[:min(left, len(piece))])
			if err != nil {
				return
			}
			left -= n
		}
	}))
	b.Cleanup(server.Close)
	return server.URL
}

// native is a client with the pool's settings of an Instance.
func native(b *testing.B) *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTimeout}
	b.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

func benchGuest(b *testing.B, server string) *capabilitytest.Guest {
	return begin(b, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(b, server)}, Quotas: large})
}

// exchange makes a request with a guest, and drops the answer.
func exchange(b *testing.B, g *capabilitytest.Guest, url string, body, buf []byte) int64 {
	h := g.Open("POST", url)
	g.Write(h, body)
	g.Finish(h)
	if status := g.Status(h); status != 200 {
		b.Fatalf("status %d: %s", status, g.Error(h))
	}
	n, code := g.Copy(io.Discard, h, buf)
	if code != abi.OK {
		b.Fatalf("%d: %s", code, g.Error(h))
	}
	g.CloseHandle(h)
	return n
}

// compare measures two ways in turns, so that other load meets both, and reports the
// medians and their ratio.
func compare(b *testing.B, size int64, native, guest func()) {
	native()
	guest()
	var times [2][]time.Duration
	for b.Loop() {
		for i, f := range []func(){native, guest} {
			start := time.Now()
			f()
			times[i] = append(times[i], time.Since(start))
		}
	}
	var medians [2]float64
	for i, name := range []string{"native", "guest"} {
		slices.Sort(times[i])
		medians[i] = float64(times[i][len(times[i])/2])
		b.ReportMetric(medians[i], name+"-ns")
		if size > 0 {
			b.ReportMetric(float64(size)/medians[i]*1e3, name+"-MB/s")
		}
	}
	b.ReportMetric(medians[1]/medians[0], "guest/native")
}

// BenchmarkRequest is a request of 1 KiB with an answer of 1 KiB.
func BenchmarkRequest(b *testing.B) {
	server := benchServer(b)
	url, body, buf := server+"/?n=1024", make([]byte, 1024), make([]byte, 64<<10)
	c, g := native(b), benchGuest(b, server)
	compare(b, 0, func() { post(b, c, url, body) }, func() { exchange(b, g, url, body, buf) })
}

func post(b *testing.B, c *http.Client, url string, body []byte) {
	r, err := c.Post(url, "", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		b.Fatal(err)
	}
	r.Body.Close()
}

// gibibyte is the size of the streams.
const gibibyte = 1 << 30

// BenchmarkDownload is an answer of 1 GiB, read with a buffer of 64 KiB.
func BenchmarkDownload(b *testing.B) {
	server := benchServer(b)
	url, buf := fmt.Sprintf("%s/?n=%d", server, gibibyte), make([]byte, 64<<10)
	c, g := native(b), benchGuest(b, server)
	compare(b, gibibyte, func() {
		r, err := c.Post(url, "", nil)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, buf); err != nil || n != gibibyte {
			b.Fatal(n, err)
		}
		r.Body.Close()
	}, func() {
		if n := exchange(b, g, url, nil, buf); n != gibibyte {
			b.Fatal(n)
		}
	})
}

// BenchmarkUpload is a request of 1 GiB, written with a buffer of 64 KiB.
func BenchmarkUpload(b *testing.B) {
	server := benchServer(b)
	piece, buf := make([]byte, 64<<10), make([]byte, 64<<10)
	c, g := native(b), benchGuest(b, server)
	compare(b, gibibyte, func() {
		answer, err := c.Post(server+"/?n=1", "", &zeros{left: gibibyte})
		if err != nil {
			b.Fatal(err)
		}
		answer.Body.Close()
	}, func() {
		h := g.Open("POST", server+"/?n=1")
		for range gibibyte / len(piece) {
			if code := g.Write(h, piece); code != 0 {
				b.Fatal(g.Error(h))
			}
		}
		g.Finish(h)
		if n, code := g.Copy(io.Discard, h, buf); n != 1 {
			b.Fatal(n, code)
		}
		g.CloseHandle(h)
	})
}

// zeros is a body of so many bytes.
type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(z.left, len(p))
	clear(p[:n])
	z.left -= n
	return n, nil
}

// BenchmarkParallel is 16 requests of 1 KiB at once.
func BenchmarkParallel(b *testing.B) {
	const many = 16
	server := benchServer(b)
	url, body, buf := server+"/?n=1024", make([]byte, 1024), make([]byte, 64<<10)
	c, g := native(b), benchGuest(b, server)
	compare(b, 0, func() {
		var joined sync.WaitGroup
		for range many {
			joined.Go(func() { post(b, c, url, body) })
		}
		joined.Wait()
	}, func() {
		var handles [many]int64
		for i := range handles {
			handles[i] = g.Open("POST", url)
			g.Write(handles[i], body)
			g.Finish(handles[i])
		}
		for _, h := range handles {
			if n, code := g.Copy(io.Discard, h, buf); n != 1024 {
				b.Fatal(n, code, g.Error(h))
			}
			g.CloseHandle(h)
		}
	})
}
