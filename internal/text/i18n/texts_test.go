package i18n_test

import (
	"testing"

	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

func TestChosen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wanted, accept string
		want           i18n.Language
	}{
		{"", "", i18n.English}, {"", "de-DE,de;q=0.9", i18n.English}, {"", "zh-CN,zh;q=0.9,en;q=0.8", i18n.Chinese}, {"", "en;q=0.5,zh;q=0.6", i18n.Chinese}, {"", "en,zh", i18n.English},
		{"zh", "en", i18n.Chinese}, {"en", "zh", i18n.English}, {"xx", "zh-TW", i18n.Chinese}, {"", "zh;q=x,en;q=0.1", i18n.English}, {"", ";;;,,=;q", i18n.English}, {"", "ZH", i18n.Chinese},
	} {
		if got := i18n.Chosen(c.wanted, c.accept); got != c.want {
			t.Errorf("%q %q: %s, expected %s", c.wanted, c.accept, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := i18n.Table{
		"jobs":     {i18n.English: "{0} jobs of {1}", i18n.Chinese: "{1} 的 {0} 个作业"},
		"jobs.one": {i18n.English: "1 job of {1}", i18n.Chinese: "{1} 的 1 个作业"},
		"state.ok": {i18n.English: "fine", i18n.Chinese: "正常"},
		"odd":      {i18n.English: "{0} {2} {x} {", i18n.Chinese: "{0"},
	}
	for want, got := range map[string]string{
		"2 jobs of a": table.Text(i18n.English, "jobs", 2, "a"), "a 的 2 个作业": table.Text(i18n.Chinese, "jobs", 2, "a"),
		"1 job of {1}": table.Text(i18n.English, "jobs", 1, "{1}"), "a 的 1 个作业": table.Text(i18n.Chinese, "jobs", int64(1), "a"),
		"{0} jobs of {1}": table.Text(i18n.English, "jobs"), "none": table.Text(i18n.Chinese, "none", 1),
		"a {2} {x} {": table.Text(i18n.English, "odd", "a", "b"), "{0": table.Text(i18n.Chinese, "odd", "a"),
		"正常": table.Word(i18n.Chinese, "state", "ok"), "new": table.Word(i18n.Chinese, "state", "new"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
