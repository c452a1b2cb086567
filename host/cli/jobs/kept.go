package jobs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// keptHelp is what the help of both commands says of changes.
const keptHelp = `A change is refused while the item runs, on whatever host: its run would overwrite
what is set. Wait for its end, or end it with 'wasmjob job kill JOB --item N';
'wasmjob job pause JOB --item N' keeps it from running again meanwhile. The next run
sees what was set, whichever host has it.

A value that begins with @ names a file, whose bytes are taken as they are. --item
may be left out for a job with one item.`

// keptFlags are those that both commands have.
type keptFlags struct {
	item  int
	reset bool
	how   command.Shown
}

func (f *keptFlags) add(cmd *cobra.Command, reset string) {
	addItemFlag(cmd, &f.item)
	cmd.Flags().BoolVar(&f.reset, "reset", false, reset)
	f.how.AddOutput(cmd, "it")
}

func (f *keptFlags) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("item") && f.item < 0 {
		return command.Usagef("--item: %d is not a number from 0", f.item)
	}
	return nil
}

// given is the value of a flag: text, or the bytes of a file that is named after @.
func given(flag, text string) (admin.Bytes, error) {
	name, isFile := strings.CutPrefix(text, "@")
	if !isFile {
		return admin.Bytes(text), nil
	}
	data, err := command.ReadFile(name, command.MostValue)
	if err != nil {
		return "", command.Usagef("--%s: %v", flag, err)
	}
	return admin.Bytes(data), nil
}

func offsetCommand(p *command.Program) *cobra.Command {
	var t *command.Target
	var f keptFlags
	set := ""
	cmd := &cobra.Command{
		Use:   "offset JOB [flags]",
		Short: "Show and change the offsets of a job's items",
		Long: `Show the offset of each item, or change that of one. An item's offset is what its
last run has committed; the next run goes on from there.

` + keptHelp,
		Example: `  wasmjob job offset cities
  wasmjob job offset cities --item 2 --set 2026-03-01
  wasmjob job offset cities --item 2 --set @offset.bin
  wasmjob job offset cities --item 2 --reset
  wasmjob job offset cities --zk zk1:2181 --namespace prod --json`,
		Args: command.Exactly("the job's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			change := admin.KeptChange{ResetOffset: f.reset}
			sets := cmd.Flags().Changed("set")
			if sets && f.reset {
				return command.Usagef("--set and --reset do not go together")
			}
			if sets {
				offset, err := given("set", set)
				if err != nil {
					return err
				}
				change.Offset = &offset
			}
			t.Writes = sets || f.reset
			return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
				if sets || f.reset {
					return changeKept(ctx, p, r, args[0], f, change)
				}
				return showKept(ctx, p, r, args[0], f, show.Offsets)
			})
		},
	}
	f.add(cmd, "take the offset away: the next run has none, as the first one")
	cmd.Flags().StringVar(&set, "set", "", "the new offset: `TEXT`, or @FILE")
	t = p.AddChange(cmd)
	cmd.ValidArgsFunction = p.JobNames(t)
	return cmd
}

func kvCommand(p *command.Program) *cobra.Command {
	var t *command.Target
	var f keptFlags
	var sets, deletes []string
	get := ""
	cmd := &cobra.Command{
		Use:   "kv JOB [flags]",
		Short: "Show and change the key/value state of a job's items",
		Long: `Show the keys that each item keeps, with --item and their values, or change those of
one. --get writes a value as it is, without a line break unless to a terminal.
Keys that are deleted go first, then those are set that are to be set, all at once.

` + keptHelp,
		Example: `  wasmjob job kv cities
  wasmjob job kv cities --item 2
  wasmjob job kv cities --item 2 --get cursor
  wasmjob job kv cities --item 2 --set cursor=2026-03-01 --set table=@table.json --delete old
  wasmjob job kv cities --item 2 --reset`,
		Args: command.Exactly("the job's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			change := admin.KeptChange{ResetState: f.reset, Delete: deletes}
			for _, text := range sets {
				key, value, ok := strings.Cut(text, "=")
				if !ok || key == "" {
					return command.Usagef("--set: %q is not KEY=VALUE", words.Clip(text))
				}
				data, err := given("set", value)
				if err != nil {
					return err
				}
				if change.Set == nil {
					change.Set = make(map[string]admin.Bytes)
				}
				change.Set[key] = data
			}
			changes, gets := change.String() != "", cmd.Flags().Changed("get")
			switch {
			case gets && changes:
				return command.Usagef("--get goes without --set, --delete and --reset")
			case len(deletes) > 0 && f.reset:
				return command.Usagef("--delete and --reset do not go together")
			}
			t.Writes = changes
			return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
				if changes {
					return changeKept(ctx, p, r, args[0], f, change)
				}
				if gets {
					return getKept(ctx, p, r, args[0], f, get)
				}
				return showKept(ctx, p, r, args[0], f, show.KeyValues)
			})
		},
	}
	f.add(cmd, "delete all keys")
	cmd.Flags().StringVar(&get, "get", "", "write the value of `KEY`")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "set a key: `KEY=VALUE`, or KEY=@FILE; may be repeated")
	cmd.Flags().StringArrayVar(&deletes, "delete", nil, "delete `KEY`; may be repeated")
	t = p.AddChange(cmd)
	cmd.ValidArgsFunction = p.JobNames(t)
	return cmd
}

// changeKept changes what an item keeps, and says what it did.
func changeKept(ctx context.Context, p *command.Program, r *command.Reached, job string, f keptFlags, change admin.KeptChange) error {
	k, err := r.ChangeKept(ctx, job, f.item, change)
	if err != nil {
		return r.Similar(ctx, job, err)
	}
	return p.Print(&f.how, k, fmt.Sprintf("item %d of %s: %s\n", k.Item, job, change))
}

// showKept shows what items keep.
func showKept(ctx context.Context, p *command.Program, r *command.Reached, job string, f keptFlags, table func(s terminal.Style, all []admin.Kept, now time.Time) string) error {
	all, err := r.Kept(ctx, job, f.item)
	if err != nil {
		return r.Similar(ctx, job, err)
	}
	text := table(p.Tables(), all, time.Now())
	if f.item >= 0 && len(all) == 1 {
		return p.Print(&f.how, all[0], text)
	}
	return p.Print(&f.how, all, text)
}

// getKept writes one value.
func getKept(ctx context.Context, p *command.Program, r *command.Reached, job string, f keptFlags, key string) error {
	all, err := r.Kept(ctx, job, f.item)
	switch {
	case err != nil:
		return r.Similar(ctx, job, err)
	case len(all) == 0:
		return fmt.Errorf("job %q has no item yet", job)
	case len(all) > 1:
		return command.Usagef("job %s has %d items: say which one is meant with --item", job, len(all))
	}
	value, err := all[0].Value(key)
	if err != nil {
		return fmt.Errorf("%w%s", err, words.Suggest(key, all[0].Keys))
	}
	if f.how.Output != command.OutputTable {
		return p.Print(&f.how, value, "")
	}
	if p.OutTTY {
		value += "\n"
	}
	_, err = io.WriteString(p.Bytes(), string(value))
	return err
}
