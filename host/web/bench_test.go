package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/cluster"
	"github.com/wasmjob/wasmjob/host/history/lines"
	"github.com/wasmjob/wasmjob/host/service"
)

// BenchmarkPages has 10,000 jobs with 4 items each on one host.
func BenchmarkPages(b *testing.B) {
	now := time.Now()
	report := admin.Report{Now: now, Ready: true, Status: host.Status{Instance: "10.0.0.1@-@1", State: host.HostLive}}
	for n := range 10_000 {
		j := host.JobStatus{Name: fmt.Sprintf("job-%05d", n), State: host.JobReady, Cron: "0 */7 * * * ?", TimeZone: "Europe/Berlin", Next: now.Add(time.Duration(n) * time.Second), ShardingTotalCount: 4,
			Description: "loads something from somewhere", File: "jobs.yaml", Module: "job.wasm", Type: "SIMPLE", Digest: strings.Repeat("ab", 32), Instances: []string{"10.0.0.1@-@1"}}
		for i := range 4 {
			outcome := abi.OutcomeOK
			if n%50 == 0 {
				outcome = abi.OutcomeFail
			}
			j.Items = append(j.Items, host.ItemStatus{Item: i, LastOutcome: outcome, LastEnd: now.Add(-time.Minute), LastMessage: "disk on fire"})
		}
		report.Status.Jobs = append(report.Status.Jobs, j)
	}
	store, err := lines.Open(lines.Options{Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	peers, self := func() []cluster.Peer { return nil }, func() cluster.Peer { return cluster.Peer{ID: "a"} }
	all := cluster.New(cluster.Options{Local: cluster.NewLocal(func() admin.Report { return report }), Self: self, Peers: peers})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- all.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	c, err := New(Options{Namespace: "ns", Logger: zap.NewNop(), Service: service.New(service.Options{
		Namespace: "ns", Cluster: all, Histories: &cluster.Histories{Store: store, Self: self, Peers: peers}, Store: store, Logger: zap.NewNop()})})
	if err != nil {
		b.Fatal(err)
	}
	who := access.With(b.Context(), access.HostToken(access.ByHostToken))
	for _, path := range []string{"/", "/jobs", "/jobs?q=" + url.QueryEscape("job-09") + "&sort=-last", "/jobs/job-00050", "/calendar", "/hosts", "/modules"} {
		b.Run(strings.ReplaceAll(path, "/", "_"), func(b *testing.B) {
			size := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil).WithContext(who))
				if w.Code != 200 {
					b.Fatal(w.Body)
				}
				size = w.Body.Len()
			}
			b.ReportMetric(float64(size), "bytes/page")
		})
	}
}
