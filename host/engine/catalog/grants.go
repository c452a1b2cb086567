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
	"github.com/wasmjob/wasmjob/host/config/builtin"
	"github.com/wasmjob/wasmjob/host/config/definition"
	operator "github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// granted is what a job may do with a module, and a text that is another one whenever
// that changes.
type granted struct {
	*operator.Grant
	key string
	by  signed // the module
	// kept says that the job may want more than it is granted: it was in force before, and
	// what it has lost is refused call by call.
	kept bool
	// inProcess says that the key that signed the module is trusted to run in this process.
	inProcess bool
	file      string // with the job's definition
}

// signed says who signed a module.
type signed struct {
	signer string // the name of the key; empty: none of those that are known
	reason error  // why it is not signed
	// sig and keys are what it was found out from: the digest of the signature, and
	// the keys.
	sig, keys string
}

// granted is what the job of a definition gets with a module. The error says what is
// missing of what it wants, or that the module is not signed as it must be.
func (s state) granted(d definition.Definition, digest string, m compiled) (granted, error) {
	job := d.Configuration.JobName
	by := s.signed[digest]
	if keys := s.grants.TrustFor(job); keys != nil && d.Module != builtin.HTTP {
		if !slices.ContainsFunc(keys, func(k signature.Key) bool { return k.Name == by.signer && by.signer != "" }) {
			return granted{}, s.distrust(job, by, keys)
		}
	}
	g := s.grant(job, digest, by)
	guest, err := d.Configuration.Guest()
	if err != nil {
		return granted{}, err
	}
	if s.ungranted {
		return granted{Grant: g.Grant}, nil
	}
	if missing := operator.Difference(Wants(m.imports(), guest.Needs), g.Grant); len(missing) > 0 {
		return granted{}, errors.New("wants what is not granted: " + strings.Join(missing, "; "))
	}
	return g, nil
}

// grant is what the job may do with a module that was signed by someone.
func (s state) grant(job, digest string, by signed) granted {
	g := s.grants.For(job, operator.Module{Digest: digest, Signer: by.signer})
	var dirs []operator.Dir
	for _, m := range s.mounts[job] {
		dirs = append(dirs, operator.Dir{Host: m.Host, Guest: m.Guest})
	}
	g.Dirs = append(dirs, g.Dirs...)
	key := g.Key() + by.signer
	inProcess := s.grants.InProcess(job, by.signer)
	if inProcess {
		key += " in process"
	}
	return granted{Grant: g, key: key, by: by, inProcess: inProcess}
}

// regrant is a binding that stays in force, with what is granted now: what was taken away
// from a job is gone with the next fire, also if the job wants it and is refused. A
// signature that was removed from the module since is still one of its bytes.
func (s state) regrant(b *binding, m compiled) *binding {
	if s.ungranted {
		return b
	}
	by := s.signed[b.digest]
	if by.signer == "" && b.by.keys == by.keys {
		by = b.by
	}
	g := s.grant(b.job.Definition.JobName, b.digest, by)
	if g.key == b.granted {
		return b
	}
	g.kept = true
	other := *b
	g.file = b.job.File
	other.granted, other.by, other.job.Module = g.key, g.by, m.bind(b.job.Definition.JobName, g)
	return &other
}

func (s state) distrust(job string, by signed, keys []signature.Key) error {
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	reason := "it has no signature"
	switch {
	case by.reason != nil:
		reason = by.reason.Error()
	case by.signer != "":
		reason = "it is signed by " + by.signer
	}
	return fmt.Errorf("job %q needs a module signed by %s: %s", job, words.Some(names, " or "), reason)
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
	r.checkSignatures()
	r.act(ctx)
	if changed {
		r.notices.Info("other grants are in force from the next fires on", zap.String("grants", r.grantsFile))
		r.warnOfGrants()
	}
}

// warnOfGrants says which grants are for no job that is defined, and what they name that
// is not there.
func (r *run) warnOfGrants() {
	var jobs []string
	for _, f := range r.state.files {
		for _, d := range f.docs {
			jobs = append(jobs, d.Configuration.JobName)
		}
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
	found := map[string]signed{}
	for _, name := range slices.Sorted(maps.Keys(r.state.files)) {
		f := r.state.files[name]
		if kindOf(name) != aModule || f.digest == "" || name == builtin.HTTP {
			continue
		}
		sig := r.state.files[name+signature.Suffix].digest
		by, ok := r.state.signed[f.digest]
		if !ok || by.sig != sig || by.keys != keys {
			by = r.signed(name, f, sig, known, keys)
		}
		// Of copies of a module, one with a signature is enough.
		if other, has := found[f.digest]; !has || other.signer == "" {
			found[f.digest] = by
		}
	}
	maps.Copy(next, found)
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
		by.sig, by.reason = "", errors.New("it has changed while it was checked") // the next look reads it
		return by
	}
	of := r.state.files[name+signature.Suffix]
	if c := digestFile(r.dir, name+signature.Suffix, of.stamp, signature.MaxSize, &text); c.digest != sig {
		by.sig, by.reason = "", errors.New("its signature has changed while it was checked")
		return by
	}
	by.signer, by.reason = signature.Check(module.Bytes(), text.Bytes(), known)
	return by
}
