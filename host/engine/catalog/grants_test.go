package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/signature"
)

// withGrants makes the option of a host with grants in a file beside the plugins directory,
// and the function that replaces the file.
func withGrants(t *testing.T, text string) (options func(*Options), write func(string)) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "grants.yaml")
	write = func(text string) { put(t, dir, "grants.yaml", text) }
	write(text)
	set, err := grants.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Grants, o.GrantsFile = set, file }, write
}

const noState = `wants what is not granted: kv (the module imports job_v1_kv): `

// A module that wants more than is granted is refused with the difference, and the one
// before goes on; with the grant it is taken, without a restart.
func TestGrantsAreRead(t *testing.T) {
	t.Parallel()
	options, write := withGrants(t, "grants: [{jobs: other, kv: true}]\n")
	r := newRig(t, options, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	if logs := r.logs.FilterMessage("grants").All(); len(logs) != 1 || !strings.Contains(logs[0].ContextMap()["warning"].(string), `no job that matches "other"`) {
		t.Errorf("at the start, of a grant for no job: %v", logs)
	}
	first := r.last.jobs[0].job.Module
	r.write("a.wasm: two with job_v1_kv.")
	r.awaitContaining(`a "" a.yaml a.wasm @one.`, "refused (kept) a.yaml: ", noState)

	write("grants: [{jobs: a, kv: true}]\n")
	r.await(`a "" a.yaml a.wasm @two with job_v1_kv.`)
	granted := r.last.jobs[0].job.Module
	if granted == first || granted.Granted() == first.Granted() {
		t.Error("the job has the module as it was before the grant")
	}

	// Broken, half written or gone, the grants stay as they were, and it is said.
	for text, want := range map[string]string{"grants: [{jobs: a, kv: tru": "refused (kept) grants: ", "grants: [{jobs: a, kv: maybe}]\n": "maybe"} {
		write(text)
		r.awaitContaining(`a "" a.yaml a.wasm @two with job_v1_kv.`, "refused (kept) grants: ", want)
	}
	r.must(os.Remove(r.c.grantsFile))
	r.awaitContaining(`a "" a.yaml a.wasm @two with job_v1_kv.`, "refused (kept) grants: ", "was removed, and what it granted stays in force")
	if r.last.jobs[0].job.Module != granted {
		t.Error("the job has another module, though no grant has changed")
	}

	// What is taken away is refused. The job goes on until its definition or module changes, but
	// without what was taken away.
	write("grants: [{jobs: b, kv: true}]\n")
	r.awaitContaining(`a "" a.yaml a.wasm @two with job_v1_kv.`, "refused (kept) a.yaml: ", noState)
	if now := r.last.jobs[0].job.Module; now.Granted() == granted.Granted() {
		t.Error("the job still has what was taken away from it")
	}
	write("grants: [{jobs: a, kv: true}]\n")
	r.await(`a "" a.yaml a.wasm @two with job_v1_kv.`)
	if now := r.last.jobs[0].job.Module; now.Granted() != granted.Granted() {
		t.Error("the job has not got back what was taken away from it")
	}
	write("grants: [{jobs: b, kv: true}]\n")
	r.awaitContaining(`a "" a.yaml a.wasm @two with job_v1_kv.`, "refused (kept) a.yaml: ", noState)
	r.write("a.wasm: three.")
	r.await(`a "" a.yaml a.wasm @three.`)
	if logs := r.logs.FilterMessage("grants").All(); len(logs) == 0 || !strings.Contains(logs[len(logs)-1].ContextMap()["warning"].(string), `no job that matches "b"`) {
		t.Errorf("nothing was said of a grant for no job: %v", logs)
	}
}

// awaitContaining waits for a state with a line for its one job that contains the texts.
func (r *rig) awaitContaining(job string, texts ...string) {
	r.t.Helper()
	before, text, _ := strings.Cut(job, "@")
	job = before + digestOf(text)[:4]
	deadline := time.After(10 * time.Second)
	for {
		got := r.last.String()
		ok := strings.Contains(got, job)
		for _, text := range texts {
			ok = ok && strings.Contains(got, text)
		}
		if ok {
			return
		}
		select {
		case r.last = <-r.states:
		case <-deadline:
			r.t.Fatalf("no state with %q and %q; the last is\n%s", job, texts, got)
		}
	}
}

func TestSignaturesAreDemanded(t *testing.T) {
	t.Parallel()
	key, err := signature.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	other, err := signature.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	sign := func(k signature.Private, text string) string {
		sig, err := k.Sign([]byte(text), "a.wasm", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return "a.wasm.minisig: " + string(sig)
	}
	policy := "keys: {release: " + key.Public("release").String() + "}\ntrust: [{jobs: a, keys: [release]}]\n"
	options, write := withGrants(t, policy)
	r := newRig(t, options, "a.yaml: job a", "b.yaml: job b", "b.wasm: free.")
	b := `b "" b.yaml b.wasm @free.`
	r.write("a.wasm: one.")
	r.awaitContaining(b, `refused a.yaml: `, `needs a module signed by release: there is no signature`)
	r.write(sign(key, "one."))
	r.await(`a "" a.yaml a.wasm @one.`, b)

	// Copies without a signature do not take it away from the file that has one.
	for i := range 8 {
		r.write(fmt.Sprintf("copy%d.wasm: one.", i))
	}
	r.awaitContaining(`a "" a.yaml a.wasm @one.`, "refused copy7.wasm: ")
	if got := r.last.String(); strings.Contains(got, "there is no signature") {
		t.Errorf("%s", got)
	}
	for i := range 8 {
		r.must(os.Remove(r.path(fmt.Sprintf("copy%d.wasm", i))))
	}
	r.await(`a "" a.yaml a.wasm @one.`, b)

	const old = `a "" a.yaml a.wasm @one.`
	for what, change := range map[string]struct{ module, sig, want string }{
		"changed":    {"two.", "", "the signature is of another file"},
		"other key":  {"two.", sign(other, "two."), "the signature is by an unknown key"},
		"other file": {"two.", sign(key, "three."), "the signature is of another file"},
		"malformed":  {"two.", "a.wasm.minisig: nonsense", "the signature is malformed"},
	} {
		r.write("a.wasm: " + change.module)
		if change.sig != "" {
			r.write(change.sig)
		}
		t.Log(what)
		r.awaitContaining(old, "refused (kept) a.yaml: ", change.want)
	}
	r.must(os.Remove(r.path("a.wasm.minisig")))
	r.awaitContaining(old, "refused (kept) a.yaml: ", "there is no signature")
	r.write(sign(key, "two."))
	r.await(`a "" a.yaml a.wasm @two.`, b)
	// Stripped of what is in force, it stays in force, with the reason.
	r.must(os.Remove(r.path("a.wasm.minisig")))
	r.awaitContaining(`a "" a.yaml a.wasm @two.`, "refused (kept) a.yaml: ", "there is no signature")
	write("keys: {release: " + key.Public("release").String() + "}\n")
	r.await(`a "" a.yaml a.wasm @two.`, b)
}
