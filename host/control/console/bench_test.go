package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/database"
)

// withJobs is a console of a host with jobs, of 4 items each. Every fifth is paused.
func withJobs(b *testing.B, jobs int) http.Handler {
	b.Helper()
	now := time.Now()
	host := report.Report{Now: now, Ready: true, Status: engine.Status{Instance: "10.0.0.1@-@1", State: engine.HostLive}}
	var paused []history.Change
	for n := range jobs {
		j := &engine.JobStatus{Name: fmt.Sprintf("job-%05d", n), State: engine.JobReady, Cron: "0 */7 * * * ?", TimeZone: "Europe/Berlin", Next: now.Add(time.Duration(n) * time.Second), ShardingTotalCount: 4,
			Description: "loads something from somewhere", File: "jobs.yaml", Module: "job.wasm", Type: "SIMPLE", Digest: strings.Repeat("ab", 32), Instances: []string{"10.0.0.1@-@1"}}
		if n%5 == 0 {
			j.State, j.Next = engine.JobDisabled, time.Time{}
			paused = append(paused, history.Change{Time: now, Who: "ann", What: "disable", Job: j.Name, Why: "the source is moved"})
		}
		for i := range 4 {
			outcome := abi.OutcomeOK
			if n%50 == 0 {
				outcome = abi.OutcomeFail
			}
			j.Items = append(j.Items, engine.ItemStatus{Item: i, LastOutcome: outcome, LastEnd: now.Add(-time.Minute), LastMessage: "disk on fire"})
		}
		host.Status.Jobs = append(host.Status.Jobs, j)
	}
	store, err := database.Open(b.Context(), database.Options{Config: database.InMemory()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	peers, self := func() []cluster.Peer { return nil }, func() cluster.Peer { return cluster.Peer{ID: "a"} }
	local := cluster.NewLocal(func() report.Report { return host })
	local.Note(paused...)
	all := cluster.New(cluster.Options{Local: local, Self: self, Peers: peers})
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	ended := make(chan error, 1)
	go func() { ended <- all.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		<-ended
	})
	c, err := New(Options{Namespace: "ns", Logger: zap.NewNop(), Service: service.New(service.Options{
		Namespace: "ns", Cluster: all, Histories: &cluster.Histories{Store: store, Self: self, Peers: peers}, Store: store, Logger: zap.NewNop()})})
	if err != nil {
		b.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.ServeHTTP(w, r.WithContext(auth.With(r.Context(), auth.HostToken(auth.ByHostToken))))
	})
}

// BenchmarkPages has 10,000 jobs.
func BenchmarkPages(b *testing.B) {
	c := withJobs(b, 10_000)
	for _, path := range []string{"/", "/jobs", "/jobs?q=" + url.QueryEscape("job-09") + "&sort=-last", "/jobs?health=paused", "/jobs/job-00050", "/calendar", "/hosts", "/modules"} {
		b.Run(strings.ReplaceAll(path, "/", "_"), func(b *testing.B) {
			size := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				if w.Code != 200 {
					b.Fatal(w.Body)
				}
				size = w.Body.Len()
			}
			b.ReportMetric(float64(size), "bytes/page")
		})
	}
}

// BenchmarkFirstPage has 1,000 jobs: the first page and all files that it needs, over the
// loopback interface, one after the other.
func BenchmarkFirstPage(b *testing.B) {
	server := httptest.NewServer(withJobs(b, 1000))
	defer server.Close()
	paths := []string{"/"}
	files := newConsole(b).assets
	for name := range files.files {
		paths = append(paths, files.prefix+name)
	}
	size := 0
	for b.Loop() {
		size = 0
		for _, path := range paths {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, server.URL+path, http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("Accept-Encoding", "gzip") // and the answer stays as it is
			answer, err := server.Client().Do(r)
			if err != nil {
				b.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if err = errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK {
				b.Fatal(answer.Status, err)
			}
			size += len(body)
		}
	}
	b.ReportMetric(float64(size), "bytes/visit")
}
