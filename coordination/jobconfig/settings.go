package jobconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/strategy"
)

// Setting is one field of a job definition: a row of the table that yields the registry's document, the
// properties, the definition reader, the merge, the tables of docs/definitions.md and the JSON Schema.
//
// A new setting is a row of the table and a field of [Configuration] or [Guest].
type Setting struct {
	// Name is the field's name in a definition file. One with a dot, such as
	// retry.attempts, is a field of a mapping.
	Name string
	// Key is its key in ElasticJob's document; empty if it is not there.
	Key string
	// Prop is the property that holds it; empty if none does.
	Prop string
	Type Type
	// Min and Max bound a number, a duration in nanoseconds and a size in bytes.
	Min, Max int64
	// Words are the values of a Word, in the case in which they are stored.
	Words []string
	// Only is the job type that has the setting; empty: all types.
	Only JobType
	// Required is true if a definition must have it.
	Required bool
	// Default and Help are for docs/definitions.md, in Markdown.
	Default, Help string
	// Example is a value of a list of texts, as JSON, which is valid in a definition file too.
	Example string

	// omitEmpty leaves an empty text out of the document, because Java reads it as null.
	omitEmpty bool
	// canonical checks a text of a definition file, and returns its stored form; nil: any text, unchanged.
	canonical func(string) (string, error)
	// ours is the kind of the setting if Java hosts ignore it: a job whose value differs from the default does
	// not run beside one.
	ours ours
	// in points to the value; nil if the definition reader stores it elsewhere.
	in func(*Configuration, *Guest) any
}

// Type says how a setting is written in a definition file.
type Type string

// The types, in the words of docs/definitions.md.
const (
	Text     Type = "text"
	File     Type = "file name"
	Word     Type = "word"     // one of Words, in any case
	Boolean  Type = "boolean"  // as YAML 1.1 has it
	Number   Type = "number"   // an integer
	Duration Type = "duration" // see ParseDuration
	Size     Type = "size"     // see ParseSize
	Texts    Type = "list of texts"
	Outcomes Type = "list" // see ParseRetryOn
	Mapping  Type = "mapping"
	ItemList Type = "text or mapping" // item parameters
	Time     Type = "time"            // see ParseInstant
	Several  Type = "list of schedules"
	Jobs     Type = "list of jobs"      // see After
	Labels   Type = "labels"            // a mapping of names to values; see package labels
	Args     Type = "list of arguments" // see Argument
)

// ours is the kind of a setting that Java hosts ignore.
type ours uint8

const (
	_          ours = iota
	ofInstants      // determines the job's instants, or when a fire starts
	ofPolicy        // decides about instants that cannot begin in time
)

// Settings are all settings, in the order of docs/definitions.md.
func Settings() []Setting { return slices.Clone(settings[:]) }

// ByType are the settings for one job type only.
func ByType() []Setting {
	var list []Setting
	for i := range settings {
		if settings[i].Only != "" {
			list = append(list, settings[i])
		}
	}
	return list
}

// keyed finds the setting with a key of ElasticJob's document.
func keyed(key string) (Setting, bool) {
	for i := range settings { // a setting is large: copy it once
		if settings[i].Key == key && settings[i].in != nil {
			return settings[i], true
		}
	}
	return Setting{}, false
}

// In returns a pointer to the setting's value, or nil for a setting that only the definition reader knows:
// *string, *bool, *int, *int64, *time.Duration, *[]string, *[]Schedule, *[]After, *labels.Set, *Arguments,
// *JobType, *Isolation, *Overlap, *CatchUp, or **string where absent and empty differ.
func (s Setting) In(c *Configuration, g *Guest) any {
	if s.in == nil {
		return nil
	}
	return s.in(c, g)
}

// Instants reports whether the setting determines the job's instants or when a fire starts, and ElasticJob does
// not have it.
func (s Setting) Instants() bool { return s.ours == ofInstants }

// Zero returns the meaning of a 0 that stands for no value, as in [Setting.Default]; empty if the text is not
// 0, or 0 has no special meaning.
func (s Setting) Zero(text string) string {
	if text != "0" || (s.Type != Number && s.Type != Size) || s.Required || strings.HasPrefix(s.Default, "`") {
		return ""
	}
	return s.Default
}

// Parse reads the setting from a text. The error names what was found and what was
// expected, and nothing is changed then. A *[]string takes the form of its property.
func (s Setting) Parse(c *Configuration, g *Guest, text string) error {
	into := s.In(c, g)
	if p, isBool := into.(*bool); isBool { // Java takes anything but "true" for false
		*p = strings.EqualFold(text, "true")
		return nil
	}
	if p, isText := into.(*string); isText {
		return assign(p, text, s.canonical)
	}
	text = strings.TrimSpace(text)

	switch p := into.(type) {
	case *int:
		return assign(p, text, s.number)
	case *int64:
		return assign(p, text, s.size)
	case *time.Duration:
		return assign(p, text, func(t string) (time.Duration, error) { return ParseDuration(t, time.Duration(s.Max)) })
	case *JobType:
		return assign(p, text, func(t string) (JobType, error) { w, err := s.word(t); return JobType(w), err })
	case *Isolation:
		return assign(p, text, func(t string) (Isolation, error) { w, err := s.word(t); return Isolation(w), err })
	case *Overlap:
		return assign(p, text, func(t string) (Overlap, error) {
			if strings.EqualFold(t, "allow") {
				return "", errors.New(noAllow)
			}
			w, err := s.word(t)
			return Overlap(w), err
		})
	case *CatchUp:
		return assign(p, text, func(t string) (CatchUp, error) { w, err := s.word(t); return CatchUp(w), err })
	case *[]string:
		if s.Type == Outcomes {
			return assign(p, text, ParseRetryOn)
		}
		return assign(p, text, s.texts)
	case *[]Schedule:
		return assign(p, text, parseSchedules)
	case *[]After:
		return assign(p, text, parseAfter)
	case *labels.Set:
		return assign(p, text, labels.Parse)
	case *Arguments:
		return assign(p, text, parseArguments)
	}
	return fmt.Errorf("%s cannot be read from a text", s.Name)
}

// assign sets the value if the text can be read.
func assign[T any](into *T, text string, parse func(string) (T, error)) error {
	if parse == nil {
		*any(into).(*string) = text
		return nil
	}
	v, err := parse(text)
	if err == nil {
		*into = v
	}
	return err
}

func (s Setting) number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || int64(n) < s.Min || int64(n) > s.Max {
		return 0, fmt.Errorf("found %q, expected a whole number from %d to %d", Clip(text), s.Min, s.Max)
	}
	return n, nil
}

// ParseMemoryLimit reads the limit of a guest's memory in bytes, such as 67108864 or
// 64MiB. 0 is the default limit.
func ParseMemoryLimit(s string) (int64, error) {
	return Setting{Min: MinMemoryLimit, Max: MaxMemoryLimit}.size(strings.TrimSpace(s))
}

// size reads a number of bytes; 0 is the default.
func (s Setting) size(text string) (int64, error) {
	n, ok := ParseSize(text)
	switch {
	case !ok:
		return 0, fmt.Errorf("found %q, expected a size such as 64MiB, or a number of bytes", Clip(text))
	case n != 0 && (n < s.Min || n > s.Max):
		return 0, fmt.Errorf("found %q, expected a size from %s to %s", Clip(text), ShowSize(s.Min), ShowSize(s.Max))
	}
	return n, nil
}

func (s Setting) word(text string) (string, error) {
	for _, w := range s.Words {
		if strings.EqualFold(w, text) {
			return w, nil
		}
	}
	last := len(s.Words) - 1
	return "", fmt.Errorf("found %q, expected %s or %s", Clip(text), strings.Join(s.Words[:last], ", "), s.Words[last])
}

// Text is the value of a guest's setting as its property has it.
func (s Setting) Text(g Guest) string {
	switch p := s.In(nil, &g).(type) {
	case *string:
		return *p
	case *bool:
		return strconv.FormatBool(*p)
	case *int:
		return strconv.Itoa(*p)
	case *int64:
		return strconv.FormatInt(*p, 10)
	case *time.Duration:
		return p.String()
	case *JobType:
		return string(*p)
	case *Isolation:
		return string(*p)
	case *Overlap:
		return string(*p)
	case *CatchUp:
		return string(*p)
	case *[]string:
		switch {
		case len(*p) == 0:
			return ""
		case s.Type == Outcomes:
			return strings.Join(*p, ",")
		}
		list, _ := json.Marshal(*p) // a list of texts always has a JSON form
		return string(list)
	case *[]Schedule:
		if len(*p) == 0 {
			return ""
		}
		list, _ := json.Marshal(*p) // texts always have a JSON form
		return string(list)
	case *labels.Set:
		return p.String()
	case *[]After:
		if len(*p) == 0 {
			return ""
		}
		list, _ := json.Marshal(*p) // texts always have a JSON form
		return string(list)
	case *Arguments:
		if len(*p) == 0 {
			return ""
		}
		list, _ := json.Marshal(*p) // texts always have a JSON form
		return string(list)
	}
	return ""
}

// noAllow is why an item does not run beside itself.
const noAllow = "found allow, which is not supported: an item has one record, one fence and one owner, and two runs of it cannot both be proven; " +
	"run each instant after the other with queue_all, or give the job more items"

// settings is the table. It is never written to.
var settings = [...]Setting{
	{Name: "jobName", Key: "jobName", Type: Text, Default: "the file's base name",
		Help: "The job's name in the registry, in logs and in task ids. At most 200 bytes; no `/`, no `@-@`, no control characters, and nothing that ZooKeeper takes in no path: characters beyond U+FFEF (emoji, rare Chinese ones) or of private use. Required in a file of several jobs",
		in:   func(c *Configuration, _ *Guest) any { return &c.JobName }},
	{Name: "cron", Key: "cron", Type: Text, omitEmpty: true, Default: "none",
		Help: "When the job fires; see [cron.md](cron.md). Without it the job runs when it is triggered.",
		in:   func(c *Configuration, _ *Guest) any { return &c.Cron }},
	{Name: "timeZone", Key: "timeZone", Type: Text, omitEmpty: true, Default: "the host's zone",
		Help: "An IANA name (`Asia/Shanghai`), or `GMT+08:00` as ElasticJob has it",
		in:   func(c *Configuration, _ *Guest) any { return &c.TimeZone }},
	{Name: "shardingTotalCount", Key: "shardingTotalCount", Type: Number, Min: 1, Max: MaxShardingTotalCount, Required: true, Default: "**required**",
		Help: "How many items the job is divided into, 1 to 1,000,000; 1 for a job that is not divided",
		in:   func(c *Configuration, _ *Guest) any { return &c.ShardingTotalCount }},
	{Name: "shardingItemParameters", Key: "shardingItemParameters", Type: ItemList, Default: "none",
		Help: "A parameter for each item: `0=Beijing,1=Shanghai`, or a mapping `{0: Beijing, 1: Shanghai}`. Items may be left out. A parameter is not empty and has no comma and no equals sign",
		in:   func(c *Configuration, _ *Guest) any { return &c.ShardingItemParameters }},
	{Name: "jobParameter", Key: "jobParameter", Type: Text, Default: "none",
		Help: "A parameter for the whole job",
		in:   func(c *Configuration, _ *Guest) any { return &c.JobParameter }},
	{Name: "jobShardingStrategyType", Key: "jobShardingStrategyType", Type: Text, omitEmpty: true, canonical: StrategyName, Default: "`AVG_ALLOCATION`",
		Help: "Which instance gets which items: `" + strings.Join(strategy.Names(), "`, `") + "`. The class names of ElasticJob 1.x to 3.x are accepted, and stored as these",
		in:   func(c *Configuration, _ *Guest) any { return &c.JobShardingStrategyType }},
	{Name: "failover", Key: "failover", Type: Boolean, Default: "`false`",
		Help: "Items of a host that dies while they run are run by another host at once. Without it they run again when the job fires next",
		in:   func(c *Configuration, _ *Guest) any { return &c.Failover }},
	{Name: "misfire", Key: "misfire", Type: Boolean, Default: "`true`",
		Help: "An item that still ran when the job fired, or whose fire was missed, runs once more afterwards (catch-up)",
		in:   func(c *Configuration, _ *Guest) any { return &c.Misfire }},
	{Name: "monitorExecution", Key: "monitorExecution", Type: Boolean, Default: "`true`",
		Help: "Running items are marked in the registry as ElasticJob marks them, for its console and for Java hosts. `failover` needs it, here as in Java: a file with `failover: true` and without it is refused; records of what runs are kept in any case, so that no item runs twice",
		in:   func(c *Configuration, _ *Guest) any { return &c.MonitorExecution }},
	{Name: "maxTimeDiffSeconds", Key: "maxTimeDiffSeconds", Type: Number, Min: math.MinInt32, Max: math.MaxInt32, Default: "`-1`",
		Help: "How far this host's clock may be from the registry's; negative: not checked",
		in:   func(c *Configuration, _ *Guest) any { return &c.MaxTimeDiffSeconds }},
	{Name: "reconcileIntervalMinutes", Key: "reconcileIntervalMinutes", Type: Number, Min: math.MinInt32, Max: math.MaxInt32, Default: "`10`",
		Help: "How often the registry is read again, in case something was missed; 0 or less: never",
		in:   func(c *Configuration, _ *Guest) any { return &c.ReconcileIntervalMinutes }},
	{Name: "jobErrorHandlerType", Key: "jobErrorHandlerType", Type: Text, omitEmpty: true, canonical: errorHandler, Default: "`LOG`",
		Help: "What becomes of a failed item's error: `LOG` logs it, `THROW` makes it that of the whole fire, `IGNORE` drops it; `EMAIL`, `WECHAT` and `DINGTALK` log it and send it by the route that the hosts' file of alerts has for them",
		in:   func(c *Configuration, _ *Guest) any { return &c.JobErrorHandlerType }},
	{Name: "description", Key: "description", Type: Text, Default: "none",
		Help: "For people",
		in:   func(c *Configuration, _ *Guest) any { return &c.Description }},
	{Name: "labels", Prop: PropLabels, Type: Labels, Default: "none", Example: LabelsExample,
		Help: "Names and values for people and filters, `{team: billing, tier: gold}`, at most 16; see [labels.md](labels.md). Those of a folder's defaults that a job does not name are added",
		in:   func(_ *Configuration, g *Guest) any { return &g.Labels }},
	{Name: "disabled", Key: "disabled", Type: Boolean, Default: "`false`",
		Help: "`true`: a server that sees this job for the first time starts with it paused. When a definition changes the field later, the change is applied once. Between such changes, `wasmjob job resume` and `wasmjob job pause` decide",
		in:   func(c *Configuration, _ *Guest) any { return &c.Disabled }},
	{Name: "overwrite", Key: "overwrite", Type: Boolean, Default: "`false`",
		Help: "The file wins over the registry, always; see [below](#file-and-registry)",
		in:   func(c *Configuration, _ *Guest) any { return &c.Overwrite }},
	{Name: "label", Key: "label", Type: Text, Default: "none",
		Help: "Kept for ElasticJob; no meaning here",
		in:   func(c *Configuration, _ *Guest) any { return &c.Label }},
	{Name: "staticSharding", Key: "staticSharding", Type: Boolean, Default: "`false`",
		Help: "An item stays with its host as long as that is there; a host that comes or goes moves no other items",
		in:   func(c *Configuration, _ *Guest) any { return &c.StaticSharding }},
	{Name: "props", Key: "props", Type: Mapping, Default: "none",
		Help: "Properties of the job: names and texts. Those that begin with `wasm.` are written by the host, from the fields of the next table"},

	{Name: "module", Type: File, Default: "the file's base name and `.wasm`",
		Help: "The module, in the same folder"},
	{Name: "jobClass", Type: Text, Default: "none",
		Help: "The Java class of a job that Java hosts run, too. It is written only if the registry has none"},
	{Name: "type", Prop: "wasm.type", Type: Word, Words: []string{string(TypeSimple), string(TypeDataflow), string(TypeScript), string(TypeHTTP)}, Default: "from the module's exports",
		Help: "`SIMPLE`, `DATAFLOW`, `SCRIPT`, or `HTTP` for [a job without a module](http-jobs.md)",
		in:   func(_ *Configuration, g *Guest) any { return &g.Type }},
	{Name: "streamingProcess", Prop: PropStreamingProcess, Type: Boolean, Only: TypeDataflow, Default: "`false`",
		Help: "`DATAFLOW`: fetch and process until there is no more data; else once",
		in:   func(_ *Configuration, g *Guest) any { return &g.StreamingProcess }},
	{Name: "timeout", Prop: PropTimeout, Type: Duration, Max: int64(MaxTimeout), Default: "`10m`",
		Help: "How long an attempt of an item may take; `0` for no limit, at most 720h",
		in:   func(_ *Configuration, g *Guest) any { return &g.Timeout }},
	{Name: "maxConcurrency", Prop: PropMaxConcurrency, Type: Number, Max: 100_000, Default: "2 per processor",
		Help: "How many items of the job run at once on one host, over all its fires; the host's own limit holds as well ([slots](slots.md))",
		in:   func(_ *Configuration, g *Guest) any { return &g.MaxConcurrency }},
	{Name: "isolation", Prop: PropIsolation, Type: Word, Words: []string{string(IsolationFire), string(IsolationItem), string(IsolationProcess), string(IsolationHost)}, Default: "`fire`",
		Help: "How long a guest instance lives: `fire` (it is used for item after item of one fire) or `item` (each item and attempt has a fresh one). Guests run in [a worker process](isolation.md) that jobs share. `process`: as `fire`, in one of the job's own. `host`: as `fire`, in the host's own process, which its operator has to allow",
		in:   func(_ *Configuration, g *Guest) any { return &g.Isolation }},
	{Name: "args", Prop: "wasm.args", Type: Texts, Only: TypeScript, Default: "none", Example: `["-v","x y"]`,
		Help: "`SCRIPT`: the program's arguments",
		in:   func(_ *Configuration, g *Guest) any { return &g.Args }},
	{Name: "arguments", Prop: "wasm.arguments", Type: Args, ours: ofPolicy, Default: "none", Example: ArgumentsExample,
		Help: "What each run is given by name, at most 50: `name`, `type` (`string`, `integer`, `number`, `boolean`, `date`, `enum`), and if wanted `default`, `min`, `max`, `values` and `description`. Guests get all as one JSON object, the job parameter; see [arguments.md](arguments.md)",
		in:   func(_ *Configuration, g *Guest) any { return &g.Arguments }},
	{Name: "memoryLimit", Prop: "wasm.memoryLimit", Type: Size, Min: MinMemoryLimit, Max: MaxMemoryLimit, Default: "128MiB",
		Help: "The most linear memory of a guest, `64MiB` or a number of bytes, 64KiB to 2GiB",
		in:   func(_ *Configuration, g *Guest) any { return &g.MemoryLimit }},
	{Name: "fetchDataCount", Prop: PropFetchDataCount, Type: Number, Max: MaxFetchDataCount, Only: TypeDataflow, Default: "100",
		Help: "`DATAFLOW`: how many records a fetch should bring, `0` for the default. A wish; the module decides",
		in:   func(_ *Configuration, g *Guest) any { return &g.FetchDataCount }},
	{Name: "catchUpWindow", Prop: "wasm.catchUpWindow", Type: Duration, Max: int64(30 * 24 * time.Hour), Default: "`5m`",
		Help: "How old a missed fire may be and still be made up for; `0` for never",
		in:   func(_ *Configuration, g *Guest) any { return &g.CatchUpWindow }},
	{Name: "catchUp", Prop: propCatchUp, Type: Word, ours: ofPolicy, Words: []string{string(CatchUpNone), string(CatchUpLatest), string(CatchUpAll)}, Default: "`latest`, or `none` with `misfire: false`",
		Help: "Which fires are made up for that no host could run, within `catchUpWindow`: `none`, `latest` (the newest one), `all` (each for its own instant, oldest first). See [schedules.md](schedules.md#catch-up)",
		in:   func(_ *Configuration, g *Guest) any { return &g.CatchUp }},
	{Name: "catchUpMax", Prop: "wasm.catchUpMax", Type: Number, ours: ofPolicy, Min: 1, Max: MaxQueue, Default: "`100`",
		Help: "How many missed fires of an item `catchUp: all` runs at most, the newest ones; 1 to 1000",
		in:   func(_ *Configuration, g *Guest) any { return &g.CatchUpMax }},
	{Name: "overlap", Prop: propOverlap, Type: Word, ours: ofPolicy, Words: []string{string(OverlapSkip), string(OverlapQueueOne), string(OverlapQueueAll), string(OverlapCancel), string(OverlapTerminate)},
		Default: "`queue_one`, or `skip` with `misfire: false`",
		Help:    "What happens when an item still runs at its next instant: `skip` (that instant is dropped), `queue_one` (it runs once more afterwards, for the newest instant), `queue_all` (it runs for each instant, oldest first), `cancel` (it is asked to stop, and then runs), `terminate` (it is stopped by force, and then runs). See [schedules.md](schedules.md#overlap)",
		in:      func(_ *Configuration, g *Guest) any { return &g.Overlap }},
	{Name: "queueMax", Prop: "wasm.queueMax", Type: Number, ours: ofPolicy, Min: 1, Max: MaxQueue, Default: "`100`",
		Help: "How many instants of an item wait at most with `overlap: queue_all`; further ones are dropped. Also how many triggers of the job wait behind one that has not begun; further ones are refused. 1 to 1000",
		in:   func(_ *Configuration, g *Guest) any { return &g.QueueMax }},
	{Name: "concurrency", Type: Mapping, Default: "none",
		Help: "A limit for all jobs and hosts of the namespace together; see [schedules.md](schedules.md#at-most-two-at-a-time)"},
	{Name: "concurrency.key", Prop: propConcurrencyKey, Type: Text, ours: ofPolicy, canonical: checkLimitKey, Default: "none",
		Help: "The limit's name, or a template: `db-{shardingParameter}` is a limit for each item parameter, `{jobParameter}` stands for the job parameter. At most 200 bytes",
		in:   func(_ *Configuration, g *Guest) any { return &g.Concurrency.Key }},
	{Name: "concurrency.max", Prop: propConcurrencyMax, Type: Number, ours: ofPolicy, Max: MaxConcurrentItems, Default: "none; **required** with `key`",
		Help: "How many items with that key run at once, over all jobs and hosts; 1 to 1000. Of several jobs with the key the smallest holds while they run or wait",
		in:   func(_ *Configuration, g *Guest) any { return &g.Concurrency.Max }},
	{Name: "rate", Type: Mapping, Default: "none",
		Help: "A rate for all jobs and hosts of the namespace together; see [schedules.md](schedules.md#at-most-five-a-minute)"},
	{Name: "rate.key", Prop: propRateKey, Type: Text, ours: ofPolicy, canonical: checkLimitKey, Default: "none",
		Help: "The rate's name, or a template, as in `concurrency.key`. At most 200 bytes",
		in:   func(_ *Configuration, g *Guest) any { return &g.Rate.Key }},
	{Name: "rate.per", Prop: propRatePer, Type: Duration, ours: ofPolicy, Max: int64(MaxRateSpan), Default: "none; **required** with `key`",
		Help: "The span in which items are counted, 1s to 24h: any span of this length, not those of a clock",
		in:   func(_ *Configuration, g *Guest) any { return &g.Rate.Per }},
	{Name: "rate.max", Prop: propRateMax, Type: Number, ours: ofPolicy, Max: MaxRate, Default: "none; **required** with `key`",
		Help: "How many items with that key begin within `per`, over all jobs and hosts; 1 to 1000. Each job keeps to its own figures, and counts the begins of all",
		in:   func(_ *Configuration, g *Guest) any { return &g.Rate.Max }},
	{Name: "priority", Prop: "wasm.priority", Type: Number, ours: ofPolicy, Min: 1, Max: 4, Default: "`3`",
		Help: "Whose waiting items are given a host's slots first, 1 (first) to 4. See [schedules.md](schedules.md#who-goes-first)",
		in:   func(_ *Configuration, g *Guest) any { return &g.Priority }},
	{Name: "startWithin", Prop: "wasm.startWithin", Type: Duration, ours: ofPolicy, Max: int64(30 * 24 * time.Hour), Default: "`0`, any time",
		Help: "How long after its instant an item may start; what would start later is dropped. See [schedules.md](schedules.md#not-too-late)",
		in:   func(_ *Configuration, g *Guest) any { return &g.StartWithin }},
	{Name: "maxRuns", Prop: PropMaxRuns, Type: Number, ours: ofPolicy, Max: 1_000_000_000, Default: "`0`, any number",
		Help: "For how many instants each item runs; then the job is paused. Triggers do not count. See [schedules.md](schedules.md#paused)",
		in:   func(_ *Configuration, g *Guest) any { return &g.MaxRuns }},
	{Name: "pauseAfterFailures", Prop: PropPauseAfterFailures, Type: Number, ours: ofPolicy, Max: 1000, Default: "`0`, never",
		Help: "After how many failures of an item in a row the job is paused. See [schedules.md](schedules.md#paused)",
		in:   func(_ *Configuration, g *Guest) any { return &g.PauseAfterFailures }},
	{Name: "dst", Prop: "wasm.dst", Type: Word, Words: []string{DSTOnce, DSTBoth, DSTSkip}, canonical: oneOf(DSTOnce, DSTBoth, DSTSkip), ours: ofInstants, Default: "`once`",
		Help: "What becomes of a local time that comes twice, or not at all, where clocks are changed: `once` (the first time; at the first instant after the gap), `both` (both times), `skip` (one that does not come at all is left out); see [calendars.md](calendars.md#clocks-that-are-changed)",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.DST }},
	{Name: "startAt", Prop: "wasm.startAt", Type: Time, canonical: instant, ours: ofInstants, Default: "none",
		Help: "The job has no instants before this time, `2026-12-24T18:00:00+01:00`; the time itself can be one",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.StartAt }},
	{Name: "endAt", Prop: "wasm.endAt", Type: Time, canonical: instant, ours: ofInstants, Default: "none",
		Help: "The job has no instants after this time; the time itself can be one",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.EndAt }},
	{Name: "at", Prop: "wasm.at", Type: Time, canonical: instant, ours: ofInstants, Default: "none",
		Help: "The job fires once, at this time, `2026-12-24T18:00:00+01:00`; in place of a cron. A host that was away then makes up for it within `catchUpWindow`",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.At }},
	{Name: "jitter", Prop: "wasm.jitter", Type: Duration, Max: int64(MaxJitter), ours: ofInstants, Default: "`0`",
		Help: "Starts are put off by up to this duration, so that jobs with the same cron do not start together; a run keeps its instant. Not longer than the time between two instants, at most 24h",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.Jitter }},
	{Name: "jitterMode", Prop: "wasm.jitterMode", Type: Word, Words: []string{JitterStable, JitterRandom}, canonical: oneOf(JitterStable, JitterRandom), ours: ofInstants, Default: "`stable`",
		Help: "`stable`: each start of the job is put off by the same time, which follows from its namespace and name; `random`: by another time at each instant, the same on all hosts",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.JitterMode }},
	{Name: "schedules", Prop: "wasm.schedules", Type: Several, ours: ofInstants, Default: "none", Example: SchedulesExample,
		Help: "Several schedules in place of a cron, at most 50: each has a `cron`, and if wanted a `timeZone` and a `jobParameter` of its own; see [calendars.md](calendars.md#several-schedules)",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.Schedules }},
	{Name: "after", Prop: "wasm.after", Type: Jobs, ours: ofInstants, Default: "none", Example: AfterExample,
		Help: "The job runs after others, in place of a cron, at most 50: for an instant of each `job` when its fire for that has ended over all items, `on` `success` (the default), `failure` or `always`, `within` a duration from the instant (24h); see [schedules.md](schedules.md#after-other-jobs)",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.After }},
	{Name: "calendars", Type: Mapping, Default: "none",
		Help: "On which days the job fires; see [calendars.md](calendars.md)"},
	{Name: "calendars.include", Prop: "wasm.calendars.include", Type: Texts, ours: ofInstants, Default: "none", Example: `["workdays"]`,
		Help: "Calendars: the job fires only on days that one of them has. `NAME` is the file `NAME.calendar.yaml` or `NAME.ics` beside the definition",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.Include }},
	{Name: "calendars.exclude", Prop: "wasm.calendars.exclude", Type: Texts, ours: ofInstants, Default: "none", Example: `["holidays"]`,
		Help: "Calendars: the job does not fire on days that one of them has",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.Exclude }},
	{Name: "calendars.onExcluded", Prop: "wasm.calendars.onExcluded", Type: Word, Words: []string{OnExcludedSkip, OnExcludedToNext}, canonical: oneOf(OnExcludedSkip, OnExcludedToNext), ours: ofInstants, Default: "`skip`",
		Help: "What becomes of an instant on a day that is excluded: `skip` (it does not fire), `next` (it fires at the same time of the next day that is not excluded)",
		in:   func(_ *Configuration, g *Guest) any { return &g.When.OnExcluded }},
	{Name: "maxHostDeaths", Prop: PropMaxHostDeaths, Type: Number, Max: 1000, Default: "`2`",
		Help: "How many hosts in a row may die in runs of an item before it is [held back](held-items.md); `0` for any number",
		in:   func(_ *Configuration, g *Guest) any { return &g.MaxHostDeaths }},
	{Name: "needs", Prop: "wasm.needs", Type: Texts, Default: "none", Example: `["kv","secret API_TOKEN"]`,
		Help: "What the job needs of the operator's [grants](grants.md#needs): `http https://api.example.com/v1/`, `net tcp://db:5432`, `dir /data`, `kv`, `secret NAME`, `env NAME`, `config`. It grants nothing",
		in:   func(_ *Configuration, g *Guest) any { return &g.Needs }},
	{Name: "http", Type: Mapping, Only: TypeHTTP, Default: "none",
		Help: "`HTTP`: the [request](http-jobs.md) for each item. In `url`, `headers` and `body` stand `{job}`, `{item}`, `{total}`, `{itemParameter}`, `{jobParameter}`, `{instant}` and `{run}` for what the run has"},
	{Name: "http.url", Prop: PropHTTPURI, Type: Text, Only: TypeHTTP, canonical: httpURL, Default: "**required** for `HTTP`",
		Help: "Where it goes, `https://api.example.com/run?item={item}`: the operator has to [grant](grants.md) it. Redirects are not followed",
		in:   func(_ *Configuration, g *Guest) any { return &g.HTTP.URL }},
	{Name: "http.method", Prop: PropHTTPMethod, Type: Text, Only: TypeHTTP, canonical: httpMethod, Default: "`GET`; `POST` with a body",
		Help: "The method",
		in:   func(_ *Configuration, g *Guest) any { return &g.HTTP.Method }},
	{Name: "http.headers", Prop: propHTTPHeaders, Type: Texts, Only: TypeHTTP, Default: "none", Example: `["Accept: text/plain","Authorization: Bearer {{secret:API_TOKEN}}"]`,
		Help: "Headers. `{{secret:NAME}}` stands for a secret that is granted for the address",
		in:   func(_ *Configuration, g *Guest) any { return &g.HTTP.Headers }},
	{Name: "http.body", Prop: PropHTTPData, Type: Text, Only: TypeHTTP, canonical: httpBody, Default: "none",
		Help: "The body. In one of JSON, what stands for a name is escaped as a text of JSON",
		in:   func(_ *Configuration, g *Guest) any { return &g.HTTP.Body }},
	{Name: "http.contentType", Prop: PropHTTPContentType, Type: Text, Only: TypeHTTP, canonical: httpLine, Default: "`application/json` if the body begins with `{` or `[`, else `text/plain`",
		Help: "The type of the body",
		in:   func(_ *Configuration, g *Guest) any { return &g.HTTP.ContentType }},
	{Name: "http.expect", Prop: "wasm.http.expect", Type: Text, Only: TypeHTTP, canonical: httpExpect, Default: "`200-299`",
		Help: "The statuses of success, `200-299,304`. With another one the item fails; after 429, 5xx or a broken connection its outcome is `RETRY`",
		in:   func(_ *Configuration, g *Guest) any { return &g.HTTP.Expect }},
	{Name: "http.retryAfter", Prop: "wasm.http.retryAfter", Type: Duration, Only: TypeHTTP, Max: int64(30 * 24 * time.Hour), Default: "`0`, `Retry-After` does not count",
		Help: "How far ahead an answer of 429 or 503 may [put the next try](http-jobs.md#when-the-server-says-when) by `Retry-After`, at most",
		in:   func(_ *Configuration, g *Guest) any { return &g.HTTP.RetryAfter }},
	{Name: "retry", Type: Mapping, Default: "see below",
		Help: "When an item is tried again, within the fire"},
	{Name: "retry.attempts", Prop: "wasm.retry.attempts", Type: Number, Min: 1, Max: 100, Default: "`3`",
		Help: "How many times in all, 1 to 100",
		in:   func(_ *Configuration, g *Guest) any { return &g.Retry.Attempts }},
	{Name: "retry.backoff", Prop: "wasm.retry.backoff", Type: Duration, Max: int64(24 * time.Hour), Default: "`1s`",
		Help: "The pause before the second attempt; it doubles each time",
		in:   func(_ *Configuration, g *Guest) any { return &g.Retry.Backoff }},
	{Name: "retry.maxBackoff", Prop: propRetryMaxBackoff, Type: Duration, Max: int64(24 * time.Hour), Default: "`30s`, or `backoff` if that is longer",
		Help: "The longest pause",
		in:   func(_ *Configuration, g *Guest) any { return &g.Retry.MaxBackoff }},
	{Name: "retry.on", Prop: "wasm.retry.on", Type: Outcomes, Default: "`RETRY`",
		Help: "After which outcomes: `RETRY` (the guest asks for it), `FAIL`, `TRAP`, `EXIT`, `TIMEOUT`, `WORKER` (its worker process ended under it twice)",
		in:   func(_ *Configuration, g *Guest) any { return &g.Retry.On }},
}

func errorHandler(name string) (string, error) {
	return Configuration{JobErrorHandlerType: name}.ErrorHandler()
}

func (s Setting) texts(text string) ([]string, error) {
	var list []*string
	err := json.Unmarshal([]byte(text), &list)
	if err != nil || list == nil || slices.Contains(list, nil) {
		return nil, fmt.Errorf("found %q, expected a JSON list of strings, such as %s", Clip(text), s.Example)
	}
	var out []string
	for _, item := range list {
		if strings.ContainsRune(*item, 0) {
			return nil, fmt.Errorf("found %q, expected texts without a NUL character", Clip(text))
		}
		out = append(out, *item)
	}
	return out, nil
}

// DurationExample is what messages say that a duration looks like.
const DurationExample = "a duration such as 30s, 5m, 1h30m or 1d"

// ParseDuration reads a duration as people write it ([times.Duration]); it is at
// least 0 and at most limit.
func ParseDuration(s string, limit time.Duration) (time.Duration, error) {
	d, err := times.Duration(s)
	switch {
	case err != nil:
		if _, e := strconv.ParseFloat(s, 64); e == nil {
			return 0, fmt.Errorf("found %q, expected a duration with its unit, such as %ss", Clip(s), Clip(s))
		}
		return 0, fmt.Errorf("found %q, expected %s, or 0", Clip(s), DurationExample)
	case d < 0 || d > limit:
		return 0, fmt.Errorf("found %q, expected a duration from 0 to %s", Clip(s), limit)
	}
	return d, nil
}

// ParseRetryOn reads a list of outcomes separated by commas. The result has
// each of them once, in the order of RetryOutcomes.
func ParseRetryOn(s string) ([]string, error) {
	outcomes := RetryOutcomes()
	var on []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.ToUpper(strings.TrimSpace(name))
		if !slices.Contains(outcomes, name) {
			return nil, fmt.Errorf("found %q, expected some of %s, separated by commas", Clip(name), strings.Join(outcomes, ", "))
		}
		on = append(on, name)
	}
	return slices.DeleteFunc(outcomes, func(o string) bool { return !slices.Contains(on, o) }), nil
}
