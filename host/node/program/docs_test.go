package program

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestCommandsAreDocumented: docs/commands.md is what the commands say of themselves.
func TestCommandsAreDocumented(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/commands.md"
	page := commandPage(Commands())
	if *update {
		if err := os.WriteFile(file, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if had, err := os.ReadFile(file); err != nil || !bytes.Equal(had, page) {
		t.Errorf("%s is not what the commands say (%v): go test ./host/node/program -run CommandsAreDocumented -update", file, err)
	}
}

// commandPage has a section for each command: what its help says.
func commandPage(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(`# Commands

After this page you know what each command does and which flags it has. The text is that of ` + "`wasmjob COMMAND --help`" + `; packages have the
same as man pages. [The command line](command-line.md) says what all commands have in common.

`)
	var all []*cobra.Command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		if c != root && (c.Runnable() || c.IsAdditionalHelpTopicCommand()) {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for _, c := range all {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", strings.TrimPrefix(c.CommandPath(), "wasmjob "), strings.ReplaceAll(c.CommandPath(), " ", "-"), sentenceCase(c.Short))
	}
	for _, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", c.CommandPath(), help(c))
	}
	return b.Bytes()
}

// help is what --help shows of a command.
func help(c *cobra.Command) string {
	text := c.Long
	if c.IsAdditionalHelpTopicCommand() {
		return text
	}
	if text == "" {
		text = c.Short
	}
	lines := strings.Split(strings.TrimSpace(text)+"\n\n"+strings.TrimSpace(c.UsageString()), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

func sentenceCase(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// TestDocsCommand: the documents are written where they are wanted.
func TestDocsCommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	runCLI(t, nil, "docs", dir).expect(t, exitOK, filepath.Join(dir, "index.html"))
	data, err := os.ReadFile(filepath.Join(dir, "commands.html"))
	if err != nil || !bytes.Contains(data, []byte("wasmjob docs DIR")) {
		t.Errorf("%v\n%.200s", err, data)
	}
	runCLI(t, nil, "docs").expect(t, exitUsage, "DIR is missing")
}
