package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/wasmjob/wasmjob/host/verify"
)

// Report is what came of an attack.
type Report struct {
	Seed           uint64        `json:"seed"`
	SessionTimeout time.Duration `json:"sessionTimeoutNs"`
	// Tick is ZooKeeper's, or what is taken for it: sessions end at its multiples.
	Tick        time.Duration   `json:"tickNs"`
	HostCount   int             `json:"hostCount"`
	Own         bool            `json:"ownServers"`
	Dir         string          `json:"dir,omitempty"` // empty if it was removed
	Started     time.Time       `json:"started"`
	Ended       time.Time       `json:"ended"`
	Interrupted bool            `json:"interrupted,omitempty"`
	Events      []Event         `json:"events"`
	Operations  map[string]int  `json:"operations"`
	Skipped     map[Kind]string `json:"skipped"` // kinds that could not be made, and why
	// Runs are begun items, Completed those whose completion took effect, by
	// the histories.
	Runs      int `json:"runs"`
	Completed int `json:"completed"`
	// Stints are items that guests themselves said they had begun; Lines is all
	// that they said.
	Stints int `json:"stints"`
	Lines  int `json:"lines"`
	// Overlaps and Losses are those found by any evidence. Fenced are guests of
	// halted processes that spoke once more when they woke up, without effect.
	// Unproven are runs whose end nobody lived to tell; with servers of our own
	// their transaction log decides.
	Overlaps int `json:"overlaps"`
	Losses   int `json:"losses"`
	Fenced   int `json:"fenced"`
	Unproven int `json:"unproven"`
	// Offsets were compared with the truth, and hold so many Numbers.
	Offsets int   `json:"offsets"`
	Numbers int64 `json:"numbers"`
	// Journal is what ZooKeeper's own log shows; nil for a test cluster.
	Journal *Journal       `json:"journal,omitempty"`
	History *verify.Report `json:"history"`
	// Before and Hosts are what the hosts used when all jobs ran, and after the
	// last fault.
	Before     []Usage     `json:"before"`
	Hosts      []Usage     `json:"hosts"`
	Violations []Violation `json:"violations"`
	// Broken is what ZooKeeper servers wrote of data that differ from those of
	// the others. Then what they had confirmed may be lost, and what is violated
	// after that may be their doing.
	Broken []string `json:"broken,omitempty"`
	Notes  []string `json:"notes"`
}

// Journal counts what stands in the transaction log.
type Journal struct {
	Transactions int `json:"transactions"`
	Begins       int `json:"begins"`
	Completions  int `json:"completions"`
	Offsets      int `json:"offsets"`
	// Stale are offsets written under an older fence than the item's newest.
	Stale    int `json:"stale"`
	Findings int `json:"findings"`
}

// Usage is what a host uses.
type Usage struct {
	Host       string `json:"host"`
	Lives      int    `json:"lives"` // how often it was started
	Goroutines int    `json:"goroutines"`
	Memory     int64  `json:"memoryBytes"`
	Files      int    `json:"files"`
}

// Violation is something that must not be. At is zero if it has no moment.
type Violation struct {
	Text string    `json:"text"`
	At   time.Time `json:"at,omitzero"`
}

func newReport(o Options) *Report {
	return &Report{Seed: o.Seed, SessionTimeout: o.SessionTimeout, HostCount: o.Hosts, Own: o.Connect == "", Started: time.Now(),
		Operations: make(map[string]int), Skipped: make(map[Kind]string)}
}

// OK reports whether nothing was violated.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// Row sums up the faults of one kind.
type Row struct {
	Kind  Kind
	What  string
	Count int
	// Lasted is the median. The others are median and worst.
	Lasted                      time.Duration
	Recovery, Retaken, Outage   [2]time.Duration
	Crashed, Cancelled, Refused int
}

// Rows are the faults by kind.
func (r *Report) Rows() []Row {
	byKind := make(map[Kind][]Event)
	for _, e := range r.Events {
		byKind[e.Kind] = append(byKind[e.Kind], e)
	}
	var rows []Row
	for _, k := range sorted(byKind) {
		events := byKind[k]
		row := Row{Kind: k, What: kinds()[k].what, Count: len(events)}
		spread := func(of func(Event) time.Duration) [2]time.Duration {
			var list []time.Duration
			for _, e := range events {
				list = append(list, of(e))
			}
			slices.Sort(list)
			return [2]time.Duration{(list[(len(list)-1)/2] + list[len(list)/2]) / 2, list[len(list)-1]}
		}
		row.Lasted = spread(func(e Event) time.Duration { return e.To.Sub(e.From) })[0]
		row.Recovery = spread(func(e Event) time.Duration { return e.Recovery })
		row.Retaken = spread(func(e Event) time.Duration { return e.Retaken })
		row.Outage = spread(func(e Event) time.Duration { return e.Outage })
		for _, e := range events {
			row.Crashed += e.Crashed
			row.Cancelled += e.Cancelled
			row.Refused += e.Refused
		}
		rows = append(rows, row)
	}
	return rows
}

// Figure is a time or a number that is to be reached.
type Figure struct {
	Text    string `json:"text"`
	Reached bool   `json:"reached"`
}

// Figures compares what was measured with what is to be reached on a machine
// that has nothing else to do. Missing one is no violation.
func (r *Report) Figures() []Figure {
	var list []Figure
	limit := r.SessionTimeout + r.Tick + time.Second
	var worst time.Duration
	killed, short, cancelled := 0, 0, 0
	for _, e := range r.Events {
		switch e.Kind {
		case KillLeader, KillFollower, KillAndReturn:
			killed++
			worst = max(worst, e.Retaken)
		case LeaderKilled:
			if e.Outage > 0 && e.Outage <= r.SessionTimeout/2 {
				short++
				cancelled += e.Cancelled
			}
		}
	}
	if killed > 0 {
		list = append(list, Figure{fmt.Sprintf("crashed items of %d killed hosts ran again within %.2fs; session timeout, a tick and a second are %.2fs",
			killed, worst.Seconds(), limit.Seconds()), worst <= limit})
	}
	if short > 0 {
		list = append(list, Figure{fmt.Sprintf("%d items were told to stop when ZooKeeper had no leader for less than half of the session, %d times; to be 0",
			cancelled, short), cancelled == 0})
	}
	if r.Journal != nil {
		list = append(list, Figure{fmt.Sprintf("%d of %d offsets in ZooKeeper's log were written under a fence that was not the item's newest; to be 0",
			r.Journal.Stale, r.Journal.Offsets), r.Journal.Stale == 0})
	}
	return list
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) {
	servers := "three ZooKeeper servers of its own"
	if !r.Own {
		servers = "a test cluster"
	}
	fmt.Fprintf(w, "%d hosts on %s, session timeout %s, seed %d, %s\n\n", r.HostCount, servers, r.SessionTimeout, r.Seed,
		r.Ended.Sub(r.Started).Round(time.Second))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FAULT\tTIMES\tLASTS\tRECOVERY MEDIAN\tWORST\tCRASHED ITEMS\tRUN AGAIN MEDIAN\tWORST\tNO LEADER MEDIAN\tTOLD TO STOP\tCOMMITS REFUSED")
	show := func(d time.Duration) string {
		if d == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	for _, row := range r.Rows() {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%d\n", row.Kind, row.Count, show(row.Lasted), show(row.Recovery[0]), show(row.Recovery[1]),
			row.Crashed, show(row.Retaken[0]), show(row.Retaken[1]), show(row.Outage[0]), row.Cancelled, row.Refused)
	}
	_ = t.Flush() // w's errors are its owner's
	for _, k := range sorted(r.Skipped) {
		fmt.Fprintf(w, "NOT DONE: %s: %s\n", k, r.Skipped[k])
	}
	fmt.Fprintf(w, "\nfaults       %d of %d kinds\n", len(r.Events), len(r.Rows()))
	var operations []string
	for _, name := range sorted(r.Operations) {
		operations = append(operations, fmt.Sprintf("%s %d", name, r.Operations[name]))
	}
	fmt.Fprintf(w, "operator     %s\n", strings.Join(operations, ", "))
	fmt.Fprintf(w, "items        %d begun and %d completed by the histories; %d begun by the guests' own words, %d lines\n", r.Runs, r.Completed, r.Stints, r.Lines)
	if j := r.Journal; j != nil {
		fmt.Fprintf(w, "journal      %d transactions: %d begins, %d completions, %d offsets; %d findings\n", j.Transactions, j.Begins, j.Completions, j.Offsets, j.Findings)
	}
	fmt.Fprintf(w, "offsets      %d compared with the truth, %d numbers added\n", r.Offsets, r.Numbers)
	for i, h := range r.Hosts {
		var b Usage
		if i < len(r.Before) {
			b = r.Before[i]
		}
		fmt.Fprintf(w, "%-12s %d lives; before and after: %d, %d goroutines, %d, %d MiB, %d, %d files open\n",
			h.Host, h.Lives, b.Goroutines, h.Goroutines, b.Memory>>20, h.Memory>>20, b.Files, h.Files)
	}
	fmt.Fprintf(w, "overlaps     %d\nlosses       %d\n", r.Overlaps, r.Losses)
	fmt.Fprintf(w, "fenced       %d guests of halted processes went on for a moment, without effect\n", r.Fenced)
	if r.Unproven > 0 {
		fmt.Fprintf(w, "unproven     %d runs whose hosts died without a word\n", r.Unproven)
	}
	for _, f := range r.Figures() {
		fmt.Fprintf(w, "%-12s %s\n", map[bool]string{true: "reached", false: "NOT REACHED"}[f.Reached], f.Text)
	}
	fmt.Fprintf(w, "violations   %d\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(w, "  %s\n", v.Text)
	}
	for _, line := range r.Broken {
		fmt.Fprintf(w, "ZOOKEEPER    a server noted that its data are not those of the others; what is violated after that may be its doing: %s\n", line)
	}
	if r.Interrupted {
		fmt.Fprintln(w, "It was interrupted: not all that was planned was done.")
	}
	if r.Dir != "" {
		fmt.Fprintf(w, "everything is kept in %s\n", r.Dir)
	}
}

// Markdown writes the table of faults for a document.
func (r *Report) Markdown(w io.Writer) {
	fmt.Fprintln(w, "| Fault | Times | Lasts | Recovery, median | worst | Crashed items | Run again, median | worst | Told to stop |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	show := func(d time.Duration) string {
		if d == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	for _, row := range r.Rows() {
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %d | %s | %s | %d |\n", row.What, row.Count, show(row.Lasted), show(row.Recovery[0]), show(row.Recovery[1]),
			row.Crashed, show(row.Retaken[0]), show(row.Retaken[1]), row.Cancelled)
	}
}
