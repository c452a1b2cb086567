package alert

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/schema"
)

// row describes a rule. Names, filters, texts, the fields of the file, the table of docs/alerts.md and the
// rules for Prometheus come from the rows; judge.go evaluates them.
type row struct {
	rule Rule
	// short and chinese are a word or two for lists.
	short, chinese string
	// events are the events that begin and end it: the judge gets no others. asks: it also needs the registry's
	// state, or that of the host's history.
	events []event.Kind
	asks   bool
	// on reports whether the rule is on, for the rules of the alert's job.
	on func(f *File, r Rules, a *Alert) bool
	// help is the command that shows more, none if empty; ofItem: it takes the item.
	help   string
	ofItem bool
	// settings are its fields in the file.
	settings []setting
	// wait is how long Prometheus waits before it fires; whole are Prometheus rules that are not per job.
	wait  string
	whole []wholeMetric
}

// setting is a field of the file.
type setting struct {
	// Its name, and what editors show of it and take.
	schema.Field
	// values, standard, fires and over are for docs: the valid values, the default, when an alert fires, and
	// when it ends.
	values, standard, fires, over string
	// read reads a field of the rules of jobs; ofHosts is that of a rule about hosts.
	read    func(p *parser, n *yaml.Node, path string) func(*Rules)
	ofHosts func(*Hosts) *bool
	// metric is the rule for Prometheus; its name is empty if there is none per job.
	metric metric
}

// metric is a rule of Prometheus: an expression over the hosts' metrics, with SEL for the selected jobs and
// LIMIT for the limit. Where Prometheus lacks what hosts know, it is an approximation.
type metric struct {
	name    string
	limit   func(Rules) float64 // 0: off
	expr    string
	summary string
}

// wholeMetric is one that does not go by jobs.
type wholeMetric struct {
	on                  func(*File) bool
	name, expr, summary string
}

// duration is a setting that takes a duration.
func duration(at func(*Rules) *time.Duration, s setting) setting {
	s.values, s.Is = "a duration, `off`", orOff(schema.Duration())
	s.read = func(p *parser, n *yaml.Node, path string) func(*Rules) {
		d := p.duration(n, path, time.Second)
		return func(r *Rules) { *at(r) = d }
	}
	s.metric.limit = func(r Rules) float64 { return at(&r).Seconds() }
	return s
}

// yes is a setting that is true or false.
func yes(at func(*Rules) *bool, s setting) setting {
	s.values, s.standard, s.Is = yesOrNo, "true", schema.Boolean()
	s.read = func(p *parser, n *yaml.Node, path string) func(*Rules) {
		on := p.yes(n, path)
		return func(r *Rules) { *at(r) = on }
	}
	s.metric.limit = func(r Rules) float64 {
		if *at(&r) {
			return 1
		}
		return 0
	}
	return s
}

// ofHosts is a rule about hosts, with its one setting.
func ofHosts(r row, name, help, fires, over string, at func(*Hosts) *bool, m wholeMetric) row {
	on := func(f *File) bool { return *at(&f.Hosts) }
	m.on = on
	r.on = func(f *File, _ Rules, _ *Alert) bool { return on(f) }
	r.settings = []setting{{Field: schema.Field{Name: name, Help: help, Is: schema.Boolean()}, values: yesOrNo, standard: "true", fires: fires, over: over, ofHosts: at}}
	r.whole = []wholeMetric{m}
	return r
}

const (
	yesOrNo = "`true`, `false`"
	off     = "off"
)

// always are the events that every rule needs: which jobs the host has, and their settings.
func always() []event.Kind {
	return []event.Kind{event.Session, event.JobConfigured, event.Janitor, event.JobRemoved, event.JobStopped, event.FireStarted}
}

// Hears reports whether a rule needs events of a kind.
func Hears(kind event.Kind) bool {
	return slices.Contains(always(), kind) || slices.ContainsFunc(rows, func(r row) bool { return slices.Contains(r.events, kind) })
}

// rows are the rules, in the order in which lists have them.
var rows = []row{
	{
		rule: Failures, short: "failed", chinese: "失败",
		events: []event.Kind{event.ItemEnded, event.ItemCompleted},
		on:     func(_ *File, r Rules, a *Alert) bool { return r.Failures > 0 || a.Route != "" },
		help:   "explain", ofItem: true,
		settings: []setting{{
			Field: schema.Field{Name: "failures", Help: "Failures of an item in a row; default: 1", Is: orOff(schema.Integer(1, mostFailures))}, values: "a number, `off`", standard: "1",
			fires: "an item has failed this many times in a row, on any hosts", over: "the item has succeeded",
			read: func(p *parser, n *yaml.Node, path string) func(*Rules) {
				most := p.number(n, path, 1, mostFailures)
				return func(r *Rules) { r.Failures = most }
			},
			metric: metric{"WasmjobFailures", func(r Rules) float64 { return float64(r.Failures) },
				"max by (job, job_name) (wasmjob_job_failures_in_a_row{SEL}) >= LIMIT", "An item of {{ $labels.job_name }} has failed {{ $value }} times in a row."},
		}},
	},
	{
		rule: SucceedEvery, short: "no success", chinese: "久未成功",
		events: []event.Kind{event.ItemCompleted}, asks: true,
		on:   func(_ *File, r Rules, _ *Alert) bool { return r.SucceedEvery > 0 },
		help: "status",
		settings: []setting{duration(func(r *Rules) *time.Duration { return &r.SucceedEvery }, setting{
			Field: schema.Field{Name: "succeedEvery", Help: "Longest time between two successes of an item, such as 26h"}, standard: off, fires: "an item has not succeeded for this long", over: "it has",
			metric: metric{name: "WasmjobNoSuccess",
				expr: "time() - min by (job, job_name) (wasmjob_job_last_success_timestamp_seconds{SEL}) > LIMIT", summary: "An item of {{ $labels.job_name }} has not succeeded for {{ $value | humanizeDuration }}."},
		})},
	},
	{
		rule: StartWithin, short: "not begun", chinese: "未按时开始",
		asks: true,
		on:   func(_ *File, r Rules, _ *Alert) bool { return r.StartWithin > 0 },
		help: "explain", ofItem: true,
		settings: []setting{duration(func(r *Rules) *time.Duration { return &r.StartWithin }, setting{
			Field: schema.Field{Name: "startWithin", Help: "How late an item may begin, such as 5m"}, standard: off, fires: "an item has not begun this long after an instant of its cron", over: "all items have begun for the newest instant",
			metric: metric{name: "WasmjobNotStarted",
				expr: "time() - max by (job, job_name) (wasmjob_job_next_fire_timestamp_seconds{SEL}) > LIMIT", summary: "{{ $labels.job_name }} was due {{ $value | humanizeDuration }} ago, and no host has fired it."},
		})},
	},
	{
		rule: LongerThan, short: "takes too long", chinese: "运行过久",
		events: []event.Kind{event.ItemStarted, event.ItemCompleted, event.ItemSkipped, event.FireEnded},
		on:     func(_ *File, r Rules, _ *Alert) bool { return r.LongerThan > 0 || r.LongerThanUsual > 0 },
		help:   "status",
		settings: []setting{
			duration(func(r *Rules) *time.Duration { return &r.LongerThan }, setting{
				Field: schema.Field{Name: "longerThan", Help: "How long a run may take, such as 2h"}, standard: off, fires: "a run takes longer than this", over: runEnded,
				metric: metric{name: "WasmjobLongRun",
					expr: "max by (job, job_name) (wasmjob_job_oldest_run_seconds{SEL}) > LIMIT", summary: "A run of {{ $labels.job_name }} lasts {{ $value | humanizeDuration }}."},
			}),
			{
				Field: schema.Field{Name: "longerThanUsual", Help: "How many times the median of its latest runs a run may take, such as 3", Is: orOff(schema.Number())}, values: "a number over 1, `off`", standard: off,
				fires: "a run takes this many times the median of the latest 25 good runs on its host; there must have been at least 5", over: runEnded,
				read: func(p *parser, n *yaml.Node, path string) func(*Rules) {
					k := p.factor(n, path)
					return func(r *Rules) { r.LongerThanUsual = k }
				},
				metric: metric{"WasmjobUnusualRun", func(r Rules) float64 { return r.LongerThanUsual },
					"max by (job, job_name) (wasmjob_job_oldest_run_seconds{SEL}) > LIMIT * sum by (job, job_name) (increase(wasmjob_item_duration_seconds_sum{SEL}[1d])) / sum by (job, job_name) (increase(wasmjob_item_duration_seconds_count{SEL}[1d]))",
					"A run of {{ $labels.job_name }} lasts {{ $value | humanizeDuration }}, much longer than those of the last day."},
			},
		},
	},
	{
		rule: Lost, short: "lost", chinese: "丢失",
		events: []event.Kind{event.ItemSkipped, event.ItemCompleted},
		on:     func(_ *File, r Rules, _ *Alert) bool { return r.Lost },
		help:   "explain", ofItem: true,
		settings: []setting{yes(func(r *Rules) *bool { return &r.Lost }, setting{
			Field: schema.Field{Name: "lost", Help: "A run is lost with its host; default: true"}, fires: "an item's host died or left the job while it ran, and no host repeats the run", over: "a newer run of the item has succeeded",
			metric: metric{name: "WasmjobLost",
				expr: `sum by (job, job_name) (increase(wasmjob_items_skipped_total{SEL, reason="lost"}[15m])) > 0`, summary: "A run of {{ $labels.job_name }} was lost when its host died."},
		})},
	},
	{
		rule: Held, short: "held back", chinese: "被扣留",
		events: []event.Kind{event.ItemHeld, event.ItemReleased, event.ItemStarted},
		on:     func(_ *File, r Rules, _ *Alert) bool { return r.Held },
		help:   "explain", ofItem: true,
		settings: []setting{yes(func(r *Rules) *bool { return &r.Held }, setting{
			Field: schema.Field{Name: "held", Help: "An item is held back; default: true"}, fires: "an item is [held back](held-items.md)", over: "it is released, or runs again",
			metric: metric{name: "WasmjobHeld",
				expr: "max by (job, job_name) (wasmjob_items_held{SEL}) > 0", summary: "Items of {{ $labels.job_name }} are held back: hosts died in their runs."},
		})},
	},
	{
		rule: Refused, short: "refused", chinese: "被拒绝",
		events: []event.Kind{event.Refused, event.Accepted, event.JobError, event.FireEnded},
		on:     func(_ *File, r Rules, _ *Alert) bool { return r.Refused },
		settings: []setting{yes(func(r *Rules) *bool { return &r.Refused }, setting{
			Field: schema.Field{Name: "refused", Help: "A host cannot run the job; default: true"},
			fires: "a host refuses a file, or cannot run a job, or some of its items, as it is; or a Java host [has items and runs none](elasticjob.md#listeners-that-run-once-over-all)",
			over:  "the host no longer refuses it (that it goes on by what was in force before is no end), or has left the job",
			metric: metric{name: "WasmjobRefused",
				expr: `max by (job, job_name) (wasmjob_job_state{SEL, state="error"}) > 0`, summary: "A host cannot run {{ $labels.job_name }} as it is."},
		})},
		wait: "1m", // files are handled one after the other
		whole: []wholeMetric{{func(f *File) bool { return f.For("", nil).Refused },
			"WasmjobRefusedFiles", "wasmjob_refused_files > 0", "{{ $labels.instance }} refuses files of its plugins directory."}},
	},
	ofHosts(row{rule: HostGone, short: "host gone", chinese: "主机失联", asks: true, wait: "5m"}, // a restart takes as long as the drain of its host
		"gone", "A host is gone without a stop in good order; default: true",
		"a host's session has ended, and the host had not stopped in good order", "a host is at that address again, or a day has passed",
		func(h *Hosts) *bool { return &h.Gone },
		wholeMetric{name: "WasmjobHostGone", expr: "up == 0 and on (job, instance) last_over_time(wasmjob_build_info[1h])", summary: "{{ $labels.instance }} does not answer."}),
	ofHosts(row{rule: Session, short: "session", chinese: "会话异常", events: []event.Kind{event.Session}, wait: "2m"}, // a host that starts has none yet
		"session", "A host has lost its session; default: true",
		"the session of a host is in doubt or lost, or it cannot get one", "it is live",
		func(h *Hosts) *bool { return &h.Session },
		wholeMetric{name: "WasmjobSession", expr: `wasmjob_registry_session_trust{trust="live"} == 0`, summary: "{{ $labels.instance }} has no live session with the registry."}),
	ofHosts(row{rule: Registry, short: "registry went back", chinese: "注册中心回退", events: []event.Kind{event.RegistryBehind, event.Session}},
		"registry", "The registry has gone back, or was copied; default: true",
		"a host has found that the registry [has gone back](registry-restore.md), or was copied; the text says whether it goes on, or waits for `wasmjob registry adopt`",
		"the host has another session, which finds nothing of that",
		func(h *Hosts) *bool { return &h.Registry },
		wholeMetric{name: "WasmjobRegistryBehind", expr: "wasmjob_registry_behind > 0", summary: "{{ $labels.instance }} has found that the registry has gone back, or was copied."}),
	ofHosts(row{rule: History, short: "history", chinese: "历史无法写入", asks: true, wait: "1m"},
		"history", "A host cannot write its history; default: true",
		"a host cannot write its history", "it can",
		func(h *Hosts) *bool { return &h.History },
		wholeMetric{name: "WasmjobHistory", expr: "wasmjob_history_failing > 0", summary: "{{ $labels.instance }} cannot write its history."}),
}

// AllRules are all rules.
func AllRules() []Rule {
	var all []Rule
	for _, r := range rows {
		all = append(all, r.rule)
	}
	return all
}

// rowOf returns the row of a rule; the zero value for an unknown one, such as a rule of another version.
func rowOf(rule Rule) row {
	for _, r := range rows {
		if r.rule == rule {
			return r
		}
	}
	return row{}
}

// Short is a word or two for the rule, in English and in Chinese.
func (r Rule) Short() (english, chinese string) {
	of := rowOf(r)
	return of.short, of.chinese
}

// settingsOf are the settings of rules about hosts, or of those of jobs.
func settingsOf(hosts bool) (list []setting) {
	for _, r := range rows {
		for _, s := range r.settings {
			if (s.ofHosts != nil) == hosts {
				list = append(list, s)
			}
		}
	}
	return list
}

// rules reads the rules in a mapping, which may have other fields, too.
func (p *parser) rules(e *entry, n *yaml.Node, field string, known schema.Object) (found map[string]*yaml.Node) {
	found = p.Fields(n, field, known)
	for _, s := range settingsOf(false) {
		if v := found[s.Name]; v != nil {
			e.fields = append(e.fields, s.Name)
			e.set = append(e.set, s.read(p, v, field+"."+s.Name))
		}
	}
	return found
}

// hosts reads the rules about hosts.
func (p *parser) hosts(n *yaml.Node) {
	if n == nil {
		return
	}
	found := p.Fields(n, "hosts", hostFields)
	for _, s := range settingsOf(true) {
		if v := found[s.Name]; v != nil {
			*s.ofHosts(&p.out.Hosts) = p.yes(v, "hosts."+s.Name)
		}
	}
}
