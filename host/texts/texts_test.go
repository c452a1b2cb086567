package texts_test

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/texts"
)

func TestChosen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wanted, accept string
		want           texts.Language
	}{
		{"", "", texts.English}, {"", "de-DE,de;q=0.9", texts.English}, {"", "zh-CN,zh;q=0.9,en;q=0.8", texts.Chinese}, {"", "en;q=0.5,zh;q=0.6", texts.Chinese}, {"", "en,zh", texts.English},
		{"zh", "en", texts.Chinese}, {"en", "zh", texts.English}, {"xx", "zh-TW", texts.Chinese}, {"", "zh;q=x,en;q=0.1", texts.English}, {"", ";;;,,=;q", texts.English}, {"", "ZH", texts.Chinese},
	} {
		if got := texts.Chosen(c.wanted, c.accept); got != c.want {
			t.Errorf("%q %q: %s, expected %s", c.wanted, c.accept, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := texts.Table{
		"jobs":     {texts.English: "{0} jobs of {1}", texts.Chinese: "{1} 的 {0} 个作业"},
		"jobs.one": {texts.English: "1 job of {1}", texts.Chinese: "{1} 的 1 个作业"},
		"state.ok": {texts.English: "fine", texts.Chinese: "正常"},
		"odd":      {texts.English: "{0} {2} {x} {", texts.Chinese: "{0"},
	}
	for want, got := range map[string]string{
		"2 jobs of a": table.Text(texts.English, "jobs", 2, "a"), "a 的 2 个作业": table.Text(texts.Chinese, "jobs", 2, "a"),
		"1 job of {1}": table.Text(texts.English, "jobs", 1, "{1}"), "a 的 1 个作业": table.Text(texts.Chinese, "jobs", int64(1), "a"),
		"{0} jobs of {1}": table.Text(texts.English, "jobs"), "none": table.Text(texts.Chinese, "none", 1),
		"a {2} {x} {": table.Text(texts.English, "odd", "a", "b"), "{0": table.Text(texts.Chinese, "odd", "a"),
		"正常": table.Word(texts.Chinese, "state", "ok"), "new": table.Word(texts.Chinese, "state", "new"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
