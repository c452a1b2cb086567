package command

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// connection marks the flags that name the cluster. Most commands have them, so that one page describes them, and the
// help of a command only lists their names.
const connection = "wasmjob connection"

// usageWidth is the widest line of a help, in columns.
const usageWidth = 100

// Connects marks flags as those that name the cluster.
func Connects(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, connection, []string{""}) // the caller has added it
	}
}

// Section is a part of a help: commands under a title.
type Section struct {
	Title    string
	Commands []*cobra.Command
}

// AddSections adds commands to a group.
func AddSections(cmd *cobra.Command, sections ...Section) {
	for _, s := range sections {
		cmd.AddGroup(&cobra.Group{ID: s.Title, Title: s.Title})
		for _, c := range s.Commands {
			c.GroupID, c.DisableFlagsInUseLine = s.Title, true
			cmd.AddCommand(c)
		}
	}
}

// WriteUsage writes the part of a command's help after its description. For the program itself that is only the list of
// commands, so that it fits a screen.
func WriteUsage(cmd *cobra.Command) error {
	var b strings.Builder
	if cmd.HasParent() {
		b.WriteString("Usage:")
		if cmd.Runnable() && !cmd.HasAvailableSubCommands() {
			b.WriteString("\n  " + cmd.UseLine())
		}
		if cmd.HasAvailableSubCommands() {
			b.WriteString("\n  " + cmd.CommandPath() + " COMMAND")
		}
		if len(cmd.Aliases) > 0 {
			b.WriteString("\n\nAliases:\n  " + cmd.NameAndAliases())
		}
		if cmd.HasExample() {
			b.WriteString("\n\nExamples:\n" + cmd.Example)
		}
		b.WriteString("\n")
	}
	writeCommands(&b, cmd)
	writeFlags(&b, cmd)
	switch {
	case !cmd.HasParent():
		b.WriteString("\nUsage: wasmjob COMMAND. See COMMAND --help, help connection, version, completion\n")
	case cmd.HasAvailableSubCommands():
		fmt.Fprintf(&b, "\nUse \"%s COMMAND --help\" for more information about a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

// writeCommands lists the subcommands, under their titles.
func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	list := func(title, id string) {
		heading := title + ":\n"
		if cmd.HasParent() {
			heading = "\n" + heading
		}
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.GroupID == id {
				fmt.Fprintf(b, "%s  %-*s %s\n", heading, cmd.Commands()[0].NamePadding(), c.Name(), c.Short)
				heading = ""
			}
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	if cmd.HasParent() {
		list("Commands", "")
	}
}

// writeFlags describes the flags of a command, and lists the names of those that name the cluster.
func writeFlags(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasParent() {
		return
	}
	own, shared := pflag.NewFlagSet("", pflag.ContinueOnError), []string(nil)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Annotations[connection] == nil:
			own.AddFlag(f)
		case !f.Hidden:
			shared = append(shared, "--"+f.Name)
		}
	})
	if own.HasAvailableFlags() {
		b.WriteString("\nFlags:\n" + FlagUsages(own))
	}
	if cmd.HasAvailableInheritedFlags() {
		b.WriteString("\nFlags of all commands of '" + cmd.Parent().CommandPath() + "':\n" + FlagUsages(cmd.InheritedFlags()))
	}
	if len(shared) > 0 {
		b.WriteString("\nWhere the cluster is ('wasmjob help connection'):\n")
		for _, line := range wrapped(shared, usageWidth-2) {
			b.WriteString("  " + line + "\n")
		}
	}
}

// FlagUsages describes flags, in lines of limited width. It shows a default as the user would type it, and leaves out an
// empty one.
func FlagUsages(flags *pflag.FlagSet) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		c := *f
		if !slices.Contains([]string{"", "0", "-1", "false", "[]"}, f.DefValue) {
			c.Usage += " (default " + f.DefValue + ")"
		}
		c.DefValue = "false" // which is nothing for flags of all types but these
		switch f.Value.Type() {
		case "string":
			c.DefValue = ""
		case "stringSlice", "stringArray":
			c.DefValue = "[]"
		case "int", "int64", "uint64":
			c.DefValue = "0"
		}
		shown.AddFlag(&c)
	})
	return strings.TrimRight(shown.FlagUsagesWrapped(usageWidth), " \n") + "\n"
}

// wrapped puts words into lines of at most so many columns.
func wrapped(list []string, width int) (lines []string) {
	line := ""
	for i, word := range list {
		if i < len(list)-1 {
			word += ","
		}
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// named is a command by its path below another one, and its names.
type named struct {
	path  string
	names []string
}

// Meant returns the path of the command below cmd that an unknown word probably means; empty without a similar one. It
// searches the names, the aliases and the suggestion words of the commands and of their subcommands, and former, which
// maps former names to paths.
func Meant(cmd *cobra.Command, word string, former map[string]string) string {
	paths := maps.Clone(former)
	if paths == nil {
		paths = make(map[string]string)
	}
	prefix := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
	if prefix != "" {
		prefix += " "
	}
	add := func(path string, names ...string) {
		for _, name := range names {
			if _, there := paths[name]; !there {
				paths[name] = prefix + path
			}
		}
	}
	var below []named
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		add(c.Name(), slices.Concat([]string{c.Name()}, c.Aliases, c.SuggestFor)...)
		for _, b := range c.Commands() {
			if path := c.Name() + " " + b.Name(); b.IsAvailableCommand() {
				add(path, b.SuggestFor...) // which goes before a name that several groups have
				below = append(below, named{path, slices.Concat([]string{b.Name()}, b.Aliases)})
			}
		}
	}
	for _, b := range below {
		add(b.path, b.names...)
	}
	if path := paths[word]; path != "" {
		return path
	}
	return paths[words.Nearest(word, slices.Sorted(maps.Keys(paths)))]
}
