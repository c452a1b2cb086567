package plugin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
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

// Warnings say what a module will not be able to do here, as far as its bytes say.
func Warnings(wasm []byte) []string {
	if bytes.Contains(wasm, []byte("net/http.(*Transport).")) {
		return []string{"it uses Go's HTTP client: guests have no sockets yet, and every request fails"}
	}
	return nil
}

// Inspect reads a module without compiling it. Info is never nil; what keeps
// the module from being loaded is in its Problems, and the error, if there is
// one, is a [*LoadError] with the same list.
func Inspect(wasm []byte) (*Info, error) {
	info, _ := inspect(wasm)
	info.Warnings = Warnings(wasm)
	if len(info.Problems) > 0 {
		return info, &LoadError{Digest: info.Digest, Problems: info.Problems}
	}
	return info, nil
}

func inspect(wasm []byte) (*Info, *scan) {
	digest := sha256.Sum256(wasm)
	info := &Info{
		Digest:      hex.EncodeToString(digest[:]),
		Size:        len(wasm),
		ABIVersions: []int{},
		Types:       []string{},
		Imports:     map[string][]string{},
		Exports:     []string{},
		Listeners:   []string{},
		Problems:    []string{},
	}
	if len(wasm) > abi.MaxModuleSize {
		info.Problems = append(info.Problems, fmt.Sprintf("the module is %d bytes long, the limit is %d", len(wasm), abi.MaxModuleSize))
		return info, nil
	}
	s, err := scanModule(wasm)
	if s.names != nil {
		info.Exports = s.names
	}
	for _, im := range s.imports {
		info.Imports[im.module] = append(info.Imports[im.module], im.name)
	}
	info.MemoryMinPages = s.minPages
	info.Manifest = slices.Clone(s.manifest) // not the caller's bytes
	if err != nil {
		// The rest cannot be judged from half a module.
		info.Problems = append(info.Problems, err.Error())
		return info, s
	}
	p := &problems{list: s.problems}
	s.checkExports(info, p)
	s.checkImports(p)
	if p.more > 0 {
		p.list = append(p.list, fmt.Sprintf("and %d more problems", p.more))
	}
	info.Problems = append(info.Problems, p.list...)
	if len(info.Problems) == 0 {
		if s.rewritten, err = s.rewrite(); err != nil {
			info.Problems = append(info.Problems, err.Error())
		}
	}
	return info, s
}

type problems struct {
	list []string
	more int
}

func (p *problems) add(format string, args ...any) {
	if len(p.list) >= maxProblems {
		p.more++
		return
	}
	p.list = append(p.list, fmt.Sprintf(format, args...))
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

func (s *scan) checkExports(info *Info, p *problems) {
	has := map[string]bool{}
	present := func(name string) bool { _, ok := s.exports[name]; return ok }
	for _, f := range abi.Exports() {
		if s.is(f, p) {
			has[f.Name] = true
		}
	}
	for _, name := range []string{abi.ExportBefore, abi.ExportAfter, abi.ExportBeforeOnce, abi.ExportAfterOnce} {
		if has[name] {
			info.Listeners = append(info.Listeners, name)
		}
	}

	// Every marker has the type of the marker of version 1.
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
		if name == abi.Marker || s.is(abi.Function{Name: name}, p) {
			info.ABIVersions = append(info.ABIVersions, v)
		}
	}
	slices.Sort(info.ABIVersions)
	spoken := slices.Contains(info.ABIVersions, abi.Version)

	switch {
	case len(info.ABIVersions) > 0 && !spoken:
		list := make([]string, len(info.ABIVersions))
		for i, v := range info.ABIVersions {
			list[i] = "v" + strconv.Itoa(v)
		}
		p.add("the module speaks job ABI %s, this host supports v%d: upgrade the host, or rebuild with an SDK for v%[2]d",
			strings.Join(list, ", "), abi.Version)
	case len(info.ABIVersions) == 0 && !present(abi.ExportStart):
		p.add("not a job module: no %sN export; in Go, import sdk/simple or sdk/dataflow and register a handler in init (a module with %s, a WASI command, needs none)", abi.MarkerPrefix, abi.ExportStart)
	}

	switch {
	case present(abi.ExportStart) && present(abi.ExportInitialize):
		p.add("exports both %s and %s: a module is either a command or a reactor", abi.ExportStart, abi.ExportInitialize)
	case present(abi.ExportStart):
		for _, entry := range []string{abi.ExportExecute, abi.ExportFetch, abi.ExportProcess} {
			if present(entry) {
				p.add("exports both %s and %s: the module was built as a program, and its %[2]s would find nothing initialised; a Go module needs -buildmode=c-shared", abi.ExportStart, entry)
			}
		}
	}
	if e, ok := s.exports[abi.ExportMemory]; !ok {
		p.add("no export %s: the host exchanges bytes through it", abi.ExportMemory)
	} else if e.kind != kindMemory {
		p.add("export %s is a %s, expected a memory", abi.ExportMemory, kindName(e.kind))
	}

	if has[abi.ExportStart] {
		info.Types = append(info.Types, TypeScript)
	}
	if spoken {
		if has[abi.ExportExecute] {
			info.Types = append(info.Types, TypeSimple)
		}
		switch fetch, process := present(abi.ExportFetch), present(abi.ExportProcess); {
		case has[abi.ExportFetch] && has[abi.ExportProcess]:
			info.Types = append(info.Types, TypeDataflow)
		case fetch && !process:
			p.add("exports %s but not %s, expected both or none", abi.ExportFetch, abi.ExportProcess)
		case process && !fetch:
			p.add("exports %s but not %s, expected both or none", abi.ExportProcess, abi.ExportFetch)
		case !fetch && !present(abi.ExportExecute) && !present(abi.ExportStart):
			p.add("no entry point: expected %s ()->(i32) for a SIMPLE job, or %s and %s ()->(i32) for a DATAFLOW job",
				abi.ExportExecute, abi.ExportFetch, abi.ExportProcess)
		}
	}
	slices.Sort(info.Types)
}

func (s *scan) checkImports(p *problems) {
	offered := hostFunctions()
	strange := map[string][]string{} // import module → names it may not have
	var modules []string
	for _, im := range s.imports {
		if im.kind != kindFunc {
			p.add("imports %s %s.%s: only functions may be imported", kindName(im.kind), im.module, im.name)
			continue
		}
		funcs, known := offered[im.module]
		if !known {
			if strange[im.module] == nil {
				modules = append(modules, im.module)
			}
			strange[im.module] = append(strange[im.module], im.name)
			continue
		}
		want, ok := funcs[im.name]
		got := s.types[im.typ]
		switch {
		case !ok && im.module == abi.Module:
			p.add("%s.%s%s: unknown import; the host may be too old for this module", im.module, im.name, got)
		case !ok:
			p.add("%s.%s%s: unknown import", im.module, im.name, got)
		case !got.Equal(want):
			p.add("%s.%s is %s in the module, the host has %s", im.module, im.name, got, want)
		}
	}
	for _, m := range modules {
		names := strange[m]
		list := strings.Join(names[:min(len(names), 5)], ", ")
		if n := len(names) - 5; n > 0 {
			list += fmt.Sprintf(" and %d more", n)
		}
		switch m {
		case abi.ModuleHTTP, abi.ModuleKV, abi.ModuleEnv:
			p.add("needs capability %s, which this host does not offer: imports %s from %s",
				strings.TrimPrefix(m, abi.Module+"_"), list, m)
		case "gojs", "go":
			p.add("imports %s from %s: built with GOOS=js, expected GOOS=wasip1", list, m)
		case "wasi_unstable":
			p.add("imports %s from %s: that is WASI preview 0, expected %s", list, m, abi.ModuleWASI)
		default:
			p.add("imports %s from %q: unknown import module", list, m)
		}
	}
}
