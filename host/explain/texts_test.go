package explain

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

var (
	place = regexp.MustCompile(`\{([^}]*)\}`)
	text  = regexp.MustCompile(`"([^"\n]*)"`)
	// inMessage finds the rows that the code names.
	inMessage = regexp.MustCompile(`(?:\bmessage\{|\brow: |\brow = |\.row = |Kind[A-Za-z]+, |return )"([a-z][a-z-]*)"`)
)

// pronouns are places that a language may have no use for.
var pronouns = []string{"It", "it", "its", "them"}

func placesOf(text string) []string {
	var names []string
	for _, m := range place.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(pronouns, m[1]) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// alike checks that a text is in both languages, with the same places, and that the
// Chinese is Chinese.
func alike(t *testing.T, text map[i18n.Language]string) {
	t.Helper()
	if text[en] == "" || text[zh] == "" || !slices.Equal(placesOf(text[en]), placesOf(text[zh])) {
		t.Errorf("%q and %q: their places differ", text[en], text[zh])
	}
	bare := place.ReplaceAllString(text[zh], "")
	quotes := regexp.MustCompile(`“[^”]*”`)
	if latin := strings.NewReplacer("Java", "").Replace(quotes.ReplaceAllString(bare, "")); strings.ContainsFunc(latin, func(r rune) bool { return unicode.Is(unicode.Latin, r) }) || strings.ContainsAny(bare, `,.;:()?"'`) {
		t.Errorf("%q has Latin words or signs", text[zh])
	}
	if bare != "" && !strings.ContainsFunc(text[zh], func(r rune) bool { return unicode.Is(unicode.Han, r) || slices.Contains([]rune("、：（）"), r) }) && strings.TrimSpace(bare) != "" {
		t.Errorf("%q is not Chinese", text[zh])
	}
}

// TestFixed: a zone that has no name is known by what it was at a time.
func TestFixed(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	winter, summer := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		in   *time.Location
		at   time.Time
		want string
	}{{berlin, winter, "GMT+01:00"}, {berlin, summer, "GMT+02:00"}, {time.UTC, summer, "UTC"}, {time.FixedZone("x", -12600), winter, "GMT-03:30"}} {
		if got := fixed(c.in, c.at); got.String() != c.want || c.at.In(got).Format(time.DateTime) != c.at.In(c.in).Format(time.DateTime) {
			t.Errorf("%s at %s: %s, want %s", c.in, c.at, got, c.want)
		}
	}
}

// TestTable: each row is in both languages, with the same places, and is used; what the
// code names is there, and so are all words of the program.
func TestTable(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named, used := make(map[string]bool), make(map[string]bool)
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || f == "texts.go" {
			continue
		}
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inMessage.FindAllStringSubmatch(string(source), -1) {
			named[m[1]] = true
		}
		for _, m := range text.FindAllStringSubmatch(string(source), -1) {
			used[m[1]] = true
		}
	}
	if len(named) < 50 {
		t.Fatalf("found %d rows in the code", len(named))
	}
	for key := range named {
		if table[key] == nil && table[key+".one"] == nil {
			t.Errorf("there is no row %s", key)
		}
	}
	for _, row := range table {
		for _, name := range placesOf(row[en] + row[zh]) {
			used[name] = true
		}
	}
	words := []string{"outcome", "what", "from", "cause", "unit", "waited-for"}
	for key, row := range table {
		alike(t, row)
		base := strings.TrimSuffix(strings.TrimSuffix(key, ".one"), ".job")
		kind, _, _ := strings.Cut(base, ".")
		unstarted := strings.TrimSuffix(base, "-unstarted")
		if !used[base] && !used[unstarted] && !slices.Contains(pronouns, base) && !slices.Contains(words, kind) {
			t.Errorf("the row %s is not used", key)
		}
		for _, name := range placesOf(row[en]) { // rows that stand in it have none in them
			for _, inner := range []string{name, name + ".one", name + ".job"} {
				for _, last := range placesOf(table[inner][en]) {
					if table[last] != nil {
						t.Errorf("%s has %s in it, and that has %s", key, inner, last)
					}
				}
			}
		}
		if base != key && table[base] == nil && table[base+".one"] == nil {
			t.Errorf("there is %s, and no %s", key, base)
		}
	}
	for _, o := range abi.Outcomes() {
		if table["outcome."+string(o)] == nil {
			t.Errorf("there is no row for the outcome %s", o)
		}
	}
	for _, c := range event.SkipCauses() {
		if table["cause."+string(c)] == nil {
			t.Errorf("there is no row for the cause %s", c)
		}
	}
}

// TestOutcomes: an outcome has the same Chinese word here and on the console's other pages.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	console, err := os.ReadFile("../control/console/texts.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range append(abi.Outcomes(), tree.OutcomeLost, tree.OutcomeHeld) {
		if row := "\t" + table["outcome."+string(o)][zh] + "\n"; !regexp.MustCompile(`(?m)^outcome\.` + string(o) + `\t[^\t\n]*` + regexp.QuoteMeta(row)).Match(console) {
			t.Errorf("%s: the console has another word than %q", o, strings.TrimSpace(row))
		}
	}
}

// TestTranslate: the report that fits counts, with what stands in its places.
func TestTranslate(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tl := &timeline{fire: fire{instant: noon}, location: time.UTC}
	for text, want := range map[string]string{
		"the item still runs":                                    "分片仍在运行",
		"the item still runs; it runs again right after":         "分片仍在运行；之后立即再次运行",
		"the item has waited 1m30.5s for a slot; misfire is off": "分片已等待槽位 1 分 31 秒；错过重做已关闭",
		"more than 9,999 instants from here on came due while no host had the item; one catch-up runs instead, for 2026-03-01T12:05:00Z":               "自此有超过 9,999 个时刻在没有主机拥有该分片时到来；改为一次补执行，对应 12:05:00",
		"the item still runs, and 10 instants wait already (the host keeps no more for each item of its file; queueMax allows more)":                   "分片仍在运行，且已有 10 个时刻在等待（主机为同一文件的每个分片最多保留这么多；“queueMax”允许更多）",
		"1 instant from here on came due while no host had the item; one catch-up runs instead, for 2026-03-01T12:05:00Z":                              "自此有 1 个时刻在没有主机拥有该分片时到来；改为一次补执行，对应 12:05:00",
		"an operator killed it (ann) at 2026-03-01T12:00:01Z; its guest was stopped by force":                                                          "操作者（ann）于 12:00:01 终止了它；其客体被强制停止",
		"the item is held back since 2026-02-28T12:00:00Z: a host died in its runs (a); wasmjob job release j --item 0 lets it run again":              "分片自 2026-02-28 12:00:00 起被扣留：一台主机在运行它时崩溃（a）；用“wasmjob job release j --item 0”可让它再次运行",
		`removed from the registry; 'wasmjob job restore "o'brien & co"' brings it back`:                                                               "已从注册中心移除；用“wasmjob job restore \"o'brien & co\"”可恢复",
		"the item is held back since 2026-02-28T12:00:00Z: 2 hosts in a row died in its runs (a, b); wasmjob job release j --item 0 lets it run again": "分片自 2026-02-28 12:00:00 起被扣留：连续 2 台主机在运行它时崩溃（a、b）；用“wasmjob job release j --item 0”可让它再次运行",
		"waited 2m0s for an answer of the registry":                                                                      "已等待 2 分：注册中心的应答",
		"waited 2m0s for what is new: it hangs":                                                                          "已等待 2 分：“what is new: it hangs”",
		"its host a died while it ran, and it has been begun anew since":                                                 "其主机 a 在运行它时崩溃，而此后它已重新启动",
		"its host a left the job while it ran, and failover is off":                                                      "其主机 a 在运行它时离开了作业，而失效转移已关闭",
		"the last host here (pid 7, started 2026-03-01T11:59:00Z) did not end well: the machine was started again since": "这里的上一个主机进程（进程号 7，启动于 11:59:00）没有正常结束：此后机器重新启动过",
		"handed back unstarted: the job was removed":                                                                     "未启动即交还：作业已被移除",
		"no module: it is {broken}":                                                                                      "没有模块：“it is {broken}”",
		"file /p/j.yaml on host 10.0.0.1":                                                                                "主机 10.0.0.1 上的文件 /p/j.yaml",
		"disk on fire":                                                                                                   "“disk on fire”",
		"the item":                                                                                                       "“the item”",
		"; it runs again right after":                                                                                    "“; it runs again right after”",
	} {
		if got := tl.said(zh, report{text: text, codes: reason.Parse(text)}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := tl.said(en, report{text, reason.Parse(text), event.SkipLost}); got != text {
			t.Errorf("got %s", got)
		}
	}
	if got, want := tl.said(zh, report{"so it is", nil, event.SkipRefused}), "主机无法运行（“so it is”）"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestDuration: a time span has its units.
func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0 秒", 1500 * time.Millisecond: "1.5 秒", time.Hour + 2*time.Minute: "1 小时 2 分", time.Hour + time.Second: "1 小时 0 分 1 秒", 3 * time.Millisecond: "3 毫秒", 4 * time.Microsecond: "4 微秒", 5: "5 纳秒"} {
		if got := duration(zh, d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// TestChangeClause: who changed what is said with what the program itself made of it.
func TestChangeClause(t *testing.T) {
	t.Parallel()
	noon, two := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), 2
	tl := &timeline{location: time.UTC, fire: fire{instant: noon}}
	for _, c := range []struct {
		change history.Change
		en, zh string
	}{
		{history.Change{What: "trigger", After: "items 0"}, `A user did "run" of the job at 12:00:00 (items 0).`, `12:00:00 对作业执行了“触发”，操作者：某用户（“items 0”）。`},
		{history.Change{Who: "ann", From: "10.9.9.9", What: "edit cron, timeZone", Why: "summer."}, `ann did "edit cron, timeZone" of the job at 12:00:00, from 10.9.9.9: summer.`, `12:00:00 对作业执行了“修改 cron、timeZone”，操作者：ann，来源：10.9.9.9，原因：“summer”。`},
		{history.Change{Who: "file /p/j.yaml on host a", From: event.FromFile, What: "edit cron"}, `file /p/j.yaml on host a did "edit cron" of the job at 12:00:00, from file.`, `12:00:00 对作业执行了“修改 cron”，操作者：主机 a 上的文件 /p/j.yaml，来源：定义文件。`},
		{history.Change{Who: "the registry", From: event.FromRegistry, What: "edit config"}, `the registry did "edit config" of the job at 12:00:00, from registry.`, `12:00:00 对作业执行了“修改 config”，操作者：注册中心，来源：注册中心。`},
		{history.Change{Who: "the registry", What: "release", Item: &two}, `the registry did "release" of item 2 at 12:00:00.`, `12:00:00 对分片 2 执行了“释放”，操作者：the registry。`},
		{history.Change{Who: "ann", What: "edit cron, timeZone", Before: `{"cron":"0 0 3 * * ?","timeZone":""}`, After: `{"cron":"0 0 4 * * ?","timeZone":"UTC"}`},
			`ann did "edit cron, timeZone" of the job at 12:00:00 (cron "0 0 3 * * ?" → "0 0 4 * * ?", timeZone "" → "UTC").`, `12:00:00 对作业执行了“修改 cron、timeZone”，操作者：ann（“cron”：“0 0 3 * * ?” → “0 0 4 * * ?”、“timeZone”：“” → “UTC”）。`},
		{history.Change{Who: "ann", What: "edit param", After: `{"param":"x"}`}, `ann did "edit param" of the job at 12:00:00 (param "x").`, `12:00:00 对作业执行了“修改 param”，操作者：ann（“param”：“x”）。`},
		{history.Change{Who: "ann", What: "create", Before: "{}", After: `{"cron":"0 0 3 * * ?"}`}, `ann did "create" of the job at 12:00:00.`, `12:00:00 对作业执行了“创建”，操作者：ann。`},
		{history.Change{Who: "ann", What: "disable", Before: "ENABLED", After: "DISABLED"}, `ann did "pause" of the job at 12:00:00 (ENABLED → DISABLED).`, `12:00:00 对作业执行了“暂停”，操作者：ann（“ENABLED” → “DISABLED”）。`},
		{history.Change{Who: "ann", What: "ask", Before: "until then"}, `ann did "ask" of the job at 12:00:00 (until then → nothing).`, `12:00:00 对作业执行了“ask”，操作者：ann（“until then” → 无）。`},
		{history.Change{Who: "ann", What: "ask", Host: "10.0.0.1"}, `ann did "ask" on host 10.0.0.1 at 12:00:00.`, `12:00:00 在主机 10.0.0.1 上执行了“ask”，操作者：ann。`},
	} {
		c.change.Time = noon
		for in, want := range map[i18n.Language]string{en: c.en, zh: c.zh} {
			if got := tl.write(in, tl.changeClause(&c.change).message, group{items: tree.Items{-1}}); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
	}
}

// TestAttempts_events: a sentence about several attempts rests on all of them.
func TestAttempts_events(t *testing.T) {
	t.Parallel()
	var r run
	for range 5 {
		r.attempts = append(r.attempts, attempt{ended: &event.Event{Outcome: abi.OutcomeFail}})
	}
	w := writer{timeline: &timeline{location: time.UTC}}
	w.attempts(&r)
	if said := w.story.clauses; len(said) != mostAttempts || len(said[0].events) != 1 || len(said[2].events) != 3 {
		t.Errorf("%+v", said)
	}
}

// TestAttempts_orphaned: the end of a worker process is no failed attempt, the first time.
func TestAttempts_orphaned(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	died := func(again bool) attempt {
		return attempt{ended: &event.Event{Kind: event.ItemEnded, Time: noon, Attempt: 1, Outcome: abi.OutcomeWorker, AttemptEnd: event.AttemptEnd{Again: again}, Reason: "the worker process ended (signal: killed)"}}
	}
	done := func(o abi.Outcome) *event.Event {
		return &event.Event{Kind: event.ItemCompleted, Time: noon, Outcome: o}
	}
	for name, c := range map[string]struct {
		run    run
		en, zh []string
	}{
		"once": {run{attempts: []attempt{died(true), {ended: &event.Event{Kind: event.ItemEnded, Time: noon, Attempt: 1, Outcome: abi.OutcomeOK, Duration: time.Second}}}, completed: done(abi.OutcomeOK)},
			[]string{"The worker process in which it ran ended at 12:00:00, so it was to run again at once; that is no failed attempt: the worker process ended (signal: killed).", "It succeeded at 12:00:00, after 1s."},
			[]string{"运行它的工作进程于 12:00:00 结束，因此它将立即重新运行；这不算失败的尝试：“the worker process ended (signal: killed)”。", "它于 12:00:00 成功，耗时 1 秒。"}},
		"twice": {run{attempts: []attempt{died(true), died(false)}, completed: done(abi.OutcomeWorker)},
			[]string{"The worker process in which it ran ended at 12:00:00, so it was to run again at once; that is no failed attempt: the worker process ended (signal: killed).",
				"It failed for good at 12:00:00, in attempt 1: WORKER (the worker process ended (signal: killed))."},
			[]string{"运行它的工作进程于 12:00:00 结束，因此它将立即重新运行；这不算失败的尝试：“the worker process ended (signal: killed)”。",
				"它在第 1 次尝试后于 12:00:00 最终失败：工作进程结束（“the worker process ended (signal: killed)”）。"}},
		"the host was to stop": {run{attempts: []attempt{died(false)}, completed: done(abi.OutcomeWorker)},
			[]string{"It failed for good at 12:00:00, in attempt 1: WORKER (the worker process ended (signal: killed))."},
			[]string{"它在第 1 次尝试后于 12:00:00 最终失败：工作进程结束（“the worker process ended (signal: killed)”）。"}},
	} {
		w := writer{timeline: &timeline{location: time.UTC, fire: fire{instant: noon}}, runs: []*run{&c.run}}
		w.attempts(&c.run)
		w.completed(&c.run)
		for in, want := range map[i18n.Language][]string{en: c.en, zh: c.zh} {
			var got []string
			for _, said := range w.story.clauses {
				got = append(got, w.timeline.write(in, said.message, group{items: tree.Items{1}, first: said.time, last: said.time, least: said.took, most: said.took}))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}

// TestCompose_alike: which items are alike, and what is said already, does not depend on the
// language: "shutdown" and "stop" are the same word in Chinese.
func TestCompose_alike(t *testing.T) {
	t.Parallel()
	change := func(what string) clause {
		return (&timeline{location: time.UTC}).changeClause(&history.Change{What: what, Who: "ann"})
	}
	for _, in := range i18n.Languages() {
		tl := &timeline{location: time.UTC, language: in}
		apart := tl.compose([]story{{item: 0, verdict: Ran, clauses: []clause{change("stop")}}, {item: 1, verdict: Ran, clauses: []clause{change("shutdown")}}})
		together := tl.compose([]story{{item: 0, verdict: Ran, clauses: []clause{change("stop")}}, {item: 1, verdict: Ran, clauses: []clause{change("stop")}}})
		once := tl.compose([]story{{item: 0, verdict: Ran, clauses: []clause{change("stop")}}, {item: 1, verdict: Late, clauses: []clause{change("stop")}}})
		twice := tl.compose([]story{{item: 0, verdict: Ran, clauses: []clause{change("stop")}}, {item: 1, verdict: Late, clauses: []clause{change("shutdown")}}})
		if len(apart) != 2 || len(together) != 1 || len(together[0].Items) != 2 || len(once) != 1 || len(twice) != 2 {
			t.Errorf("%s: %+v\n%+v\n%+v\n%+v", in, apart, together, once, twice)
		}
	}
}

// TestGroup: a message is for the job, for one item or for several.
func TestGroup(t *testing.T) {
	t.Parallel()
	tl := &timeline{location: time.UTC, fire: fire{instant: time.Unix(0, 0)}}
	for want, items := range map[string]tree.Items{"The job was due at 00:00:00": {-1}, "Item 3 was due at 00:00:00": {3}, "Items 3-4 were due at 00:00:00": {3, 4}} {
		if got := tl.write(en, message{row: "due"}, group{items: items}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := tl.write(en, message{row: "them"}, group{items: tree.Items{-1}}); got != "it" {
		t.Errorf("got %q", got)
	}
	for _, m := range []message{{}, {row: "none"}} {
		if got := tl.write(zh, m, group{items: tree.Items{1}}); got != "" {
			t.Errorf("%v: %q", m, got)
		}
	}
}
