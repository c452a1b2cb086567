package program

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

// TestHelpFitsAScreen: the commands are to be read at a glance. A command more belongs into a group; few are used so
// often that it is worth a line here.
func TestHelpFitsAScreen(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimRight(runCLI(t, nil, "--help").out, "\n"), "\n")
	if len(lines) > 26 {
		t.Errorf("the help has %d lines, expected at most 26", len(lines))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("a line of the help has %d columns, expected at most 80: %s", n, line)
		}
	}
}

// TestConnectionFlags: one page describes the flags that say where the cluster is; the help of a command names them.
func TestConnectionFlags(t *testing.T) {
	t.Parallel()
	const described = "ADDRESS of the host"
	runCLI(t, nil, "help", "connection").expect(t, exitOK, described, "--zk-tls-ca", "--context")
	count := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			walk(below)
		}
		if !c.Runnable() || c.Flags().Lookup("admin") == nil || c.Name() == "run" || c.CommandPath() == "wasmjob context set" {
			return // run and context set are about these flags
		}
		count++
		if usage := c.UsageString(); strings.Contains(usage, described) || !strings.Contains(usage, "--admin, ") {
			t.Errorf("%s: expected the connection flags by their names alone, found\n%s", c.CommandPath(), usage)
		}
	}
	walk(Commands())
	if count < 30 {
		t.Errorf("found %d commands that ask a cluster, expected at least 30", count)
	}
}

// TestHelpOfEachCommand: each command has an example of itself, a title of one line, a description that fits 90 columns, and
// says of each flag what it takes, by a word that its text explains.
func TestHelpOfEachCommand(t *testing.T) {
	t.Parallel()
	root := Commands()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			walk(below)
		}
		path := c.CommandPath()
		if c.Name() == "help" || c.IsAdditionalHelpTopicCommand() || strings.HasPrefix(path, "wasmjob completion") {
			return // cobra's own, and a page
		}
		if !strings.Contains(c.Example, path) && c != root {
			t.Errorf("%s has no example of itself, found %q", path, c.Example)
		}
		if c.Short == "" || len(c.Short) > 70 || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the title %q is missing, longer than 70 characters or a sentence", path, c.Short)
		}
		for line := range strings.SplitSeq(c.Long, "\n") {
			if n := utf8.RuneCountInString(line); n > 90 && !strings.Contains(line, "://") {
				t.Errorf("%s: a line has %d columns: %s", path, n, line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if takes, _ := pflag.UnquoteUsage(f); takes != "" && !strings.ContainsFunc(takes, unicode.IsUpper) && takes != "all|none|N" {
				t.Errorf("%s: --%s takes %q: expected a word in capitals that its text has, too", path, f.Name, takes)
			}
			if strings.Contains(f.Usage, "as run has") {
				t.Errorf("%s: --%s: %q names no flag of run", path, f.Name, f.Usage)
			}
		})
		if usage := c.UsageString(); strings.Contains(usage, `(default "`) || strings.Contains(usage, "h0m0s)") || strings.Contains(usage, "(default -1") {
			t.Errorf("%s: a default is not as it is typed:\n%s", path, usage)
		}
	}
	walk(root)
}

// TestFormerNames: each command of before 0.2.0 is found by its name, also for its help and by a shell that completes
// its arguments, and what it was called is in no help. It prints lists as it did, by its new name as an object.
func TestFormerNames(t *testing.T) {
	t.Parallel()
	root := Commands()
	for former, now := range newNames {
		words := append(strings.Fields(former), "x")
		args, was := withNewNames(words)
		cmd, rest, err := root.Find(args)
		if path := "wasmjob " + now; !was || err != nil || cmd.CommandPath() != path || len(rest) != 1 {
			t.Errorf("%q is %q: found %v, %q, expected %q", former, args, err, cmd.CommandPath(), path)
		}
		for _, begin := range []string{"help", cobra.ShellCompRequestCmd} {
			if args, was := withNewNames(append([]string{begin}, words...)); !was || args[0] != begin || strings.Join(args[1:], " ") != now+" x" {
				t.Errorf("%s %s: found %q", begin, former, args)
			}
		}
		if c, _, err := root.Find(strings.Fields(former)[:1]); err == nil && c != root {
			t.Errorf("%q is a command by itself, too", former)
		}
	}
	next := []string{"next", "@daily", "--count", "1", "--json"}
	if r := runAny(t, nil, next...); r.code != exitOK || !strings.HasPrefix(r.out, "[") {
		t.Errorf("%q: %+v, expected a bare list", next, r)
	}
	next = append([]string{"job"}, next...)
	if r := runAny(t, nil, next...); r.code != exitOK || !strings.HasPrefix(r.out, "{") {
		t.Errorf("%q: %+v, expected an object", next, r)
	}
	for _, line := range []string{"", "run --plugins p", "job list", "status jobs", "-h jobs", cobra.ShellCompRequestCmd + " jobs", "host list"} {
		args := strings.Fields(line)
		if now, was := withNewNames(args); was || strings.Join(now, " ") != line {
			t.Errorf("%q: found %q, %v, expected no change", line, now, was)
		}
	}
}

// TestListsAreNeverNull: a list is an object with records, and none in a value is null, however deep.
func TestListsAreNeverNull(t *testing.T) {
	t.Parallel()
	type deep struct {
		Names []string            `json:"names"`
		By    map[string][]string `json:"by"`
		Next  *deep               `json:"next,omitempty"`
		Any   any                 `json:"any"`
		Raw   json.RawMessage     `json:"raw"`
		Bytes []byte              `json:"bytes"`
	}
	value := deep{By: map[string][]string{"a": nil}, Next: &deep{Any: []int(nil)}, Any: "x", Raw: json.RawMessage("[null]"), Bytes: []byte("b")}
	const object = `{"names":[],"by":{"a":[]},"next":{"names":[],"by":null,"any":[],"raw":null,"bytes":null},"any":"x","raw":[null],"bytes":"Yg=="}`
	for _, c := range []struct {
		former bool
		value  any
		want   string
	}{
		{false, value, object}, {false, &value, object},
		{false, []deep(nil), `{"records":[]}`}, {true, []deep(nil), `[]`},
		{false, []deep{value}, `{"records":[` + object + `]}`},
		{false, nil, `null`}, {false, json.RawMessage(`[1]`), `[1]`},
	} {
		var out strings.Builder
		p := command.Program{Out: &out, Err: io.Discard, Former: c.former}
		var how command.Shown
		how.Output = command.OutputJSON
		if err := p.Print(&how, c.value, ""); err != nil {
			t.Fatal(err)
		}
		var compact strings.Builder
		if err := json.NewEncoder(&compact).Encode(json.RawMessage(out.String())); err != nil || strings.TrimSpace(compact.String()) != c.want {
			t.Errorf("%v\nfound    %s\nexpected %s", err, strings.TrimSpace(compact.String()), c.want)
		}
	}
	if value.Names != nil {
		t.Error("the value itself has changed")
	}
}
