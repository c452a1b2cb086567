package catalog

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.yaml":   "job good",
		"good.wasm":   "good.",
		"other.yml":   "job good good.wasm\njob misfit good.wasm misfit",
		"wrong.yaml":  "!one\n!two",
		"none.yaml":   "job none",
		"bad.yaml":    "job bad",
		"bad.wasm":    "bad",
		"lone.wasm":   "bad lone",
		"notes.txt":   "",
		"empty.yaml":  "",
		"large.yaml":  "job large good.wasm misfit memory",
		".hidden.yml": "!x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link.wasm")); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ paths, want []string }{
		"all": {[]string{""}, []string{
			"bad.wasm: first problem", "bad.wasm: second problem",
			`bad.yaml:1: job "bad": module "bad.wasm": the file is refused`,
			"empty.yaml: is empty",
			`large.yaml:1: job "large": module "good.wasm": has not the exports`,
			"link.wasm: is a symbolic link to nowhere, which does not exist",
			"lone.wasm: first problem", "lone.wasm: second problem",
			`none.yaml:1: job "none": module "none.wasm": there is no such file beside the definition`,
			`other.yml:1: job "good": is defined in good.yaml (line 1), expected one definition`,
			`other.yml:2: job "misfit": module "good.wasm": has not the exports`,
			"wrong.yaml:1: !one", "wrong.yaml:2: !two",
		}},
		"good definition": {[]string{"good.yaml"}, nil},
		"good module":     {[]string{"good.wasm"}, nil},
		"both":            {[]string{"good.wasm", "good.yaml"}, nil},
		"bad definition": {[]string{"bad.yaml"}, []string{
			"bad.wasm: first problem", "bad.wasm: second problem",
			`bad.yaml:1: job "bad": module "bad.wasm": the file is refused`,
		}},
		"lone module": {[]string{"lone.wasm"}, []string{"lone.wasm: first problem", "lone.wasm: second problem"}},
		"name twice":  {[]string{"other.yml", "good.yaml"}, []string{`other.yml:1: job "good": is defined in good.yaml (line 1), expected one definition`, `other.yml:2: job "misfit": module "good.wasm": has not the exports`}},
		"not there":   {[]string{"gone.yaml"}, []string{"gone.yaml: cannot be read: no such file or directory"}},
		"neither":     {[]string{"notes.txt"}, []string{"notes.txt: is not named as a module (NAME.wasm) or a definition (NAME.yaml) is"}},
		"nothing":     {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var paths, got []string
			for _, p := range test.paths {
				paths = append(paths, filepath.Join(dir, p))
			}
			for _, f := range check(t.Context(), newFakeLoader(t), fakeParse, paths) {
				got = append(got, strings.TrimPrefix(f.String(), dir+string(filepath.Separator)))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("findings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	t.Run("orphan", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.wasm"), []byte("a."), 0o644); err != nil {
			t.Fatal(err)
		}
		got := check(t.Context(), newFakeLoader(t), fakeParse, []string{dir})
		if len(got) != 1 || got[0].Problem != "no definition names it, expected one such as a.yaml beside it" {
			t.Errorf("findings: %v", got)
		}
	})
	t.Run("empty directory", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		got := check(t.Context(), newFakeLoader(t), fakeParse, []string{dir})
		if len(got) != 1 || got[0].File != dir || got[0].Problem != "has neither definitions (NAME.yaml) nor modules (NAME.wasm)" {
			t.Errorf("findings: %v", got)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		got := check(ctx, newFakeLoader(t), fakeParse, []string{filepath.Join(dir, "good.yaml")})
		if len(got) != 1 || !strings.Contains(got[0].Problem, "not everything was checked") {
			t.Errorf("findings: %v", got)
		}
	})
}
