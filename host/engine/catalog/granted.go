package catalog

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/builtin"
	"github.com/wasmjob/wasmjob/host/config/definition"
	operator "github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// CheckGrants compares what the jobs of definitions want, and their modules, with what is
// granted. The paths are those of [Check], which finds whatever else is wrong: files that
// cannot be read are left out here. The findings are what is missing, modules without
// the signature that is demanded, and warnings of the grants themselves.
func CheckGrants(set *operator.Set, paths []string) (jobs []operator.Wanted, findings []Finding) {
	whole := slices.ContainsFunc(paths, isDir) // all jobs are known
	names := map[string]bool{}
	modules := &lookedAt{infos: map[string]*wasm.Info{}}
	for _, d := range Defined(paths) {
		names[d.Configuration.JobName] = true
		w, found := modules.checkGranted(set, d.File, d.Definition)
		jobs, findings = append(jobs, w), append(findings, found...)
	}
	known := slices.Sorted(maps.Keys(names))
	var warnings []string
	if whole {
		warnings = set.Warnings(known)
	} else {
		said := map[string]bool{}
		for _, job := range known {
			for _, w := range set.WarningsFor(job) {
				if !said[w] {
					warnings, said[w] = append(warnings, w), true
				}
			}
		}
	}
	for _, w := range warnings {
		findings = append(findings, Finding{File: "grants", Problem: w, Warning: true})
	}
	return jobs, findings
}

// UncheckedNeeds warns of each job whose definition says what the job needs of the
// operator's grants, with which nothing was compared. The paths are those of [Check], which
// finds what modules import.
func UncheckedNeeds(paths []string) (findings []Finding) {
	for _, d := range Defined(paths) {
		guest, _ := d.Configuration.Guest() // it was checked by the parser
		if len(guest.Needs) > 0 {
			findings = append(findings, Finding{File: d.File, Line: d.Line, Warning: true,
				Problem: fmt.Sprintf("job %q needs %s: whether that is granted was not checked; --grants FILE does", d.Configuration.JobName, words.Some(guest.Needs, ", "))})
		}
	}
	return findings
}

// DefinedJob is a job and the file that defines it.
type DefinedJob struct {
	File string
	definition.Definition
}

// Defined are the jobs of definition files, and of those in directories. A file with a
// problem has none.
func Defined(paths []string) (jobs []DefinedJob) {
	jobs, _ = Definitions(paths)
	return jobs
}

// Definitions is Defined with what is wrong: the error joins an [*definition.Error] for each file that has a problem, and says which
// paths have no definition, at most [words.MostProblems]. No module is looked at.
func Definitions(paths []string) (jobs []DefinedJob, err error) {
	var problems words.Problems
	for _, p := range paths {
		dir, name := rooted(p)
		names := []string{name}
		if isDir(p) {
			dir, names = p, slices.Sorted(maps.Keys(lookAt(p).entries))
		}
		texts := make(map[string]string)
		found := false
		for _, name := range names {
			if kindOf(name) != aDefinition {
				continue
			}
			found = true
			definitions, err := definitionsOf(dir, name)
			problems.Add(err)
			for _, d := range definitions {
				d.Configuration = withDays(dir, name, d.Configuration, texts)
				jobs = append(jobs, DefinedJob{filepath.Join(dir, name), d})
			}
		}
		if !found {
			problems.Add(fmt.Errorf("%s: found no definition there, expected NAME.yaml or a directory with such files", p))
		}
	}
	return jobs, problems.Err()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Capabilities are the import modules that need a grant: what [Options] have as Granted
// where CheckGrants judges.
func Capabilities() []string {
	var modules []string
	for _, f := range abi.CapabilityImports() {
		if !slices.Contains(modules, f.Module) {
			modules = append(modules, f.Module)
		}
	}
	return modules
}

// definitionsOf are the jobs of a file of a directory; none, and the error, if it has a problem.
func definitionsOf(dir, name string) ([]definition.Definition, error) {
	text, ok := readIn(dir, name, definition.MaxSize)
	if !ok {
		return nil, fmt.Errorf("%s: the file cannot be read, or is larger than %d bytes", filepath.Join(dir, name), definition.MaxSize)
	}
	shared, ok := sharedIn(dir, name)
	if !ok {
		return nil, fmt.Errorf("%s: a file %s in its folder, or in one above it, is refused", filepath.Join(dir, name), definition.DefaultsFile)
	}
	definitions, err := definition.ParseWithin(name, text, nil, shared...)
	if bad := (*definition.Error)(nil); errors.As(err, &bad) {
		bad.File = filepath.Join(dir, name)
	}
	return definitions, err
}

// readIn reads a file of a directory as the catalog does; it reports false if that is not possible.
func readIn(dir, name string, limit int64) ([]byte, bool) {
	root, err := os.OpenRoot(filepath.Clean(dir))
	if err != nil {
		return nil, false
	}
	defer root.Close() // read only: nothing is lost if that fails
	e, ok := lookAtFile(root, name)
	if !ok || e.problem != "" || e.stamp.size > limit {
		return nil, false
	}
	data, err := root.ReadFile(name)
	return data, err == nil
}

// Wants returns the imports and needs of a job, which grants must allow, in the form of
// [operator.Compare].
func Wants(imports map[string][]string, needs []string) []string {
	return append(slices.Sorted(maps.Keys(imports)), needs...)
}

// lookedAt has what was read of modules, which several jobs can name: what each says of itself, and
// the bytes of the last one.
type lookedAt struct {
	infos map[string]*wasm.Info
	last  string
	bytes []byte
}

// read reads a module, unless it is the one that was read last.
func (l *lookedAt) read(path string) ([]byte, bool) {
	if l.last != path {
		module, ok := readIn(filepath.Dir(path), filepath.Base(path), abi.MaxModuleSize)
		if !ok {
			return nil, false
		}
		l.last, l.bytes = path, module
	}
	return l.bytes, true
}

// info is what a module says of itself; nil if it cannot be read.
func (l *lookedAt) info(path string) *wasm.Info {
	info, known := l.infos[path]
	if !known {
		if module, ok := l.read(path); ok {
			info = wasm.Read(module).Info
		}
		l.infos[path] = info
	}
	return info
}

func (l *lookedAt) checkGranted(set *operator.Set, file string, d definition.Definition) (operator.Wanted, []Finding) {
	var findings []Finding
	problem := func(format string, args ...any) {
		findings = append(findings, Finding{File: file, Line: d.Line, Problem: fmt.Sprintf(format, args...)})
	}
	job := d.Configuration.JobName
	var m operator.Module
	var imports map[string][]string
	path := filepath.Join(filepath.Dir(file), d.Module)
	if own, ok := builtin.Module(d.Module); ok {
		info := wasm.Read(own).Info
		imports, m.Digest = info.Imports, info.Digest
	} else if info := l.info(path); info != nil {
		imports, m.Digest = info.Imports, info.Digest
		sig, err := signature.Read(path)
		if err == nil || set.TrustFor(job) != nil {
			if module, ok := l.read(path); ok {
				m.Signer, err = set.Signer(job, module, sig)
				if err != nil {
					problem("job %q: module %s: %v", job, d.Module, err)
				}
			}
		}
	}
	guest, _ := d.Configuration.Guest() // it was checked by the parser
	w := operator.Wanted{Job: job, Wants: operator.Compare(Wants(imports, guest.Needs), set.For(job, m))}
	for _, want := range w.Wants {
		if want.Missing != "" {
			problem("job %q wants %s: %s", job, want.What, want.Missing)
		}
	}
	return w, findings
}
