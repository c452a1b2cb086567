package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/definition"
	operator "github.com/wasmjob/wasmjob/host/grants"
	"github.com/wasmjob/wasmjob/host/signature"
)

// granted is what a job may do with a module, and a text that is another one whenever
// that changes.
type granted struct {
	*operator.Grant
	key    string
	signer string // of the module
	// linked are capabilities' import modules that are not granted, and are there all
	// the same: each call is denied.
	linked []string
}

// signed says who signed a module.
type signed struct {
	signer string // the name of the key; empty: none of those that are known
	reason error  // why it is not signed
	// sig and keys are what it was found out from: the digest of the signature, and
	// the keys.
	sig, keys string
}

// granted is what a job gets with a module.
func (s state) granted(job, digest string) granted {
	signer := s.signed[digest].signer
	g := s.grants.For(job, operator.Module{Digest: digest, Signer: signer})
	var dirs []operator.Dir
	for _, m := range s.mounts[job] {
		dirs = append(dirs, operator.Dir{Host: m.Host, Guest: m.Guest})
	}
	g.Dirs = append(dirs, g.Dirs...)
	return granted{Grant: g, key: g.Key() + signer, signer: signer}
}

// wanting says what the job of a definition lacks with a module: a grant, or the
// signature that is demanded; nil if nothing.
func (s state) wanting(d definition.Definition, digest string, m compiled, g granted) error {
	job := d.Configuration.JobName
	by := s.signed[digest]
	if keys := s.grants.TrustFor(job); keys != nil {
		if !slices.ContainsFunc(keys, func(k signature.Key) bool { return k.Name == by.signer && by.signer != "" }) {
			return s.distrust(job, by, keys)
		}
	}
	if s.ungranted {
		return nil
	}
	guest, err := d.Configuration.Guest()
	if err != nil {
		return err
	}
	if missing := operator.Difference(Wants(m.imports(), guest.Needs), g.Grant); len(missing) > 0 {
		return errors.New("wants what is not granted: " + strings.Join(missing, "; "))
	}
	return nil
}

// regranted is a job that stays as it was, with what is granted to it now: if
// something was taken away, its calls are denied from its next fire on.
func (s state) regranted(b *binding, m compiled) *binding {
	g := s.granted(b.doc.Configuration.JobName, b.digest)
	for _, module := range slices.Sorted(maps.Keys(m.imports())) {
		if abi.IsCapability(module) && !slices.Contains(g.Modules(), module) {
			g.linked = append(g.linked, module)
		}
	}
	g.key += strings.Join(g.linked, " ")
	if g.key == b.granted {
		return b
	}
	again := *b
	again.granted, again.job.Module = g.key, m.bind(b.doc.Configuration.JobName, g)
	return &again
}

func (s state) distrust(job string, by signed, keys []signature.Key) error {
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	reason := "has no signature"
	switch {
	case by.reason != nil:
		reason = by.reason.Error()
	case by.signer != "":
		reason = "is signed by " + by.signer
	}
	return fmt.Errorf("job %q needs a module signed by %s: it %s", job, strings.Join(names, " or "), reason)
}

// watchGrants starts the goroutine that reads the grants again when they change. run
// waits for it.
func (r *run) watchGrants(ctx context.Context) {
	if r.grantsFile == "" {
		return
	}
	first := r.grants
	r.working.Go(func() {
		err := operator.Watch(ctx, r.grantsFile, first, func(u operator.Update) {
			select {
			case r.updates <- u:
			case <-ctx.Done():
			}
		})
		if err != nil {
			r.log.Error("the grants are not watched: changes take effect at the next start", zap.Error(err))
		}
	})
}

// regrant takes over other grants. What runs keeps what it began with.
func (r *run) regrant(ctx context.Context, u operator.Update) {
	problem := ""
	if u.Err != nil {
		problem = u.Err.Error()
	}
	changed := r.state.grants != u.Set
	r.state.grants, r.state.grantsProblem = u.Set, problem
	if changed {
		r.log.Info("the grants have changed", zap.String("grants", r.grantsFile))
	}
	r.checkSignatures()
	r.act(ctx)
	if changed {
		r.warnOfGrants()
	}
}

// warnOfGrants says which grants are for no job.
func (r *run) warnOfGrants() {
	var jobs []string
	for name := range r.state.jobs {
		jobs = append(jobs, name)
	}
	for _, w := range r.state.grants.Warnings(jobs) {
		r.log.Warn("grants", zap.String("warning", w))
	}
}

// checkSignatures finds out who signed the modules that are there, as far as that is
// not known. Modules that are gone and still in use keep what was found.
func (r *run) checkSignatures() {
	known := r.state.grants.Keys()
	if len(known) == 0 {
		r.state.signed = nil
		return
	}
	keys := ""
	for _, k := range known {
		keys += k.Name + " " + k.String() + "\n"
	}
	next := map[string]signed{}
	for digest, by := range r.state.signed {
		if r.plan.needed[digest] && by.keys == keys {
			next[digest] = by
		}
	}
	for name, f := range r.state.files {
		if kindOf(name) != aModule || f.digest == "" {
			continue
		}
		sig := r.state.files[name+signature.Suffix].digest
		if old, ok := r.state.signed[f.digest]; !ok || old.sig != sig || old.keys != keys {
			next[f.digest] = r.signed(name, f, sig, known, keys)
		}
	}
	r.state.signed = next
}

func (r *run) signed(name string, f file, sig string, known []signature.Key, keys string) signed {
	by := signed{sig: sig, keys: keys}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		by.reason = err
		return by
	}
	defer root.Close() // read only: nothing is lost if that fails
	if sig == "" {
		by.reason = signature.ErrMissing
		return by
	}
	var module, text bytes.Buffer
	if c := digestFile(r.dir, name, f.stamp, abi.MaxModuleSize, &module); c.digest != f.digest {
		by.sig, by.reason = "", errors.New("has changed while it was checked") // the next look reads it
		return by
	}
	of := r.state.files[name+signature.Suffix]
	if c := digestFile(r.dir, name+signature.Suffix, of.stamp, signature.MaxSize, &text); c.digest != sig {
		by.sig, by.reason = "", errors.New("has a signature that has changed while it was checked")
		return by
	}
	by.signer, by.reason = signature.Check(module.Bytes(), text.Bytes(), known)
	return by
}
