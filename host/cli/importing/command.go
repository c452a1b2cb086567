// Package importing has the commands that write definitions for jobs of other schedulers:
// import, with a command below it for each kind.
package importing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/migrate"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// mostInput is the most bytes of a file that is imported from.
const mostInput = 256 << 20

// instants is how many coming instants of each job are shown.
const instants = 5

// Tables reads tables of the database at a URL, those whose names end with one of the given
// ones in any case.
type Tables func(ctx context.Context, url string, names ...string) (map[string]migrate.Table, error)

// Import is the command import. elasticjob is the command below it that reads a registry.
func Import(p *command.Program, elasticjob *cobra.Command, tables Tables) *cobra.Command {
	return command.Group("import", "Write definitions for jobs of another scheduler",
		`Read the jobs of another scheduler, and write for each a definition, NAME.yaml, and
the beginnings of a module in Go, NAME/main.go. Nothing is written where they are
read. What a definition cannot say is a comment in the file, and is reported on
stderr. Under each file stand the next five instants, and beside them those of
the other scheduler where it reads the schedule differently.`,
		`  wasmjob job import crontab /etc/crontab --system --out jobs
  kubectl get cronjobs -A -o yaml | wasmjob job import cronjob - --out jobs
  wasmjob job import xxl-job xxl_job.sql --zone Asia/Shanghai --out jobs
  wasmjob job import quartz jobs.xml --out jobs
  wasmjob job import elasticjob --zk zk1:2181 --namespace prod --out jobs`,
		crontabCommand(p), cronJobCommand(p), xxlJobCommand(p, tables), quartzCommand(p, tables), elasticjob)
}

func crontabCommand(p *command.Program) *cobra.Command {
	system := false
	cmd := fromFile(p, road{
		use: "crontab FILE|- --out DIR [flags]", short: "Take over the lines of a crontab",
		long: `Read a crontab, - from stdin, and write a definition for each line that has a
command. The command becomes a note: what it does is to be a module.`,
		example: "  crontab -l | wasmjob job import crontab - --out jobs\n  wasmjob job import crontab /etc/crontab --system --zone Europe/Berlin --out jobs",
		read:    func(text []byte) (*migrate.Imported, error) { return migrate.Crontab(text, system) },
	})
	cmd.Flags().BoolVar(&system, "system", false, "lines have a user before the command, as those of /etc/crontab and /etc/cron.d")
	return cmd
}

func cronJobCommand(p *command.Program) *cobra.Command {
	return fromFile(p, road{
		use: "cronjob FILE|- --out DIR [flags]", short: "Take over CronJobs of Kubernetes",
		long: `Read manifests of Kubernetes, or what 'kubectl get cronjobs -o yaml' prints, and
write a definition for each CronJob.`,
		example: "  kubectl get cronjobs -A -o yaml | wasmjob job import cronjob - --out jobs",
		read:    migrate.CronJobs,
	})
}

func xxlJobCommand(p *command.Program, tables Tables) *cobra.Command {
	return fromFile(p, road{
		use: "xxl-job FILE|-|--database URL --out DIR [flags]", short: "Take over jobs of XXL-JOB",
		long: `Read the tables of XXL-JOB, from a dump in SQL or from the database itself, and
write a definition for each job. Its times are those of the zone in which
XXL-JOB ran: say it with --zone.`,
		example: `  mysqldump xxl_job xxl_job_info xxl_job_group | wasmjob job import xxl-job - --zone Asia/Shanghai --out jobs
  wasmjob job import xxl-job --database mysql://reader@db/xxl_job --zone Asia/Shanghai --out jobs`,
		read: migrate.XXLJob, tables: tables, names: []string{"job_info", "job_group"}, make: migrate.XXLJobTables,
	})
}

func quartzCommand(p *command.Program, tables Tables) *cobra.Command {
	return fromFile(p, road{
		use: "quartz FILE|-|--database URL --out DIR [flags]", short: "Take over jobs of Quartz",
		long: `Read Quartz's XML (job-scheduling-data), a dump of its JDBC store in SQL, or the
store itself, and write a definition for each trigger.`,
		example: `  wasmjob job import quartz quartz_data.xml --out jobs
  wasmjob job import quartz --database postgres://reader@db/app --out jobs`,
		read: migrate.Quartz, tables: tables, names: []string{"job_details", "triggers"}, make: migrate.QuartzTables,
	})
}

// road is where jobs come from.
type road struct {
	use, short, long, example string
	read                      func([]byte) (*migrate.Imported, error)
	tables                    Tables   // nil: there is no database
	names                     []string // of tables
	make                      func(map[string]migrate.Table) (*migrate.Imported, error)
}

func fromFile(p *command.Program, r road) *cobra.Command {
	out, zone, url, force := "", "", "", false
	cmd := &cobra.Command{
		Use: r.use, Short: r.short, Long: r.long, Example: r.example,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return command.Usagef("unexpected argument %q; one file is imported at a time", words.Clip(args[1]))
			case len(args) == 0 && url == "":
				return command.Usagef("say what to import: a file, or - for stdin")
			case len(args) == 1 && url != "":
				return command.Usagef("found the file %q and --database, expected one of them", words.Clip(args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return command.Usagef("--out is missing: the directory to write to")
			}
			found, err := func() (*migrate.Imported, error) {
				if url != "" {
					tables, err := r.tables(cmd.Context(), url, r.names...)
					if err != nil {
						return nil, fmt.Errorf("--database: %w", err)
					}
					return r.make(tables)
				}
				text, err := input(p, args[0])
				if err != nil {
					return nil, err
				}
				found, err := r.read(text)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", args[0], err)
				}
				return found, nil
			}()
			if err != nil {
				return err
			}
			for _, n := range found.Notes {
				fmt.Fprintln(p.Err, n)
			}
			if len(found.Jobs) == 0 {
				return errors.New("found no job to import")
			}
			if err := found.In(zone); err != nil {
				return command.Usagef("--zone: %w", err)
			}
			return writeForeign(p, found.Jobs, out, force)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this `DIR`, which is made if it does not exist")
	cmd.Flags().StringVar(&zone, "zone", "", "time `ZONE` of schedules that name none, such as Europe/Berlin; the host's own if it is not given")
	cmd.Flags().BoolVar(&force, "force", false, "write over files that exist")
	if r.tables != nil {
		cmd.Flags().StringVar(&url, "database", "", "read the tables of the database at this `URL`, such as mysql://user@host/name or postgres://user@host/name")
	}
	return cmd
}

// input reads a regular file, or stdin.
func input(p *command.Program, name string) ([]byte, error) {
	if name != "-" {
		text, _, err := fields.ReadFile(name, mostInput)
		if err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
		return text, nil
	}
	if p.In == nil {
		return nil, errors.New("stdin is closed")
	}
	text, err := io.ReadAll(io.LimitReader(p.In, mostInput+1))
	if err == nil && len(text) > mostInput {
		err = fmt.Errorf("stdin has more than %d bytes", mostInput)
	}
	return text, err
}

func writeForeign(p *command.Program, jobs []migrate.Foreign, dir string, force bool) error {
	now := time.Now()
	var problems words.Problems
	for n := range jobs {
		f := &jobs[n]
		err := Write(p, &f.Job, f.Place, dir, true, force)
		if err != nil {
			problems.Add(err)
			continue
		}
		ours, theirs := f.Next(now, instants)
		if len(ours) > 0 {
			fmt.Fprintf(p.Out, "  next: %s\n", list(ours))
		}
		if theirs != nil {
			fmt.Fprintf(p.Out, "  next, as it was read before: %s\n", list(theirs))
			fmt.Fprintf(p.Err, "%s: its schedule %q means other instants here; see the next five of both\n", f.Name, f.Configuration.Cron)
		}
	}
	return problems.Err()
}

func list(times []time.Time) string {
	var parts []string
	for _, t := range times {
		parts = append(parts, t.Format("2006-01-02 15:04:05 MST"))
	}
	return strings.Join(parts, ", ")
}

// Write writes the files of a job, and reports them on stdout and its notes on stderr. source
// says where it comes from. The module's beginnings are written if skeleton is true. Files
// that exist are left alone, with an error, unless force is true.
func Write(p *command.Program, j *migrate.Job, source, dir string, skeleton, force bool) error {
	text, notes, err := j.Definition()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, j.File()+".yaml")
	if err := write(file, text, force); err != nil {
		return err
	}
	said := file + "  job " + j.Name
	if source != "" {
		said += ", " + source
	}
	if _, err := fmt.Fprintln(p.Out, said); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(p.Err, j.Name+": "+n)
	}
	if !skeleton || j.Kind == migrate.KindHTTP {
		return nil
	}
	main := filepath.Join(dir, j.File(), "main.go")
	if err := write(main, j.Skeleton(), force); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.Out, main+"  the beginnings of its module")
	return err
}

// write makes a file and its directory.
func write(name string, data []byte, force bool) error {
	if len(data) > definition.MaxSize {
		return fmt.Errorf("%s would have %d bytes, a definition has at most %d", name, len(data), definition.MaxSize)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	flag := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flag = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(name, flag, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; --force writes over it", name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
