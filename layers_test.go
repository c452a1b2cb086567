package wasmjob_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/wasmjob/wasmjob"

// wing is a folder with all packages below it that no longer name covers, and what they may
// import besides the standard library and each other.
type wing struct {
	// name is the folder; "x/*" is every folder directly in x, each a wing of its own.
	name string
	// may are the wings it may import; testsMay come on top for its test files, which may
	// import all of test/ as well.
	may, testsMay []string
	why           string
}

// Wings that many may import.
var (
	ground   = []string{"abi", "internal"}
	protocol = []string{"abi", "internal", "coordination", "coordination/registry"}
	// below are the wings that whatever shows or operates a host may read.
	below = append(slices.Clone(protocol), "host/schedule", "host/config", "host/event", "host/sandbox", "host/engine", "host/history", "host/explain")
)

// wings are who may import whom. Imports go down only: a wing may name wings above it in this
// table, never below.
var wings = []wing{
	{name: "abi", why: "hosts and guests alike read the contract: whatever it needed, both would need"},
	{name: "internal", why: "how a value, a time or a text is worded does not depend on who asks"},
	{name: "strategy", may: []string{"internal"}, why: "who gets which item depends on the arguments alone"},

	{name: "sdk/internal/border", may: []string{"abi"}, why: "the border itself; the SDK proper and its fake host both stand on it"},
	{name: "sdk", may: []string{"abi", "sdk/internal/border"}, testsMay: []string{"sdk/sdktest"}, why: "it is compiled into every guest: each import is bytes in every module"},
	{name: "sdk/internal/handle", may: []string{"abi", "sdk", "sdk/internal/border"}, testsMay: []string{"sdk/sdktest"}, why: "how goroutines wait for the host is linked only into guests that have handles"},
	{name: "sdk/*", may: []string{"abi", "sdk", "sdk/internal/border", "sdk/internal/handle"}, testsMay: []string{"sdk/sdktest"}, why: "an export or a capability is linked only into the guests that import its package, and none with another"},
	{name: "sdk/listener/*", may: []string{"abi", "sdk", "sdk/internal/border"}, testsMay: []string{"sdk/sdktest"}, why: "the same, for listeners"},
	{name: "sdk/nethttp", may: []string{"sdk/*"}, testsMay: []string{"sdk", "sdk/sdktest"}, why: "net/http is 6 MB. It must not import sdk/net: a module with that import is refused where only requests are granted"},
	{name: "sdk/nethttp/clones", may: []string{"sdk/*", "sdk/nethttp"}, why: "apart from sdk/nethttp, because it imports sdk/net"},
	{name: "sdk/sdktest", may: []string{"abi", "sdk", "sdk/*", "sdk/listener/*", "sdk/internal/border"}, why: "authors test with it natively; its own tests compare it with a runtime"},
	{name: "plugins/examples", may: []string{"abi", "sdk", "sdk/*", "sdk/listener/*", "sdk/nethttp"}, testsMay: []string{"sdk/sdktest"}, why: "guests see what any job author sees"},

	{name: "coordination/registry", why: "a backend knows the interface of a registry, and no job: it is swapped without anybody noticing"},
	{name: "coordination", may: []string{"internal", "strategy", "coordination/registry"}, why: "the protocol decides by what stands in the registry; it knows no host"},

	{name: "host/schedule", may: []string{"abi", "internal", "coordination"}, why: "which instants there are, and which of them are due, follows from a schedule and the clock"},
	{name: "host/config", may: append(slices.Clone(ground), "coordination", "coordination/registry", "host/schedule"), why: "files become checked values; nothing here runs them"},
	{name: "host/event", may: append(slices.Clone(ground), "host/config"), testsMay: []string{"coordination/registry"}, why: "whoever reads a history needs the words for what happened, and not the host"},
	{name: "host/sandbox", may: append(slices.Clone(ground), "host/config"), testsMay: []string{"sdk", "sdk/*", "sdk/listener/*"}, why: "modules run here, whatever job they belong to: it knows neither the protocol nor the engine"},
	{name: "host/engine", may: append(slices.Clone(protocol), "host/schedule", "host/config", "host/event", "host/sandbox"),
		testsMay: []string{"strategy", "host/history", "host/explain", "host/control"}, why: "one loop a job between clock, registry and guests; whoever stores, shows or sends what it reports is above it"},
	{name: "host/history", may: append(slices.Clone(protocol), "host/config", "host/event"), why: "records are kept and found by what they say; the host that reported them is not asked"},
	{name: "host/explain", may: append(slices.Clone(protocol), "host/schedule", "host/config", "host/event", "host/history"), why: "what became of a fire follows from events"},
	{name: "host/observe", may: append(slices.Clone(protocol), "host/config", "host/event", "host/sandbox", "host/engine"), why: "metrics and traces are made of what a host reports; no fire waits for them"},
	{name: "host/alert", may: append(slices.Clone(protocol), "host/schedule", "host/config", "host/event"), testsMay: []string{"host/engine"}, why: "what is wrong follows from events and the clock; the engine does not know that somebody judges"},
	{name: "host/auth", may: append(slices.Clone(protocol), "host/config", "host/event", "host/history"), why: "who may do what is asked before it is known how it is done: it has the catalogue of operations, and of the history the record of a change"},
	{name: "docs", why: "the documents, embedded; they know no code"},
	{name: "host/control", may: append(slices.Clone(below), "strategy", "host/alert", "host/auth", "docs"), testsMay: []string{"host/observe"}, why: "the operations, and their doors: API, console, client; a plan of schedules asks the strategies which host has which item. It knows neither the command line nor how a host is put together"},
	{name: "host/cli", may: append(slices.Clone(below), "host/alert", "host/auth", "host/control"), why: "commands reach a host by its API, or the registry by what package main gives them"},
	{name: "deploy", why: "files of services, which init writes; it knows nothing of ours"},
	{name: "host/node", may: append(slices.Clone(below), "strategy", "deploy", "docs", "host/observe", "host/alert", "host/auth", "host/control", "host/cli"),
		testsMay: []string{"sdk"}, why: "puts a host together, reads its settings, and proves that its process lives; only it knows all wings"},

	{name: "test", may: append(slices.Clone(below), "strategy", "host/observe", "host/alert", "host/auth", "host/control", "host/cli", "host/node"), testsMay: []string{"sdk"}, why: "nothing of the product imports it"},
	{name: "bench", testsMay: append(slices.Clone(below), "strategy", "host/observe", "host/alert", "host/auth", "host/control", "host/cli", "host/node"), why: "measures what is built; nothing imports it"},
	{name: "cmd/chaos", may: []string{"coordination/registry", "host/node", "test"}, why: "the laboratory is a program of its own, so that wasmjob does not carry it"},
	{name: "cmd/host", may: []string{"host/node"}, why: "a few lines around host/node"},
	{name: "cmd/wasmjob", may: []string{"host/node"}, why: "the same, by the name that go install gives"},
}

// home is where the packages are that may import a module.
type home struct {
	in    []string // packages
	tests []string // packages whose tests alone may; "*" is any
	why   string
}

// homes are the modules of others and who may import them: one package each, unless a reason
// says why not. A module that is not here has no home yet.
var homes = map[string]home{
	"aead.dev/minisign":                        {in: []string{"host/config/signature"}},
	"github.com/KimMachineGun/automemlimit":    {in: []string{"host/node/program"}},
	"github.com/arran4/golang-ical":            {in: []string{"host/config/calendar"}},
	"github.com/coreos/go-oidc/v3":             {in: []string{"host/auth/oidc"}},
	"github.com/danielgtaylor/huma/v2":         {in: []string{"host/control/api"}},
	"github.com/fsnotify/fsnotify":             {in: []string{"host/cli/invoke", "host/config/filewatch", "host/engine/catalog", "test/interop/peer"}, tests: []string{"test/e2e"}, why: "directories are watched by the catalog, one file by invoke, the files of an operator by filewatch, a history by tests"},
	"github.com/fxamacker/cbor/v2":             {in: []string{"host/sandbox/process"}},
	"github.com/go-sql-driver/mysql":           {in: []string{"host/history/database"}},
	"github.com/go-zookeeper/zk":               {in: []string{"coordination/registry/zookeeper"}, tests: []string{"bench/peers", "bench/peers/attack", "test/e2e", "test/interop", "test/tap"}},
	"github.com/jackc/pgx/v5":                  {in: []string{"host/history/database"}},
	"github.com/klauspost/compress":            {in: []string{"host/auth/httpx"}},
	"github.com/knadh/koanf":                   {in: []string{"host/node/program"}},
	"github.com/landlock-lsm/go-landlock":      {in: []string{"host/sandbox/process"}},
	"github.com/prometheus":                    {in: []string{"host/observe/metrics"}},
	"github.com/robfig/cron/v3":                {in: []string{"host/config/migrate", "host/config/timetable", "host/engine", "host/schedule", "host/schedule/due", "host/schedule/plan"}, why: "its Schedule is the interface that a calendar and a job keep; only host/schedule makes one"},
	"github.com/santhosh-tekuri/jsonschema/v6": {in: []string{"test/schemas"}},
	"github.com/spf13/cobra":                   {in: []string{"cmd/chaos", "host/cli/alerts", "host/cli/command", "host/cli/importing", "host/cli/jobs", "host/cli/users", "host/node/program"}, why: "the command line of two programs, and of the commands in host/cli"},
	"github.com/spf13/pflag":                   {in: []string{"cmd/chaos", "host/cli/command", "host/cli/jobs", "host/node/program"}, why: "the flags of the same commands"},
	"github.com/teambition/rrule-go":           {in: []string{"host/config/calendar"}},
	"github.com/tetratelabs/wazero":            {in: []string{"host/sandbox/capability/dir", "host/sandbox/plugin"}, tests: []string{"host/sandbox/capability/offer", "host/sandbox/wasm", "test/hostile", "sdk/sdktest"}, why: "plugin runs guests; dir has its flags of files, which come with the calls of WASI"},
	"github.com/yuin/goldmark":                 {in: []string{"host/control/pages"}},
	"go.etcd.io/bbolt":                         {in: []string{"coordination/registry/embedded"}},
	"go.opentelemetry.io/proto/slim/otlp":      {in: []string{"host/observe/trace", "host/observe/metrics", "test/collector"}, why: "host/observe/trace writes what test/collector reads, and host/observe/metrics since when a counter counts"},
	"go.uber.org/goleak":                       {tests: []string{"*"}},
	"go.uber.org/zap":                          {in: []string{"*"}, why: "a logger is handed down as a value"},
	"go.yaml.in/yaml/v3":                       {in: []string{"cmd/chaos", "coordination/jobconfig", "coordination/tree", "host/alert", "host/auth/users", "host/cli/command", "host/cli/contexts", "host/config/calendar", "host/config/definition", "host/config/fields", "host/config/grants", "host/config/migrate", "host/config/yamlnode", "host/node/program", "test/schemas"}, why: "documents of ElasticJob in coordination, files with line numbers in host/config, which others write as well; the settings of two programs"},
	"golang.org/x/crypto":                      {in: []string{"host/auth/password"}},
	"golang.org/x/mod":                         {tests: []string{"test/modules"}},
	"golang.org/x/oauth2":                      {in: []string{"host/auth/oidc"}},
	"golang.org/x/sync":                        {in: []string{"host/engine/run"}},
	"golang.org/x/sys":                         {in: []string{"coordination/registry/zookeeper", "host/history/jsonl", "host/node/deadman", "host/sandbox/capability/dial", "host/sandbox/plugin", "host/sandbox/process"}, tests: []string{"host/history/database"}, why: "what the standard library lacks of the system: clocks, timers that kill, limits and filters, sizes of disks"},
	"golang.org/x/term":                        {in: []string{"host/cli/users", "host/node/program", "test/cluster"}, why: "passwords are asked for without an echo; programs ask whether they write to a terminal"},
	"golang.org/x/text":                        {in: []string{"host/cli/terminal"}},
	"golang.org/x/time":                        {in: []string{"host/cli/view", "host/engine", "host/history/jsonl", "host/sandbox/plugin", "host/sandbox/process"}, why: "a token bucket bounds lines of logs and commits"},
	"google.golang.org/protobuf":               {in: []string{"host/observe/trace", "host/observe/metrics", "test/collector"}, why: "host/observe/trace writes what test/collector reads, and host/observe/metrics since when a counter counts"},
	"modernc.org/sqlite":                       {in: []string{"host/history/database"}},
}

// listed is what go list says about a package.
type listed struct {
	ImportPath                         string
	Dir                                string
	Imports, TestImports, XTestImports []string
	Error                              *struct{ Err string }
}

// list asks go list for all packages, for a platform and with build tags.
func list(t *testing.T, env []string, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,Error"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var packages []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	return packages
}

// folders are those with files that git knows, slash separated; nil if that
// cannot be had, as in a tree without its history.
type folders map[string]bool

func (f folders) has(name string) bool { return f == nil || f[name] }

// tracked asks git which folders are the project's: a folder that a user made
// for a first job of their own keeps no rule.
func tracked(t *testing.T) folders {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil || len(out) == 0 {
		return nil
	}
	known := make(folders)
	for name := range strings.SplitSeq(string(out), "\x00") {
		known[path.Dir(name)] = true
	}
	return known
}

func folder(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

func within(mod, importPath string) bool {
	return importPath == mod || strings.HasPrefix(importPath, mod+"/")
}

// standard reports whether the import is of the standard library: its first
// element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// wingOf is the place in the table of the wing that a package belongs to: that of the longest
// name; -1 if there is none.
func wingOf(name string) int {
	found, longest := -1, -1
	parts := strings.Split(name, "/")
	for i, w := range wings {
		depth := strings.Count(w.name, "/") + 1
		if len(parts) < depth || !matches(w.name, strings.Join(parts[:depth], "/")) {
			continue
		}
		if length := 2*depth - strings.Count(w.name, "*"); length > longest {
			found, longest = i, length
		}
	}
	return found
}

// mayImport reports whether a package may import another one, and its tests if tests is true.
func mayImport(from, imported string, tests bool) bool {
	f, to := wingOf(from), wingOf(imported)
	if f < 0 || to < 0 {
		return false
	}
	if f == to && !strings.Contains(wings[f].name, "*") {
		return true
	}
	may := wings[f].may
	if tests {
		may = slices.Concat(may, wings[f].testsMay, []string{"test"})
	}
	return slices.Contains(may, wings[to].name)
}

// atHome reports whether a package, or its tests, may import one of another module.
func atHome(name, imported string, tests bool) bool {
	for mod, h := range homes {
		if within(mod, imported) {
			has := func(list []string) bool { return slices.Contains(list, name) || slices.Contains(list, "*") }
			return has(h.in) || tests && has(h.tests)
		}
	}
	return false
}

func TestLayers(t *testing.T) {
	t.Parallel()
	everywhere := []string{"./...", "./abi/...", "./sdk/..."} // the modules of go.work
	packages := list(t, nil, everywhere...)
	packages = append(packages, list(t, nil, append([]string{"-tags=soak,interop,peers,unmetered,alerts,clients"}, everywhere...)...)...)
	packages = append(packages, list(t, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}, everywhere...)...)
	ours := tracked(t)
	used := make(map[string]bool)
	said := make(map[string]bool) // a package is listed once for each platform
	complain := func(format string, args ...any) {
		t.Helper()
		if text := fmt.Sprintf(format, args...); !said[text] {
			said[text] = true
			t.Error(text)
		}
	}
	for _, p := range packages {
		name := folder(p.ImportPath)
		if name == "" || !ours.has(name) {
			continue // this test, or somebody's own try
		}
		i := wingOf(name)
		if i < 0 {
			complain("%s is in no wing: move it into one, or add one to the table with its reason", name)
			continue
		}
		used[wings[i].name] = true
		check := func(what string, imports []string, tests bool) {
			for _, imported := range imports {
				switch {
				case standard(imported) || imported == p.ImportPath:
				case within(module, imported):
					if !mayImport(name, folder(imported), tests) {
						complain("%s%s imports %s, which is not below it (%s)", name, what, folder(imported), wings[i].why)
					}
				case !atHome(name, imported, tests):
					complain("%s%s imports %s, which has another home or none yet: see homes in this file", name, what, imported)
				}
			}
		}
		check("", p.Imports, false)
		check(" (tests)", slices.Concat(p.TestImports, p.XTestImports), true)
	}
	for _, w := range wings {
		if !used[w.name] {
			complain("go list found no package of %s: it looked at the wrong tree, or the wing is empty", w.name)
		}
	}
}

// TestTable checks the tables themselves: a wing names wings above it only, so that no circle
// of permissions can come about, and there is a reason wherever one is due.
func TestTable(t *testing.T) {
	t.Parallel()
	above := make(map[string]bool)
	for _, w := range wings {
		if w.why == "" {
			t.Errorf("%s has no reason", w.name)
		}
		for _, m := range w.may {
			if !above[m] {
				t.Errorf("%s may import %s, which is not above it in the table", w.name, m)
			}
		}
		above[w.name] = true
		for _, m := range w.testsMay {
			if !slices.ContainsFunc(wings, func(o wing) bool { return o.name == m }) {
				t.Errorf("tests of %s may import %s, which is no wing", w.name, m)
			}
		}
	}
	for mod, h := range homes {
		if (len(h.in) > 1 || slices.Contains(h.in, "*")) && h.why == "" {
			t.Errorf("%s has several homes and no reason", mod)
		}
	}
}

// TestPages: a wing of several packages has a page beside its code, with a sentence for each
// package.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, nil, "./...", "./abi/...", "./sdk/...") {
		name := folder(p.ImportPath)
		i := wingOf(name)
		if i < 0 || strings.Contains(name, "testdata") || strings.HasPrefix(name, "plugins/") || strings.HasPrefix(name, "cmd/") || name == "deploy" || name == "docs" {
			continue
		}
		page := wings[i].name
		if first, _, _ := strings.Cut(page, "/"); first != "host" {
			page = first
		}
		text, err := os.ReadFile(page + "/README.md")
		if errors.Is(err, os.ErrNotExist) && name == page {
			continue // of one package
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("%s/README.md has no row for %s", page, name)
		}
	}
}

// exception lets the files under a folder break a rule.
type exception struct{ under, why string }

func excepted(file string, exceptions []exception) bool {
	return slices.ContainsFunc(exceptions, func(e exception) bool {
		return file == e.under || strings.HasPrefix(file, e.under+"/")
	})
}

// Calls that end or stop the process, and where they are in order.
var (
	mayExit = []exception{
		{"host/node/program", "the program alone decides when it ends"},
		{"cmd/chaos", "a program of its own"},
		{"test/cluster", "a program of its own"},
		{"test/demo", "a program of its own"},
		{"test/soak", "a program of its own"},
		{"test/mutants", "a program of its own"},
		{"tools/release", "a program of its own"},
		{"test/oidcserver/op", "a program of its own"},
		{"plugins/examples", "a guest is a program; crash and script show what its end looks like"},
	}
	mayPanic = []exception{
		{"host/sandbox", "a host function stops its guest with a panic, which the runtime turns into an error"},
		{"plugins/examples", "crash shows what a panic looks like"},
		{"sdk/offset.go", "an item that began again from nothing would be worse than one that ends"},
		{"sdk/internal/border", "a native test's stand-in for a trap, caught by the fake host"},
	}
	maySleep = []exception{
		{"plugins/examples", "slow takes its time on purpose, in a guest"},
	}
	mayInit = []exception{
		{"plugins/examples", "a c-shared module never runs main: guests register their handler in init"},
		{"sdk", "guests register while they are initialised"},
	}
	mayTLS = []exception{
		{"internal/tlsconfig", "the one place that says which TLS the host speaks"},
		{"host/sandbox/capability/dial", "what guests talk to may be old: Go's suites"},
		{"test", "servers for tests"},
	}
	mayAssign = []exception{
		{"sdk", "one guest instance is one process with one handler, registered by name"},
		{"plugins/examples", "a guest instance belongs to one item at a time"},
	}
)

// source is a parsed file.
type source struct {
	name string // slash separated, from the root
	test bool
	ast  *ast.File
}

// sources parses every Go file of the tree, whatever its build tags, by folder.
func sources(t *testing.T) (*token.FileSet, map[string][]source) {
	t.Helper()
	fset := token.NewFileSet()
	ours := tracked(t)
	found := make(map[string][]source)
	err := filepath.WalkDir(".", func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || !ours.has(path.Dir(filepath.ToSlash(name))):
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		dir := path.Dir(name)
		found[dir] = append(found[dir], source{name, strings.HasSuffix(name, "_test.go"), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fset, found
}

func TestHouseRules(t *testing.T) {
	t.Parallel()
	fset, folders := sources(t)
	at := func(n ast.Node) string { return fset.Position(n.Pos()).String() }
	for dir, files := range folders {
		var comments []string
		code := 0
		variables := packageVariables(files)
		for _, f := range files {
			if f.test {
				continue
			}
			code++
			if f.ast.Doc != nil {
				comments = append(comments, f.name)
			}
			for _, decl := range f.ast.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && !excepted(f.name, mayInit) {
					t.Errorf("%s: func init: what runs at import is behaviour that nobody asked for", at(fn))
				}
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if literal, ok := n.(*ast.CompositeLit); ok && typeName(literal.Type) == "tls.Config" && !excepted(f.name, mayTLS) {
					t.Errorf("%s: tls.Config: begin with tlsconfig.New(), which has no weak suites", at(literal))
				}
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch name := callee(call); {
				case name == "panic" && !excepted(f.name, mayPanic):
					t.Errorf("%s: panic: return an error", at(call))
				case (name == "os.Exit" || name == "runtime.Goexit" || strings.HasPrefix(name, "log.Fatal") || strings.HasPrefix(name, "log.Panic")) && !excepted(f.name, mayExit):
					t.Errorf("%s: %s: return an error; host/node/program ends the process", at(call), name)
				case name == "time.Sleep" && !excepted(f.name, maySleep):
					t.Errorf("%s: time.Sleep: wait for the event itself, with a context", at(call))
				}
				return true
			})
			if !excepted(f.name, mayAssign) {
				for _, n := range assignments(f.ast, variables) {
					t.Errorf("%s: package variable %s is written to: no mutable state in packages", at(n), n.Name)
				}
			}
		}
		if code > 0 && len(comments) != 1 {
			t.Errorf("%s: the package has %d package comments %v, want 1", dir, len(comments), comments)
		}
	}
}

// callee is the called function as "name" or "package.name".
func callee(call *ast.CallExpr) string { return typeName(call.Fun) }

// typeName is an identifier as "name" or "package.name".
func typeName(e ast.Expr) string {
	switch fn := e.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok {
			return x.Name + "." + fn.Sel.Name
		}
	}
	return ""
}

// packageVariables are the names of the variables that the package declares.
func packageVariables(files []source) map[string]bool {
	names := make(map[string]bool)
	for _, f := range files {
		if f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					names[name.Name] = name.Name != "_"
				}
			}
		}
	}
	return names
}

// assignments finds where a function of the file writes to one of the package
// variables: by =, ++, to an element or a field, or by taking the address.
// The parser resolves names within a file: a name that it resolved to anything
// local is not the package's.
func assignments(f *ast.File, variables map[string]bool) []*ast.Ident {
	top := make(map[any]bool)
	for _, decl := range f.Decls {
		if gen, ok := decl.(*ast.GenDecl); ok {
			for _, spec := range gen.Specs {
				top[spec] = true
			}
		}
	}
	var found []*ast.Ident
	written := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.Ident:
				if variables[x.Name] && (x.Obj == nil || top[x.Obj.Decl]) {
					found = append(found, x)
				}
				return
			default:
				return
			}
		}
	}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch s := n.(type) {
			case *ast.AssignStmt:
				if s.Tok != token.DEFINE {
					for _, left := range s.Lhs {
						written(left)
					}
				}
			case *ast.IncDecStmt:
				written(s.X)
			case *ast.UnaryExpr:
				if s.Op == token.AND {
					written(s.X)
				}
			}
			return true
		})
	}
	return found
}

// TestRulesBite feeds the checkers with what they must find, so that a green
// run means something.
func TestRulesBite(t *testing.T) {
	t.Parallel()
	const text = `package p
var state = map[string]int{}
var count int
var other struct{ n int }
func f() {
	state["a"] = 1
	count++
	g(&other.n)
	count := 2
	count = 3
	_ = count
}
func g(state *int) { *state = 1 }
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range assignments(f, packageVariables([]source{{"p.go", false, f}})) {
		names = append(names, n.Name)
	}
	if want := []string{"state", "count", "other"}; !slices.Equal(names, want) {
		t.Errorf("writes to package variables: %v, want %v", names, want)
	}
	call, err := parser.ParseExpr("os.Exit(1)")
	if err != nil {
		t.Fatal(err)
	}
	if got := callee(call.(*ast.CallExpr)); got != "os.Exit" {
		t.Errorf("callee of os.Exit(1) is %q", got)
	}
	for _, c := range []struct {
		from, to string
		tests    bool
		expected bool
	}{
		{"host/engine/run", "host/engine/catalog", false, true},
		{"host/engine", "host/history", false, false},
		{"host/engine", "host/history/database", true, true},
		{"host/sandbox/plugin", "coordination/tree", false, false},
		{"host/control/api", "host/cli/jobs", false, false},
		{"coordination", "host/event", false, false},
		{"coordination/registry/embedded", "coordination/tree", false, false},
		{"host/history", "test/pgserver", false, false},
		{"host/history", "test/pgserver", true, true},
		{"sdk/kv", "sdk/http", false, false},
		{"host/nowhere", "abi", false, false},
	} {
		if got := mayImport(c.from, c.to, c.tests); got != c.expected {
			t.Errorf("%s may import %s (tests: %t): got %t", c.from, c.to, c.tests, got)
		}
	}
	if !atHome("host/history/database", "modernc.org/sqlite/lib", false) || atHome("host/engine", "modernc.org/sqlite", true) {
		t.Error("a module's home not told from another package")
	}
	if standard("github.com/x/y") || !standard("encoding/json") {
		t.Error("standard library not told from modules")
	}
	if within("a.b/c", "a.b/cd") || !within("a.b/c", "a.b/c/d") {
		t.Error("a module's packages not told from a namesake's")
	}
}
