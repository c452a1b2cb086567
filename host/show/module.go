package show

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/grants"
	"github.com/wasmjob/wasmjob/host/plugin/wasm"
	"github.com/wasmjob/wasmjob/host/words"
)

// Module is what inspect shows of a module. Wants are what it wants of the grants, refused why
// they do not let it run.
func Module(s console.Style, name string, info *wasm.Info, wants []grants.Want, refused string) string {
	var b strings.Builder
	show := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%s %s\n", s.Paint(console.Grey, console.Pad(what, 10)), words.Printable(text))
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
		b.WriteString(s.Paint(console.Grey, "imports") + "\n")
		for _, module := range slices.Sorted(maps.Keys(info.Imports)) {
			fmt.Fprintf(&b, "  %s: %s\n    %s\n", s.Paint(console.Bold, words.Printable(module)), purpose(module), words.Printable(strings.Join(unique(info.Imports[module]), " ")))
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
		b.WriteString(s.Paint(console.Red, "refused") + "    " + words.Printable(refused) + "\n")
	}
	for _, problem := range info.Problems {
		b.WriteString(s.Paint(console.Red, "refused") + "    " + words.Printable(problem) + "\n")
	}
	for _, warning := range info.Warnings {
		b.WriteString(s.Paint(console.Yellow, "warning") + "    " + words.Printable(warning) + "\n")
	}
	return b.String()
}

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
