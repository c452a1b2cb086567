package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/wasmjob/wasmjob/host/history/verify"
)

// Report is the result of an attack.
type Report struct {
	Seed           uint64        `json:"seed"`
	SessionTimeout time.Duration `json:"sessionTimeoutNs"`
	// Tick is ZooKeeper's tickTime, read or assumed: sessions end at its multiples.
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
	// halted processes that ended, by the histories, only when they woke up, beside
	// the new owner's and without effect. Halted guests were at work when their host
	// was halted beyond its session, and Late is what lines they wrote afterwards.
	// Unproven are runs whose end nobody lived to tell; with servers of our own
	// their transaction log decides.
	Overlaps int `json:"overlaps"`
	Losses   int `json:"losses"`
	Fenced   int `json:"fenced"`
	Halted   int `json:"halted"`
	Late     int `json:"late"`
	Unproven int `json:"unproven"`
	// Fires are items whose next begin was looked at when the cluster was whole
	// after a fault. Overdue is by how much more than a period, and than its
	// longest item takes, the latest took.
	Fires   int           `json:"fires"`
	Overdue time.Duration `json:"overdueNs"`
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
	// Left are jobs that were not taken out of a test cluster's namespace.
	Namespace string   `json:"namespace"`
	Left      []string `json:"left,omitempty"`
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
	return &Report{Seed: o.Seed, Namespace: o.Namespace, SessionTimeout: o.SessionTimeout, HostCount: o.Hosts, Own: o.Connect == "", Started: time.Now(),
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
	// Watched: Outage was looked at.
	Watched bool
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
			row.Watched = row.Watched || e.Watched
		}
		rows = append(rows, row)
	}
	return rows
}

// Figure is a time or a number that is to be reached. One that is Violated was
// missed by so much that a busy machine is no reason.
type Figure struct {
	Text     string `json:"text"`
	Reached  bool   `json:"reached"`
	Violated bool   `json:"violated,omitempty"`
}

// limit is within what time what was lost with a killed host is to be done
// elsewhere: its session has to end first, which it does at a tick.
func (r *Report) limit() time.Duration { return r.SessionTimeout + r.Tick + time.Second }

// retakeLimit is within what time the items that crashed in a fault are to run
// again; false if hosts were not killed.
//
// Where a host is killed while another is cut off, the items may be given to
// that one before its session has ended too, and are handed out once more. Where
// the server that leads is killed at once with a host, the new one begins to
// count all sessions anew.
func (r *Report) retakeLimit(e Event) (limit time.Duration, alone, killed bool) {
	switch e.Kind {
	case KillLeader, KillFollower, KillAndReturn:
		return r.limit(), true, true
	case TwoHosts:
		return r.limit() + time.Second, false, true
	case KillDuringVote:
		return r.limit() + e.Outage, false, true
	}
	return 0, false, false
}

// hasty counts who was told without a reason that an item is lost. It takes five
// eighths of a session without an answer of ZooKeeper, and the last answer may be
// older than the interval between two questions, a twelfth, when servers fail and
// the machine is busy: so nobody is told within half of a session, nor if
// ZooKeeper served meanwhile for all but a sixth of the time that counts.
func hasty(told []time.Time, from time.Time, gaps []interval, session time.Duration) (n int) {
	const beat = 500 * time.Millisecond // until a guest asks, and says so
	for _, t := range told {
		if t.Sub(from) < session/2 || silent(gaps, t.Add(-session*5/8-beat), t) < session/6 {
			n++
		}
	}
	return n
}

// silent is how much of a time lies in the gaps.
func silent(gaps []interval, from, to time.Time) (sum time.Duration) {
	for _, g := range gaps {
		begin, end := g.from, g.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(0, end.Sub(begin))
	}
	return sum
}

// longestFast is the longest period of the jobs that show recovery.
func longestFast() (d time.Duration) {
	for _, j := range jobs() {
		if j.fast {
			d = max(d, j.period)
		}
	}
	return d
}

// Figures compares what was measured with what is to be reached on a machine
// that has nothing else to do. To miss one is a violation where the text says so.
func (r *Report) Figures() []Figure {
	var list []Figure
	slack := r.SessionTimeout
	var worst, double, worstFast time.Duration // by which the limit was left over, or missed
	killed, both := 0, 0
	fast := r.limit() + longestFast()
	fastReached, fastViolated := true, false
	short, lost, hasty, watched := 0, 0, 0, 0
	doubleReached, doubleViolated := true, false
	for _, e := range r.Events {
		limit, alone, kill := r.retakeLimit(e)
		switch {
		case alone:
			killed++
			worst, worstFast = max(worst, e.Retaken), max(worstFast, e.Recovery)
			fastReached, fastViolated = fastReached && e.Recovery <= fast, fastViolated || e.Recovery > fast+slack
		case kill:
			both++
			double = max(double, e.Retaken)
			doubleReached, doubleViolated = doubleReached && e.Retaken <= limit, doubleViolated || e.Retaken > limit+slack
		}
		if e.Watched {
			watched++
			hasty += e.Hasty
			if e.Outage <= r.SessionTimeout/2 {
				short++
				lost += e.Lost
			}
		}
	}
	if killed > 0 {
		list = append(list, Figure{fmt.Sprintf("crashed items of %d killed hosts ran again within %.2fs; to be session timeout, a tick and a second: %.2fs; %.2fs more is a violation",
			killed, worst.Seconds(), r.limit().Seconds(), slack.Seconds()), worst <= r.limit(), worst > r.limit()+slack},
			Figure{fmt.Sprintf("the jobs of those hosts that fire all the time were back within %.2fs; to be %.2fs, a period later; %.2fs more is a violation",
				worstFast.Seconds(), fast.Seconds(), slack.Seconds()), fastReached, fastViolated})
	}
	if both > 0 {
		list = append(list, Figure{fmt.Sprintf("crashed items of %d hosts that were killed while something else failed ran again within %.2fs; to be %.2fs, and %s; %.2fs more is a violation",
			both, double.Seconds(), r.limit().Seconds(), "a second more if another host was cut off, or the time without a leader", slack.Seconds()), doubleReached, doubleViolated})
	}
	if watched > 0 {
		list = append(list, Figure{fmt.Sprintf("%d items were lost to hosts in %d outages of ZooKeeper that were shorter than half of the session; to be 0",
			lost, short), lost == 0, false},
			Figure{fmt.Sprintf("%d items were lost without a reason in %d outages of ZooKeeper: sooner than half of the session after its begin, or after less than a sixth without service; more than 0 is a violation",
				hasty, watched), hasty == 0, hasty > 0})
	}
	if r.Halted > 0 {
		list = append(list, Figure{fmt.Sprintf("%d lines by %d guests that were at work when their host was halted beyond its session; more than 0 is a violation",
			r.Late, r.Halted), r.Late == 0, false})
	}
	if r.Fires > 0 {
		list = append(list, Figure{fmt.Sprintf("%d items were to begin again when the cluster was whole, and did, after at most a period, what its longest item takes, and %.2fs; more than %.2fs is a violation",
			r.Fires, r.Overdue.Seconds(), fireSlack.Seconds()), r.Overdue <= 0, false})
	}
	if r.Journal != nil {
		list = append(list, Figure{fmt.Sprintf("%d of %d offsets in ZooKeeper's log were written under a fence that was not the item's newest; to be 0",
			r.Journal.Stale, r.Journal.Offsets), r.Journal.Stale == 0, false})
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
	fmt.Fprintln(t, "FAULT\tTIMES\tLASTS\tRECOVERY MEDIAN\tWORST\tCRASHED ITEMS\tRUN AGAIN MEDIAN\tWORST\tNO LEADER MEDIAN\tWORST\tTOLD TO STOP\tCOMMITS REFUSED")
	show := func(d time.Duration) string {
		if d == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	for _, row := range r.Rows() {
		none := func(d time.Duration) string {
			if !row.Watched {
				return "-"
			}
			return fmt.Sprintf("%.2fs", d.Seconds())
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\n", row.Kind, row.Count, show(row.Lasted), show(row.Recovery[0]), show(row.Recovery[1]),
			row.Crashed, show(row.Retaken[0]), show(row.Retaken[1]), none(row.Outage[0]), none(row.Outage[1]), row.Cancelled, row.Refused)
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
	fmt.Fprintf(w, "fenced       %d guests of halted processes ended when these went on, beside the new owner's and without effect\n", r.Fenced)
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
	if len(r.Left) > 0 {
		fmt.Fprintf(w, "Namespace %s still has the jobs %s; with --remove instead of an attack they are taken away.\n", r.Namespace, strings.Join(r.Left, ", "))
	}
	if r.Dir != "" {
		fmt.Fprintf(w, "everything is kept in %s\n", r.Dir)
	}
}

// Markdown writes the table of faults for a document.
func (r *Report) Markdown(w io.Writer) {
	fmt.Fprintln(w, "| Fault | Times | Lasts | Recovery, median | worst | Crashed items | Run again, median | worst | No leader, median | worst | Told to stop |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	show := func(d time.Duration) string {
		if d == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	for _, row := range r.Rows() {
		none := func(d time.Duration) string {
			if !row.Watched {
				return "–"
			}
			return fmt.Sprintf("%.1f s", d.Seconds())
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %d | %s | %s | %s | %s | %d |\n", row.What, row.Count, show(row.Lasted), show(row.Recovery[0]), show(row.Recovery[1]),
			row.Crashed, show(row.Retaken[0]), show(row.Retaken[1]), none(row.Outage[0]), none(row.Outage[1]), row.Cancelled)
	}
}
