package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestExamples starts a host as make run does, and does what the examples'
// README says.
func TestExamples(t *testing.T) {
	t.Parallel()
	p, _, here := outside(t)
	for _, name := range exampleNames(t) {
		p.drop(name+".wasm", read(t, example(t, name)))
		p.drop(name+".yaml", []byte(here(string(read(t, "../../plugins/examples/"+name+".yaml")))))
	}
	root := t.TempDir() // in place of Go's sources
	h := p.start("--grants", p.path("conf", "grants.yaml"), "--mount", "codestats="+root+":/src", "--drain-timeout", "2s")

	// cities fires by itself.
	fire := h.fires("cities", 0)
	if !slices.Equal(fire.Items, []int{0, 1, 2}) || fire.Source != abi.SourceSchedule {
		t.Errorf("cities fired as %+v", fire.Event)
	}
	for i, city := range []string{"Beijing", "Shanghai", "Guangzhou"} {
		l := h.line(0, `"job":"cities"`, city+": ")
		if l.Item == nil || *l.Item != i || l.Attrs["solar_time"] == "" {
			t.Errorf("the line of item %d: %s", i, l.raw)
		}
	}
	for _, name := range exampleNames(t) {
		h.of(name, 0, owned())
	}
	if code, body := h.get("/readyz"); code != 200 {
		t.Errorf("/readyz says %d %s", code, body)
	}
	if r := p.status().Status.Refused; len(r) != 0 {
		t.Errorf("refused: %+v", r)
	}

	// The others wait to be triggered.
	spinning := h.mark()
	p.must("job", "run", "spin")
	started := h.of("spin", spinning, kind(event.ItemStarted))
	p.must("job", "run", "cities")
	p.must("job", "run", "slow")
	p.must("job", "run", "crash")
	p.must("job", "run", "listeners")
	for i, want := range []abi.Outcome{abi.OutcomeTrap, abi.OutcomeFail, abi.OutcomeRetry, abi.OutcomeOK} {
		h.of("crash", 0, kind(event.ItemCompleted), item(i), outcome(want))
	}
	h.of("crash", 0, kind(event.ItemEnded), because("item 0 crashes, as it should"))
	h.line(0, `"job":"crash"`, "main.run") // the stack
	if n := h.count("crash", kind(event.ItemEnded), item(2)); n != 2 {
		t.Errorf("the item that asks for another try had %d attempts, want 2", n)
	}
	h.of("listeners", 0, kind(event.FireEnded), outcome(abi.OutcomeOK))
	for _, export := range []string{abi.ExportBefore, abi.ExportBeforeOnce, abi.ExportAfter, abi.ExportAfterOnce} {
		h.of("listeners", 0, kind(event.Listener), test{export, func(e event.Event) bool { return e.Reason == export }}, outcome(abi.OutcomeOK))
	}
	stopped := h.of("spin", started.at, kind(event.ItemCompleted), outcome(abi.OutcomeTimeout))
	if n := len(slices.DeleteFunc(h.all("cities", started.at, kind(event.ItemCompleted), outcome(abi.OutcomeOK)), func(e seen) bool { return e.at > stopped.at })); n == 0 {
		t.Error("while spin span, nothing of cities was completed")
	}
	h.of("script", 0, kind(event.FireEnded), outcome(abi.OutcomeOK))
	h.line(0, `"job":"script"`, "primes from 0 to 499999 (item 0 of 4)")

	// slow is still busy, shows how far it is, and stops when it is asked to.
	h.of("slow", 0, kind(event.ItemStarted), item(1))
	slow := p.job("slow")
	if slow.State != engine.JobRunning || len(slow.Items) != 2 || slow.Items[0].Total != 20 || !slow.Items[0].Running {
		t.Errorf("slow: %+v", slow)
	}
	from := h.mark()
	p.remove("cities.yaml")
	p.remove("cities.wasm")
	h.of("cities", from, kind(event.JobRemoved))
	text := p.must("status")
	for _, want := range []string{"slow", "running", "codestats", "MODULE", "crash", "(by trigger)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the status:\n%s", want, text)
		}
	}
	h.stop()
}
