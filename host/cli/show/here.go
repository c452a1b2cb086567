package show

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Here returns the part of status for one job that only the host that was asked knows; it is empty without such facts.
func Here(s terminal.Style, j *engine.JobStatus) string {
	var b strings.Builder
	if len(j.Granted) > 0 {
		b.WriteString(s.Wrapped(s.Fact("granted", strings.Join(j.Granted, ", "))))
	}
	if j.Signer != "" {
		b.WriteString(s.Fact("signed by", j.Signer))
	}
	outside := lastOutside(j.Items)
	what := "outside"
	for _, name := range slices.Sorted(maps.Keys(outside)) {
		text, failed := outsideText(name, outside[name])
		line := s.Fact(what, text)
		if failed != "" {
			line = strings.TrimSuffix(line, "\n") + s.Paint(terminal.Red, failed) + "\n"
		}
		b.WriteString(line)
		what = ""
	}
	return b.String()
}

// lastOutside is what the last runs of the items did outside, together.
func lastOutside(items []engine.ItemStatus) map[string]abi.OutsideCount {
	sum := make(map[string]abi.OutsideCount)
	for _, i := range items {
		for name, c := range i.LastOutside {
			all := sum[name]
			all.Calls, all.Failed, all.Sent, all.Received = all.Calls+c.Calls, all.Failed+c.Failed, all.Sent+c.Sent, all.Received+c.Received
			refused := maps.Clone(all.Refused)
			if refused == nil {
				refused = make(map[string]int64)
			}
			for reason, n := range c.Refused {
				refused[reason] += n
			}
			all.Refused = refused
			all.Times = slower(all.Times, c.Times)
			all.Targets, all.FailedTargets = union(all.Targets, c.Targets), union(all.FailedTargets, c.FailedTargets)
			sum[name] = all
		}
	}
	return sum
}

// slower adds up the calls of each target, and keeps the slowest.
func slower(a, b map[string]abi.TargetTime) map[string]abi.TargetTime {
	both := make(map[string]abi.TargetTime)
	maps.Copy(both, a)
	for target, t := range b {
		of := both[target]
		both[target] = abi.TargetTime{Calls: of.Calls + t.Calls, Slowest: max(of.Slowest, t.Slowest)}
	}
	return both
}

// union lists what is in one of two lists.
func union(a, b []string) []string {
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}

// outsideText is what was done with one capability in the last run, and what failed.
func outsideText(name string, c abi.OutsideCount) (text, failed string) {
	parts := []string{words.Count(int(c.Calls), "call")}
	if c.Sent > 0 {
		parts = append(parts, words.Size(c.Sent)+" sent")
	}
	if c.Received > 0 {
		parts = append(parts, words.Size(c.Received)+" received")
	}
	text = name + ": " + strings.Join(parts, ", ")
	if len(c.Targets) > 0 {
		text += ", " + fewOf(c.Targets)
	}
	if slowest := capability.Slowest(name, c); slowest != "" {
		text += "; " + slowest
	}
	if c.Failed > 0 {
		failed = fmt.Sprintf("; %d failed", c.Failed)
		if len(c.FailedTargets) > 0 {
			failed += ": " + fewOf(c.FailedTargets)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Refused)) {
		failed += fmt.Sprintf("; %d refused (%s)", c.Refused[reason], reason)
	}
	return text, failed
}

// fewOf names the first ones of many.
func fewOf(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
