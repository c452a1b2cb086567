package console

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

var inputs = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`)

// form is the hidden part of a page's form, in turns, and some settings.
func (a answer) form(t *testing.T, set ...string) []string {
	t.Helper()
	var pairs []string
	_, form, _ := strings.Cut(a.body, `id="settings"`)
	for _, m := range inputs.FindAllStringSubmatch(form, -1) {
		pairs = append(pairs, m[1], html.UnescapeString(m[2]))
	}
	if len(pairs) < 40 {
		t.Fatalf("%s has no form of settings:\n%s", a.path, a.text())
	}
	return append(pairs, set...)
}

// TestInheritedSetting: a value that the definition has from its folder's defaults is shown with that file.
func TestInheritedSetting(t *testing.T) {
	t.Parallel()
	job := servicetest.Job("a", "0 0 3 * * ?", 7, servicetest.OK)
	job.File, job.Inherited = "pay/a.yaml", map[string]string{"shardingTotalCount": "pay/defaults.yaml"}
	s := open(t, servicetest.Options{Jobs: []engine.Job{job}})
	page := s.get(jobPath("a", "config"))
	row := regexp.MustCompile(`(?s)<label for="set.shardingTotalCount">.*?</tr>`).FindString(page.body)
	if !strings.Contains(row, "<code>pay/defaults.yaml</code>") {
		t.Errorf("the row is %s", row)
	}
	if row = regexp.MustCompile(`(?s)<label for="set.cron">.*?</tr>`).FindString(page.body); !strings.Contains(row, "<code>pay/a.yaml</code>") {
		t.Errorf("the row of the cron is %s", row)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a <b>", "0 0 3 * * ?", 2, servicetest.OK)}})
	path := jobPath("a <b>", "config")
	page := s.get(path)
	page.has(t, 200, "a <b>", "The definition file is a <b>.yaml", "cron", "When the job fires", "retry.maxBackoff", "default", "Save", "0: 128MiB", "0: 2 per processor")
	if !strings.Contains(page.body, `min="1" max="1000000"`) || !strings.Contains(page.body, `<option value="process">process</option>`) {
		t.Error("the form does not know bounds and words")
	}

	t.Run("choices", func(t *testing.T) {
		// A browser sends the first choice where none is selected: nobody has chosen it.
		lists := regexp.MustCompile(`(?s)<select id="set\.([^"]+)".*?</select>`).FindAllStringSubmatch(page.body, -1)
		for _, l := range lists {
			if strings.Count(l[0], " selected>") != 1 {
				t.Errorf("%s: not one of its choices is selected: %s", l[1], l[0])
			}
		}
		if len(lists) < 12 {
			t.Errorf("the form has only %d lists", len(lists))
		}
	})
	t.Run("what nobody chose", func(t *testing.T) {
		strange := settingRow{Setting: jobconfig.Setting{Type: jobconfig.Word, Words: []string{"a", "b"}}, Given: "c"}
		if !slices.Contains(strange.Choices(), "c") {
			t.Errorf("a value that is none of the words is no choice: %q", strange.Choices())
		}
		number := jobconfig.Setting{Type: jobconfig.Number, Min: 1, Max: 100}
		for given, want := range map[string]bool{"": true, "1": true, "100": true, "0": false, "101": false, "x": false} {
			if got := (settingRow{Setting: number, Given: given}).Bounded(); got != want {
				t.Errorf("with %q the bounds are given to the browser: %t, want %t", given, got, want)
			}
		}
		multi := settingRow{Setting: jobconfig.Setting{Type: jobconfig.Text}, Given: "one\ntwo"}
		if multi.Input() != "lines" {
			t.Errorf("a text of two lines has an input %q, which takes the end of the line out", multi.Input())
		}
		s.post(path, page.form(t, "set.jobParameter", "\r\none\r\ntwo", "do", "save")...).has(t, 200, "Saved: jobParameter.")
		again := s.get(path)
		if !strings.Contains(again.body, ">\n\none\ntwo</textarea>") {
			t.Error("the form loses the end of a line that the parameter begins with")
		}
		s.post(path, again.form(t, "set.jobParameter", "\r\none\r\ntwo", "do", "save")...).has(t, 422, "Nothing was changed in the form.")
		s.post(path, again.form(t, "set.jobParameter", "", "do", "save")...).has(t, 200, "Saved: jobParameter.")
		page = s.get(path)
	})
	t.Run("preview", func(t *testing.T) {
		a := s.post(path, page.form(t, "set.cron", "0 30 4 ? * MON-FRI", "set.timeout", "5m", "do", "preview")...)
		a.has(t, 200, "What this would change", "at 04:30, on Monday to Friday", "0 0 3 * * ? 0 30 4 ? * MON-FRI", "timeout", "5m",
			"Fires in the next 7 days: 7 before, 5 after (5 added, 7 gone)", "Overlaps: 0 before, 0 after. Instants without a run: 0 before, 0 after")
		s.get(path).lacks(t, "MON-FRI")
		s.post(path, page.form(t, "set.cron", "0 0 3 * * ?", "do", "preview")...).has(t, 422, "Nothing was changed in the form.")
		s.post(path, page.form(t, "set.cron", "", "do", "preview")...).has(t, 200, "by triggers alone")
		s.post(path, page.form(t, "set.misfire", "", "set.timeout", "", "do", "preview")...).has(t, 200, "timeout 0s 10m")
	})
	t.Run("errors", func(t *testing.T) {
		a := s.post(path, page.form(t, "set.cron", "0 0 25 * * ?", "do", "save")...)
		a.has(t, 422, "hours", "25 is out of range 0-23")
		row := regexp.MustCompile(`(?s)<tr class="failed"><th scope="row"><label for="set.cron">.*?</tr>`).FindString(a.body)
		if !strings.Contains(row, "out of range") || !strings.Contains(row, `value="0 0 25 * * ?"`) || !strings.Contains(row, `aria-invalid="true"`) {
			t.Errorf("the problem is not at the field, with what was typed: %s", row)
		}
		for setting, bad := range map[string][2]string{
			"shardingTotalCount": {"0", "1"}, "timeout": {"soon", "a duration such as 30s"}, "memoryLimit": {"1KiB", "a size from"}, "retry.on": {"OK", "RETRY"},
			"failover": {"maybe", "true or false"}, "timeZone": {"Mars/Olympus", "Mars"}, "isolation": {"none", "fire, item, process or host"}, "shardingItemParameters": {"0=A,9=Z", "9=Z"}, "monitorExecution": {"false", "failover needs it"},
		} {
			s.post(path, page.form(t, "set."+setting, bad[0], "do", "save")...).has(t, 422, bad[1])
		}
		both := s.post(path, page.form(t, "set.cron", "0 0 25 * * ?", "set.timeout", "soon", "do", "save")...)
		both.has(t, 422, "25 is out of range 0-23", "a duration such as 30s")
		s.post(path, "version", "x").has(t, 400, "version")
		s.get(path).has(t, 200, "a <b>")
	})
	t.Run("save", func(t *testing.T) {
		old := s.get(path)
		a := s.post(path, old.form(t, "set.description", "<i>new</i>", "set.cron", "0 0 5 * * ?", "reason", "earlier", "do", "save")...)
		a.has(t, 200, "Saved: cron, description.", "edited by host token", "earlier")
		s.until(jobPath("a <b>"), "0 0 5 * * ?").has(t, 200, "<i>new</i>", "edit cron, description", "0 0 3 * * ? 0 0 5 * * ?")
		// The same form once more is stale: both versions are shown, and what was typed is kept.
		stale := s.post(path, old.form(t, "set.cron", "0 0 6 * * ?", "do", "save")...)
		stale.has(t, 409, "Another user has changed", "was 0 0 3 * * ? · now 0 0 5 * * ? · yours 0 0 6 * * ?", "was · now <i>new</i>")
		s.get(path).has(t, 200, "Configuration")
		// Saved again, it is put over what is there.
		s.post(path, stale.form(t, "set.cron", "0 0 6 * * ?", "do", "save")...).has(t, 200, "Saved: cron.")
		s.until(jobPath("a <b>"), "0 0 6 * * ?").has(t, 200, "<i>new</i>")
		s.post(path, s.get(path).form(t, "set.shardingTotalCount", " 2 ", "do", "save")...).has(t, 200, "Nothing: the registry has these values already.")
	})
	s.lang = "zh"
	s.get(path).has(t, 200, "配置", "作业何时执行")
	s.get("/jobs/none/config").has(t, 404, "there is no job")
}
