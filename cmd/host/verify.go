package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/verify"
)

func (p *program) verifyCommand() *cobra.Command {
	var o verify.Options
	asJSON := false
	cmd := &cobra.Command{
		Use:   "verify HISTORY... [flags]",
		Short: "Check the history files of all hosts for lost or doubled work",
		Long: `Read the history files of all hosts of a cluster (written with --history; the
older file beside each is read with it) and check what is promised about
delivery:

  1  no item has two live owners
  2  every item of every due fire ran, or a reason why not is recorded
  3  no completed item runs again in its fire
  4  offsets only move forward under growing fences
  5  with --period: every job goes on firing
  6  the fences of an item strictly grow

For each violation the lines that prove it are shown. Lines that are cut short
are passed over. The exit code is 0 if all was kept, 1 if not, and 2 if a file
cannot be read.`,
		Example: `  wasmjob verify host1.jsonl host2.jsonl host3.jsonl
  wasmjob verify --period 1m --json /var/log/wasmjob/*.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("the history files are missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Skew == 0 {
				o.Skew = -1 // asked for: not at all
			}
			r, err := verify.Files(cmd.Context(), o, args...)
			switch {
			case cmd.Context().Err() != nil:
				return cmd.Context().Err()
			case err != nil:
				return usageError{err}
			case asJSON:
				err = p.printJSON(r)
			default:
				_, err = p.out.Write([]byte(p.verified(r)))
			}
			if err == nil && r.Violations > 0 {
				err = said{}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "show the report as JSON")
	f.DurationVar(&o.Period, "period", 0, "how often every job fires at least, `DURATION`")
	f.DurationVar(&o.Skew, "skew", verify.DefaultSkew, "by how much the clocks of servers may differ, `DURATION`")
	f.DurationVar(&o.Settle, "settle", verify.DefaultSettle, "how long after its instant a fire must be accounted for, `DURATION`")
	f.BoolVar(&o.Strict, "strict", false, "take what is unproven or without effect for violated")
	f.IntVar(&o.MaxFindings, "max", verify.DefaultMaxFindings, "how many findings of a kind are shown, `N`")
	return cmd
}

// verified is the report for people.
func (p *program) verified(r *verify.Report) string {
	s := p.tables()
	var b strings.Builder
	colours := map[verify.Class]string{verify.Violated: red, verify.Unproven: yellow, verify.Fenced: yellow}
	for _, f := range r.Findings {
		of := "job " + f.Job
		if f.Item >= 0 {
			of += " item " + strconv.Itoa(f.Item)
		}
		fmt.Fprintf(&b, "%s %d  %s: %s\n", s.paint(colours[f.Class], string(f.Class)), f.Invariant, printable(of), printable(f.Text))
		for _, l := range f.Lines {
			fmt.Fprintf(&b, "    %s  %s %s\n", printable(l.Place.String()), l.Time.UTC().Format("2006-01-02T15:04:05.000Z"), printable(l.Text))
		}
	}
	if shown := len(r.Findings); shown > 0 {
		if all := r.Violations + r.Unproven + r.Fenced; all > shown {
			fmt.Fprintf(&b, "%d more are not shown (--max)\n", all-shown)
		}
		b.WriteByte('\n')
	}
	jobs := table{style: s}
	jobs.add(plain("JOB", "ITEMS", "FIRES", "JUDGED", "RUNS", "COMPLETED", "SKIPPED", "VIOLATIONS")...)
	for _, j := range r.Jobs {
		n := func(n int) cell { return cell{text: strconv.Itoa(n)} }
		violations := cell{strconv.Itoa(j.Violations), green}
		if j.Violations > 0 {
			violations.colour = red
		}
		jobs.add(cell{printable(j.Job), bold}, n(j.Items), n(j.Fires), n(j.Judged), n(j.Runs), n(j.Completed), n(j.Skipped), violations)
	}
	b.WriteString(jobs.String())
	b.WriteByte('\n')
	kept := table{style: s}
	kept.add(plain("INVARIANT", "", "CHECKED")...)
	for _, i := range slices.Sorted(maps.Keys(r.Checked)) {
		kept.add(cell{strconv.Itoa(int(i)), ""}, cell{i.String(), ""}, cell{strconv.FormatInt(r.Checked[i], 10), ""})
	}
	b.WriteString(kept.String())
	fmt.Fprintf(&b, "\n%s of %s, %s, over %s", count(int(r.Events), "event"), fmt.Sprintf("%d host processes", r.Hosts), count(r.Instances, "instance"),
		r.To.Sub(r.From).Round(time.Second))
	if r.BadLines > 0 {
		fmt.Fprintf(&b, "; %s passed over", count(int(r.BadLines), "line"))
	}
	verdict := s.paint(green, "0 violations")
	if r.Violations > 0 {
		verdict = s.paint(red, count(r.Violations, "violation"))
	}
	fmt.Fprintf(&b, "\n%s, %d unproven, %d overlaps without effect\n", verdict, r.Unproven, r.Fenced)
	return b.String()
}
