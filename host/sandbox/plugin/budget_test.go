package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// Who does not fit waits, without holding up who does; who is waited for no
// longer leaves nothing behind.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1000)
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.admit(ctx, "a", 600); err != nil {
			t.Fatal(err)
		}
		if b.grow("a", 200) == nil {
			t.Error("a job has more than its share")
		}
		if b.grow("a", 150) != nil {
			t.Error("a job cannot have its share")
		}
		admitted := make(chan string, 3)
		wait := func(ctx context.Context, job string, bytes int64) {
			go func() {
				if err := b.admit(ctx, job, bytes); err != nil {
					job += ": " + err.Error()
				}
				admitted <- job
			}()
			synctest.Wait()
		}
		wait(t.Context(), "b", 400)
		wait(ctx, "a", 100)
		wait(t.Context(), "c", 250)
		if got := <-admitted; got != "c" {
			t.Errorf("admitted %s, expected c", got)
		}
		cancel()
		if got := <-admitted; got != "a: context canceled" {
			t.Errorf("admitted %s, expected none of a", got)
		}
		if m := b.memory(); m.Guests != 1000 || m.Waiting != 1 || m.Refused != 1 {
			t.Errorf("%+v", m)
		}
		b.free("a", 750)
		if got := <-admitted; got != "b" {
			t.Errorf("admitted %s, expected b", got)
		}
		b.free("b", 400)
		b.free("c", 250)

		if err := b.load(t.Context(), 700, false); err != nil {
			t.Error(err)
		}
		if err := b.load(t.Context(), 100, false); err == nil || !strings.Contains(err.Error(), "memory budget") {
			t.Errorf("code takes what is left for guests: %v", err)
		}
		if err := b.admit(t.Context(), "d", 300); err != nil {
			t.Error(err)
		}
		wait(t.Context(), "e", 100)
		b.unload(700)
		if got := <-admitted; got != "e" {
			t.Errorf("admitted %s, expected e", got)
		}
		b.free("d", 300)
		b.free("e", 100)
		if m := b.memory(); m.Guests != 0 || m.Code != 0 || m.Waiting != 0 || len(b.jobs) != 0 {
			t.Errorf("%+v is left", m)
		}
	})
}

// A guest that takes all it can get takes its job's share, and another job runs
// beside it; afterwards nothing is taken.
func TestBudgetOfGuests(t *testing.T) {
	t.Parallel()
	const total = 64 << 20
	r := newRuntime(t, Options{MemoryBudget: total})
	m := load(t, r, nasty(body()))
	code := r.Memory().Code
	m.Close()

	// job_execute grows its memory until it gets no more, and traps.
	grower := []byte("\x00asm\x01\x00\x00\x00")
	grower = appendSection(grower, 1, []byte{2, 0x60, 0, 0, 0x60, 0, 1, 0x7f})
	grower = appendSection(grower, 3, []byte{2, 0, 1})
	grower = appendSection(grower, 5, []byte{1, 0, 1})
	grower = appendSection(grower, 7, []byte("\x03\x06memory\x02\x00\x0ajob_abi_v1\x00\x00\x0bjob_execute\x00\x01"))
	loop := body([]byte{0x03, 0x40, 0x41, 1, 0x40, 0, 0x41, 0x7f, 0x47, 0x0d, 0, 0x0b, 0x00})
	grower = appendSection(grower, 10, append(appendU32([]byte{2, 2, 0, 0x0b}, uint32(len(loop))), loop...))
	hog := load(t, r, grower)
	x, err := hog.Executor(Settings{JobName: "hog", MemoryLimit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	first := worked(t, x)
	got := first.Execute(t.Context(), item(newRecorder(), ""))
	if got.Outcome != abi.OutcomeTrap || !strings.Contains(got.Message, "the guests of a job may have 48.0 MiB of the host's memoryBudget of 64.0 MiB") {
		t.Errorf("got %+v", got)
	}
	limited, err := hog.Executor(Settings{JobName: "limited", MemoryLimit: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := worked(t, limited)
	if got := w.Execute(t.Context(), item(newRecorder(), "")); got.Outcome != abi.OutcomeTrap || got.Memory != 2<<20 || !strings.Contains(got.Message, "the job's memoryLimit is 2.0 MiB") {
		t.Errorf("beyond its own limit: %+v", got)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	limited.Release()
	if taken := r.Memory().Guests; taken > total/4*jobShareOf4 || taken < total/2 {
		t.Errorf("it took %d bytes", taken)
	}

	// Another worker of the job waits, one of another job does not.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.NewWorker(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a second worker: %v", err)
	}
	other := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{JobName: "other", Type: wasm.TypeSimple})
	if got := other.Execute(t.Context(), item(newRecorder(), "ok")); got.Outcome != abi.OutcomeOK {
		t.Errorf("beside it: %+v", got)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if left := r.Memory().Guests; left != 0 {
		t.Errorf("%d bytes are still taken", left)
	}

	// What it has needed is waited for the next time.
	second := worked(t, x)
	if taken := r.Memory().Guests; taken < total/2 {
		t.Errorf("the second worker was admitted with %d bytes", taken)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	x.Release()
	hog.Close()

	big := appendSection([]byte("\x00asm\x01\x00\x00\x00"), 1, []byte{1, 0x60, 0, 0})
	big = appendSection(big, 3, []byte{1, 0})
	big = appendSection(big, 5, append([]byte{1, 0}, appendU32(nil, 60<<20/wasm.PageSize)...))
	big = appendSection(big, 7, []byte("\x02\x06memory\x02\x00\x06_start\x00\x00"))
	big = appendSection(big, 10, []byte{1, 2, 0, 0x0b})
	m, err = r.Load(t.Context(), "big", big, time.Time{})
	if err == nil {
		_, err = m.Executor(Settings{JobName: "big"})
		m.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "memory budget") {
		t.Errorf("a module that begins with more than its job may have: %v", err)
	}
	if code == 0 {
		t.Error("compiled code is not counted")
	}
}

// TestBudgetSaysThatItWaits: who waits for memory is told so before, and again afterwards.
func TestBudgetSaysThatItWaits(t *testing.T) {
	t.Parallel()
	b := newBudget(100)
	var told []string
	ctx := abi.WithWaiting(t.Context(), func() func() {
		told = append(told, "waits")
		b.free("a", 50)
		return func() { told = append(told, "has it") }
	})
	if err := b.admit(ctx, "a", 50); err != nil || len(told) != 0 {
		t.Fatalf("%v, %q", err, told)
	}
	if err := b.admit(ctx, "a", 50); err != nil || !slices.Equal(told, []string{"waits", "has it"}) {
		t.Errorf("%v, %q", err, told)
	}
}
