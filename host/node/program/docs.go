package program

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/docs"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/control/pages"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// docsCommand writes the documents that hosts serve at /docs.
func docsCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "docs DIR",
		Short: "Write the documents of this version into a directory",
		Long: `Write the documents of this version into DIR, which is made: index.html and a page
for each document, with the same as Markdown beside it, and llms.txt. Every host
serves them at /docs as well. Both have a search.`,
		Example: `  wasmjob docs wasmjob-docs`,
		Args:    command.Exactly("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := pages.Write(docs.Files(), args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(p.Out, "%s has the index\n", words.Argument(filepath.Join(args[0], "index.html")))
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
}
