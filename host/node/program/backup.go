package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/admin/backup"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
	"github.com/wasmjob/wasmjob/host/node/session"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func backupCommand(p *program) *cobra.Command {
	return command.Group("backup", "Keep the registry in a file, and put it back", `Keep what a namespace has in its registry in a file, and put it back: settings, offsets,
key/value state, what is paused or removed, records of runs. docs/backup.md is a runbook.
To bring a single job back that was removed, use 'wasmjob job restore'.`,
		"  wasmjob registry backup create jobs.backup\n  wasmjob registry backup show jobs.backup\n  wasmjob registry backup restore jobs.backup --data /var/lib/wasmjob",
		createBackupCommand(p), showBackupCommand(p), restoreBackupCommand(p))
}

func createBackupCommand(p *program) *cobra.Command {
	var t *command.Target
	cmd := &cobra.Command{
		Use:   "create FILE [flags]",
		Short: "Make a backup of a namespace, while its hosts run",
		Long: `Make a backup of what the namespace keeps in its registry, while its hosts run: by one
of them, or of a namespace in ZooKeeper itself (--zk). By a host, its files with users,
grants and alerts are in it, too. Modules, definitions and the history are not: the
backup says where they are.

The file is a secret: it has the offsets and states of jobs, and the hashes of passwords.
Only this user can read it. A file that exists is not replaced.`,
		Example: "  wasmjob registry backup create jobs-$(date +%F).backup\n  wasmjob registry backup create jobs.backup --zk zk1:2181,zk2:2181 --namespace prod",
		Args:    command.Exactly("the name of the file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error { return createBackup(ctx, p, r, t.Reason, args[0]) })
		},
	}
	t = p.AddChange(cmd)
	return cmd
}

// createBackup writes a backup beside its place, reads it again, and gives it its name.
func createBackup(ctx context.Context, p *program, r *command.Reached, why, name string) (err error) {
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s is there; name a file that is not, or remove it", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // for this user alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	b, err := written(ctx, p, r, why, f)
	if err != nil {
		return err
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), name); err != nil { // unlike a rename, it replaces nothing
		return err
	}
	fmt.Fprint(p.Out, backupText(b, name))
	return os.Remove(f.Name())
}

// written writes a backup to a file and reads it back.
func written(ctx context.Context, p *program, r *command.Reached, why string, f *os.File) (b *backup.Backup, err error) {
	if r.Client != nil {
		path := "/v1/backup"
		if why != "" {
			path += "?" + url.Values{"reason": {why}}.Encode()
		}
		err = r.Client.Download(ctx, path, f)
	} else {
		b = &backup.Backup{Header: backup.Header{Time: time.Now().UTC(), Version: versionText(), Registry: r.Registry.Backend, Namespace: r.Registry.Namespace}}
		if b.Nodes, b.Number, b.Sessions, err = backup.Read(ctx, r.Registry.Center, r.Registry.Namespace); err == nil {
			err = b.Write(f)
		}
	}
	if err != nil {
		return nil, err
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if b, err = backup.ReadFile(f); err != nil {
		return nil, fmt.Errorf("the backup was not received whole: %w", err)
	}
	if len(b.Jobs()) == 0 {
		fmt.Fprintf(p.Err, "wasmjob: warning: there is no job in namespace %s\n", b.Namespace)
	}
	return b, nil
}

func showBackupCommand(p *program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use:     "show FILE [flags]",
		Short:   "Read a backup to its end, and show what is in it",
		Example: "  wasmjob registry backup show jobs.backup",
		Args:    command.Exactly("the name of the file"),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := readBackup(args[0])
			if err != nil {
				return err
			}
			shown := shownBackup{Header: b.Header, Jobs: append([]string{}, b.Jobs()...), Nodes: len(b.Nodes), Files: []string{}}
			for _, f := range b.Files {
				shown.Files = append(shown.Files, f.Kind+": "+f.Name)
			}
			return p.Print(&how, shown, backupText(b, args[0]))
		},
	}
	how.AddOutput(cmd, "it")
	return cmd
}

// shownBackup is a backup as JSON.
type shownBackup struct {
	backup.Header
	Jobs  []string `json:"jobs"`
	Nodes int      `json:"nodes"`
	Files []string `json:"files"`
}

func readBackup(name string) (b *backup.Backup, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if b, err = backup.ReadFile(f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// backupText lists what a backup contains and lacks.
func backupText(b *backup.Backup, name string) string {
	var t strings.Builder
	fmt.Fprintf(&t, "%s: namespace %s of %s, %s\n", name, b.Namespace, b.Time.Local().Format(zonedTime), b.Registry)
	jobs := b.Jobs()
	fmt.Fprintf(&t, "  in it      %s", words.Count(len(jobs), "job"))
	if len(jobs) > 0 {
		fmt.Fprintf(&t, " (%s)", words.Some(jobs, ", "))
	}
	fmt.Fprintf(&t, ", %s up to number %d", words.Count(len(b.Nodes), "node"), b.Number)
	for _, f := range b.Files {
		fmt.Fprintf(&t, ", %s (%s)", f.Name, f.Kind)
	}
	left := []string{"sessions of hosts"}
	if len(b.Files) == 0 {
		left = append(left, "users, grants and alerts")
	}
	left = append(left, "files of secrets", "definitions and modules"+place(b.Plugins), "the history"+place(b.History))
	fmt.Fprintf(&t, "\n  not in it  %s\n", strings.Join(left, ", "))
	return t.String()
}

func place(where string) string {
	if where == "" {
		return ""
	}
	return " (" + where + ")"
}

// restoring has the flags of backup restore.
type restoring struct {
	data, files, credentials string
	histories                []string
	above                    int64
	replace                  bool
}

func restoreBackupCommand(p *program) *cobra.Command {
	var r restoring
	cmd := &cobra.Command{
		Use:   "restore FILE (--data DIR | --zk SERVERS) [flags]",
		Short: "Put a backup back, while no host runs",
		Long: `Put a backup back: into the directory of an embedded registry (--data), or into a
namespace in ZooKeeper (--zk). Stop all hosts before. A namespace that has jobs is refused
without --replace, which removes them first.

Fences and trigger rounds go on above all that were given out. What was given out after
the backup is in the history: the command reads the one that the backup names, or those
of --history. If it cannot, it wants --above N: the greatest fence that any system has
seen.

What ran when the backup was made is taken over by the hosts that start then, as from
hosts that crashed; what ran since is due again as far as the catch-up goes.`,
		Example: "  wasmjob registry backup restore jobs.backup --data /var/lib/wasmjob --files /etc/wasmjob\n  wasmjob registry backup restore jobs.backup --zk zk1:2181,zk2:2181 --namespace prod --replace",
		Args:    command.Exactly("the name of the file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("above") && r.above <= 0 {
				return command.Usagef("--above %d: expected a number above 0", r.above)
			}
			return r.restore(cmd.Context(), p, cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.data, "data", "", "the `DIR` of an embedded registry, that of 'wasmjob run --data'")
	f.StringVar(&r.files, "files", "", "write the files with users, grants and alerts to this `DIR`; those that are there are not replaced")
	f.BoolVar(&r.replace, "replace", false, "remove the jobs that are in the namespace")
	f.Int64Var(&r.above, "above", 0, "the greatest fence `N` that was given out; no history is read")
	f.StringArrayVar(&r.histories, "history", nil, "a history to read for that, a `FILE` or a URL as hosts have it (default: the one that the backup names)")
	f.StringVar(&r.credentials, "history-credentials-file", "", "`FILE` with user:password for the database of the history")
	addRegistryFlags(f)
	return cmd
}

func (r *restoring) restore(ctx context.Context, p *program, cmd *cobra.Command, name string) (err error) {
	b, err := readBackup(name)
	if err != nil {
		return err
	}
	above, from, err := r.greatest(ctx, p, b)
	if err != nil {
		return err
	}
	if err := r.checkFiles(b); err != nil {
		return err
	}
	namespace, center, end, err := r.open(ctx, p, cmd, b)
	if err != nil {
		return err
	}
	w, err := backup.Write(ctx, center, b.Nodes, backup.Target{Namespace: namespace, Above: above, Replace: r.replace, By: command.WhoAsks()})
	if errors.Is(err, backup.ErrHasJobs) {
		err = fmt.Errorf("%w; nothing was changed. --replace removes them and all that is kept of them", err)
	}
	if err = errors.Join(err, end()); err != nil {
		return err
	}
	if err := r.writeFiles(b); err != nil {
		return err
	}
	jobs := b.Jobs()
	fmt.Fprintf(p.Out, "restored namespace %s as it was at %s: %s, %s\n", namespace, b.Time.Local().Format(zonedTime), words.Count(len(jobs), "job"), words.Count(w.Nodes, "node"))
	if w.Removed > 0 {
		fmt.Fprintf(p.Out, "  removed before: %s\n", words.Count(w.Removed, "node"))
	}
	fmt.Fprintf(p.Out, "  numbers: %d is the greatest that is known (%s); fences and trigger rounds go on above %d\n", above, from, w.Base)
	fmt.Fprintf(p.Out, "  not restored: %s\n", strings.Join(r.left(b), "; "))
	return nil
}

// left lists what was not restored.
func (r *restoring) left(b *backup.Backup) []string {
	left := []string{fmt.Sprintf("what hosts did since %s: offsets, records of runs, changes", b.Time.Local().Format(zonedTime))}
	if b.Sessions > 0 {
		left = append(left, "sessions of hosts ("+words.Count(b.Sessions, "node")+")")
	}
	var files []string
	for _, f := range b.Files {
		files = append(files, f.Name)
	}
	switch {
	case len(files) == 0:
		left = append(left, "users, grants and alerts, which the backup has not")
	case r.files == "":
		left = append(left, words.Some(files, ", ")+" (--files DIR writes them)")
	}
	return append(left, "files of secrets", "definitions and modules"+place(b.Plugins), "the history"+place(b.History))
}

// open connects to the registry to restore.
func (r *restoring) open(ctx context.Context, p *program, cmd *cobra.Command, b *backup.Backup) (namespace string, c registry.Center, end func() error, err error) {
	if r.data == "" {
		if !cmd.Flags().Changed("namespace") {
			if err := cmd.Flags().Set("namespace", b.Namespace); err != nil {
				return "", nil, nil, command.Usage(err)
			}
		}
		o, err := openNamespace(ctx, p, cmd.Flags(), true)
		if err != nil {
			if errors.Is(err, errNoServers) {
				err = command.Usagef("--data DIR is missing, or --zk SERVERS: where the backup is to be put back")
			}
			return "", nil, nil, err
		}
		return o.Namespace, o.Center, o.Close, nil
	}
	for _, flag := range []string{"zk", "registry"} {
		if cmd.Flags().Changed(flag) {
			return "", nil, nil, command.Usagef("--data is an embedded registry, --%s another one; leave one of them out", flag)
		}
	}
	namespace = b.Namespace
	if f := cmd.Flags().Lookup("namespace"); f.Changed {
		namespace = f.Value.String()
	}
	d, err := session.Embedded{Dir: r.data}.Open(session.Opening{Log: zap.NewNop()})
	if err != nil {
		return "", nil, nil, err
	}
	s, err := d.Dial(ctx, nil)
	if err != nil {
		return "", nil, nil, errors.Join(err, d.Close())
	}
	return namespace, s, func() error { return errors.Join(s.Close(), d.Close()) }, nil
}

// greatest returns the greatest fence known to have been issued, and its source.
func (r *restoring) greatest(ctx context.Context, p *program, b *backup.Backup) (above int64, from string, err error) {
	above, from = max(b.Number, 1), "in the backup"
	if r.above != 0 {
		if r.above > above {
			return r.above, "--above", nil
		}
		return above, from, nil
	}
	histories := r.histories
	if len(histories) == 0 && b.History != "" {
		histories = []string{b.History}
	}
	for _, h := range histories {
		fence, err := greatestFence(ctx, p, h, r.credentials)
		if err != nil {
			return 0, "", fmt.Errorf("the history does not say which fences were given out since the backup: %w\nName a history that can be read with --history, or the greatest fence with --above N; --above %d, if none was given out since", err, b.Number)
		}
		if fence > above {
			above, from = fence, "in the history "+h
		}
	}
	return above, from, nil
}

// greatestFence reads the greatest fence in a history.
func greatestFence(ctx context.Context, p *program, history, credentials string) (greatest int64, err error) {
	if !database.IsURL(history) {
		if err := jsonl.CheckFile(history); err != nil {
			return 0, err
		}
		for record, err := range jsonl.Records(history) {
			if errors.Is(err, jsonl.ErrLine) {
				continue
			}
			if err != nil {
				return 0, err
			}
			if record.Event != nil {
				greatest = max(greatest, record.Event.Fence, record.Event.Trigger)
			}
		}
		return greatest, nil
	}
	config, err := historyAt(p, history, credentials)
	if err != nil {
		return 0, err
	}
	reader, err := database.OpenReader(ctx, config)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	return reader.GreatestFence(ctx)
}

// fileNamed returns the path to which a file of a backup is written.
func (r *restoring) fileNamed(f backup.File) string {
	if f.Directory {
		return filepath.Join(r.files, f.Kind, f.Name)
	}
	return filepath.Join(r.files, f.Name)
}

// checkFiles reports a file that exists, before anything is written.
func (r *restoring) checkFiles(b *backup.Backup) error {
	if r.files == "" {
		return nil
	}
	if len(b.Files) == 0 {
		return command.Usagef("--files: the backup has no files: a host did not make it, or had none")
	}
	for _, f := range b.Files {
		if _, err := os.Lstat(r.fileNamed(f)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--files: %s is there, or cannot be looked for; nothing was changed", r.fileNamed(f))
		}
	}
	return nil
}

func (r *restoring) writeFiles(b *backup.Backup) error {
	for _, f := range b.Files {
		if r.files == "" {
			return nil
		}
		name := r.fileNamed(f)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return fmt.Errorf("the registry is restored, and the files are not: %w", err)
		}
		if err := filelock.Replace(name, 0o600, f.Data); err != nil {
			return fmt.Errorf("the registry is restored, and the files are not: %w", err)
		}
	}
	return nil
}
