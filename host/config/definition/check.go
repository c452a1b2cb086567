package definition

import (
	"fmt"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/timetable"
)

// Check finds settings that are refused in a definition file or an edit, although a job runs with them if
// another program wrote them to the registry. Validate finds settings that are invalid everywhere.
func Check(c jobconfig.Configuration) (problems []*jobconfig.FieldError) {
	bad := func(field, format string, args ...any) {
		problems = append(problems, &jobconfig.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if c.Failover && !c.MonitorExecution {
		bad("failover", "found true, but monitorExecution is false, and failover needs it")
	}
	if _, err := jobconfig.ParseItemParameters(c.ShardingItemParameters); err == nil && c.ShardingTotalCount > 0 {
		for _, err := range flatten(jobconfig.CheckItemParameters(c.ShardingItemParameters, c.ShardingTotalCount)) {
			bad("shardingItemParameters", "%v", err)
		}
	}
	g, _ := c.Guest() // an unreadable setting has its default
	for _, s := range jobconfig.ByType() {
		if s.Only != "" && g.Type != "" && s.Only != g.Type && s.Differs(g) {
			bad(s.Name, "is for jobs of type %s, but the type is %s", s.Only, g.Type)
		}
	}
	for _, err := range flatten(grants.CheckNeeds(g.Needs)) {
		bad("needs", "%v", err)
	}
	table, unread := timetable.New(c, "")
	if table == nil && len(unread) == 0 {
		for _, s := range jobconfig.InstantSettings() {
			switch {
			case !s.Differs(g) || s.Name == "after":
			case len(g.When.After) > 0:
				bad(s.Name, "is given beside after: the job has the instants of the jobs that it comes after")
			default:
				bad(s.Name, "is given, but neither cron nor schedules nor at: the job has no instants")
			}
		}
	}
	return append(problems, unread...)
}
