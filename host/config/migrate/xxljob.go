package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// XXLJob reads the jobs of XXL-JOB from a dump of its database in SQL: the table xxl_job_info,
// and xxl_job_group if it is there. The error is that of a text without that table.
func XXLJob(text []byte) (*Imported, error) {
	tables, err := Dump(text)
	if err != nil {
		return nil, err
	}
	return XXLJobTables(tables)
}

// XXLJobTables makes jobs of XXL-JOB's tables: of version 2.3 and later, and of those before it.
func XXLJobTables(tables map[string]Table) (*Imported, error) {
	find := func(name string) Table {
		for table, t := range tables {
			if strings.HasSuffix(strings.ToLower(table), name) {
				return t
			}
		}
		return Table{}
	}
	info := find("job_info")
	if info.Columns == nil {
		return nil, errors.New("found no table xxl_job_info, expected XXL-JOB's database")
	}
	groups := make(map[string]string)
	for r := range find("job_group").all() {
		groups[r("id")] = r("app_name")
	}
	handlers, ids := make(map[string]int), make(map[string]string)
	for r := range info.all() {
		handlers[r("executor_handler")]++
		ids[r("id")] = cmp.Or(r("executor_handler"), "job-"+r("id"))
	}
	i := &Imported{}
	chains := xxlChains{at: make(map[string]int), parents: make(map[string][]string)}
	for r := range info.all() {
		place := fmt.Sprintf("job %s (%s)", r("id"), cmp.Or(r("job_desc"), r("executor_handler")))
		name := ids[r("id")]
		if handlers[r("executor_handler")] > 1 && r("executor_handler") != "" {
			name += "-" + r("id")
		}
		f := newForeign(name, place)
		f.xxl(r, groups)
		taken := len(i.Jobs)
		if i.add(f); len(i.Jobs) > taken {
			chains.add(r("id"), taken, strings.Split(r("child_jobid"), ","))
		}
	}
	chains.join(i.Jobs)
	return i.end(), nil
}

// xxlChains are the jobs of an import whose ends begin others, by their numbers in XXL-JOB.
type xxlChains struct {
	at      map[string]int // in the import
	order   []string       // of children, as they are named first
	parents map[string][]string
}

func (x *xxlChains) add(id string, at int, children []string) {
	x.at[id] = at
	for _, child := range children {
		if child = strings.TrimSpace(child); child != "" {
			if x.parents[child] == nil {
				x.order = append(x.order, child)
			}
			x.parents[child] = append(x.parents[child], id)
		}
	}
}

// join makes child jobs come after the job whose success triggered them. XXL-JOB triggers a child after each of
// its parents, and besides its own schedule; the notes say what after cannot express.
func (x *xxlChains) join(jobs []Foreign) {
	after := make(map[string][]string)
	for _, child := range x.order {
		parents := x.parents[child]
		at, there := x.at[child]
		if !there {
			for _, id := range parents {
				f := &jobs[x.at[id]]
				f.note("after it ran its child, job %s, which is not there", child)
			}
			continue
		}
		f, parent := &jobs[at], &jobs[x.at[parents[0]]]
		after[f.Name] = []string{parent.Name}
		circle := coordination.Cycle(f.Name, func(job string) []string { return after[job] })
		if len(parents) == 1 && f.Configuration.Cron == "" && circle == nil {
			f.guest(func(g *jobconfig.Guest) { g.When.After = []jobconfig.After{{Job: parent.Name}} })
			f.note("it was the child of job %s", parent.Name)
			continue
		}
		delete(after, f.Name)
		var names []string
		for _, id := range parents {
			names = append(names, jobs[x.at[id]].Name)
		}
		f.note("it also ran after each success of %s: no job here runs after one job or another, or beside its own schedule; see after in schedules.md", strings.Join(names, " and of "))
	}
}

// xxl takes a row of xxl_job_info.
func (f *Foreign) xxl(r func(string) string, groups map[string]string) {
	c := &f.Configuration
	c.Description = r("job_desc")
	c.JobParameter = r("executor_param")
	c.Disabled = r("trigger_status") == "0"
	switch kind := strings.ToUpper(r("schedule_type")); {
	case kind == "CRON" || kind == "" && r("job_cron") != "":
		c.Cron = strings.Join(strings.Fields(cmp.Or(r("schedule_conf"), r("job_cron"))), " ")
	case kind == "FIX_RATE":
		f.every(r("schedule_conf"), time.Second)
	case kind == "FIX_DELAY":
		f.note("FIX_DELAY %s: it began so many seconds after the run before it; there is no such schedule here", r("schedule_conf"))
	default:
		f.note("it had no schedule of its own")
	}
	switch strings.ToUpper(r("executor_block_strategy")) {
	case "DISCARD_LATER":
		c.Misfire = false
	case "COVER_EARLY":
		f.guest(func(g *jobconfig.Guest) { g.Overlap = jobconfig.OverlapTerminate })
	case "SERIAL_EXECUTION":
		f.guest(func(g *jobconfig.Guest) { g.Overlap = jobconfig.OverlapQueueAll })
	}
	f.guest(func(g *jobconfig.Guest) {
		if strings.EqualFold(r("misfire_strategy"), "DO_NOTHING") {
			g.CatchUpWindow = 0
		}
		if n, err := strconv.ParseInt(r("executor_timeout"), 10, 64); err == nil && n > 0 {
			g.Timeout = time.Duration(min(n, longestDeadline)) * time.Second
		}
		if n, err := strconv.Atoi(r("executor_fail_retry_count")); err == nil && n > 0 {
			g.Retry.Attempts = min(n, 99) + 1
			g.Retry.On = []string{"RETRY", "FAIL", "TRAP", "EXIT", "TIMEOUT"}
		} else {
			g.Retry.Attempts = 1
		}
	})
	switch route := strings.ToUpper(r("executor_route_strategy")); route {
	case "", "FIRST", "LAST", "ROUND", "RANDOM", "CONSISTENT_HASH", "LEAST_FREQUENTLY_USED", "LEAST_RECENTLY_USED", "BUSYOVER", "FAILOVER":
		if route == "FAILOVER" {
			c.Failover = true
		}
	case "SHARDING_BROADCAST":
		f.note("route strategy SHARDING_BROADCAST ran it on each executor: here it is divided into items; set shardingTotalCount, and the index is the item")
	default:
		f.note("route strategy %s: the one host that has the item runs it", route)
	}
	switch glue := r("glue_type"); glue {
	case "", "BEAN":
		f.Class = r("executor_handler")
	default:
		f.Kind = KindScript
		f.note("its source (%s) stood in the database; it is no module: build one that does the same", glue)
		f.Command = "the source in xxl_job_info." + "glue_source of job " + r("id")
	}
	if g := groups[r("job_group")]; g != "" {
		f.note("its executor was %s", g)
	}
	if a := r("alarm_email"); a != "" {
		f.note("failures were sent to %s: say so in the file of alerts (--alerts)", a)
	}
	if a := r("author"); a != "" {
		f.note("its author was %s", a)
	}
}
