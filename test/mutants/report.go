package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// outcome is what became of the mutants of an area.
type outcome struct {
	area
	list []tried
}

// count counts mutants with a verdict.
func (o outcome) count(v verdict) (n int) {
	for _, r := range o.list {
		if r.verdict == v {
			n++
		}
	}
	return n
}

// write writes the report, in Markdown.
func write(w io.Writer, outcomes []outcome, how string) {
	fmt.Fprintf(w, "# Mutants\n\n%s\n\n| Area | Mutants | Killed | Survived | Not reached | Harmless | Did not compile |\n| --- | --- | --- | --- | --- | --- | --- |\n", how)
	for _, o := range outcomes {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d |\n", o.name, len(o.list), o.count(killed), o.count(survived), o.count(unreached), o.count(harmless), o.count(invalid))
	}
	for _, o := range outcomes {
		fmt.Fprintf(w, "\n## %s\n", o.name)
		by := make(map[string]int)
		for _, r := range o.list {
			if r.verdict == killed {
				by[r.by]++
			}
		}
		fmt.Fprintf(w, "\nThe test that failed first, and how many mutants it killed. A random test is tried when all others have passed: what it killed nothing else finds.\n\n| Test | Mutants |\n| --- | --- |\n")
		for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b]-by[a], strings.Compare(a, b)) }) {
			fmt.Fprintf(w, "| %s | %d |\n", name, by[name])
		}
		for _, v := range []verdict{survived, unreached, harmless, invalid, killed} {
			if o.count(v) == 0 {
				continue
			}
			fmt.Fprintf(w, "\n### %s: %s\n\n", o.name, v)
			for _, r := range o.list {
				if r.verdict != v {
					continue
				}
				fmt.Fprintf(w, "- line %d, `%s`", r.line, strings.ReplaceAll(r.id(), "`", "'"))
				if r.by+r.why != "" {
					fmt.Fprintf(w, ": %s%s", r.by, r.why)
				}
				fmt.Fprintln(w)
			}
		}
	}
}
