//go:build alerts

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// prometheus is a real one that scrapes hosts each second and goes by the rules in
// deploy.
type prometheus struct {
	t       *testing.T
	address string
}

// alert is an alert that Prometheus knows of.
type alert struct {
	State  string            `json:"state"`
	Labels map[string]string `json:"labels"`
}

// startPrometheus has the rules go off at once, and a fire be late after five
// seconds: what is tested is what they see, promtool tests how long they wait.
func startPrometheus(t *testing.T, hosts ...*member) *prometheus {
	t.Helper()
	return startPrometheusWith(t, nil, hosts...)
}

// startPrometheusWith gives it flags as well.
func startPrometheusWith(t *testing.T, flags []string, hosts ...*member) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules := string(read(t, filepath.Join("..", "..", "deploy", "prometheus", "wasmjob.rules.yaml")))
	rules = regexp.MustCompile(`(?m)^( *for:) .*$`).ReplaceAllString(rules, "$1 0s")
	rules = strings.Replace(rules, "timestamp_seconds) > 60", "timestamp_seconds) > 5", 1)
	var targets []string
	for _, h := range hosts {
		targets = append(targets, fmt.Sprintf("%q", h.address))
	}
	config := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: wasmjob
    static_configs: [{targets: [%s]}]
`, strings.Join(targets, ", "))
	for name, text := range map[string]string{"rules.yaml": rules, "prometheus.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := &prometheus{t: t, address: closedPort(t)}
	var log bytes.Buffer
	c := exec.Command("prometheus", append(flags, "--config.file", filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", p.address)...)
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatalf("%v (make setup, or apt-get install prometheus)", err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // killed
		if t.Failed() {
			t.Logf("Prometheus:\n%s", &log)
		}
	})
	return p
}

// ask makes a request of Prometheus, which may not have started yet.
func (p *prometheus) ask(path string, answer any) bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK && json.NewDecoder(response.Body).Decode(answer) == nil
}

// firing are the alerts that fire for a job; an empty job is those of hosts.
func (p *prometheus) firing(job string) (names map[string]bool) {
	p.t.Helper()
	var answer struct{ Data struct{ Alerts []alert } }
	names = make(map[string]bool)
	if p.ask("/api/v1/alerts", &answer) {
		for _, a := range answer.Data.Alerts {
			if a.State == "firing" && a.Labels["job_name"] == job {
				names[a.Labels["alertname"]] = true
			}
		}
	}
	return names
}

// await asks each half second, since Prometheus reports nothing by itself.
func (p *prometheus) await(what string, ok func() bool) {
	p.t.Helper()
	over := time.After(2 * patience)
	for !ok() {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-over:
			var all any
			p.ask("/api/v1/alerts", &all)
			p.t.Fatalf("waited in vain for %s; alerts: %v", what, all)
		}
	}
}

func (p *prometheus) fires(name, job string) {
	p.t.Helper()
	p.await(name+" for "+job, func() bool { return p.firing(job)[name] })
}

// scraped waits until a series has been scraped so often.
func (p *prometheus) scraped(series string, times int) {
	p.t.Helper()
	p.await("scrapes of "+series, func() bool {
		var answer struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		if !p.ask(fmt.Sprintf("/api/v1/query?query=min(count_over_time(%s[5m]))", series), &answer) || len(answer.Data.Result) == 0 {
			return false
		}
		var n int
		if _, err := fmt.Sscan(fmt.Sprint(answer.Data.Result[0].Value[1]), &n); err != nil {
			p.t.Fatal(err)
		}
		return n >= times
	})
}

// TestAlerts: the first failure of a job, a lost run and an outage of the registry
// alarm; what an operator shuts down, and a job that runs well, does not.
func TestAlerts(t *testing.T) {
	t.Parallel()
	e, err := zkserver.Start(t.Context(), zkserver.Options{Dir: t.TempDir(), TickTime: 200 * time.Millisecond, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	c := newCluster(t)
	c.zk = e.Connect()
	const yearly = `cron: "0 0 0 1 1 ? 2099"`
	c.job("tick", everySecond, "shardingTotalCount: 2")
	c.job("quiet", everySecond, "shardingTotalCount: 2")
	c.job("nightly", yearly, "shardingTotalCount: 1", "jobParameter: fail:boom")
	c.job("lost", yearly, "shardingTotalCount: 2", "failover: false", `jobParameter: "stubborn:a"`)
	a, b := c.add(mortal...), c.add(mortal...)
	for _, job := range []string{"tick", "quiet", "lost"} {
		c.divided(job, a, b)
	}
	p := startPrometheus(t, a, b)
	p.scraped(`wasmjob_fires_total{job_name="nightly",outcome="FAIL"}`, 3)
	for _, job := range []string{"tick", "quiet", "nightly", "lost", ""} {
		if names := p.firing(job); len(names) > 0 {
			t.Errorf("all is well, and for the job %q there is %v", job, names)
		}
	}

	c.registry("job", "run", "nightly")
	p.fires("WasmjobJobFails", "nightly")

	f := c.fly("lost", a, b)
	b.kill()
	a.of("lost", f.at[a], kind(event.ItemSkipped), item(f.of(b)[0]), outcome("LOST"))
	p.fires("WasmjobRunLost", "lost")
	p.fires("WasmjobHostDown", "")
	c.open("a")

	c.registry("job", "drain", "quiet")
	p.await("the scrape of a stopped job", func() bool {
		var answer struct{ Data struct{ Result []any } }
		return p.ask(`/api/v1/query?query=wasmjob_job_state{job_name="quiet",state="stopped"}`, &answer) && len(answer.Data.Result) > 0
	})
	p.scraped(`wasmjob_job_state{job_name="quiet",state="stopped"}`, 10) // more than a fire may be late
	for _, job := range []string{"quiet", "tick"} {
		if names := p.firing(job); len(names) > 0 {
			t.Errorf("%v for %s, which was shut down by an operator or runs well", names, job)
		}
	}

	if err := e.Kill(0); err != nil {
		t.Fatal(err)
	}
	p.fires("WasmjobRegistryUnreachable", "")
	p.fires("WasmjobJobDoesNotFire", "tick")
	if names := p.firing("quiet"); len(names) > 0 {
		t.Errorf("%v for a job that was shut down by an operator", names)
	}
	a.kill() // it cannot leave in good order
}

// TestPromtool: promtool has nothing to say about the names and units of a running host's
// metrics, but for those of guests: what kind they are is a part of the name, as the name
// that the guest gives is a label.
func TestPromtool(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	a := c.add()
	a.place.drop("cities.wasm", read(t, example(t, "cities")))
	a.place.drop("cities.yaml", read(t, "../../plugins/examples/cities.yaml"))
	a.of("tick", 0, kind(event.FireEnded))
	a.of("cities", 0, owned())
	c.registry("job", "run", "cities")
	a.of("cities", 0, kind(event.FireEnded))
	_, scrape := a.get("/metrics")
	if !strings.Contains(scrape, "wasmjob_guest_counts_total{") {
		t.Fatal("the guest's metrics are missing")
	}
	for _, line := range undocumented(t, scrape) {
		t.Errorf("docs/metrics.md has it otherwise: %s", line)
	}
	tool := exec.CommandContext(within(t), "promtool", "check", "metrics")
	tool.Stdin = strings.NewReader(scrape)
	if out, err := tool.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestPrometheusFindsRuns: a real Prometheus takes native histograms and exemplars, and
// leads from a number to a run that the history has.
func TestPrometheusFindsRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	a := c.add()
	a.of("tick", 0, kind(event.FireEnded))
	p := startPrometheusWith(t, []string{"--enable-feature=native-histograms,exemplar-storage"}, a)
	p.await("a native histogram", func() bool {
		var answer struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		query := url.QueryEscape(`histogram_count(wasmjob_item_duration_seconds{job_name="tick"}) > 0 and histogram_quantile(0.99, wasmjob_item_duration_seconds{job_name="tick"}) > 0`)
		return p.ask("/api/v1/query?query="+query, &answer) && len(answer.Data.Result) == 1
	})
	var runs []string
	p.await("exemplars", func() bool {
		var answer struct {
			Data []struct {
				Exemplars []struct{ Labels map[string]string }
			}
		}
		path := fmt.Sprintf("/api/v1/query_exemplars?query=wasmjob_item_duration_seconds&start=%d&end=%d", time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Minute).Unix())
		if !p.ask(path, &answer) {
			return false
		}
		for _, s := range answer.Data {
			for _, e := range s.Exemplars {
				runs = append(runs, e.Labels["run_id"])
			}
		}
		return len(runs) > 0
	})
	for _, run := range runs {
		a.of("tick", 0, kind(event.ItemEnded), test{run, func(e event.Event) bool { return e.RunID == run }})
	}
}

// TestDashboardAnswers: a real Prometheus beside real hosts answers every query of the
// dashboard, and has something to show but where nothing is wrong.
func TestDashboardAnswers(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join("..", "..", "deploy", "grafana", "wasmjob.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	c.job("fails", everySecond, "shardingTotalCount: 2", "jobParameter: fail:boom")
	a, b := c.add(), c.add()
	c.divided("tick", a, b)
	c.divided("fails", a, b)
	p := startPrometheus(t, a, b)
	p.scraped(`wasmjob_fires_total{job_name="fails",outcome="FAIL"}`, 5)
	quiet := []string{"Spans", "Spans that wait", "Skipped, by reason", "What is waited for", "Worker processes", "Over quota", "Refused files and gaps in the history", "Failures by reason", "Clocks",
		"Without an answer", "Refused", "Bytes sent", "Bytes received"}
	queries := 0
	for _, panel := range dashboard.Panels {
		shown := false
		for _, target := range panel.Targets {
			queries++
			expr := strings.NewReplacer("$job_name", ".*", "$job", "wasmjob", "$host", ".*", "$__rate_interval", "1m").Replace(target.Expr)
			var answer struct {
				Status string
				Data   struct{ Result []any }
			}
			if !p.ask("/api/v1/query?query="+url.QueryEscape(expr), &answer) || answer.Status != "success" {
				t.Errorf("%s: Prometheus does not answer %s", panel.Title, expr)
			}
			shown = shown || len(answer.Data.Result) > 0
		}
		if len(panel.Targets) > 0 && !shown && !slices.Contains(quiet, panel.Title) {
			t.Errorf("%s has nothing to show", panel.Title)
		}
	}
	if queries < 50 {
		t.Errorf("%d queries only: the dashboard is not read as it is written", queries)
	}
}
