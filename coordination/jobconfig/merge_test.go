package jobconfig

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestMergeThreeWay(t *testing.T) {
	t.Parallel()
	base := minimalConfiguration()
	base.Props = map[string]string{"wasm.timeout": "10m0s", "a": "1", "b": "1", "c": "1", "d": "1"}
	mine, theirs := base, base
	mine.Props, theirs.Props = maps.Clone(base.Props), maps.Clone(base.Props)

	mine.Cron, theirs.Cron = "file", base.Cron                                    // changed in the file
	theirs.ShardingTotalCount = 9                                                 // changed in the registry
	mine.Description, theirs.Description = "file", "console"                      // changed in both
	mine.JobParameter, theirs.JobParameter = "same", "same"                       // changed in both, to the same
	mine.Misfire = false                                                          // switched off in the file
	mine.Props["a"] = "file"                                                      // changed in the file
	theirs.Props["b"] = "console"                                                 // changed in the registry
	delete(mine.Props, "c")                                                       // removed from the file
	delete(theirs.Props, "d")                                                     // removed from the registry
	delete(theirs.Props, "wasm.timeout")                                          // dropped by a Java host
	mine.Props["new"] = "file"                                                    // added to the file
	theirs.Props["other"] = "console"                                             // added to the registry
	theirs.ExtraConfigurations, theirs.JobListenerTypes = "- a\n", []string{"l"}  // what a file cannot say
	theirs.JobExecutorThreadPoolKey, theirs.JobExecutorThreadPoolValue = "k", "v" // likewise

	result, changed, kept := Merge(base, true, mine, theirs)
	expected := theirs
	expected.Cron, expected.Description, expected.Misfire = "file", "file", false
	expected.Props = map[string]string{"wasm.timeout": "10m0s", "a": "file", "b": "console", "new": "file", "other": "console"}
	if !reflect.DeepEqual(result, expected) {
		t.Errorf("got      %+v\nexpected %+v", result, expected)
	}
	if c := []string{"cron", "description", "misfire", "props.a", "props.c", "props.new", "props.wasm.timeout"}; !slices.Equal(changed, c) {
		t.Errorf("changed %q, expected %q", changed, c)
	}
	if k := []string{"props.b", "props.d", "props.other", "shardingTotalCount"}; !slices.Equal(kept, k) {
		t.Errorf("kept %q, expected %q", kept, k)
	}
}

func TestMergeWithoutBase(t *testing.T) {
	t.Parallel()
	mine, theirs := minimalConfiguration(), minimalConfiguration()
	mine.Cron, mine.Props = "file", map[string]string{"wasm.timeout": "10m0s", "streaming.process": "true"}
	result, changed, kept := Merge(Configuration{}, false, mine, theirs)
	expected := theirs
	expected.Props = map[string]string{"wasm.timeout": "10m0s"} // no Java host knows it
	if !reflect.DeepEqual(result, expected) || !slices.Equal(changed, []string{"props.wasm.timeout"}) || !slices.Equal(kept, []string{"cron", "props.streaming.process"}) {
		t.Errorf("got %+v, %q, %q", result, changed, kept)
	}
	if theirs.Props != nil {
		t.Errorf("the registry's configuration was modified: %v", theirs.Props)
	}
}

func TestMergeOverwrite(t *testing.T) {
	t.Parallel()
	label := "x"
	mine, theirs := minimalConfiguration(), minimalConfiguration()
	mine.Overwrite, mine.Props = true, map[string]string{"a": "1"}
	theirs.Cron, theirs.Label, theirs.Props = "console", &label, map[string]string{"a": "2", "b": "2"}
	theirs.ExtraConfigurations, theirs.JobListenerTypes = "- a\n", []string{"l"}
	theirs.JobExecutorThreadPoolKey, theirs.JobExecutorThreadPoolValue = keyThreadPool, "CPU"
	result, changed, kept := Merge(mine, true, mine, theirs)
	expected := mine
	expected.ExtraConfigurations, expected.JobListenerTypes = "- a\n", []string{"l"}
	expected.JobExecutorThreadPoolKey, expected.JobExecutorThreadPoolValue = keyThreadPool, "CPU"
	if !reflect.DeepEqual(result, expected) || len(kept) > 0 {
		t.Errorf("got %+v, kept %q", result, kept)
	}
	if c := []string{"cron", "label", "overwrite", "props.a", "props.b"}; !slices.Equal(changed, c) {
		t.Errorf("changed %q, expected %q", changed, c)
	}
}

// Every field of Configuration takes part: one that is added to the struct
// and forgotten here is found.
func TestMergeKnowsEveryField(t *testing.T) {
	t.Parallel()
	fields := reflect.TypeFor[Configuration]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		var base, mine, theirs Configuration
		set := func(v reflect.Value, text string) {
			switch v.Kind() {
			case reflect.String:
				v.SetString(text)
			case reflect.Bool:
				v.SetBool(text == "file")
			case reflect.Int:
				v.SetInt(int64(len(text)))
			case reflect.Slice:
				v.Set(reflect.ValueOf([]string{text}))
			case reflect.Map:
				v.Set(reflect.ValueOf(map[string]string{"k": text}))
			case reflect.Pointer:
				v.Set(reflect.ValueOf(&text))
			default:
				t.Fatalf("%s is a %s", name, v.Kind())
			}
		}
		set(reflect.ValueOf(&mine).Elem().Field(i), "file")
		set(reflect.ValueOf(&theirs).Elem().Field(i), "console")
		if name == "JobExecutorThreadPoolKey" { // nothing without its value
			mine.JobExecutorThreadPoolValue, theirs.JobExecutorThreadPoolValue = "v", "v"
		}
		result, changed, kept := Merge(base, true, mine, theirs)
		if !reflect.DeepEqual(result, mine) || len(changed) != 1 || len(kept) != 0 {
			t.Errorf("%s: changed in the file: got %+v, %q, %q", name, result, changed, kept)
		}
		if name == "Overwrite" { // true in the file: it wins
			continue
		}
		result, changed, kept = Merge(mine, true, mine, theirs)
		if !reflect.DeepEqual(result, theirs) || len(changed) != 0 || len(kept) != 1 {
			t.Errorf("%s: changed in the registry: got %+v, %q, %q", name, result, changed, kept)
		}
	}
}

// The rules, on random configurations of few values.
func TestMergeProperties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	random := func() Configuration {
		c := Configuration{
			Cron: fmt.Sprint(r.IntN(3)), ShardingTotalCount: r.IntN(3), Misfire: r.IntN(2) == 0, Description: fmt.Sprint(r.IntN(3)),
		}
		for _, key := range []string{"a", "b", "wasm.x"} {
			if r.IntN(2) == 0 {
				if c.Props == nil {
					c.Props = map[string]string{}
				}
				c.Props[key] = fmt.Sprint(r.IntN(2))
			}
		}
		return c
	}
	for range 20_000 {
		base, mine, theirs := random(), random(), random()
		mine.Overwrite = r.IntN(8) == 0
		hasBase := r.IntN(4) > 0
		result, changed, kept := Merge(base, hasBase, mine, theirs)
		if (len(changed) == 0) != reflect.DeepEqual(result, theirs) || (len(kept) == 0) != reflect.DeepEqual(result, mine) {
			t.Fatalf("changed %q, kept %q\nbase   %+v\nmine   %+v\ntheirs %+v\nresult %+v", changed, kept, base, mine, theirs, result)
		}
		switch {
		case mine.Overwrite && !reflect.DeepEqual(result, mine):
			t.Fatalf("overwrite: got %+v, expected %+v", result, mine)
		case hasBase && !mine.Overwrite:
			if result.Cron != threeWay(base.Cron, mine.Cron, theirs.Cron) ||
				result.ShardingTotalCount != threeWay(base.ShardingTotalCount, mine.ShardingTotalCount, theirs.ShardingTotalCount) ||
				result.Misfire != threeWay(base.Misfire, mine.Misfire, theirs.Misfire) {
				t.Fatalf("base   %+v\nmine   %+v\ntheirs %+v\nresult %+v", base, mine, theirs, result)
			}
		}
		// What was applied stays applied: the file that was merged is the next base.
		if again, changed, _ := Merge(mine, true, mine, result); len(changed) > 0 {
			t.Fatalf("applied again: changed %q: %+v, then %+v", changed, result, again)
		}
	}
}

func threeWay[T comparable](base, mine, theirs T) T {
	if mine == base {
		return theirs
	}
	return mine
}
