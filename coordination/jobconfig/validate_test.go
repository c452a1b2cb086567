package jobconfig

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestValidateAccepts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Configuration){
		"minimal":     func(*Configuration) {},
		"many items":  func(c *Configuration) { c.ShardingTotalCount = MaxShardingTotalCount },
		"unused item": func(c *Configuration) { c.ShardingItemParameters = "7=x,7=y" },
		"old class":   func(c *Configuration) { c.JobShardingStrategyType = "AverageAllocationJobShardingStrategy" },
		"handler":     func(c *Configuration) { c.JobErrorHandlerType = "throw" },
		"names":       func(c *Configuration) { c.JobName = "作业-1_a.b é@-x" },
		"texts":       func(c *Configuration) { c.Description = "a\tb\r\nc \u2028" },
		"java's":      func(c *Configuration) { c.Props = map[string]string{"script.command.line": "sh -c 'exit 3'"} },
	} {
		c := minimalConfiguration()
		change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	label := "\x1b"
	for _, c := range []struct {
		change   func(*Configuration)
		expected string
	}{
		{func(c *Configuration) { c.JobName = "" }, `jobName: found nothing, expected a name`},
		{func(c *Configuration) { c.JobName = ".." }, `jobName: found "..", which is no name for a node of the registry`},
		{func(c *Configuration) { c.JobName = "a/b" }, `jobName: found "a/b", expected a name without a slash`},
		{func(c *Configuration) { c.JobName = "a@-@b" }, `jobName: found "a@-@b", expected a name without @-@, which separates the parts of a task id, and without @- at the end`},
		{func(c *Configuration) { c.JobName = "a@-" }, `jobName: found "a@-", expected a name without @-@, which separates the parts of a task id, and without @- at the end`},
		{func(c *Configuration) { c.JobName = "a " }, `jobName: found "a ", expected a name without blanks around it`},
		{func(c *Configuration) { c.JobName = "a\nb" }, `jobName: found "a\nb", expected a name without control characters`},
		{func(c *Configuration) { c.JobName = "a\u2028b" }, `jobName: found "a\u2028b", expected a name without control characters`},
		{func(c *Configuration) { c.JobName = strings.Repeat("ü", 101) }, `jobName: found 202 bytes, expected at most 200`},
		{func(c *Configuration) { c.JobName = "a\xff" }, `jobName: found "a\xff", expected UTF-8`},
		{func(c *Configuration) { c.ShardingTotalCount = 0 }, `shardingTotalCount: found 0, expected a number of items from 1 to 1000000`},
		{func(c *Configuration) { c.ShardingTotalCount = -3 }, `shardingTotalCount: found -3, expected a number of items from 1 to 1000000`},
		{func(c *Configuration) { c.ShardingTotalCount = 2147483647 }, `shardingTotalCount: found 2147483647, expected a number of items from 1 to 1000000`},
		{func(c *Configuration) { c.ShardingItemParameters = "0=A,1" }, `shardingItemParameters: found "1", expected item=parameter, the parameter not empty and without an equals sign`},
		{func(c *Configuration) { c.JobErrorHandlerType = "SMS" }, `jobErrorHandlerType: found "SMS", expected LOG, THROW, IGNORE, EMAIL, WECHAT or DINGTALK`},
		{func(c *Configuration) { c.JobErrorHandlerType = "LOGG" }, `jobErrorHandlerType: found "LOGG", expected LOG, THROW, IGNORE, EMAIL, WECHAT or DINGTALK`},
		{func(c *Configuration) { c.JobExecutorThreadPoolKey = "pool" }, `found "pool" as the key of the thread pool, expected jobExecutorThreadPoolSizeProviderType or jobExecutorServiceHandlerType`},
		{func(c *Configuration) { c.ExtraConfigurations = "a: b\n" }, `jobExtraConfigurations: expected a list in block form, as it stands below its key`},
		{func(c *Configuration) { c.ExtraConfigurations = "- a\ncron: b\n" }, `jobExtraConfigurations: expected a list in block form, as it stands below its key`},
		{func(c *Configuration) { c.ExtraConfigurations = "- [\n" }, `jobExtraConfigurations: not a YAML document: line 2: did not find expected node content`},
		{func(c *Configuration) { c.Description = "a\x00b" }, `description: found "a\x00b", expected a text without control characters`},
		{func(c *Configuration) { c.JobParameter = "a\xff" }, `jobParameter: found "a\xff", expected UTF-8`},
		{func(c *Configuration) { c.Label = &label }, `label: found "\x1b", expected a text without control characters`},
		{func(c *Configuration) { c.JobListenerTypes = []string{"a", "\uFEFFb"} }, `jobListenerTypes[1]: found "\ufeffb", expected a text without control characters`},
		{func(c *Configuration) { c.Props = map[string]string{"k": "\u0085"} }, `props.k: found "\u0085", expected a text without control characters`},
		{func(c *Configuration) { c.Props = map[string]string{"wasm.timeout": "5"} }, `props.wasm.timeout: found "5", expected a duration with its unit, such as 5s`},
		{func(c *Configuration) { c.JobParameter = strings.Repeat("a ", 300_000) }, `the configuration takes 600034 bytes in the registry, expected at most 524288`},
	} {
		config := minimalConfiguration()
		c.change(&config)
		err := config.Validate()
		if err == nil || err.Error() != c.expected {
			t.Errorf("got      %v\nexpected %s", err, c.expected)
			continue
		}
		var field *FieldError
		if !errors.As(err, &field) {
			t.Errorf("%v is no FieldError", err)
		}
	}
}

func TestValidateNamesAllProblems(t *testing.T) {
	t.Parallel()
	err := Configuration{
		JobName: "a/b", ShardingItemParameters: "x", JobShardingStrategyType: "AVG_ALOCATION", JobErrorHandlerType: "X",
		Props: map[string]string{"wasm.timeout": "x", "wasm.isolation": "y"},
	}.Validate()
	for _, field := range []string{"jobName", "shardingTotalCount", "shardingItemParameters", "jobShardingStrategyType", "jobErrorHandlerType", "props.wasm.timeout", "props.wasm.isolation"} {
		if !strings.Contains("\n"+err.Error(), "\n"+field+": ") {
			t.Errorf("%s is missing in:\n%v", field, err)
		}
	}
}

func TestErrorHandler(t *testing.T) {
	t.Parallel()
	for name, expected := range map[string]string{"": "LOG", "LOG": "LOG", "throw": "THROW", "Ignore": "IGNORE"} {
		if got, err := (Configuration{JobErrorHandlerType: name}).ErrorHandler(); err != nil || got != expected {
			t.Errorf("%q: got %s, %v", name, got, err)
		}
	}
}

func TestTracedDocumentIsBounded(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("testdata/elasticjob-traced.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := Parse(document)
	if err != nil {
		t.Fatal(err)
	}
	c.ExtraConfigurations = strings.Repeat(c.ExtraConfigurations, 1200)
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "expected at most 524288") {
		t.Errorf("got %.200v", err)
	}
}
