package view

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/event"
)

// watch feeds events to a view in a bubble and returns what it showed.
func watch(t *testing.T, feed func(add func(event.Event))) []string {
	t.Helper()
	var shown []string
	synctest.Test(t, func(*testing.T) {
		var out strings.Builder
		c := terminal.New(&out, terminal.Style{Columns: true})
		v := New(ShowRow(c, zapcore.InfoLevel), true)
		feed(func(e event.Event) {
			e.Time = time.Now()
			v.Add(e)
			synctest.Wait() // the view has shown it
		})
		v.Close()
		for l := range strings.Lines(out.String()) {
			shown = append(shown, strings.Join(strings.Fields(l)[1:], " ")) // without the time
		}
	})
	return shown
}

func number(n int) *int { return &n }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneLinePerFire(t *testing.T) {
	t.Parallel()
	got := watch(t, func(add func(event.Event)) {
		at := time.Now()
		fire := func(e event.Event) { e.Job, e.Instant, e.Source = "cities", at, abi.SourceSchedule; add(e) }
		fire(event.Event{Kind: event.FireStarted, Items: []int{0, 1, 2, 5}, Lag: 1500 * time.Millisecond})
		for n := range 3 {
			fire(event.Event{Kind: event.ItemStarted, Item: number(n), Attempt: 1})
			fire(event.Event{Kind: event.ItemEnded, Item: number(n), Attempt: 1, Outcome: abi.OutcomeOK})
			fire(event.Event{Kind: event.ItemCompleted, Item: number(n)})
		}
		fire(event.Event{Kind: event.FireEnded, Items: []int{0, 1, 2, 5}, Outcome: abi.OutcomeOK, Duration: 12345 * time.Microsecond})
	})
	want := []string{"fire cities items 0-2,5 schedule 12.3ms OK 1.5s late"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestFailedFire: the line of a fire names the items that are not OK; why is in their own lines.
func TestFailedFire(t *testing.T) {
	t.Parallel()
	got := watch(t, func(add func(event.Event)) {
		fire := func(trigger int64, e event.Event) {
			e.Job, e.Trigger, e.Source = "j", trigger, abi.SourceTrigger
			add(e)
		}
		ended := func(trigger int64, item, attempt int, o abi.Outcome, reason string) {
			fire(trigger, event.Event{Kind: event.ItemEnded, Item: &item, Attempt: attempt, Outcome: o, Reason: reason})
		}
		// Two fires at once; in the first, item 1 comes good at the second try.
		fire(1, event.Event{Kind: event.FireStarted, Items: []int{0, 1, 2}})
		fire(2, event.Event{Kind: event.FireStarted, Items: []int{3}})
		ended(1, 1, 1, abi.OutcomeRetry, "busy\x1b[31m")
		ended(2, 3, 1, abi.OutcomeTrap, "unreachable\nwith a stack")
		ended(1, 2, 1, abi.OutcomeFail, "no disk")
		ended(1, 1, 2, abi.OutcomeOK, "")
		ended(1, 0, 1, abi.OutcomeOK, "")
		fire(2, event.Event{Kind: event.FireEnded, Items: []int{3}, Outcome: abi.OutcomeFail, Duration: time.Second})
		fire(1, event.Event{Kind: event.FireEnded, Items: []int{0, 1, 2}, Outcome: abi.OutcomeFail, Duration: time.Minute})
	})
	want := []string{
		"warn j item 1, attempt 1: RETRY: busy\x1b[31m",
		"fire j item 3 trigger 1s FAIL",
		"fire j items 0-2 trigger 1m FAIL 1 of 3 items not OK: 2",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestManyFiresAreSummedUp(t *testing.T) {
	t.Parallel()
	const perSecond, seconds = 500, 20
	got := watch(t, func(add func(event.Event)) {
		for range seconds {
			for n := range perSecond {
				e := event.Event{Kind: event.FireEnded, Job: fmt.Sprintf("job%d", n), Instant: time.Now(), Items: []int{0}, Outcome: abi.OutcomeOK, Source: abi.SourceSchedule}
				if n == 0 {
					e.Outcome = abi.OutcomeFail
				}
				add(e)
			}
			time.Sleep(time.Second)
		}
	})
	// Bad news has a budget of its own, so that all of it is there.
	shown, bad, sums, summed := 0, 0, 0, 0
	for _, l := range got {
		var fires, jobs int
		switch {
		case strings.HasSuffix(l, " FAIL"):
			bad++
		case strings.HasPrefix(l, "fire "):
			shown++
		default:
			if _, err := fmt.Sscanf(l, "info host … and %d fires of %d jobs, all OK", &fires, &jobs); err != nil {
				t.Fatalf("%q: %v", l, err)
			}
			sums++
			summed += fires
		}
	}
	if bad != seconds || sums != seconds || shown+summed+bad != seconds*perSecond {
		t.Errorf("%d bad, %d sums of %d, %d shown; %d fires in all", bad, sums, summed, shown, seconds*perSecond)
	}
	if most := fireBurst + seconds*fireRate; shown > most {
		t.Errorf("%d lines in %d seconds, want at most %d", shown, seconds, most)
	}
}

func TestTheSameReasonIsToldOnceAMinute(t *testing.T) {
	t.Parallel()
	got := watch(t, func(add func(event.Event)) {
		for range 90 {
			add(event.Event{Kind: event.FireSkipped, Job: "a", Reason: "disabled"})
			time.Sleep(time.Second)
		}
		add(event.Event{Kind: event.ItemSkipped, Job: "a", Item: number(4), Reason: "still running"})
	})
	want := []string{
		"info a nothing to run: disabled",
		"info a nothing to run: disabled (59 times more since)",
		"info a item 4 not run: still running",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestJobsComeAndGo(t *testing.T) {
	t.Parallel()
	got := watch(t, func(add func(event.Event)) {
		add(event.Event{Kind: event.HostStarted})
		add(event.Event{Kind: event.Session, Reason: "live"})
		add(event.Event{Kind: event.Session, Reason: "suspect"})
		add(event.Event{Kind: event.JobAdded, Job: "a"})
		add(event.Event{Kind: event.Assigned, Job: "a"}) // not its turn yet
		add(event.Event{Kind: event.Elected, Job: "a"})
		add(event.Event{Kind: event.Sharded, Job: "a"})
		add(event.Event{Kind: event.Assigned, Job: "a", Items: []int{3}})
		add(event.Event{Kind: event.Assigned, Job: "a"})
		add(event.Event{Kind: event.JobChanged, Job: "a", Reason: "schedule"})
		add(event.Event{Kind: event.JobChanged, Job: "a", Reason: "module", Digest: "d"})
		add(event.Event{Kind: event.Listener, Job: "a", Outcome: abi.OutcomeOK, Reason: "x"})
		add(event.Event{Kind: event.Listener, Job: "a", Outcome: abi.OutcomeTrap, Reason: "job_after_executed: trap"})
		add(event.Event{Kind: event.JobStopped, Job: "a", Reason: "removed"})
		add(event.Event{Kind: event.JobRemoved, Job: "a", Reason: "definition gone"})
		add(event.Event{Kind: "of a later version"})
	})
	want := []string{
		"warn host registry session suspect: nothing begins until it is known to be alive",
		"info a job added; this host runs item 3",
		"info a this host runs no items any more",
		"info a job changed: schedule",
		"warn a job stopped by an operator: removed",
		"info a job left: definition gone",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestAJobThatBringsNoItems is not held back for long, and what follows it is
// shown after it.
func TestAJobThatBringsNoItems(t *testing.T) {
	t.Parallel()
	got := watch(t, func(add func(event.Event)) {
		add(event.Event{Kind: event.JobAdded, Job: "a"})
		add(event.Event{Kind: event.JobAdded, Job: "b"})
		add(event.Event{Kind: event.FireSkipped, Job: "b", Reason: "disabled"})
		time.Sleep(1100 * time.Millisecond)
		add(event.Event{Kind: event.Assigned, Job: "a", Items: []int{0}})
		add(event.Event{Kind: event.JobAdded, Job: "c"}) // shown at the end
	})
	want := []string{
		"info b job added",
		"info b nothing to run: disabled",
		"info a job added",
		"info a this host runs item 0",
		"info c job added",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTheViewDropsRatherThanWaits(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	var last line
	v := New(func(l line) {
		<-block
		last = l
	}, false)
	for range viewQueue + 100 { // the first few are taken, none is shown
		v.Add(event.Event{Kind: event.JobAdded, Job: "a"})
	}
	if d := v.dropped.Load(); d < 99 || d > 100 {
		t.Errorf("dropped %d, want 99 or 100", d)
	}
	close(block)
	v.Close()
	v.Close()
	v.Add(event.Event{Kind: event.JobAdded}) // after the end: no harm
	if !strings.Contains(last.text, "events came too fast") {
		t.Errorf("the last line is %q", last.text)
	}
}
