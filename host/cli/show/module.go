package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Module is what inspect shows of a module. Wants are what it wants of the grants, refused why
// they do not let it run.
func Module(s terminal.Style, name string, info *wasm.Info, wants []grants.Want, refused string) string {
	var b strings.Builder
	show := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%s %s\n", s.Paint(terminal.Grey, terminal.Pad(what, 10)), text)
		}
	}
	var versions []string
	for _, v := range info.ABIVersions {
		versions = append(versions, fmt.Sprintf("v%d", v))
	}
	show("module", name)
	show("type", strings.Join(info.Types, ", "))
	show("abi", strings.Join(versions, ", "))
	show("digest", info.Digest)
	show("size", words.Size(int64(info.Size)))
	if info.MemoryMinPages > 0 {
		show("memory", "begins with "+words.Size(int64(info.MemoryMinPages)<<16))
	}
	show("listeners", strings.Join(info.Listeners, ", "))
	if len(info.Imports) > 0 {
		b.WriteString(s.Paint(terminal.Grey, "imports") + "\n")
		for _, module := range slices.Sorted(maps.Keys(info.Imports)) {
			fmt.Fprintf(&b, "  %s: %s\n    %s\n", s.Paint(terminal.Bold, module), purpose(module), strings.Join(unique(info.Imports[module]), " "))
		}
	}
	if len(info.Manifest) > 0 {
		show("manifest", string(info.Manifest))
	}
	for i, w := range wants {
		text := w.What
		if w.Missing != "" {
			text += ": missing: " + w.Missing
		}
		show([]string{"wants", ""}[min(i, 1)], text)
	}
	if refused != "" {
		b.WriteString(s.Paint(terminal.Red, "refused") + "    " + refused + "\n")
	}
	for _, problem := range info.Problems {
		b.WriteString(s.Paint(terminal.Red, "refused") + "    " + problem + "\n")
	}
	for _, warning := range info.Warnings {
		b.WriteString(s.Paint(terminal.Yellow, "warning") + "    " + warning + "\n")
	}
	return b.String()
}

// Modules lists the modules of a cluster, and the files that its hosts refused. hosts are
// those that the modules have by their ids.
func Modules(s terminal.Style, m *service.Modules, hosts []cluster.Host, now time.Time) string {
	names := make(map[string]string)
	for _, h := range hosts {
		names[h.ID] = h.Name
	}
	t := terminal.NewTable(s, "FILE", "DIGEST", "SIZE", "SIGNER", "JOBS", "HOSTS", "WANTED", "GRANTED")
	t.Spare = []string{"SIZE"}
	for _, x := range m.Modules {
		var on []string
		for _, id := range x.Hosts {
			on = append(on, cmp.Or(names[id], id))
		}
		slices.Sort(on)
		size := "-"
		if x.Size > 0 {
			size = words.Size(int64(x.Size))
		}
		few := func(list []string) terminal.Cell {
			return terminal.Plain(words.Dash(words.ClipTo(fewOf(list), widestList)))
		}
		t.Add(terminal.Coloured(fewOf(x.Files), terminal.Bold), terminal.Plain(shortDigest(x.Digest)), terminal.Plain(size), terminal.Plain(words.Dash(x.Signer)),
			few(x.Jobs), few(on), few(wanted(&x)), few(x.Granted))
	}
	text := orNone(t.Empty(), "no modules", t.String())
	if len(m.Refused) > 0 {
		var files []engine.Refusal
		for _, r := range m.Refused {
			r.File += " on " + strings.Join(r.Hosts, ", ")
			files = append(files, r.Refusal)
		}
		text += "\n" + s.Paint(terminal.Bold, "Refused files") + "\n" + s.Wrapped(Refused(s, files, now))
	}
	return text + Silent(s, m.Silent)
}

// widestList bounds the lists of a module in bytes: JSON has all of them.
const widestList = 40

// wanted is what a module needs of the grants: by its jobs' definitions, and what it imports of which
// these say nothing.
func wanted(m *service.Module) []string {
	list := slices.Clone(m.Needs)
	kinds := map[string][]string{abi.ModuleEnv: {"env", "secret"}, abi.ModuleIO: {"http", "net"}} // of needs, where Wants has other words
	imports := slices.Clone(m.Imports)
	slices.SortStableFunc(imports, func(a, b string) int { // last those of which others say more
		return cmp.Compare(len(kinds[a]), len(kinds[b]))
	})
	for _, module := range imports {
		w := grants.Wants(module)
		said := slices.ContainsFunc(list, func(need string) bool {
			kind, _, _ := strings.Cut(need, " ")
			return kind == w || slices.Contains(kinds[module], kind)
		})
		if w != "" && !said {
			list = append(list, w)
		}
	}
	return list
}

// shortDigest is as much of a digest as people compare.
func shortDigest(digest string) string { return digest[:min(len(digest), 12)] }

// unique leaves each name once, in the order of the first.
func unique(names []string) []string {
	var list []string
	for _, n := range names {
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// purpose says what importing from a module lets a guest do.
func purpose(module string) string {
	switch module {
	case abi.Module:
		return "the job's own context, log, progress, metrics and offset"
	case abi.ModuleWASI:
		return "clocks, randomness, arguments, standard streams, mounted directories"
	case abi.ModuleIO:
		return "reading, writing and waiting, of requests and connections"
	case abi.ModuleHTTP:
		return "HTTP requests to the addresses that are granted"
	case abi.ModuleNet:
		return "connections to the addresses that are granted"
	case abi.ModuleKV:
		return "key/value state of the item"
	case abi.ModuleEnv:
		return "granted environment variables and secrets"
	}
	if module == "env" {
		return "AssemblyScript's abort"
	}
	return "unknown to this host"
}
