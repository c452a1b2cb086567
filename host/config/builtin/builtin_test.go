package builtin

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestModuleIsBuilt: the files that the module of HTTP is made of are where its Makefile and its source expect them.
func TestModuleIsBuilt(t *testing.T) {
	t.Parallel()
	for file, named := range map[string]*regexp.Regexp{
		"Makefile": regexp.MustCompile(`\S+\.[ch]\b`),
		"http.c":   regexp.MustCompile(`#include "([^"]+)"`),
	} {
		text, err := os.ReadFile(filepath.Join("http", file))
		if err != nil {
			t.Fatal(err)
		}
		found := named.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no files", file)
		}
		for _, m := range found {
			if _, err := os.Stat(filepath.Join("http", m[len(m)-1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
