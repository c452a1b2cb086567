package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

var specWhole = flag.Bool("differential.whole", false, "compare metered and plain modules in all tests of the specification that are at hand, with both engines")

// specCommand is a step of a test of the specification, as wast2json writes it
// and the module cache has it with wazero.
type specCommand struct {
	Type, Name, As, Filename string
	Line                     int
	ModuleType               string `json:"module_type"`
	Action                   struct {
		Type, Module, Field string
		Args                []specValue
	}
}

type specValue struct {
	Type     string
	LaneType string `json:"lane_type"`
	Value    any
}

// bits are the value as wazero passes it.
func (v specValue) bits() ([]uint64, error) {
	number := func(typ, text string) (uint64, error) {
		switch {
		case text == "null":
			return 0, nil
		case strings.HasPrefix(text, "nan") && strings.HasSuffix(typ, "32"):
			return uint64(math.Float32bits(float32(math.NaN()))), nil
		case strings.HasPrefix(text, "nan"):
			return math.Float64bits(math.NaN()), nil
		case strings.HasPrefix(text, "-"):
			n, err := strconv.ParseInt(text, 10, 64)
			if strings.HasSuffix(typ, "32") {
				return uint64(uint32(n)), err
			}
			return uint64(n), err
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if typ == "externref" {
			n++ // 0 is null
		}
		return n, err
	}
	if v.Type != "v128" {
		text, ok := v.Value.(string)
		if !ok {
			text = "null"
		}
		n, err := number(v.Type, text)
		return []uint64{n}, err
	}
	lanes, _ := v.Value.([]any)
	if len(lanes) == 0 {
		return nil, fmt.Errorf("a vector without lanes: %v", v)
	}
	two := make([]uint64, 2)
	width := 128 / len(lanes)
	for i, l := range lanes {
		text, _ := l.(string)
		n, err := number(v.LaneType, text)
		if err != nil {
			return nil, err
		}
		if width < 64 {
			n &= 1<<width - 1
		}
		two[i*width/64] |= n << (i * width % 64)
	}
	return two, nil
}

// offerTurns gives a runtime what metered modules import, without an end.
func offerTurns(ctx context.Context, rt wazero.Runtime) error {
	_, err := rt.NewHostModuleBuilder(MeterModule).NewFunctionBuilder().
		WithFunc(func() uint32 { return Quantum }).Export(MeterImport).Instantiate(ctx)
	return err
}

// side runs a test of the specification.
type side struct {
	rt      wazero.Runtime
	metered bool
	count   int // of modules that were metered
	named   map[string]api.Module
	last    api.Module
}

func newSide(t *testing.T, config wazero.RuntimeConfig, metered bool, spectest []byte) *side {
	t.Helper()
	s := &side{rt: wazero.NewRuntimeWithConfig(t.Context(), config), metered: metered, named: map[string]api.Module{}}
	t.Cleanup(func() { s.rt.Close(context.Background()) })
	if err := offerTurns(t.Context(), s.rt); err != nil {
		t.Fatal(err)
	}
	if _, err := s.rt.Instantiate(t.Context(), spectest); err != nil {
		t.Fatal(err)
	}
	return s
}

// module makes an instance, of the metered module if it can be had.
func (s *side) module(ctx context.Context, wasm []byte, config wazero.ModuleConfig) (api.Module, error) {
	if s.metered {
		if _, err := scanModule(wasm); err == nil {
			if out, err := meter(wasm); err == nil {
				s.count++
				wasm = out
			}
		}
	}
	mod, err := s.rt.InstantiateWithConfig(ctx, wasm, config)
	if err != nil {
		return nil, err
	}
	if begin := mod.ExportedFunction(ExportStartSection); begin != nil {
		if _, err := begin.Call(ctx); err != nil {
			return nil, errors.Join(err, mod.Close(ctx))
		}
	}
	return mod, nil
}

// do says what came of a step. Values that are not a number are one value.
func (s *side) do(ctx context.Context, c specCommand, name string, wasm []byte) (string, error) {
	switch c.Type {
	case "module":
		mod, err := s.module(ctx, wasm, wazero.NewModuleConfig().WithName(name))
		s.last = mod
		if c.Name != "" {
			s.named[c.Name] = mod
		}
		return outcome(err), nil
	case "assert_malformed", "assert_invalid", "assert_unlinkable", "assert_uninstantiable":
		_, err := s.module(ctx, wasm, wazero.NewModuleConfig().WithName(""))
		if err != nil {
			return "refused", nil
		}
		return "taken", nil
	}
	mod := s.last
	if c.Action.Module != "" {
		mod = s.named[c.Action.Module]
	}
	if mod == nil {
		return "no module", nil
	}
	if c.Action.Type == "get" {
		return fmt.Sprint(mod.ExportedGlobal(c.Action.Field).Get()), nil
	}
	var args []uint64
	for _, a := range c.Action.Args {
		bits, err := a.bits()
		if err != nil {
			return "", err
		}
		args = append(args, bits...)
	}
	f := mod.ExportedFunction(c.Action.Field)
	if f == nil {
		return "no function", nil
	}
	results, err := f.Call(ctx, args...)
	if err != nil {
		return outcome(err), nil
	}
	var text []string
	k := 0
	for _, typ := range f.Definition().ResultTypes() {
		v := results[k]
		k++
		switch typ {
		case api.ValueTypeI32:
			text = append(text, fmt.Sprint(uint32(v)))
		case api.ValueTypeF32:
			text = append(text, fmt.Sprint(math.Float32frombits(uint32(v)), v>>31&1))
		case api.ValueTypeF64:
			text = append(text, fmt.Sprint(math.Float64frombits(v), v>>63))
		case api.ValueTypeI64:
			text = append(text, fmt.Sprint(v))
		case api.ValueTypeExternref:
			text = append(text, fmt.Sprint(v))
		default:
			if typ == 0x7b { // a vector, in which a sum may be one of several that are no numbers
				text = append(text, vector(v, results[k]))
				k++
			} else {
				text = append(text, fmt.Sprint(v == 0)) // a reference is a pointer
			}
		}
	}
	return strings.Join(text, " "), nil
}

// vector is text of 128 bits. Lanes that are no number, if they are of floating
// point, are one value.
func vector(low, high uint64) string {
	for _, v := range []*uint64{&low, &high} {
		if f := math.Float64frombits(*v); f != f {
			*v = math.Float64bits(math.NaN())
			continue
		}
		for shift := range 2 {
			if f := math.Float32frombits(uint32(*v >> (32 * shift))); f != f {
				*v = *v&^(math.MaxUint32<<(32*shift)) | uint64(math.Float32bits(float32(math.NaN())))<<(32*shift)
			}
		}
	}
	return fmt.Sprintf("%x:%x", high, low)
}

// outcome is an error without the places in the code.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// specCases are the tests of the specification, by the name of their JSON.
func specCases(t *testing.T) (spectest []byte, cases []string) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(strings.TrimSpace(string(dir)), "internal", "integration_test", "spectest")
	for _, version := range []string{"v1", "v2"} {
		names, err := filepath.Glob(filepath.Join(root, version, "testdata", "*.json"))
		if err != nil || len(names) < 50 {
			t.Fatalf("%s: %d tests, %v", root, len(names), err)
		}
		cases = append(cases, names...)
	}
	spectest, err = os.ReadFile(filepath.Join(root, "testdata", "spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return spectest, cases
}

// A metered module does what the module does, in every test of the specification.
func TestSpecification(t *testing.T) {
	t.Parallel()
	spectest, cases := specCases(t)
	engines := map[string]wazero.RuntimeConfig{"compiler": wazero.NewRuntimeConfig(), "interpreter": wazero.NewRuntimeConfigInterpreter()}
	if !*specWhole { // of the vectors' tests, which are most, what both engines do is one matter
		delete(engines, "interpreter")
		cases = slices.DeleteFunc(cases, func(name string) bool {
			return strings.HasPrefix(filepath.Base(name), "simd_f") || strings.Contains(name, string(filepath.Separator)+"v1"+string(filepath.Separator))
		})
	}
	var steps, metered, plain atomic.Int64
	t.Run("cases", func(t *testing.T) {
		for engine, config := range engines {
			for _, name := range cases {
				t.Run(engine+"/"+filepath.Base(name), func(t *testing.T) {
					t.Parallel()
					data, err := os.ReadFile(name)
					if err != nil {
						t.Fatal(err)
					}
					var test struct{ Commands []specCommand }
					if err := json.Unmarshal(data, &test); err != nil {
						t.Fatal(err)
					}
					a, b := newSide(t, config, false, spectest), newSide(t, config, true, spectest)
					for i, c := range test.Commands {
						if c.Type == "register" || c.ModuleType == "text" {
							continue
						}
						registered := ""
						if i+1 < len(test.Commands) && test.Commands[i+1].Type == "register" {
							registered = test.Commands[i+1].As
						}
						var wasm []byte
						if c.Filename != "" {
							if wasm, err = os.ReadFile(filepath.Join(filepath.Dir(name), c.Filename)); err != nil {
								t.Fatal(err)
							}
						}
						want, err := a.do(t.Context(), c, registered, wasm)
						if err != nil {
							t.Fatal(c.Line, err)
						}
						got, err := b.do(t.Context(), c, registered, wasm)
						if err != nil {
							t.Fatal(c.Line, err)
						}
						if c.Type == "assert_return" || c.Type == "assert_trap" {
							steps.Add(1)
						}
						if got != want {
							t.Errorf("line %d, %s %s: metered %q, plain %q", c.Line, c.Type, c.Action.Field, got, want)
						}
						if c.Type == "module" && wasm != nil {
							plain.Add(1)
						}
					}
					metered.Add(int64(b.count))
				})
			}
		}
	})
	t.Logf("%d calls compared; %d of the modules were metered, of %d that run", steps.Load(), metered.Load(), plain.Load())
	if steps.Load() < 10_000 || metered.Load() < 200 {
		t.Error("too little was compared")
	}
}
