package migrate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Kind is what a job is to be built as.
type Kind string

// The kinds. A job of KindHTTP needs no module.
const (
	KindSimple   Kind = "SIMPLE"
	KindDataflow Kind = "DATAFLOW"
	KindScript   Kind = "SCRIPT"
	KindHTTP     Kind = "HTTP"
)

// Job is a job as it was found.
type Job struct {
	Found
	Configuration jobconfig.Configuration
	// Class is the Java class that runs it, empty if there is none.
	Class string
	Kind  Kind
	// Command is the command line of a job of KindScript.
	Command string
	// Notes say what a definition does not carry over, and what to do: the first of them, and how many
	// others there are.
	Notes []string
	more  int
}

// mostNote is the longest note in bytes: there may be a command line in it.
const mostNote = 16 << 10

func (j *Job) note(format string, args ...any) {
	if len(j.Notes) == words.MostProblems {
		j.more++
		return
	}
	j.Notes = append(j.Notes, words.Cut(fmt.Sprintf(format, args...), mostNote))
}

// Read reads what Detect has found. The error joins those of all jobs that
// cannot be read; the others are returned with it.
func Read(ctx context.Context, r Reader, namespace string, found []Found) ([]Job, error) {
	var jobs []Job
	var problems words.Problems
	for _, f := range found {
		j := Job{Found: f, Kind: KindSimple}
		root := tree.JobsPath(namespace) + "/" + f.Name
		err := j.read(ctx, r, root)
		if err == nil {
			err = jobconfig.CheckJobName(f.Name)
		}
		if err != nil {
			problems.Addf("job %q (ElasticJob %s): %w", f.Name, f.Version, err)
			continue
		}
		if j.more > 0 {
			j.Notes = append(j.Notes, words.More(j.more))
		}
		jobs = append(jobs, j)
	}
	return jobs, problems.Err()
}

func (j *Job) read(ctx context.Context, r Reader, root string) error {
	nodes, err := r.Read(ctx, registry.Data(root), registry.Data(root+"/config"), registry.Children(root+"/config"), registry.Children(root+"/servers"))
	if err != nil {
		return err
	}
	disabled, err := disabledServers(ctx, r, nodes[3])
	if err != nil {
		return err
	}
	switch j.Version {
	case Version3:
		err = j.readYAML(nodes[1].Data, strings.TrimSpace(string(nodes[0].Data)))
	case Version20, Version21:
		err = j.readJSON(nodes[1].Data)
	default:
		err = j.readNodes(ctx, r, nodes[2])
	}
	if err != nil {
		return err
	}
	switch {
	case len(disabled) > 0 && len(disabled) == len(nodes[3].Names) && j.Version != Version3: // no host can join that namespace
		j.Configuration.Disabled = true
		j.note("all its servers are disabled, so the job begins paused: 'wasmjob job resume' has it fire")
	case len(disabled) > 0:
		j.note("servers are disabled for the job: %s; in the namespace of ElasticJob that stays, elsewhere use 'wasmjob job pause'", words.Some(disabled, ", "))
	}
	j.Configuration.JobName = j.Name
	j.carry()
	return j.readItems(ctx, r, root)
}

// readItems notes what is kept per item and is in no definition.
func (j *Job) readItems(ctx context.Context, r Reader, root string) error {
	lists, err := r.Read(ctx, registry.Children(root+"/offset"), registry.Children(root+"/sharding"))
	if err != nil {
		return err
	}
	var queries []registry.Query
	for _, item := range lists[0].Names {
		queries = append(queries, registry.Data(lists[0].Path+"/"+item))
	}
	for _, item := range lists[1].Names {
		queries = append(queries, registry.Data(lists[1].Path+"/"+item+"/disabled"))
	}
	nodes, err := r.Read(ctx, queries...)
	if err != nil {
		return err
	}
	offsets, disabled := 0, tree.Items{}
	for k, n := range nodes {
		switch {
		case k < len(lists[0].Names):
			if len(n.Data) > 0 {
				offsets++
			}
		case n.Exists:
			if i, err := strconv.Atoi(lists[1].Names[k-len(lists[0].Names)]); err == nil {
				disabled = append(disabled, i)
			}
		}
	}
	slices.Sort(disabled)
	if offsets > 0 {
		j.note("offsets of %d items are in %s and not taken over: the module starts without one; have it read them from there first, or begin where they say", offsets, lists[0].Path)
	}
	if len(disabled) > 0 {
		j.note("items are disabled: %s; in the namespace of ElasticJob that stays, elsewhere use 'wasmjob job pause --item'", disabled)
	}
	return nil
}

// disabledServers are those that an operator keeps from running the job.
func disabledServers(ctx context.Context, r Reader, servers registry.Node) ([]string, error) {
	var queries []registry.Query
	for _, ip := range servers.Names {
		queries = append(queries, registry.Data(servers.Path+"/"+ip), registry.Data(servers.Path+"/"+ip+"/disabled"))
	}
	nodes, err := r.Read(ctx, queries...)
	if err != nil {
		return nil, err
	}
	var list []string
	for n, ip := range servers.Names {
		if strings.EqualFold(string(nodes[2*n].Data), "DISABLED") || nodes[2*n+1].Exists {
			list = append(list, ip)
		}
	}
	return list, nil
}

// readYAML reads a configuration of 3.x.
func (j *Job) readYAML(data []byte, class string) error {
	c, warnings, err := jobconfig.Parse(data)
	if err != nil {
		return err
	}
	j.Configuration = c
	for _, w := range warnings {
		j.note("the configuration: %s", w)
	}
	switch kind := Kind(strings.ToUpper(class)); {
	case kind == KindSimple || kind == KindDataflow || kind == KindScript || kind == KindHTTP:
		j.Kind = kind
	case class != "":
		j.Class = class
		if _, stated := c.Props[jobconfig.PropStreamingProcess]; stated {
			j.Kind = KindDataflow
		}
	case c.Props[propCommand] != "":
		j.Kind = KindScript
	}
	if g, err := c.Guest(); err == nil && g.Type != "" {
		j.Kind = Kind(g.Type)
	}
	return nil
}

// The properties of ElasticJob's own kinds of jobs.
const (
	propCommand = "script.command.line"
)

// old is a configuration of 1.x or 2.x, in the words of both.
type old struct {
	JobName                          string `json:"jobName"`
	JobClass                         string `json:"jobClass"`
	JobType                          string `json:"jobType"`
	Cron                             string `json:"cron"`
	ShardingTotalCount               int    `json:"shardingTotalCount"`
	ShardingItemParameters           string `json:"shardingItemParameters"`
	JobParameter                     string `json:"jobParameter"`
	Failover                         bool   `json:"failover"`
	Misfire                          bool   `json:"misfire"`
	Description                      string `json:"description"`
	Disabled                         bool   `json:"disabled"`
	MonitorExecution                 bool   `json:"monitorExecution"`
	MaxTimeDiffSeconds               int    `json:"maxTimeDiffSeconds"`
	JobShardingStrategyClass         string `json:"jobShardingStrategyClass"`
	ReconcileIntervalMinutes         int    `json:"reconcileIntervalMinutes"`
	StreamingProcess                 bool   `json:"streamingProcess"`
	ScriptCommandLine                string `json:"scriptCommandLine"`
	FetchDataCount                   int    `json:"fetchDataCount"`
	ConcurrentDataProcessThreadCount int    `json:"concurrentDataProcessThreadCount"`
	MonitorPort                      int    `json:"monitorPort"`
	JobProperties                    struct {
		Exception string `json:"job_exception_handler"`
		Executor  string `json:"executor_service_handler"`
	} `json:"jobProperties"`
	JobEventConfigs json.RawMessage `json:"jobEventConfigs"`
}

// oldKeys are the keys of a JSON document that no version after 2 has; none if
// it is no such document.
func oldKeys(data []byte) []string {
	data = bytes.TrimSpace(data)
	var keys map[string]json.RawMessage
	if !bytes.HasPrefix(data, []byte("{")) || json.Unmarshal(data, &keys) != nil {
		return nil
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		switch k {
		case "jobClass", "jobType", "jobShardingStrategyClass", "jobProperties", "monitorPort", "streamingProcess", "scriptCommandLine", "jobEventConfigs":
			list = append(list, k)
		}
	}
	return list
}

// readJSON reads a configuration of 2.x.
func (j *Job) readJSON(data []byte) error {
	// What 2.x takes for absent keys.
	o := old{MonitorExecution: true, Misfire: true, MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10}
	if err := json.Unmarshal(data, &o); err != nil {
		return fmt.Errorf("config: not the JSON of a configuration: %w", err)
	}
	j.take(o)
	return nil
}

// readNodes reads a configuration of 1.x.
func (j *Job) readNodes(ctx context.Context, r Reader, config registry.Node) error {
	if len(config.Names) == 0 {
		return fmt.Errorf("%s: no settings are there any more", config.Path)
	}
	queries := make([]registry.Query, len(config.Names))
	for n, name := range config.Names {
		queries[n] = registry.Data(config.Path + "/" + name)
	}
	nodes, err := r.Read(ctx, queries...)
	if err != nil {
		return err
	}
	o := old{MonitorExecution: true, Misfire: true, MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10}
	texts := map[string]*string{
		"jobClass": &o.JobClass, "jobType": &o.JobType, "cron": &o.Cron, "shardingItemParameters": &o.ShardingItemParameters,
		"jobParameter": &o.JobParameter, "description": &o.Description, "jobShardingStrategyClass": &o.JobShardingStrategyClass,
		"scriptCommandLine": &o.ScriptCommandLine,
	}
	numbers := map[string]*int{
		"shardingTotalCount": &o.ShardingTotalCount, "maxTimeDiffSeconds": &o.MaxTimeDiffSeconds, "fetchDataCount": &o.FetchDataCount,
		"concurrentDataProcessThreadCount": &o.ConcurrentDataProcessThreadCount, "monitorPort": &o.MonitorPort,
	}
	booleans := map[string]*bool{
		"failover": &o.Failover, "misfire": &o.Misfire, "disabled": &o.Disabled, "monitorExecution": &o.MonitorExecution,
		"streamingProcess": &o.StreamingProcess,
	}
	var problems words.Problems
	for _, n := range nodes {
		text := string(n.Data)
		if text == "" {
			continue
		}
		name := path.Base(n.Path)
		if into := texts[name]; into != nil {
			*into = text
		} else if into := booleans[name]; into != nil {
			*into = strings.EqualFold(strings.TrimSpace(text), "true") // as Java reads it
		} else if into := numbers[name]; into != nil {
			v, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				problems.Addf("%s: found %q, expected a whole number", n.Path, words.Clip(text))
				continue
			}
			*into = v
		} else if !slices.Contains([]string{"processCountIntervalSeconds", "reconcileIntervalMinutes"}, name) {
			j.note("%s = %q is a setting that is not known here", name, text)
		}
	}
	if err := problems.Err(); err != nil {
		return err
	}
	j.take(o)
	return nil
}

// take turns an old configuration into today's.
func (j *Job) take(o old) {
	c := &j.Configuration
	*c = jobconfig.Configuration{
		Cron: o.Cron, ShardingTotalCount: o.ShardingTotalCount, ShardingItemParameters: o.ShardingItemParameters,
		JobParameter: o.JobParameter, Failover: o.Failover, Misfire: o.Misfire, Description: o.Description, Disabled: o.Disabled,
		MonitorExecution: o.MonitorExecution, MaxTimeDiffSeconds: o.MaxTimeDiffSeconds,
		ReconcileIntervalMinutes: o.ReconcileIntervalMinutes, JobShardingStrategyType: o.JobShardingStrategyClass,
	}
	j.Class, j.Command = o.JobClass, o.ScriptCommandLine
	switch t := strings.ToUpper(o.JobType); {
	case strings.Contains(t, "SCRIPT") || o.ScriptCommandLine != "":
		j.Kind, j.Class = KindScript, "" // it is a class of ElasticJob itself
	case strings.Contains(t, "DATA") || o.StreamingProcess:
		j.Kind = KindDataflow
	}
	props := map[string]string{}
	if o.StreamingProcess {
		props[jobconfig.PropStreamingProcess] = "true"
	}
	if j.Kind == KindDataflow && 0 < o.FetchDataCount && o.FetchDataCount <= jobconfig.MaxFetchDataCount {
		props[jobconfig.PropFetchDataCount] = strconv.Itoa(o.FetchDataCount)
	}
	if len(props) > 0 {
		c.Props = props
	}
	j.noteOld(o)
}

// noteOld notes what an older job has and a definition cannot say.
func (j *Job) noteOld(o old) {
	if n := o.ConcurrentDataProcessThreadCount; n > 1 {
		j.note("concurrentDataProcessThreadCount %d: an item is worked on by one guest; divide the job into more items", n)
	}
	if o.MonitorPort > 0 {
		j.note("monitorPort %d: a host has one port for all jobs, --dump-port", o.MonitorPort)
	}
	if e := o.JobProperties.Exception; e != "" && !strings.HasSuffix(e, ".DefaultJobExceptionHandler") {
		j.note("the exception handler %s is a Java class; errors are in the log, the events and the metrics", e)
	}
	if e := o.JobProperties.Executor; e != "" && !strings.HasSuffix(e, ".DefaultExecutorServiceHandler") {
		j.note("the thread pool %s is a Java class; see maxConcurrency", e)
	}
	if len(o.JobEventConfigs) > 0 && !slices.Contains([]string{"null", "{}", "[]"}, string(o.JobEventConfigs)) {
		j.note("jobEventConfigs is a Java host's tracing; a host here keeps events with --history")
	}
}

// carry moves what a definition says in other words, and notes what it cannot
// say at all.
func (j *Job) carry() {
	c := &j.Configuration
	if strategy, err := jobconfig.StrategyName(c.JobShardingStrategyType); err != nil {
		j.note("the strategy %s is not known here, AVG_ALLOCATION is in its place: %v", c.JobShardingStrategyType, err)
		c.JobShardingStrategyType = ""
	} else if c.JobShardingStrategyType != "" {
		c.JobShardingStrategyType = strategy
	}
	if handler, err := c.ErrorHandler(); err != nil {
		j.note("the error handler %s is not offered here, LOG is in its place: errors are in the log, the events and the metrics", c.JobErrorHandlerType)
		c.JobErrorHandlerType = ""
	} else if c.JobErrorHandlerType != "" {
		c.JobErrorHandlerType = handler
		j.sends(handler)
	}
	j.itemParameters()
	if len(c.JobListenerTypes) > 0 {
		j.note("the listeners %s are Java's; a module exports its own, see docs/writing-jobs.md", words.Some(c.JobListenerTypes, ", "))
	}
	if c.ExtraConfigurations != "" {
		j.note("jobExtraConfigurations is a Java host's tracing into a database; a host here keeps events with --history")
	}
	j.carryPool()
	if c.Overwrite {
		j.note("overwrite is left out: with it the file would win over every change that a console makes")
		c.Overwrite = false
	}
	j.Command = cmp.Or(j.Command, c.Props[propCommand])
	if j.Kind == KindScript && j.Command != "" {
		j.note("the command line was: %s", j.Command)
	}
	if j.Kind == KindHTTP {
		j.carryRequest()
	}
	j.dropProps()
}

// carryRequest makes a job of type HTTP of ElasticJob's.
func (j *Job) carryRequest() {
	c := &j.Configuration
	c.Props = withProp(c.Props, "wasm.type", string(jobconfig.TypeHTTP))
	g, err := c.Guest()
	if err != nil {
		j.note("its request cannot be carried over: %v", err)
	}
	g.HTTP.Headers = append(g.HTTP.Headers, `shardingContext: {"jobName":"{job}","taskId":"{run}","shardingTotalCount":{total},"jobParameter":"{jobParameter}","shardingItem":{item},"shardingParameter":"{itemParameter}"}`)
	wait := time.Duration(0)
	for _, prop := range []string{"http.connect.timeout.milliseconds", "http.read.timeout.milliseconds"} {
		if n, err := strconv.ParseInt(c.Props[prop], 10, 32); err == nil && n > 0 {
			wait += time.Duration(n) * time.Millisecond
		}
		delete(c.Props, prop)
	}
	if g.Timeout == 0 {
		g.Timeout = wait
	}
	g.Props(c.Props)
	j.note("the host sends its request (%s %s), once the operator has granted the address (docs/grants.md). An answer that is no success makes the item fail; ElasticJob only logged it", g.HTTP.Defaults().Method, g.HTTP.URL)
}

// carryPool takes the thread pool over as far as there is something like it here.
func (j *Job) carryPool() {
	c := &j.Configuration
	switch pool := c.JobExecutorThreadPoolValue; strings.ToUpper(pool) {
	case "", "CPU":
	case "SINGLE_THREAD":
		if c.Props[jobconfig.PropMaxConcurrency] == "" {
			c.Props = withProp(c.Props, jobconfig.PropMaxConcurrency, "1")
		}
	default:
		j.note("the thread pool %s is a Java host's; see maxConcurrency", pool)
	}
}

// sends notes that an error handler sends errors by what the hosts' file of alerts says,
// and not by props of the job.
func (j *Job) sends(handler string) {
	if slices.Contains([]string{jobconfig.HandlerEmail, jobconfig.HandlerWeChat, jobconfig.HandlerDingTalk}, handler) {
		j.note("the error handler %s sends by the route that the hosts' file of alerts has for it (errorHandlers), see docs/alerts.md", handler)
	}
}

// dropProps leaves out props that mean something to a Java host only.
func (j *Job) dropProps() {
	c := &j.Configuration
	var dropped []string
	for _, key := range slices.Sorted(maps.Keys(c.Props)) {
		for _, prefix := range []string{"email.", "wechat.", "dingtalk.", "http.", "script."} {
			if strings.HasPrefix(key, prefix) && (prefix != "http." || j.Kind != KindHTTP) {
				dropped = append(dropped, key)
			}
		}
	}
	if len(dropped) > 0 {
		c.Props = maps.Clone(c.Props)
		for _, key := range dropped {
			delete(c.Props, key)
		}
		j.note("props of a Java host are left out: %s", words.Some(dropped, ", "))
	}
}

// itemParameters leaves out those that a definition may not have: the registry
// takes them for nothing.
func (j *Job) itemParameters() {
	c := &j.Configuration
	problems := jobconfig.CheckItemParameters(c.ShardingItemParameters, c.ShardingTotalCount)
	used, err := jobconfig.ParseItemParameters(c.ShardingItemParameters)
	if problems == nil || err != nil {
		return // Definition says what is wrong
	}
	var list []string
	for _, i := range slices.Sorted(maps.Keys(used)) {
		if i >= 0 && i < c.ShardingTotalCount && used[i] != "" {
			list = append(list, strconv.Itoa(i)+"="+used[i])
		}
	}
	j.note("shardingItemParameters were %q, of which what has no meaning is left out: %v", words.ClipTo(c.ShardingItemParameters, words.MaxReason), problems)
	c.ShardingItemParameters = strings.Join(list, ",")
}

func withProp(props map[string]string, key, value string) map[string]string {
	props = maps.Clone(props)
	if props == nil {
		props = map[string]string{}
	}
	props[key] = value
	return props
}
