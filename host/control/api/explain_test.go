package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestExplain: a host answers for what happened on another one, with the events that show
// it, and says who disabled what did not run.
func TestExplain(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	job := func() []engine.Job {
		return []engine.Job{servicetest.Job("pay", "* * * * * ?", 2, servicetest.OK), servicetest.Job("etl", "0 0 3 1 1 ? 2099", 1, servicetest.Fail)}
	}
	a := serve(t, servicetest.Options{Server: server, IP: "127.0.0.1", Jobs: job()})
	b := serve(t, servicetest.Options{Server: server, IP: "127.0.0.2", Jobs: job()})
	var run history.Run
	a.Until("an item has run on the other host", func() bool {
		for _, r := range get[cluster.Found[history.Run]](a, "/v1/runs?job=pay").Records {
			if strings.HasPrefix(r.Host, "127.0.0.2@") && r.Completed {
				run = r
				return true
			}
		}
		return false
	})
	path := "/v1/jobs/pay/explain?"
	byRun := get[explain.Answer](a, path+url.Values{"run": {run.ID}}.Encode())
	byInstant := get[explain.Answer](b, path+url.Values{"at": {run.Instant.Format(time.RFC3339Nano)}, "item": {fmt.Sprint(run.Item)}}.Encode())
	for name, found := range map[string]explain.Answer{"by the run, on another host": byRun, "by the instant, on its host": byInstant} {
		first := found.Sentences[0]
		if found.Verdict != explain.Ran || len(found.Items) != 1 || !strings.Contains(first.Text, "began in time on host 127.0.0.2") || len(first.Events) == 0 || first.Events[0].Host != run.Host {
			t.Errorf("%s: %+v", name, found)
		}
	}

	if got := a.ask("POST", "/v1/jobs/pay/disable?reason=holiday", ""); got.code != 204 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	var off explain.Answer
	a.Until("a fire is skipped", func() bool {
		off = get[explain.Answer](a, path+"item=0")
		return off.Verdict == explain.Disabled
	})
	said := slices.IndexFunc(off.Sentences, func(s explain.Sentence) bool { return s.Kind == explain.KindChange })
	if said < 0 || !strings.Contains(off.Sentences[said].Text, `did "pause"`) || !strings.Contains(off.Sentences[said].Text, ": holiday.") || len(off.Sentences[said].Changes) != 1 {
		t.Errorf("%+v", off)
	}
	before := get[explain.Answer](a, path+url.Values{"before": {run.Instant.Add(500 * time.Millisecond).Format(time.RFC3339Nano)}}.Encode())
	if !before.Instant.Equal(run.Instant) {
		t.Errorf("the newest fire before %s + 500 ms: %+v", run.Instant, before)
	}

	if got := a.ask("POST", "/v1/jobs/etl/trigger?reason=month+end", ""); got.code/100 != 2 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	a.Until("the trigger has run", func() bool {
		found := get[cluster.Found[history.Run]](a, "/v1/runs?job=etl").Records
		if len(found) != 1 || found[0].Outcome != abi.OutcomeFail {
			return false
		}
		run = found[0]
		return true
	})
	triggered := get[explain.Answer](a, "/v1/jobs/etl/explain?"+url.Values{"run": {run.ID}}.Encode())
	if text := fmt.Sprintf("%+v", triggered); triggered.Verdict != explain.Failed || triggered.Trigger != run.Trigger || !strings.Contains(text, "disk on fire") || !strings.Contains(text, ": month end.") {
		t.Errorf("%s", text)
	}

	never := get[explain.Answer](a, "/v1/jobs/etl/explain?at=2026-01-01T03:00:00Z")
	if never.Verdict != explain.NeverDue {
		t.Errorf("%+v", never)
	}
}

// TestExplain_idle: that a job is due some day is not said while it is disabled or removed: the answer says who
// did that, and why.
func TestExplain_idle(t *testing.T) {
	t.Parallel()
	a := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("etl", "0 0 3 1 1 ? 2099", 1, servicetest.OK)}})
	for _, c := range []struct {
		method, path string
		verdict      explain.Verdict
		texts        []string
	}{
		{"POST", "/v1/jobs/etl/disable?reason=until+monday", explain.Disabled, []string{"is paused on all its servers", `did "pause"`, ": until monday.", "the next instant would be 2099-01-01 03:00:00"}},
		{"POST", "/v1/jobs/etl/enable", explain.NotYetDue, []string{"2099-01-01 03:00:00"}},
		{"DELETE", "/v1/jobs/etl?reason=not+wanted", explain.Disabled, []string{"is removed from the registry", `did "remove"`, ": not wanted."}},
	} {
		if got := a.ask(c.method, c.path, ""); got.code/100 != 2 {
			t.Fatalf("%s %s: %d %s", c.method, c.path, got.code, got.body)
		}
		var said string
		a.Until(c.path+": the answer knows", func() bool {
			found := get[explain.Answer](a, "/v1/jobs/etl/explain?at=2099-01-01T03:00:00Z")
			said = fmt.Sprintf("%+v", found)
			return found.Verdict == c.verdict && !slices.ContainsFunc(c.texts, func(text string) bool { return !strings.Contains(said, text) })
		})
	}
}

// TestExplain_purged: histories whose failures are older than all else do not count as
// complete from the first failure on.
func TestExplain_purged(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("pay", "0 0 * * * ?", 1, servicetest.OK)}})
	now := time.Now().Truncate(time.Hour)
	s.Store.AddEvent(event.Event{Time: now.Add(-60 * 24 * time.Hour), Kind: event.JobError, Host: "127.0.0.9@-@1-a", Job: "pay", Reason: "broken"})
	path := "/v1/jobs/pay/explain?" + url.Values{"at": {now.Add(-9 * 24 * time.Hour).UTC().Format(time.RFC3339)}}.Encode()
	s.Until("the job and what was wrong are in the history", func() bool {
		return len(get[cluster.Found[event.Event]](s, "/v1/events?kind=job.error").Records) == 1 && len(get[cluster.Found[event.Event]](s, "/v1/events?kind=job.assigned").Records) > 0
	})
	found := get[explain.Answer](s, path)
	if found.Verdict != explain.Unknown || !strings.Contains(found.Sentences[0].Text, "the histories begin at") {
		t.Errorf("%+v", found)
	}
}

// TestExplain_unanswering: of a host that does not answer any more, and whose session goes on, the
// answer of another says that it has the item.
func TestExplain_unanswering(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	jobs := []engine.Job{servicetest.Job("pay", "", 2, servicetest.Wait)}
	a := serve(t, servicetest.Options{Server: server, IP: "127.0.0.1", Jobs: jobs})
	b := serve(t, servicetest.Options{Server: server, IP: "127.0.0.2", Jobs: jobs})
	a.Until("each host has an item", func() bool {
		of := get[service.JobDetail](a, "/v1/jobs/pay")
		return len(of.Items) == 2 && of.Items[0].Host != of.Items[1].Host
	})
	if got := a.ask("POST", "/v1/jobs/pay/trigger", ""); got.code/100 != 2 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	a.Until("both items run", func() bool { return get[service.JobDetail](a, "/v1/jobs/pay").Running == 2 })
	b.mute()
	const has, since = "and host 127.0.0.2, which has it as far as is known, does not answer.", "Host 127.0.0.2 has not answered since "
	a.Until("the answer says who has the item", func() bool {
		text := fmt.Sprint(get[explain.Answer](a, "/v1/jobs/pay/explain"))
		return strings.Contains(text, "it was triggered at ") && strings.Contains(text, has) && strings.Contains(text, since)
	})
}

// TestExplain_departed: what ran on a host that has stopped in good order is missing, and lists and
// answers of the others say so.
func TestExplain_departed(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	jobs := []engine.Job{servicetest.Job("pay", "", 2, servicetest.OK)}
	a := serve(t, servicetest.Options{Server: server, IP: "127.0.0.1", Jobs: jobs})
	b := serve(t, servicetest.Options{Server: server, IP: "127.0.0.2", Jobs: jobs})
	if got := a.ask("POST", "/v1/jobs/pay/trigger", ""); got.code/100 != 2 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	a.Until("both items have run", func() bool {
		done := get[cluster.Found[history.Run]](a, "/v1/runs?job=pay&outcome=ok")
		return len(done.Records) == 2 && len(done.Silent) == 0
	})
	const nothing = "/v1/run?id=pay/2026-03-01T10:00:00.000Z/0"
	if got := a.ask("GET", nothing, ""); got.code != http.StatusNotFound {
		t.Errorf("a run that there is not: %d %s", got.code, got.body)
	}
	b.Stop()
	const missing = "127.0.0.2: no host runs there now"
	for _, path := range []string{"/v1/runs?job=pay", "/v1/fires?job=p*", "/v1/events", "/v1/logs?job=pay"} {
		a.Until(path+" says that a history is missing", func() bool {
			return slices.Equal(get[cluster.Found[struct{}]](a, path).Silent, []string{missing})
		})
	}
	if got := a.ask("GET", nothing, ""); got.code != http.StatusServiceUnavailable || !strings.Contains(string(got.body), missing) {
		t.Errorf("a run that may have been there: %d %s", got.code, got.body)
	}
	text := fmt.Sprint(get[explain.Answer](a, "/v1/jobs/pay/explain"))
	if !strings.Contains(text, "127.0.0.2") || !strings.Contains(text, "what happened there is not in this answer.") {
		t.Error(text)
	}
	if other := get[cluster.Found[struct{}]](a, "/v1/runs?job=other"); len(other.Silent) > 0 {
		t.Errorf("of another job: %s", other.Silent)
	}
}

// TestExplain_input: each part of a question that is wrong is named, and who may not see
// the job learns nothing of it.
func TestExplain_input(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("pay", "0 0 3 * * ?", 2, servicetest.OK)}})
	for query, where := range map[string]string{
		"at=noonish":          "query.at",
		"item=x":              "query.item",
		"item=-1":             "query.item",
		"run=etl/t1/0":        "query.run",
		"run=pay/t0/0":        "query.run",
		"run=pay/yesterday/0": "query.run",
		"run=pay/t1/x":        "query.run",
		"run=pay/t1/0&item=0": "query.run",
		"at=2026-01-01T03:00:00Z&before=2026-01-01T03:00:00Z": "query.before",
		"of=1": "query.of",
	} {
		got := s.ask("GET", "/v1/jobs/pay/explain?"+query, "")
		if p := got.problem(t); got.code != 422 || len(p.Errors) != 1 || p.Errors[0].Location != where {
			t.Errorf("%s: %d %s, want an error at %s", query, got.code, got.body, where)
		}
	}
	none := get[explain.Answer](s, "/v1/jobs/nothing/explain")
	if none.Verdict != explain.Unknown || !strings.Contains(none.Sentences[0].Text, `no host that had a job "nothing"`) {
		t.Errorf("%+v", none)
	}
	round := get[explain.Answer](s, "/v1/jobs/pay/explain?run=pay/t7/0")
	if round.Verdict != explain.Unknown || !strings.Contains(round.Sentences[0].Text, "no fire of the trigger round 7") {
		t.Errorf("%+v", round)
	}
	for languages, want := range map[string]string{"zh-CN,zh;q=0.9,en;q=0.8": "历史中没有拥有作业“nothing”的主机。", "de": `no host that had a job`} {
		if got := s.ask("GET", "/v1/jobs/nothing/explain", "", "Accept-Language", languages); got.code != 200 || !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %d %s", languages, got.code, got.body)
		}
	}
	viewer := auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"etl-*"}}}}
	if w := s.askAs(viewer, "GET", "/v1/jobs/pay/explain", ""); w.Code != 403 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestExplain_refusals: of a refused file, who may not see all jobs learns what is about the
// job alone.
func TestExplain_refusals(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{})
	mine := auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"etl*"}}}}
	all := auth.HostToken(auth.ByHostToken)
	for n, c := range []struct {
		job, file, reason string
		mine, all         string // what is said, empty for nothing
	}{
		{"etl1", "many.yaml", "line 1: job \"pay\": the secret\nline 9: job \"etl1\": no module\nline 12: job \"pay\": more", `many.yaml at 2026-03-01 03:00:00: line 9: job "etl1": no module.`, `many.yaml at 2026-03-01 03:00:00: line 1: job "pay"`},
		{"etl2", "many.yaml", "line 1: job \"pay\": the secret, not job \"etl2\": that", "", ""},
		{"etl3", "etl3.eu.yaml", "line 1: the secret", "", ""},
		{"etl4.eu", "etl4.eu.yaml", "line 1: no such field", "etl4.eu.yaml at 2026-03-04 03:00:00: line 1: no such field.", "no such field"},
		{"etl5", "etl5.wasm", "line 1: job \"pay\": the secret\nline 2: no such field", "etl5.wasm at 2026-03-05 03:00:00: line 2: no such field.", "the secret"},
	} {
		// A host of a version before told no jobs: the reader of records finds them in the text.
		text, err := json.Marshal(event.Event{Time: time.Date(2026, 3, 1+n, 3, 0, 0, 0, time.UTC), Kind: event.Refused, Host: "127.0.0.1@-@1", File: c.file, Reason: c.reason})
		var e event.Event
		if err = errors.Join(err, json.Unmarshal(text, &e)); err != nil {
			t.Fatal(err)
		}
		s.Store.AddEvent(e)
		for who, want := range map[*auth.Principal]string{&mine: c.mine, &all: c.all} {
			s.Until("the event is in the store", func() bool {
				return strings.Contains(string(s.ask("GET", "/v1/events?kind=file.refused", "").body), c.file)
			})
			w := s.askAs(*who, "GET", "/v1/jobs/"+c.job+"/explain", "")
			var a explain.Answer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			var said string
			for _, x := range a.Sentences {
				if strings.Contains(x.Text, " refused ") {
					said = x.Text
				}
			}
			if (want == "") != (said == "") || !strings.Contains(said, want) {
				t.Errorf("%s to %s: %q, want %q", c.job, who.Name, said, want)
			}
			if who == &mine && strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s: the answer shows what is about another job: %s", c.job, w.Body)
			}
		}
	}
}
