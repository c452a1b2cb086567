package wasm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Types of jobs, as definitions name them.
const (
	TypeSimple   = "SIMPLE"
	TypeDataflow = "DATAFLOW"
	TypeScript   = "SCRIPT"
)

// Info is what a module says about itself without being run or compiled. It is
// not changed after it was made.
type Info struct {
	// Digest is the lower-case hex SHA-256 of the file, Size its length in bytes.
	Digest string `json:"digest"`
	Size   int    `json:"size"`
	// ABIVersions are those of the marker exports, ascending.
	ABIVersions []int `json:"abiVersions"`
	// Types are the kinds of job that the exports allow: SIMPLE, DATAFLOW, SCRIPT.
	Types []string `json:"types"`
	// Imports maps import modules to the names imported from them, both as
	// the module has them: what it can do to the world.
	Imports map[string][]string `json:"imports"`
	// Exports are all exports in the module's order.
	Exports []string `json:"exports"`
	// Listeners are those exports that are execution listeners.
	Listeners []string `json:"listeners"`
	// Manifest is the optional section job.manifest.
	Manifest json.RawMessage `json:"manifest,omitempty"`
	// MemoryMinPages is the memory that an instance begins with, in pages of
	// 64 KiB.
	MemoryMinPages uint32 `json:"memoryMinPages"`
	// Problems says why this host would refuse the module; none if it would not.
	Problems []string `json:"problems"`
	// Warnings say what the module will not be able to do here.
	Warnings []string `json:"warnings,omitempty"`
}

// About is the size, and the names of the modules that are imported from.
func (i *Info) About() (size int, imports []string) {
	return i.Size, slices.Sorted(maps.Keys(i.Imports))
}

// JobType finds the type to run the module as: the wanted one or, if that is empty, the
// only one that there is. The error says what is missing for it.
func (i *Info) JobType(want string) (string, error) {
	if want == "" && len(i.Types) == 1 {
		return i.Types[0], nil
	}
	if want == "" {
		return "", fmt.Errorf("the module can be run as %s: the job's type must say which", strings.Join(i.Types, " or "))
	}
	if slices.Contains(i.Types, want) {
		return want, nil
	}

	var needed []string
	switch want {
	case TypeSimple:
		needed = []string{abi.Marker, abi.ExportExecute}
	case TypeDataflow:
		needed = []string{abi.Marker, abi.ExportFetch, abi.ExportProcess}
	case TypeScript:
		needed = []string{abi.ExportStart}
	default:
		return "", fmt.Errorf("job type %q, expected %s, %s or %s", want, TypeSimple, TypeDataflow, TypeScript)
	}

	var missing []string
	for _, f := range abi.Exports() {
		if slices.Contains(needed, f.Name) && !slices.Contains(i.Exports, f.Name) {
			missing = append(missing, f.Name+" "+f.Type.String())
		}
	}
	return "", fmt.Errorf("job type %s needs the exports %s, which the module does not have; it can be run as %s",
		want, strings.Join(missing, ", "), strings.Join(i.Types, " or "))
}

// HasListener reports whether the module has the listener export, if it is run as the
// type.
func (i *Info) HasListener(typ, export string) bool {
	return typ != TypeScript && slices.Contains(i.Listeners, export)
}

// Warnings say what a module will not be able to do here, as far as its bytes say.
func Warnings(wasm []byte) []string {
	if bytes.Contains(wasm, []byte("net/http.(*Transport).")) && !bytes.Contains(wasm, []byte(abi.ModuleHTTP)) {
		return []string{`it uses Go's HTTP client without the host's: every request fails; import _ "github.com/wasmjob/wasmjob/sdk/nethttp"`}
	}
	return nil
}

// Module is a module that was read.
type Module struct {
	// Info has all problems but those of the code, which Meter finds.
	Info *Info

	scan *scan
	err  error // why the file is no module within the limits
}

// Metered is a module as the runtime gets it.
type Metered struct {
	Bytes []byte
	// TableBytes is what an instance may take beside its memory and its stack, in bytes:
	// tables, globals, and what the engine keeps for each element and segment.
	TableBytes int64
}

// Inspect reads a module and tries to meter it, for Info with all problems and warnings.
func Inspect(file []byte) *Info {
	m := Read(file)
	m.Info.Warnings = Warnings(file)
	if len(m.Info.Problems) == 0 {
		if _, err := m.Meter(); err != nil {
			m.Info.Problems = append(m.Info.Problems, words.Reason(err.Error()))
		}
	}
	return m.Info
}

// Read reads a module. The file must not change while the result is in use.
func Read(file []byte) *Module {
	digest := sha256.Sum256(file)
	info := &Info{
		Digest:      hex.EncodeToString(digest[:]),
		Size:        len(file),
		ABIVersions: []int{},
		Types:       []string{},
		Imports:     map[string][]string{},
		Exports:     []string{},
		Listeners:   []string{},
		Problems:    []string{},
	}
	m := &Module{Info: info}
	if len(file) > abi.MaxModuleSize {
		m.err = fmt.Errorf("the module is %d bytes long, the limit is %d", len(file), abi.MaxModuleSize)
		info.Problems = append(info.Problems, m.err.Error())
		return m
	}

	m.scan, m.err = scanModule(file)
	s := m.scan
	if s.names != nil {
		info.Exports = s.names
	}
	for _, im := range s.imports {
		info.Imports[im.module] = append(info.Imports[im.module], im.name)
	}
	info.MemoryMinPages = s.minPages
	info.Manifest = slices.Clone(s.manifest) // not the caller's bytes
	if m.err != nil {
		// The rest cannot be judged from half a module.
		info.Problems = append(info.Problems, words.Reason(m.err.Error()))
		return m
	}

	p := &s.problems
	s.checkExports(info, p)
	s.checkImports(p)
	info.Problems = append(info.Problems, words.Strings(p.few.Kept(), p.few.More())...)
	return m
}

// Meter rewrites the module such that it asks the host to go on, now and then, whatever
// it does; see [Quantum]. The error says what cannot be metered. What else Info has
// against the module does not matter.
func (m *Module) Meter() (*Metered, error) {
	if m.err != nil {
		return nil, m.err
	}
	out, err := m.scan.rewrite()
	if err != nil {
		return nil, err
	}
	return &Metered{Bytes: out, TableBytes: m.scan.tableBytes}, nil
}

type problems struct{ few words.Few[string] }

func (p *problems) add(format string, args ...any) {
	if p.few.Full() {
		p.few.Count(1)
		return
	}
	p.few.Add(words.Reason(fmt.Sprintf(format, args...)))
}

// is reports whether the module exports the function with the contract's
// signature; a mistyped one is a problem.
func (s *scan) is(f abi.Function, p *problems) bool {
	e, ok := s.exports[f.Name]
	if !ok {
		return false
	}
	if e.kind != kindFunc {
		p.add("export %s is a %s, expected a function %s", f.Name, kindName(e.kind), f.Type)
		return false
	}
	if got := s.types[s.funcs[e.index]]; !got.Equal(f.Type) {
		p.add("export %s is %s, expected %s", f.Name, got, f.Type)
		return false
	}
	return true
}

// has reports whether the module exports the name, whatever it is.
func (s *scan) has(name string) bool {
	_, ok := s.exports[name]
	return ok
}

// checkExports finds the versions, types and listeners that the exports stand for,
// and what is wrong with them.
func (s *scan) checkExports(info *Info, p *problems) {
	is := map[string]bool{} // functions of the contract that are as it says
	for _, f := range abi.Exports() {
		is[f.Name] = s.is(f, p)
	}
	for _, name := range []string{abi.ExportBefore, abi.ExportAfter, abi.ExportBeforeOnce, abi.ExportAfterOnce} {
		if is[name] {
			info.Listeners = append(info.Listeners, name)
		}
	}
	info.ABIVersions = append(info.ABIVersions, s.versions(p)...)
	spoken := slices.Contains(info.ABIVersions, abi.Version)

	s.checkMarker(info.ABIVersions, spoken, p)
	s.checkStart(p)
	s.checkMemory(p)
	if is[abi.ExportStart] {
		info.Types = append(info.Types, TypeScript)
	}
	if spoken && is[abi.ExportExecute] {
		info.Types = append(info.Types, TypeSimple)
	}
	if spoken && is[abi.ExportFetch] && is[abi.ExportProcess] {
		info.Types = append(info.Types, TypeDataflow)
	}
	if spoken {
		s.checkEntries(p)
	}
	slices.Sort(info.Types)
}

// versions are those of the marker exports, ascending. Every marker has the type of
// the marker of version 1.
func (s *scan) versions(p *problems) []int {
	var list []int
	for _, name := range s.names {
		digits, ok := strings.CutPrefix(name, abi.MarkerPrefix)
		if !ok {
			continue
		}
		v, err := strconv.Atoi(digits)
		if err != nil || v < 1 || strconv.Itoa(v) != digits {
			p.add("export %s is no marker: expected %sN with a decimal version N", name, abi.MarkerPrefix)
			continue
		}
		// A mistyped marker of this version was reported with the other exports.
		if name == abi.Marker || s.is(abi.Function{Name: name}, p) {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	return list
}

func (s *scan) checkMarker(versions []int, spoken bool, p *problems) {
	if len(versions) == 0 {
		if !s.has(abi.ExportStart) {
			p.add("not a job module: no %sN export; in Go, import sdk/simple or sdk/dataflow and register a handler in init (a module with %s, a WASI command, needs none)", abi.MarkerPrefix, abi.ExportStart)
		}
		return
	}
	if !spoken {
		list := make([]string, len(versions))
		for i, v := range versions {
			list[i] = "v" + strconv.Itoa(v)
		}
		p.add("the module speaks job ABI %s, this host supports v%d: upgrade the host, or rebuild with an SDK for v%[2]d",
			words.Some(list, ", "), abi.Version)
	}
}

// checkStart refuses a command that is something else, too.
func (s *scan) checkStart(p *problems) {
	if !s.has(abi.ExportStart) {
		return
	}
	if s.has(abi.ExportInitialize) {
		p.add("exports both %s and %s: a module is either a command or a reactor", abi.ExportStart, abi.ExportInitialize)
		return
	}
	for _, entry := range []string{abi.ExportExecute, abi.ExportFetch, abi.ExportProcess} {
		if s.has(entry) {
			p.add("exports both %s and %s: the module was built as a program, and its %[2]s would find nothing initialised; a Go module needs -buildmode=c-shared", abi.ExportStart, entry)
		}
	}
}

func (s *scan) checkMemory(p *problems) {
	if e, ok := s.exports[abi.ExportMemory]; !ok {
		p.add("no export %s: the host exchanges bytes through it", abi.ExportMemory)
	} else if e.kind != kindMemory {
		p.add("export %s is a %s, expected a memory", abi.ExportMemory, kindName(e.kind))
	}
}

// checkEntries checks which entry points there are. A mistyped one was reported before.
func (s *scan) checkEntries(p *problems) {
	fetch, process := s.has(abi.ExportFetch), s.has(abi.ExportProcess)
	if fetch && !process {
		p.add("exports %s but not %s, expected both or none", abi.ExportFetch, abi.ExportProcess)
	} else if process && !fetch {
		p.add("exports %s but not %s, expected both or none", abi.ExportProcess, abi.ExportFetch)
	} else if !fetch && !s.has(abi.ExportExecute) && !s.has(abi.ExportStart) {
		p.add("no entry point: expected %s ()->(i32) for a SIMPLE job, or %s and %s ()->(i32) for a DATAFLOW job",
			abi.ExportExecute, abi.ExportFetch, abi.ExportProcess)
	}
}

func (s *scan) checkImports(p *problems) {
	all := Offered()
	strange := map[string][]string{} // import module → names it may not have
	var modules []string
	for _, im := range s.imports {
		if im.kind != kindFunc {
			p.add("imports %s %s.%s: only functions may be imported", kindName(im.kind), im.module, im.name)
			continue
		}
		funcs, known := all[im.module]
		if !known {
			if strange[im.module] == nil {
				modules = append(modules, im.module)
			}
			strange[im.module] = append(strange[im.module], im.name)
			continue
		}
		want, ok := funcs[im.name]
		got := s.types[im.typ]
		if !ok {
			hint := ""
			if strings.HasPrefix(im.module, abi.Module) {
				hint = "; the host may be too old for this module"
			}
			p.add("%s.%s%s: unknown import%s", im.module, im.name, got, hint)
		} else if !got.Equal(want) {
			p.add("%s.%s is %s in the module, the host has %s", im.module, im.name, got, want)
		}
	}
	for _, m := range modules {
		names := strange[m]
		list := words.Some(names, ", ")
		switch m {
		case "gojs", "go":
			p.add("imports %s from %s: built with GOOS=js, expected GOOS=wasip1", list, m)
		case "wasi_unstable":
			p.add("imports %s from %s: that is WASI preview 0, expected %s", list, m, abi.ModuleWASI)
		default:
			p.add("imports %s from %q: unknown import module", list, m)
		}
	}
}
