package operation

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestRows: every operation has a row, and every row what the lists, the texts and the docs
// that are made of it need.
func TestRows(t *testing.T) {
	t.Parallel()
	once := make(map[string]bool)
	unique := func(what string) {
		if once[what] {
			t.Errorf("%s is there twice", what)
		}
		once[what] = true
	}
	chinese := func(what, text string) {
		if !strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
			t.Errorf("%s: %q is not Chinese", what, text)
		}
	}
	for _, o := range All() {
		r := o.Row()
		if r.Record == "" {
			t.Errorf("operation %d, the one after %q, has no row in rows.go", o, Operation(max(0, o-1)))
			continue
		}
		unique("the operation " + r.Record)
		chinese(r.Record, r.Chinese)
		if r.English != "" {
			unique("the operation " + r.English)
			command := slices.ContainsFunc(r.Commands, func(c string) bool { return strings.HasSuffix(c, " "+r.English) })
			if English(r.Record) != r.English || Record(r.English) != r.Record || !command {
				t.Errorf("%s is %s for people, who find it as %q, and of its commands %q one has that name: %t", r.Record, English(r.Record), Record(r.English), r.Commands, command)
			}
		}
		if found, ok := Of(r.Record); !ok || found != o {
			t.Errorf("a record of %q is found as %q", r.Record, found)
		}
		if r.May != "" && len(r.Endpoints) == 0 {
			t.Errorf("%s needs %q of who asks, and there is no endpoint where anybody can", r.Record, r.May)
		}
		if r.May == "" && len(r.Endpoints)+len(r.Buttons)+len(r.Commands) > 0 {
			t.Errorf("%s has an endpoint, a button or a command, and the row does not say who may (May)", r.Record)
		}
		if r.May != "" && !slices.Contains([]Action{View, Operate, Author, Admin}, r.May) {
			t.Errorf("%s needs %q, which is no action", r.Record, r.May)
		}
		for _, c := range r.Commands {
			unique("the command " + c)
		}
		for _, e := range r.Endpoints {
			unique("the endpoint " + e.ID)
			unique("the path " + e.Method + " " + e.Path)
			if e.ID == "" || !strings.HasPrefix(e.Path, "/v1/") || e.Summary == "" || e.Text == "" {
				t.Errorf("%s: the endpoint %+v lacks something", r.Record, e)
			}
		}
		for _, b := range r.Buttons {
			unique("the button " + b.Action)
			if b.Label.English == "" {
				t.Errorf("the button %s has no label", b.Action)
			}
			for what, text := range map[string]Text{"label": b.Label, "text": b.Text, "done": b.Done} {
				places := func(text string) []string {
					all := regexp.MustCompile(`\{\d\}`).FindAllString(text, -1)
					slices.Sort(all)
					return all
				}
				if text != (Text{}) {
					chinese("the "+what+" of the button "+b.Action, text.Chinese)
				}
				if !slices.Equal(places(text.English), places(text.Chinese)) {
					t.Errorf("the button %s: the places of its %s %q and %q differ", b.Action, what, text.English, text.Chinese)
				}
			}
		}
	}
}

// TestRecords: no code writes or seeks a record by a text of its own; all do by the catalogue.
func TestRecords(t *testing.T) {
	t.Parallel()
	literal := regexp.MustCompile(`(?:history\.Change|changelog\.Record|&?Change)\{[^\n]*What: +"|\.What(?:, [\w.]+)? +(?:=|==|!=) +"|HasPrefix\(\w+\.What, "`)
	named := 0
	wing := os.DirFS("../..")
	err := fs.WalkDir(wing, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "historytest") {
			return err
		}
		source, err := fs.ReadFile(wing, path)
		if err != nil {
			return err
		}
		named += strings.Count(string(source), "operation.")
		for _, found := range literal.FindAll(source, -1) {
			t.Errorf("host/%s: %s…; expected an operation of the catalogue", path, found)
		}
		return nil
	})
	if err != nil || named < 100 {
		t.Errorf("%d places name an operation (%v): the test looked at the wrong files", named, err)
	}
}
