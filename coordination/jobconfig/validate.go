package jobconfig

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/internal/text/words"
	"github.com/wasmjob/wasmjob/strategy"
)

// The bounds of a configuration.
const (
	// MaxJobName is the longest name of a job, in bytes.
	MaxJobName = 200
	// MaxShardingTotalCount is the highest number of items.
	MaxShardingTotalCount = 1_000_000
	// MaxConfigurationYAML is the largest document that is written, in bytes.
	MaxYAML = 512 << 10
)

// FieldError is a problem with one field of a configuration. It names the
// value that was found and what was expected.
type FieldError struct {
	// Field is the field's key as in ElasticJob's document, such as "shardingTotalCount" or
	// "props.wasm.timeout"; empty if the problem concerns the whole configuration.
	Field string
	// Problem says what is wrong, without the field's name.
	Problem string
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

// FieldErrors returns all field errors that an error joins or wraps. One without a field counts those that
// [words.Problems] left out.
func FieldErrors(err error) []*FieldError {
	if f, ok := err.(*FieldError); ok {
		return []*FieldError{f}
	}
	if words.Rest(err) > 0 {
		return []*FieldError{{"", err.Error()}}
	}
	var list []*FieldError
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			list = append(list, FieldErrors(inner)...)
		}
	case interface{ Unwrap() error }:
		list = FieldErrors(e.Unwrap())
	}
	return list
}

// The error handlers, by their ElasticJob names.
const (
	// HandlerLog logs an error; it is the default.
	HandlerLog = "LOG"
	// HandlerThrow fails the whole fire with the error.
	HandlerThrow = "THROW"
	// HandlerIgnore drops the error.
	HandlerIgnore = "IGNORE"
	// HandlerEmail, HandlerWeChat and HandlerDingTalk log the error; hosts with an alerts file also send it by
	// the file's route for that handler.
	HandlerEmail    = "EMAIL"
	HandlerWeChat   = "WECHAT"
	HandlerDingTalk = "DINGTALK"
)

// ErrorHandler returns the configuration's error handler, LOG if it names none. The error lists the valid
// names.
func (c Configuration) ErrorHandler() (string, error) {
	name := strings.ToUpper(c.JobErrorHandlerType)
	switch name {
	case "":
		return HandlerLog, nil
	case HandlerLog, HandlerThrow, HandlerIgnore, HandlerEmail, HandlerWeChat, HandlerDingTalk:
		return name, nil
	}
	return HandlerLog, fmt.Errorf("found %q, expected LOG, THROW, IGNORE, EMAIL, WECHAT or DINGTALK", Clip(c.JobErrorHandlerType))
}

// StrategyName returns the stored name of a sharding strategy, for its name in any case or for ElasticJob's
// Java class. The error lists the valid names.
func StrategyName(name string) (string, error) {
	_, stored, err := strategy.ByName(name)
	return stored, err
}

// Validate checks everything that the configuration alone shows, except cron and time zone, which the schedule
// checks. The error joins a [*FieldError] for each problem, up to [words.MostProblems], and counts the others.
// Item parameters are checked by Java's rule; see CheckItemParameters for the strict one.
func (c Configuration) Validate() error {
	var problems words.Problems
	bad := func(field, format string, args ...any) {
		if problems.Full() {
			problems.Count(1)
			return
		}
		problems.Add(&FieldError{field, fmt.Sprintf(format, args...)})
	}
	if err := CheckJobName(c.JobName); err != nil {
		bad("jobName", "%v", err)
	}
	if n := c.ShardingTotalCount; n < 1 || n > MaxShardingTotalCount {
		bad("shardingTotalCount", "found %d, expected a number of items from 1 to %d", n, MaxShardingTotalCount)
	}
	if _, err := ParseItemParameters(c.ShardingItemParameters); err != nil {
		bad("shardingItemParameters", "%v", err)
	}
	if _, err := StrategyName(c.JobShardingStrategyType); err != nil {
		bad("jobShardingStrategyType", "%v", err)
	}
	if _, err := c.ErrorHandler(); err != nil {
		bad("jobErrorHandlerType", "%v", err)
	}
	if k := c.JobExecutorThreadPoolKey; k != "" && k != keyThreadPool && k != keyThreadPoolBefore305 {
		bad("", "found %q as the key of the thread pool, expected %s or %s", Clip(k), keyThreadPool, keyThreadPoolBefore305)
	}
	if c.ExtraConfigurations != "" {
		if err := checkExtra(c.ExtraConfigurations); err != nil {
			bad(keyExtraConfigurations, "%v", err)
		}
	}
	c.checkTexts(bad)
	g, err := c.Guest()
	problems.Add(err)
	problems.Add(c.checkArguments(g))
	size := c.textSize()
	if size <= MaxYAML { // otherwise it may be too large to be written at all
		size = len(c.YAML())
	}
	if size > MaxYAML {
		bad("", "the configuration takes %d bytes in the registry, expected at most %d", size, MaxYAML)
	}
	return problems.Err()
}

// CheckJobName checks that a job's name is valid as a node of the registry and as a part of a task id, and is
// readable.
func CheckJobName(name string) error {
	switch {
	case name == "":
		return errors.New("found nothing, expected a name")
	case len(name) > MaxJobName:
		return fmt.Errorf("found %d bytes, expected at most %d", len(name), MaxJobName)
	case name == "." || name == "..":
		return fmt.Errorf("found %q, which is no name for a node of the registry", name)
	case strings.Contains(name, "/"):
		return fmt.Errorf("found %q, expected a name without a slash", name)
	case strings.Contains(name, "@-@") || strings.HasSuffix(name, "@-"):
		return fmt.Errorf("found %q, expected a name without @-@, which separates the parts of a task id, and without @- at the end", name)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("found %q, expected a name without blanks around it", name)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("found %q, expected UTF-8", name)
	}
	for _, r := range name {
		if r < ' ' || (0x7F <= r && r < 0xA0) || isLineBreak(r) {
			return fmt.Errorf("found %q, expected a name without control characters", name)
		}
		if (0xD800 <= r && r <= 0xF8FF) || r >= 0xFFF0 { // registry.CheckPath refuses these, too
			return fmt.Errorf("found %q, expected a name without %U: ZooKeeper takes nothing beyond U+FFEF in a path (emoji, rare Chinese characters), and no characters of private use", name, r)
		}
	}
	return nil
}

// checkTexts refuses texts that a YAML document cannot hold.
func (c Configuration) checkTexts(bad func(field, format string, args ...any)) {
	check := func(field, s string) {
		switch {
		case !utf8.ValidString(s):
			bad(field, "found %q, expected UTF-8", Clip(s))
		case !printable(s) || strings.ContainsAny(s, "\u0085\uFEFF"): // YAML readers change these two
			bad(field, "found %q, expected a text without control characters", Clip(s))
		}
	}
	for key, text := range c.texts() {
		if s, known := keyed(key); known && (key == "jobName" || s.canonical != nil) {
			continue // Validate has checked these already
		}
		check(key, text)
	}
	for i, listener := range c.JobListenerTypes {
		check(fmt.Sprintf("jobListenerTypes[%d]", i), listener)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Props)) {
		check("props", key)
		check("props."+Clip(key), c.Props[key])
	}
}

// texts yields the texts of the settings and of the thread pool, by key.
func (c Configuration) texts() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, s := range settings {
			text := ""
			switch p := s.In(&c, &Guest{}).(type) {
			case *string:
				text = *p
			case **string:
				if *p != nil {
					text = **p
				}
			}
			if text != "" && !yield(s.Key, text) {
				return
			}
		}
		if c.JobExecutorThreadPoolValue != "" {
			yield(c.JobExecutorThreadPoolKey, c.JobExecutorThreadPoolValue)
		}
	}
}

// textSize is the size of all texts, in bytes. With aliases it can be much larger than the document.
func (c Configuration) textSize() int {
	size := len(c.ExtraConfigurations)
	for _, text := range c.texts() {
		size += len(text)
	}
	for _, listener := range c.JobListenerTypes {
		size += len(listener)
	}
	for key, value := range c.Props {
		size += len(key) + len(value)
	}
	return size
}

// checkExtra checks that the text can stand below its key.
func checkExtra(text string) error {
	root, err := parseYAML([]byte(keyExtraConfigurations + ":\n" + text))
	if err != nil {
		return err
	}
	if list := root.Content[1]; len(root.Content) != 2 || list.Kind != yaml.SequenceNode || list.Style&yaml.FlowStyle != 0 {
		return errors.New("expected a list in block form, as it stands below its key")
	}
	return nil
}
