package invoke

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// ReadModule reads a file that is not larger than a module may be.
func ReadModule(name string) ([]byte, error) {
	if err := notDefinition(name); err != nil {
		return nil, err
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, unreadable(name, err)
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory, expected a module's file, NAME.wasm", name)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", name)
	case info.Size() > abi.MaxModuleSize:
		return nil, fmt.Errorf("%s has %d bytes, a module has at most %d (%s)", name, info.Size(), abi.MaxModuleSize, words.Size(abi.MaxModuleSize))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	return data, nil
}

// unreadable says why a module's file cannot be read, in the words of validate,
// and names the file beside it that may have been meant.
func unreadable(name string, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	near := ""
	if errors.Is(err, os.ErrNotExist) {
		// Without its directory there are no others.
		others, _ := filepath.Glob(filepath.Join(filepath.Dir(name), "*.wasm"))
		if slices.Contains(others, name+".wasm") { // before one that is only similar
			others = []string{name + ".wasm"}
		}
		near = words.Suggest(name, others)
	}
	if name == "" {
		name = `the module ""`
	}
	return fmt.Errorf("%s: cannot be read: %w%s", name, err, near)
}

// notDefinition fails if the file is named as a definition is.
func notDefinition(name string) error {
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		return fmt.Errorf("%s is a definition; expected a module, such as %s", name, strings.TrimSuffix(name, ext)+".wasm")
	}
	return nil
}
