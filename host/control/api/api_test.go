package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef0123456789"

// served is a host whose API is served.
type served struct {
	*servicetest.House
	t      *testing.T
	api    *API
	url    string
	client *client.Client
	http   *http.Client
	mute   context.CancelFunc // ends the API alone
}

// serve starts a host and serves its API until the test ends.
func serve(t *testing.T, o servicetest.Options) *served {
	t.Helper()
	s := &served{t: t, http: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(s.http.CloseIdleConnections)
	var serving *server.Server
	ctx, stop := context.WithCancel(context.Background())
	s.mute = stop
	ended := make(chan error, 1)
	o.Listen = func(h *servicetest.House) string {
		s.api = New(Options{Service: h.Service, Cluster: h.Cluster, Local: h.Local, Tail: h.Tail, Store: h.Store, Verify: h.Peers.Verify,
			Report: h.Reporter.Report})
		var err error
		serving, err = server.Listen(server.Options{Address: server.Address{Network: "tcp", Name: "127.0.0.1:0"}, Token: token,
			Ready: h.Reporter.Ready, API: s.api, Peers: s.api.Peers(), Logger: h.Log})
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- serving.Run(ctx) }()
		s.url = serving.Address().URL("127.0.0.1")
		return s.url
	}
	t.Cleanup(func() { // after the host has ended
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.House = servicetest.Start(t, o)
	s.client = client.NewClient(serving.Address(), token)
	return s
}

// answer is what an endpoint answered.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// problem is the problem of an answer.
func (a answer) problem(t *testing.T) server.Problem {
	t.Helper()
	var p server.Problem
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%d is no problem: %v: %s", a.code, err, a.body)
	}
	if a.header.Get("Content-Type") != "application/problem+json" || p.Status != a.code || p.Title != http.StatusText(a.code) || p.Detail == "" {
		t.Errorf("%d %s: %+v", a.code, a.header.Get("Content-Type"), p)
	}
	return p
}

// ask sends a request with the token; headers are names and values in turns.
func (s *served) ask(method, path, body string, headers ...string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, data}
}

// get reads a good answer into a value.
func get[T any](s *served, path string) (v T) {
	s.t.Helper()
	a := s.ask(http.MethodGet, path, "")
	if a.code != http.StatusOK || a.header.Get("Content-Type") != "application/json" || a.header.Get("Cache-Control") != "no-store" {
		s.t.Fatalf("%s: %d %s %s", path, a.code, a.header, a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		s.t.Fatalf("%s: %v: %s", path, err, a.body)
	}
	return v
}

// once is a job that only triggers run.
func once(name string, items int) engine.Job { return servicetest.Job(name, "", items, servicetest.OK) }

// TestOperationsByTheClient has the client operate a job, and looks at the registry.
func TestOperationsByTheClient(t *testing.T) {
	t.Parallel()
	const odd = `a b%ü?x=1#"<日本>`
	s := serve(t, servicetest.Options{Jobs: []engine.Job{once("cities", 3), once(odd, 1)}})
	ctx, c := t.Context(), s.client
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	is := func(path, want string) {
		t.Helper()
		if got, _ := s.Look(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	ran := func(job string, times int) {
		t.Helper()
		s.Until(fmt.Sprintf("%s has run %d times", job, times), func() bool {
			runs := get[cluster.Found[struct{ Job, Outcome string }]](s, "/v1/runs?limit=1000&outcome=ok&job="+url.QueryEscape(cluster.Literal(job)))
			return len(runs.Records) == times
		})
	}
	do(c.Trigger(ctx, "cities"))
	ran("cities", 3)
	do(c.Trigger(ctx, odd))
	ran(odd, 1)
	do(c.Disable(ctx, "cities"))
	is("/ns/cities/servers/127.0.0.1", "DISABLED")
	is("/ns/"+odd+"/servers/127.0.0.1", "ENABLED")
	do(c.Disable(ctx, ""))
	is("/ns/"+odd+"/servers/127.0.0.1", "DISABLED")
	do(c.Enable(ctx, ""))
	is("/ns/cities/servers/127.0.0.1", "ENABLED")
	do(c.DisableServer(ctx, "cities", "127.0.0.1"))
	is("/ns/cities/servers/127.0.0.1", "DISABLED")
	do(c.EnableServer(ctx, "", "127.0.0.1"))
	is("/ns/cities/servers/127.0.0.1", "ENABLED")
	do(c.DisableItem(ctx, "cities", 2))
	if _, there := s.Look("/ns/cities/sharding/2/disabled"); !there {
		t.Error("item 2 is not disabled")
	}
	do(c.Until(time.Now().Add(time.Hour)).DisableItem(ctx, "cities", 2))
	do(c.Until(time.Now().Add(time.Hour)).DisableServer(ctx, "cities", "127.0.0.1"))
	if shards, err := c.Shards(ctx, "cities"); err != nil || len(shards.Said) != 1 || shards.Said[0].Until.IsZero() || shards.Said[0].By == "" ||
		shards.Items[2].Said == nil || shards.Items[2].Said.Until.IsZero() {
		t.Errorf("%+v, %v", shards, err)
	}
	do(c.EnableServer(ctx, "cities", "127.0.0.1"))
	do(c.EnableItem(ctx, "cities", 2))
	if jobs, err := c.Jobs(ctx); err != nil || len(jobs) != 2 {
		t.Errorf("%+v, %v", jobs, err)
	}
	shards, err := c.Shards(ctx, "cities")
	if err != nil || len(shards.Items) != 3 || len(shards.Instances) != 1 {
		t.Fatalf("%+v, %v", shards, err)
	}
	do(c.Shutdown(ctx, "cities", "", shards.Instances[0].ID))
	s.Until("the job is stopped", func() bool { return state(s, "cities") == engine.JobStopped })
	do(c.Start(ctx, "cities"))
	s.Until("the job is back", func() bool { return state(s, "cities") == engine.JobReady })
	do(c.Remove(ctx, "cities", false))
	s.Until("the job is removed", func() bool { return state(s, "cities") == engine.JobRemoved })
	do(c.Remove(ctx, odd, true))
	if _, there := s.Look("/ns.wasmjob/" + odd + "/members"); there {
		t.Error("what is purged is there")
	}
	report, err := c.Status(ctx)
	if err != nil || report.About.Version != "test" || len(report.Status.Jobs) != 2 || report.Status.State != engine.HostLive {
		t.Errorf("%+v, %v", report, err)
	}
}

func state(s *served, job string) engine.JobState {
	for _, j := range s.Host.Status().Jobs {
		if j.Name == job {
			return j.State
		}
	}
	return ""
}

// TestErrors: each kind of error has its status, and its text is the one of who says it.
func TestErrors(t *testing.T) {
	t.Parallel()
	const gone = "o'brien & co"
	s := serve(t, servicetest.Options{
		Jobs: []engine.Job{once("cities", 2), once(gone, 1)},
		Refused: []engine.Refusal{
			{File: "bad.yaml", Reasons: []string{"line 3: cron: no"}},
			{File: "many.yaml", Reasons: []string{`line 1: job "first": worse`, `line 9: job "second": worst`}, Jobs: []string{"first", "second"}},
		},
	})
	if err := s.client.Remove(t.Context(), gone, false); err != nil {
		t.Fatal(err)
	}
	s.Until("the job is removed", func() bool { return state(s, gone) == engine.JobRemoved })
	if n := slices.IndexFunc(s.Host.Status().Jobs, func(j *engine.JobStatus) bool { return j.Name == gone }); !strings.Contains(s.Host.Status().Jobs[n].Reason, `'wasmjob job restore "o'brien & co"' brings it back`) {
		t.Errorf("the host says %q", s.Host.Status().Jobs[n].Reason)
	}
	s.Pending.Store(&report.Pending{Compiling: []report.Compiling{{Module: "slow.wasm", Jobs: []string{"slow"}}}})
	for request, want := range map[string]struct {
		code          int
		where, detail string
	}{
		"POST /v1/jobs/none/trigger":                  {404, "", `there is no job "none"`},
		"GET /v1/jobs/none":                           {404, "", `no host has a job "none"`},
		"GET /v1/jobs/citis":                          {404, "", `no host has a job "citis"; did you mean "cities"?`},
		"POST /v1/jobs/citis/trigger":                 {404, "", `there is no job "citis"; did you mean "cities"?`},
		"POST /v1/jobs/citis/restore":                 {404, "", `did you mean "cities"?`},
		"GET /v1/jobs?limit=0&foo=1":                  {422, "query.limit query.foo", ""},
		"GET /v1/runs?limit=0&item=x&bar=&foo=1":      {422, "query.item query.limit query.bar query.foo", ""},
		"GET /v1/runs?failed=maybe&trigger=x":         {422, "query.trigger query.failed", `found "x", expected a whole number`},
		"GET /v1/logs?level=101&oldest=x&item=-1":     {422, "query.item query.oldest query.level", "expected number >= 0"},
		"POST /v1/jobs/cities/trigger?foo=1":          {422, "query.foo", "unknown parameter"},
		"GET /v1/logs/stream?job=cities&foo=1":        {422, "query.foo", "unknown parameter"},
		"GET /v1/jobs/none/shards":                    {404, "", `there is no job "none"`},
		"GET /v1/jobs/none/config":                    {404, "", `there is no job "none"`},
		"GET /v1/jobs/none/kept":                      {404, "", `there is no job "none"`},
		"DELETE /v1/jobs/none":                        {404, "", `there is no job "none"`},
		"POST /v1/jobs/o'brien%20&%20co/enable":       {409, "", engine.ErrJobRemoved.Error() + `; 'wasmjob job restore "o'brien & co"' brings it back`},
		"POST /v1/jobs/bad/enable":                    {404, "", "bad.yaml is refused: line 3: cron: no"},
		"POST /v1/jobs/second/enable":                 {404, "", `many.yaml is refused: line 9: job "second": worst`},
		"POST /v1/jobs/slow/trigger":                  {503, "", "its module is still being compiled; try again in a moment"},
		"POST /v1/jobs/slow/disable":                  {503, "", "its module is still being compiled"},
		"GET /v1/jobs/slow":                           {404, "", "its module slow.wasm is still being compiled"},
		"POST /v1/jobs/cities/items/9/disable":        {404, "", `job "cities" has no item 9; there is 0-1`},
		"POST /v1/jobs/cities/items/one/disable":      {422, "path.item", "a number from 0"},
		"POST /v1/jobs/cities/items/-1/disable":       {422, "path.item", "a number from 0"},
		"DELETE /v1/jobs/cities?purge=perhaps":        {422, "query.purge", `found "perhaps", expected true or false`},
		"POST /v1/shutdown":                           {422, "query", "neither a job, a server nor an instance"},
		"GET /v1/jobs?job=%5B":                        {422, "query.job", "expected a name or a pattern"},
		"GET /v1/calendar?job=%5B":                    {422, "query.job", "expected a name or a pattern"},
		"GET /v1/jobs?state=foo":                      {422, "query.state", "expected ready, running"},
		"GET /v1/jobs?outcome=foo":                    {422, "query.outcome", "expected OK, FAIL"},
		"POST /v1/start":                              {422, "query", "neither a server nor an instance"},
		"POST /v1/start?server=127.0.0.1":             {409, "", "no job is stopped on 127.0.0.1"},
		"POST /v1/jobs/cities/shutdown?instance=none": {404, "", "no instance none; there is 127.0.0.1@-@"},
		"POST /v1/jobs/cities/kill?grace=5":           {422, "query.grace", `"5" is not a duration; want one such as`},
		"POST /v1/jobs/cities/kill?grace=2d":          {422, "query.grace", "grace 48h0m0s is not from 0 to 24h0m0s"},
		"POST /v1/jobs/cities/kill?grace=25h":         {422, "query.grace", "is not from 0 to 24h0m0s"},
		"POST /v1/jobs/cities/kill?run=cities/x/1":    {404, "", "run cities/x/1 is not running; there is none"},
		"POST /v1/jobs/cities/kept?item=0":            {400, "", "body is required"},
		"GET /v1/jobs?sort=colour":                    {422, "query.sort", "name, next, last, health or duration"},
		"GET /v1/jobs?health=sick":                    {422, "query.health[0]", "one of"},
		"GET /v1/jobs?limit=-1":                       {422, "query.limit", ">= 1"},
		"GET /v1/jobs?limt=1":                         {422, "query.limt", `did you mean "limit"?`},
		"GET /v1/jobs?after=none":                     {422, "query.after", "that job is not in the list any more"},
		"GET /v1/runs?limit=0":                        {422, "query.limit", ">= 1"},
		"GET /v1/runs?limit=many":                     {422, "query.limit", `found "many", expected a whole number`},
		"GET /v1/logs?who=x":                          {422, "query.who", "unknown parameter, expected after, from, host, item, job, label, level, limit, oldest, run, text, to"},
		"GET /v1/logs?trigger=7":                      {422, "query.trigger", "unknown parameter"},
		"GET /v1/audit?level=8":                       {422, "query.level", "expected after, failed, from,"},
		"GET /v1/fires?who=x":                         {422, "query.who", "unknown parameter"},
		"GET /v1/events?running=true":                 {422, "query.running", "unknown parameter"},
		"GET /v1/hosts?host=x":                        {422, "query.host", "there are none here"},
		"GET /v1/runs?after=AAAA":                     {422, "query.after", "the next of a page of the same list"},
		"GET /v1/runs?job=%5B":                        {422, "query.job", "a pattern"},
		"GET /v1/runs?from=yesterday":                 {422, "query.from", "how long ago"},
		"GET /v1/runs?host=cities":                    {422, "query.host", "expected a server's address"},
		"GET /v1/jobs?host=cities":                    {422, "query.host", "expected a server's address"},
		"GET /v1/audit?what=sing":                     {422, "query.what", `did you mean "sign"?`},
		"GET /v1/audit?what=edit+crom":                {422, "query.what", `did you mean "cron"?`},
		"GET /v1/run":                                 {422, "query.id", "required"},
		"GET /v1/run?id=cities/x/1":                   {404, "", "no run"},
		"GET /v1/schedule?cron=0+61+*+*+*+?":          {422, "query.cron", "61"},
		"GET /v1/schedule?cron=@daily&timeZone=Mars":  {422, "query.timeZone", "Mars"},
		"GET /v1/calendar?to=2020-01-01T00:00:00Z":    {422, "query.to", "up to 31 days"},
		"GET /v1/calendar?from=nonsense":              {422, "query.from", `found "nonsense", expected a time such as 2026-11-23T03:00:00Z`},
		"GET /v1/jobs/cities/explain?at=nonsense":     {422, "query.at", `found "nonsense", expected a time such as 2026-11-23T03:00:00Z`},
		"GET /v1/jobs/cities/explain?before=03:00":    {422, "query.before", `found "03:00", expected a time such as 2026-11-23T03:00:00Z`},
		"GET /v1/schedule?cron=@daily&limit=many":     {422, "query.limit", `found "many", expected a whole number`},
		"GET /v1/status?full=perhaps":                 {422, "query.full", `found "perhaps", expected true or false`},
		"GET /v1/nothing":                             {404, "", "no such endpoint: GET /v1/nothing"},
		"GET /v1/jobs/cities/trigger":                 {404, "", "no such endpoint: GET /v1/jobs/cities/trigger"},
		"GET /v1/logs/stream":                         {422, "query.job", "neither a job nor a run"},

		"POST /v1/jobs/cities/disable?until=soon":       {422, "query.until", "is not a time"},
		"POST /v1/jobs/cities/enable?until=2h":          {422, "query.until", "only a pause ends by itself"},
		"POST /v1/jobs/cities/disable?until=2020-01-01": {422, "query.until", "a time that is to come"},
		"POST /v1/servers/127.0.0.1/disable?until=-2h":  {422, "query.until", "is not a time"},
	} {
		method, path, _ := strings.Cut(request, " ")
		a := s.ask(method, path, "")
		if a.code != want.code {
			t.Errorf("%s: %d %s; want %d", request, a.code, a.body, want.code)
			continue
		}
		p := a.problem(t)
		text := p.Detail
		if want.where != "" {
			var where []string
			for _, e := range p.Errors {
				where = append(where, e.Location)
			}
			if strings.Join(where, " ") != want.where {
				t.Errorf("%s: %+v, want it at %s", request, p, want.where)
				continue
			}
			text += " " + p.Errors[0].Message
		}
		if !strings.Contains(text, want.detail) {
			t.Errorf("%s: %+v, want %q", request, p, want.detail)
		}
	}
	for _, request := range []string{"POST /v1/jobs/cities/disable", "PATCH /v1/jobs/cities/config", "DELETE /v1/jobs/cities", "POST /v1/jobs/cities/kill"} {
		method, path, _ := strings.Cut(request, " ")
		a := s.ask(method, path, "", "Idempotency-Key", "x", "If-Match", "x", "Content-Type", "application/json")
		if p := a.problem(t); a.code != 422 && a.code != 400 || !strings.Contains(string(a.body), "only a trigger heeds it") && a.code == 422 {
			t.Errorf("%s with a key: %+v", request, p)
		}
	}
	if a := s.ask("GET", "/v1/jobs", "", "Idempotency-Key", "x"); a.code != 200 {
		t.Errorf("to look with a key: %d", a.code)
	}
	var no *client.ServerError
	if err := s.client.Enable(t.Context(), "second"); !errors.As(err, &no) || no.Code != 404 || !strings.Contains(no.Message, `many.yaml is refused: line 9: job "second": worst`) {
		t.Errorf("the client: %v", err)
	}
	if err := s.client.DisableItem(t.Context(), "cities", -1); !errors.As(err, &no) || no.Code != 422 || no.Message != `item: found "-1", expected a number from 0` {
		t.Errorf("the client: %v", err)
	}
}

// TestKept shows and changes what items keep.
func TestKept(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{once("a", 2)}})
	ctx, c := t.Context(), s.client
	offset := admin.Bytes("line\x00 7\xff")
	k, err := c.ChangeKept(ctx, "a", 1, admin.KeptChange{Offset: &offset, Set: map[string]admin.Bytes{"table": "\xff"}})
	if err != nil || *k.Offset != offset || k.Values["table"] != "\xff" {
		t.Fatalf("%+v, %v", k, err)
	}
	all, err := c.Kept(ctx, "a", -1)
	if err != nil || len(all) != 2 || *all[1].Offset != offset || all[1].Values != nil || all[0].Offset != nil {
		t.Errorf("%+v, %v", all, err)
	}
	long := admin.Bytes(strings.Repeat("\x01", abi.MaxOffset+1))
	var no *client.ServerError
	if _, err := c.ChangeKept(ctx, "a", 0, admin.KeptChange{Offset: &long}); !errors.As(err, &no) || no.Code != 422 || !strings.Contains(no.Message, "the offset has 4097 bytes") {
		t.Errorf("too long: %v", err)
	}
	if _, err := c.ChangeKept(ctx, "a", -1, admin.KeptChange{ResetOffset: true}); !errors.As(err, &no) || no.Code != 422 || !strings.Contains(no.Message, "say which one is meant") {
		t.Errorf("which item: %v", err)
	}
	if _, err := c.ChangeKept(ctx, "a", 0, admin.KeptChange{Delete: []string{"x"}}); !errors.As(err, &no) || no.Code != 404 {
		t.Errorf("no such key: %v", err)
	}
	if a := s.ask("POST", "/v1/jobs/a/kept?item=0", `{"ofset":"x"}`); a.code != 422 || a.problem(t).Errors[0].Location != "body.ofset" {
		t.Errorf("an unknown field: %d %s", a.code, a.body)
	}
	s.Put("/ns.wasmjob/a/sharding/0", fmt.Sprintf(`{"owner":"10.0.0.1@-@a","instant":1000,"begun":%d}`, time.Now().UnixMilli()))
	if _, err := c.ChangeKept(ctx, "a", 0, admin.KeptChange{ResetOffset: true}); !errors.As(err, &no) || no.Code != 409 || !strings.Contains(no.Message, "item 0 runs on 10.0.0.1@-@a") {
		t.Errorf("what runs: %v", err)
	}
}

// TestTriggerArgs has some items run, with a parameter, and is refused with the place of
// what is wrong. What was asked for is in the record and in the events.
func TestTriggerArgs(t *testing.T) {
	t.Parallel()
	long := servicetest.Job("long", "", 2, servicetest.Wait)
	long.Definition.Props["wasm.queueMax"] = "1"
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("cities", "", 6, servicetest.OK), long}})
	for name, tc := range map[string]struct {
		body, place, says string
		code              int
	}{
		"no such item":       {`{"items":"0,6"}`, "body.items", "found 6, expected 0 to 5: the job has 6", 422},
		"no items":           {`{"items":"5-3"}`, "body.items", `found "5-3", expected numbers and ranges such as 0,3-5, below 1000000`, 422},
		"too long":           {`{"param":"` + strings.Repeat("ü", 2049) + `"}`, "body.param", "found 4098 bytes, expected at most 4096", 422},
		"no text":            {`{"param":"a\u0000"}`, "body.param", "found bytes that are no text, expected UTF-8 without NUL", 422},
		"another field":      {`{"item":"0"}`, "body.item", "unexpected property", 422},
		"a plain one":        {`{}`, "", "", 200},
		"items and no param": {`{"items":"1, 3-4"}`, "", "", 200},
		"an empty parameter": {`{"param":""}`, "", "", 200},
	} {
		a := s.ask("POST", "/v1/jobs/cities/trigger", tc.body)
		if tc.code == 200 {
			s.Until("the one before it has begun", func() bool {
				waits := a.code == 409
				if waits {
					a = s.ask("POST", "/v1/jobs/cities/trigger", tc.body)
				}
				return !waits
			})
		}
		if a.code != tc.code {
			t.Errorf("%s: %d %s", name, a.code, a.body)
		} else if tc.place != "" {
			if e := a.problem(t).Errors[0]; e.Location != tc.place || e.Message != tc.says {
				t.Errorf("%s: %s: %s", name, e.Location, e.Message)
			}
		}
	}
	s.Until("all have run", func() bool {
		return len(get[cluster.Found[history.Run]](s, "/v1/runs?limit=1000&outcome=ok&job=cities").Records) == 6+3+6
	})

	param := "<day 1>"
	args := tree.TriggerArgs{Items: tree.Ranges{{From: 1, To: 1}}, Param: &param}
	if _, err := s.client.WithReason("again").TriggerWith(t.Context(), "long", args); err != nil {
		t.Fatal(err)
	}
	s.Until("it runs", func() bool { return get[service.JobDetail](s, "/v1/jobs/long").Running == 1 })
	kept, err := s.client.TriggerWith(t.Context(), "long", args)
	if err != nil || kept.Earlier != 0 {
		t.Errorf("the same again: %+v %v", kept, err)
	}
	if queued, err := s.client.TriggerWith(t.Context(), "long", args); err != nil || queued.Trigger != 0 || queued.Queued <= kept.Trigger || queued.Ahead != 1 {
		t.Errorf("once more, while that waits: %+v %v, want it to be queued", queued, err)
	}
	var refused *client.ServerError
	if err := s.client.Trigger(t.Context(), "long"); !errors.As(err, &refused) || refused.Code != 409 || !strings.Contains(refused.Message, "1 trigger waits behind the one that has not begun, and the job allows 1 (queueMax)") {
		t.Errorf("another one: %v", err)
	}
	var changes []history.Change
	s.Until("all four are in the audit, after the job itself", func() bool {
		changes = get[cluster.Found[history.Change]](s, "/v1/audit?job=long&limit=10").Records
		return len(changes) == 5
	})
	if changes[3].What != "trigger" || changes[3].After != `items 1 and parameter "<day 1>"` || changes[3].Why != "again" || changes[0].Error == "" {
		t.Errorf("records %+v", changes)
	}
	s.Until("its events are there", func() bool {
		events := get[cluster.Found[event.Event]](s, "/v1/events?job=long&kind=item.started&limit=10").Records
		return len(events) == 1 && events[0].Args != nil && events[0].Args.Items == "1" && *events[0].Args.Param == param
	})
}

// TestKill ends runs, and says how they ended.
func TestKill(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("long", "", 2, servicetest.Wait)}})
	if err := s.client.Trigger(t.Context(), "long"); err != nil {
		t.Fatal(err)
	}
	s.Until("both items run", func() bool {
		d := get[service.JobDetail](s, "/v1/jobs/long")
		return d.Running == 2
	})
	var seen []int
	kills, err := s.client.ByUser("ann@ops1").Kill(t.Context(), "long", admin.KillOptions{Item: -1, By: "another user", Wait: time.Minute}, func(k *admin.Kills) { seen = append(seen, k.Open()) })
	if err != nil || len(kills.Runs) != 2 || kills.Open() != 0 || kills.Runs[0].Outcome != string(abi.OutcomeCancelled) || !strings.Contains(kills.Runs[0].Reason, "host token (ann@ops1)") || seen[0] != 2 {
		t.Errorf("%+v, %v, seen %v", kills, err, seen)
	}
	a := s.ask("POST", "/v1/jobs/long/kill?wait=1s", "")
	if a.code != 200 || a.header.Get("Content-Type") != "application/x-ndjson" || !bytes.Contains(a.body, []byte(`"runs":[]`)) {
		t.Errorf("nothing runs: %d %s %s", a.code, a.header, a.body)
	}
}

// TestEditConfig edits, previews, and is refused with what there is now.
func TestEditConfig(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("cities", "0 0 3 * * ?", 2, servicetest.OK)}})
	read := s.ask("GET", "/v1/jobs/cities/config", "")
	tag := read.header.Get("ETag")
	var c admin.JobConfig
	if err := json.Unmarshal(read.body, &c); err != nil || c.Settings["cron"] != "0 0 3 * * ?" || tag != fmt.Sprintf(`"%d"`, c.Version) {
		t.Fatalf("%v %s %s", err, tag, read.body)
	}
	edit := func(query, tag, body string) answer {
		t.Helper()
		if tag == "" {
			return s.ask("PATCH", "/v1/jobs/cities/config"+query, body)
		}
		return s.ask("PATCH", "/v1/jobs/cities/config"+query, body, "If-Match", tag)
	}
	const four = `{"settings":{"cron":"0 0 4 * * ?"}}`
	preview := edit("?preview=true", tag, four)
	var e admin.Edited
	if err := json.Unmarshal(preview.body, &e); err != nil || preview.code != 200 || e.Before.Settings["cron"] != "0 0 3 * * ?" || e.After.Settings["cron"] != "0 0 4 * * ?" || e.After.Version != c.Version {
		t.Fatalf("%v: %d %s", err, preview.code, preview.body)
	}
	if got := get[admin.JobConfig](s, "/v1/jobs/cities/config"); got.Version != c.Version {
		t.Errorf("a preview changed it: %+v", got)
	}
	done := edit("?reason=earlier", tag, four)
	if err := json.Unmarshal(done.body, &e); err != nil || done.code != 200 || e.After.Version <= c.Version || done.header.Get("ETag") != fmt.Sprintf(`"%d"`, e.After.Version) {
		t.Fatalf("%v: %d %s", err, done.code, done.body)
	}
	s.Until("the host has it", func() bool { return get[service.JobDetail](s, "/v1/jobs/cities").Cron == "0 0 4 * * ?" })
	// An edit that was made from the version before.
	stale := edit("", tag, `{"settings":{"cron":"0 0 5 * * ?"}}`)
	if p := stale.problem(t); stale.code != 412 || !strings.Contains(p.Detail, fmt.Sprintf("it is version %d now", e.After.Version)) || stale.header.Get("ETag") != done.header.Get("ETag") {
		t.Errorf("%d %s %+v", stale.code, stale.header, p)
	}
	for name, c := range map[string]struct {
		tag, body string
		code      int
		where     string
	}{
		"no If-Match":      {"", four, 428, ""},
		"a bad If-Match":   {"x", four, 422, "header.If-Match"},
		"a bad cron":       {"*", `{"settings":{"cron":"0 61 * * * ?"}}`, 422, "body.settings.cron"},
		"a bad count":      {"*", `{"settings":{"shardingTotalCount":"0"}}`, 422, "body.settings.shardingTotalCount"},
		"no such setting":  {"*", `{"settings":{"crom":"x"}}`, 422, "body.settings.crom"},
		"no settings":      {"*", `{}`, 422, "body"},
		"an unknown field": {"*", `{"settings":{},"x":1}`, 422, "body.x"},
		"no JSON":          {"*", `{`, 400, ""},
	} {
		a := edit("", c.tag, c.body)
		p := a.problem(t)
		if a.code != c.code || (c.where != "" && (len(p.Errors) == 0 || p.Errors[0].Location != c.where)) {
			t.Errorf("%s: %d %+v, want %d at %s", name, a.code, p, c.code, c.where)
		}
	}
	all := edit("", "*", `{"settings":{"cron":"0 61 * * * ?","foo":"x","retry.attempts":"-1","description":"fine"}}`).problem(t)
	var places []string
	for _, at := range all.Errors {
		places = append(places, at.Location)
	}
	slices.Sort(places)
	if want := []string{"body.settings.cron", "body.settings.foo", "body.settings.retry.attempts"}; !slices.Equal(places, want) {
		t.Errorf("at fault are %q, expected %q", places, want)
	}
	if same := edit("?reason=again", "*", four); same.code != 200 || same.header.Get("ETag") != done.header.Get("ETag") {
		t.Errorf("what is so already: %d %s", same.code, same.header)
	}
	type change struct{ What, Why, Before, After, Error string }
	var changes cluster.Found[change]
	s.Until("both edits are recorded", func() bool {
		changes = get[cluster.Found[change]](s, "/v1/audit?job=cities&oldest=true")
		return len(changes.Records) >= 3
	})
	if slices.ContainsFunc(changes.Records, func(c change) bool { return c.Why == "again" }) {
		t.Errorf("an edit that changes nothing is recorded: %+v", changes)
	}
	if list := changes.Records; list[0].What != "create" || list[1].What != "edit cron" || list[1].Why != "earlier" ||
		list[1].Before != `{"cron":"0 0 3 * * ?"}` || list[1].After != `{"cron":"0 0 4 * * ?"}` || !strings.Contains(list[2].Error, "version") {
		t.Errorf("%+v", changes)
	}
}

// TestNamedArguments: arguments go by their names and types, and each problem has its place.
func TestNamedArguments(t *testing.T) {
	t.Parallel()
	job := servicetest.Job("settle", "", 1, servicetest.OK)
	job.Definition.Props["wasm.arguments"] = `[{"name":"day","type":"date"},{"name":"limit","type":"integer","default":"100","min":"1"},{"name":"dry","type":"boolean","default":"false"}]`
	s := serve(t, servicetest.Options{Jobs: []engine.Job{job, servicetest.Job("plain", "", 1, servicetest.OK)}})
	for body, want := range map[string]string{
		`{"arguments":{"day":"2026-12-24","limit":0}}`:              `body.arguments.limit: found "0", expected a whole number of at least 1`,
		`{"arguments":{"day":"2026-12-24","limit":"x"}}`:            `body.arguments.limit: found "x", expected a whole number of at least 1`,
		`{"arguments":{"day":20261224}}`:                            `body.arguments.day: found 20261224, expected a date such as 2026-12-24`,
		`{"arguments":{}}`:                                          `body.arguments.day: is missing, expected a date such as 2026-12-24`,
		`{"arguments":{"day":"2026-12-24"},"param":"x"}`:            `body.param: found a parameter beside arguments, expected one of the two`,
		`{"arguments":{"day":"` + strings.Repeat("1", 5000) + `"}}`: `body.arguments: found 5010 bytes, expected at most 4096`,
		`{"param":"x"}`: `body.arguments: found "x", expected a JSON object such as {"day":"2026-12-24"}`,
	} {
		a := s.ask("POST", "/v1/jobs/settle/trigger", body)
		if a.code != 422 {
			t.Errorf("%.80s: %d %s", body, a.code, a.body)
		} else if e := a.problem(t).Errors[0]; e.Location+": "+e.Message != want {
			t.Errorf("%.80s: %s: %s, want %s", body, e.Location, e.Message, want)
		}
	}
	if a := s.ask("POST", "/v1/jobs/plain/trigger", `{"arguments":{"day":"2026-12-24"}}`); a.code != 422 || !strings.Contains(string(a.body), "the job declares no arguments") {
		t.Errorf("a job without arguments: %d %s", a.code, a.body)
	}
	args, err := tree.NewNamedArgs("0", `{"day":"2026-12-24","dry":"true"}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.TriggerWith(t.Context(), "settle", args); err != nil {
		t.Fatal(err)
	}
	s.Until("its events are there", func() bool {
		events := get[cluster.Found[event.Event]](s, "/v1/events?job=settle&kind=item.started&limit=10").Records
		return len(events) == 1 && events[0].Args != nil && *events[0].Args.Param == `{"day":"2026-12-24","limit":100,"dry":true}`
	})
	if d := get[service.JobDetail](s, "/v1/jobs/settle"); len(d.Arguments) != 3 || d.Arguments[1].Name != "limit" || *d.Arguments[1].Default != "100" {
		t.Errorf("the job shows %+v", d.Arguments)
	}
}
