package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// patientRecorder records an answer and has no deadlines.
type patientRecorder struct{ *httptest.ResponseRecorder }

func (patientRecorder) SetWriteDeadline(time.Time) error { return nil }

// TestStream_rest: when nothing changes a stream shows that it lives, and looks again whether something has.
func TestStream_rest(t *testing.T) {
	t.Parallel()
	w := patientRecorder{httptest.NewRecorder()}
	s := &stream{w, http.NewResponseController(w)}
	live := make(chan time.Time, 1)
	live <- time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.rest(ctx, nil, nil, live); err != nil || w.Body.String() != alive {
		t.Errorf("%v, %q", err, w.Body)
	}
}

// follow opens a stream for a user of the host's token; it ends with ctx.
func (s *served) follow(ctx context.Context, client *http.Client, user int, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set(auth.UserHeader, fmt.Sprintf("u%d@ops", user))
	return client.Do(r)
}

// TestStreams: of 10,000 clients as many follow as may; the others get an answer that says
// so, and requests are answered all the same. All who follow see a change, and a client
// that leaves makes room for another.
func TestStreams(t *testing.T) {
	t.Parallel()
	const clients = 10_000
	s := serve(t, servicetest.Options{Jobs: []engine.Job{once("cities", 1)}})
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: 50, MaxIdleConnsPerHost: 50}}
	t.Cleanup(client.CloseIdleConnections)
	ctx, cancel := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	t.Cleanup(func() { cancel(); streams.Wait() })

	var open []*http.Response
	maxStreams := jobStreams().All
	for n := range maxStreams {
		got, err := s.follow(ctx, client, n/jobStreams().Each, "/v1/stream")
		if err != nil || got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("stream %d: %v, %v", len(open), got, err)
		}
		open = append(open, got)
	}
	var refused atomic.Int64
	var others sync.WaitGroup
	for range 20 {
		others.Go(func() {
			for n := range (clients - maxStreams) / 20 {
				got, err := s.follow(ctx, client, n%20, "/v1/stream")
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(got.Body)
				_ = got.Body.Close()
				why := "1000 streams of jobs are open at this host, which is the most"
				if n%20 < maxStreams/jobStreams().Each {
					why = fmt.Sprintf("100 streams of jobs of host token (u%d@ops) are open at this host, of at most 100 for one user or token", n%20)
				}
				if err == nil && got.StatusCode == http.StatusTooManyRequests && got.Header.Get("Retry-After") == "30" && strings.Contains(string(text), why) {
					refused.Add(1)
				}
			}
		})
	}
	others.Wait()
	if refused.Load() != int64(clients-maxStreams) {
		t.Errorf("%d of %d were refused with a reason", refused.Load(), clients-maxStreams)
	}
	if got := get[service.Jobs](s, "/v1/jobs"); got.Total != 1 {
		t.Errorf("beside the streams: %+v", got)
	}

	// One line of each stream at least has the job as it is after a change.
	var saw atomic.Int64
	for _, got := range open {
		streams.Go(func() {
			defer func() { _ = got.Body.Close() }()
			lines := bufio.NewScanner(got.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				if strings.Contains(lines.Text(), `"outcome":"OK"`) {
					saw.Add(1)
					return
				}
			}
		})
	}
	if err := s.client.Trigger(t.Context(), "cities"); err != nil {
		t.Fatal(err)
	}
	s.Until("all who follow have seen the run", func() bool { return saw.Load() == int64(maxStreams) })
	streams.Wait()
	s.Until("there is room for another", func() bool {
		got, err := s.follow(ctx, client, 0, "/v1/stream")
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		return got.StatusCode == http.StatusOK
	})
}

// TestStreamsOfLines: one user takes a few of the streams of lines, which are apart from those of jobs.
func TestStreamsOfLines(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{once("cities", 1)}})
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	status := func(user int, path string) int {
		t.Helper()
		got, err := s.follow(ctx, client, user, path)
		if err != nil {
			t.Fatal(err)
		}
		if got.StatusCode != http.StatusOK {
			_ = got.Body.Close()
		}
		return got.StatusCode
	}
	const lines = "/v1/logs/stream?job=cities"
	for n := range lineStreams().Each {
		if got := status(1, lines); got != http.StatusOK {
			t.Fatalf("stream %d: %d", n, got)
		}
	}
	if got := status(1, lines); got != http.StatusTooManyRequests {
		t.Errorf("one more: %d", got)
	}
	if got := status(1, "/v1/stream"); got != http.StatusOK {
		t.Errorf("a stream of jobs: %d", got)
	}
	if got := status(2, lines); got != http.StatusOK {
		t.Errorf("of someone else: %d", got)
	}
}

// TestRegistryDown: what hosts know is shown all the same; what needs the registry says that
// it cannot be reached.
func TestRegistryDown(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	s := serve(t, servicetest.Options{Server: server, Jobs: []engine.Job{once("cities", 2)}})
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	s.Until("the host has no session", func() bool { return s.Host.Status().State != engine.HostLive })
	for _, path := range []string{"/v1/status", "/v1/overview", "/v1/jobs", "/v1/jobs/cities", "/v1/hosts", "/v1/modules", "/v1/calendar", "/v1/runs", "/v1/audit", "/v1/jobs/cities/explain"} {
		if got := s.ask("GET", path, ""); got.code != http.StatusOK {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
	for _, request := range []string{"GET /v1/registry/jobs", "GET /v1/jobs/cities/shards", "GET /v1/jobs/cities/kept", "GET /v1/jobs/cities/config", "POST /v1/jobs/cities/trigger",
		"POST /v1/jobs/cities/disable", "POST /v1/jobs/cities/items/0/disable", "POST /v1/jobs/cities/kill", "DELETE /v1/jobs/cities"} {
		method, path, _ := strings.Cut(request, " ")
		if got := s.ask(method, path, ""); got.code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", request, got.code, got.body)
		} else if p := got.problem(t); !strings.Contains(p.Detail, "registry") {
			t.Errorf("%s: %s", request, p.Detail)
		}
	}
	s.Until("the host says that it is not ready", func() bool { return !get[report.Report](s, "/v1/status").Ready })
}

// TestStreamOfLines: what the store has comes first, without what is far ahead, then what is
// logged; a line that both have comes once, and of the old ones none is remembered. A client
// that connects again gets what another host logged shortly before the last line it has seen.
func TestStreamOfLines(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{once("cities", 1)}})
	now := time.Now()
	line := func(ago time.Duration, message string) history.Line {
		return history.Line{Time: now.Add(-ago), Job: "cities", RunID: "cities/x/0", Host: "h", Message: message}
	}
	// Two lines that differ by their times alone are two.
	stored := []history.Line{line(time.Hour, "old"), line(20*time.Second, "before"), line(2*time.Second, "late"), line(2*time.Second-1, "late"), line(0, "newest"), line(-time.Minute, "ahead")}
	for _, l := range stored {
		s.Store.AddLine(l)
	}
	s.Until("the lines are stored", func() bool {
		return len(get[cluster.Found[history.Line]](s, "/v1/logs?job=cities").Records) == len(stored)
	})
	read := func(query, last string) (messages []string) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // only a test that fails waits so long
		var probing sync.WaitGroup
		defer probing.Wait()
		defer cancel()
		probed, stop := context.WithCancel(ctx)
		defer stop()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/logs/stream?job=cities"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Last-Event-ID", last)
		got, err := s.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = got.Body.Close() }()
		for lines := bufio.NewScanner(got.Body); lines.Scan(); {
			data, is := strings.CutPrefix(lines.Text(), "data: ")
			if !is {
				continue
			}
			var l cluster.Tailed
			if err := json.Unmarshal([]byte(data), &l); err != nil {
				t.Fatal(err)
			}
			if l.Message == "probe" {
				if probed.Err() == nil { // what is logged comes from here on
					stop()
					s.Tail.Add(stored[4])
					s.Tail.Add(line(-time.Millisecond, "end"))
				}
				continue
			}
			messages = append(messages, l.Message)
			switch l.Message {
			case "newest": // the last of the store
				probing.Go(func() {
					for soon := time.NewTicker(10 * time.Millisecond); probed.Err() == nil; <-soon.C {
						s.Tail.Add(line(-time.Microsecond, "probe"))
					}
				})
			case "end":
				return messages
			}
		}
		t.Fatalf("the stream has ended after %q", messages)
		return nil
	}
	if got, want := read("&from=100000h", ""), []string{"old", "before", "late", "late", "newest", "end"}; !slices.Equal(got, want) {
		t.Errorf("from the beginning: %q, want %q", got, want)
	}
	if got, want := read("", now.Format(time.RFC3339Nano)), []string{"late", "late", "newest", "end"}; !slices.Equal(got, want) {
		t.Errorf("again: %q, want %q", got, want)
	}

	sent := newSent(now)
	for i := range stored {
		sent.add(&stored[i])
	}
	if len(sent.keys) != 5 || sent.take(&stored[0]) || !sent.take(&stored[4]) || sent.take(&stored[4]) {
		t.Errorf("%d lines are remembered", len(sent.keys))
	}
}
