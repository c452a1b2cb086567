package console

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

func table(t testing.TB) i18n.Table {
	t.Helper()
	all, err := allTexts()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	places  = regexp.MustCompile(`\{\d\}`)
	inHTML  = regexp.MustCompile(`\.T "([^"]*)"`)
	inGo    = regexp.MustCompile(`\bT\("([^"]*)"`)
	settled = regexp.MustCompile(`"([a-z]+\.[a-zA-Z0-9.]+)"`)
)

// TestTexts: each text is in both languages, with the same places, and each is used.
func TestTexts(t *testing.T) {
	t.Parallel()
	all := table(t)
	sources := ""
	for _, dir := range []fs.FS{os.DirFS("."), os.DirFS("templates")} {
		list, err := fs.ReadDir(dir, ".")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if (strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go")) || strings.HasSuffix(f.Name(), ".html") {
				text, err := fs.ReadFile(dir, f.Name())
				if err != nil {
					t.Fatal(err)
				}
				sources += string(text)
			}
		}
	}
	var used []string
	for _, form := range []*regexp.Regexp{inHTML, inGo, settled} {
		for _, m := range form.FindAllStringSubmatch(sources, -1) {
			used = append(used, m[1])
		}
	}
	for _, m := range append(inHTML.FindAllStringSubmatch(sources, -1), inGo.FindAllStringSubmatch(sources, -1)...) {
		if key := m[1]; all[key] == nil && !strings.HasSuffix(key, ".") && !strings.HasSuffix(key, ".nth.") {
			t.Errorf("there is no text %s", key)
		}
	}
	// Texts whose keys are put together of a kind and a word.
	kinds := []string{"act", "done", "health", "state", "hoststate", "trust", "outcome", "source", "wait", "item", "level", "nav", "problem", "setting", "weekday", "month", "jobs.column", "cron.nth", "span", "verdict", "rule", "session", "operation", "alerts.silence", "backfill.overlap"}
	for key, text := range all {
		base := strings.TrimSuffix(key, ".one")
		kind, _, _ := strings.Cut(base, ".")
		two, _, _ := strings.Cut(strings.TrimPrefix(base, kind+"."), ".")
		if !slices.Contains(used, base) && !slices.Contains(kinds, kind) && !slices.Contains(kinds, kind+"."+two) {
			t.Errorf("the text %s is not used", key)
		}
		if kind == "setting" {
			continue // the English is with the setting
		}
		en, zh := places.FindAllString(text[i18n.English], -1), places.FindAllString(text[i18n.Chinese], -1)
		if base != key { // the number is in the words
			en = append(en, "{0}")
			if !slices.Contains(zh, "{0}") {
				zh = append(zh, "{0}")
			}
		}
		slices.Sort(en)
		slices.Sort(zh)
		if !slices.Equal(slices.Compact(en), slices.Compact(zh)) {
			t.Errorf("%s: the places of %q and %q differ", key, text[i18n.English], text[i18n.Chinese])
		}
		if !strings.ContainsFunc(text[i18n.Chinese], func(r rune) bool { return unicode.Is(unicode.Han, r) }) && !strings.ContainsAny(text[i18n.Chinese], "{：") && text[i18n.Chinese] != "、" {
			t.Errorf("%s: %q is not Chinese", key, text[i18n.Chinese])
		}
	}
	for _, s := range operate.Editable() {
		if all["setting."+s.Name] == nil {
			t.Errorf("the help of %s is not in Chinese: write a line setting.%s in texts.tsv", s.Name, s.Name)
			continue
		}
		if s.Name != "jobShardingStrategyType" {
			continue
		}
		for _, name := range regexp.MustCompile("`[A-Z_]+`").FindAllString(s.Help, -1) { // the names of strategies
			if !strings.Contains(all["setting."+s.Name][i18n.Chinese], name) {
				t.Errorf("the help of %s in Chinese does not name %s: add it to the line setting.%s in texts.tsv", s.Name, name, s.Name)
			}
		}
	}
}

// TestWords: every word of the program that pages show has its texts.
func TestWords(t *testing.T) {
	t.Parallel()
	all := table(t)
	has := func(kind string, words ...string) {
		for _, w := range words {
			if all[kind+"."+w] == nil {
				t.Errorf("there is no text %s.%s", kind, w)
			}
		}
	}
	for _, h := range cluster.Healths() {
		has("health", string(h))
	}
	for _, o := range append(abi.Outcomes(), history.Lost, history.Held, history.Unknown) {
		has("outcome", string(o))
	}
	has("operation", operations()...)
	for _, s := range auth.SessionProblems() {
		has("session", string(s))
	}
	for _, w := range event.Waits() {
		has("wait", string(w))
	}
	has("item", itemClasses()...)
	for _, r := range alert.AllRules() {
		has("rule", string(r))
	}
	for _, s := range []engine.JobState{engine.JobNoSession, engine.JobJoining, engine.JobReady, engine.JobRunning, engine.JobQueued, engine.JobDisabled, engine.JobSharding, engine.JobDraining, engine.JobStopped, engine.JobRemoved, engine.JobError} {
		has("state", string(s))
	}
	for _, s := range []engine.HostState{engine.HostStarting, engine.HostLive, engine.HostSuspect, engine.HostDraining, engine.HostStopped} {
		has("hoststate", string(s))
	}
	for _, s := range []abi.Source{abi.SourceSchedule, abi.SourceTrigger, abi.SourceMisfire, abi.SourceFailover, abi.SourceCatchUp, abi.SourceInvoke} {
		has("source", string(s))
	}
	for _, v := range []explain.Verdict{explain.Lost, explain.Held, explain.Failed, explain.Killed, explain.Missed, explain.Refused, explain.NoHost, explain.Skipped, explain.Unknown, explain.Disabled,
		explain.Elsewhere, explain.Pending, explain.Running, explain.Late, explain.Coalesced, explain.Ran, explain.NotYetDue, explain.NeverDue} {
		has("verdict", string(v))
	}
	for d := range 7 {
		has("weekday", time.Weekday(d).String())
	}
	for m := range 12 {
		has("month", time.Month(m+1).String())
	}
}

func TestReadTexts(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"a\tb": "texts.tsv:1: found 2 columns", "a\tb\tc\na\tb\tc": "texts.tsv:2: the key a is there twice", "\tb\tc": "texts.tsv:1", "#\n\na\tb\t": "texts.tsv:3",
	} {
		if _, err := readTexts(table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %s", table, err, want)
		}
	}
}

func TestInWords(t *testing.T) {
	t.Parallel()
	all := table(t)
	for expr, want := range map[string][2]string{
		"":                     {"by triggers alone", "仅由触发"},
		"@every 90s":           {"every 1m30s", "每 1m30s"},
		"* * * * * ?":          {"every second", "每秒"},
		"*/5 * * * * ?":        {"every 5 seconds", "每 5 秒"},
		"0 * * * * ?":          {"every minute", "每分钟"},
		"30 * * * * ?":         {"every minute at second 30", "每分钟第 30 秒"},
		"0 0/15 * * * ?":       {"every 15 minutes", "每 15 分钟"},
		"0 7/15 * * * ?":       {"every 15 minutes from minute 7 on", "从第 7 分起每 15 分钟"},
		"@hourly":              {"every hour at :00 past the hour", "每小时 :00"},
		"0 5,35 * * * ?":       {"every 30 minutes from minute 5 on", "从第 5 分起每 30 分钟"},
		"0 5,36 * * * ?":       {"every hour at :05 and :36 past the hour", "每小时 :05和:36"},
		"0 0 3 * * ?":          {"at 03:00", "03:00"},
		"15 30 9,21 * * ?":     {"at 09:30:15 and 21:30:15", "09:30:15和21:30:15"},
		"0 30 2 ? * MON-FRI":   {"at 02:30, on Monday to Friday", "周一至周五 02:30"},
		"0 0 3 ? * SAT,SUN":    {"at 03:00, on Saturday and Sunday", "周六和周日 03:00"},
		"0 0 3 1,15 * ?":       {"at 03:00, on day 1 and 15 of the month", "每月 1和15 日 03:00"},
		"0 0 3 L * ?":          {"at 03:00, on the last day of the month", "每月最后一天 03:00"},
		"0 0 3 L-2 * ?":        {"at 03:00, 2 days before the last day of the month", "每月最后一天前 2 天 03:00"},
		"0 0 3 15W * ?":        {"at 03:00, on the weekday that is nearest to: on day 15 of the month", "最接近每月 15 日的工作日 03:00"},
		"0 0 3 ? * 6#3":        {"at 03:00, on the third Friday of the month", "每月第三个周五 03:00"},
		"0 0 3 ? * FRIL":       {"at 03:00, on the last Friday of the month", "每月最后一个周五 03:00"},
		"0 0 3 1 JAN,JUL ?":    {"at 03:00, on day 1 of the month, in January and July", "1 月和7 月 每月 1 日 03:00"},
		"0 0 3 1 1 ? 2030":     {"at 03:00, on day 1 of the month, in January, in 2030", "2030 年 1 月 每月 1 日 03:00"},
		"0 3 13 * 5":           {"at 03:00, on day 13 of the month, or on Friday", "每月 13 日或周五 03:00"},
		"*/10 9-17 * * *":      {"every 10 minutes, within hours 09 to 17", "在 09至17 时每 10 分钟"},
		"0 */2 * * *":          {"every 2 hours, at :00 past the hour", "每 2 小时 :00"},
		"* 9 * * *":            {"every minute, within hours 09", "在 09 时每分钟"},
		"0,30 0/20 8-10 * * ?": {"every 20 minutes, every 30 seconds, within hours 08 to 10", "在 08至10 时每 20 分钟，每 30 秒"},
		"not a cron":           {"", ""},
	} {
		for n, l := range i18n.Languages() {
			r := reader{Lang: l, texts: all}
			if got := r.inWords(expr); got != want[n] {
				t.Errorf("%s: %q, expected %q", expr, got, want[n])
			}
		}
	}
}
