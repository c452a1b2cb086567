//go:build !wasip1

package sdktest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProgramsInDocs: the Go programs of the pages compile as jobs.
func TestProgramsInDocs(t *testing.T) {
	t.Parallel()
	found := 0
	for _, name := range []string{"docs/first-job.md", "docs/writing-jobs.md", "docs/arguments.md"} {
		page, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range programs(string(page), "go") {
			if !strings.Contains(program, "\nfunc main() {}\n") {
				continue
			}
			found++
			t.Run(fmt.Sprintf("%s_%d", filepath.Base(name), found), func(t *testing.T) {
				t.Parallel()
				module := compiled(t, program)
				t.Logf("%.1f MB", float64(len(module))/1e6)
			})
		}
	}
	if found < 8 {
		t.Errorf("found %d programs only: the pages are not read as they are written", found)
	}
}

// compiled builds a program as if it were in a folder of the module that has what it
// imports.
func compiled(t *testing.T, program string) []byte {
	t.Helper()
	dir, make := "../..", build
	if strings.Contains(program, "jackc/pgx") {
		dir, make = clients, buildClients
	}
	folder, err := filepath.Abs(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	main, overlay := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(folder, "main.go"): main}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{main: []byte(program), overlay: replace} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return make(t, folder, "-buildmode=c-shared", "-overlay", overlay)
}

// programs are the code blocks of a page in a language.
func programs(page, language string) []string {
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}
