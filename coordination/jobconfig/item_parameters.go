package jobconfig

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// ParseItemParameters reads "0=Beijing,1=Shanghai" by ElasticJob's rule: blanks around entries, items and
// parameters are trimmed, trailing commas are ignored, the later of two entries for one item wins, and an item
// may be any 32-bit integer, whether the job has it or not. A parameter cannot be empty and cannot contain a
// comma or an equals sign. The error names the first malformed entry.
func ParseItemParameters(s string) (map[int]string, error) {
	parameters := map[int]string{}
	if s == "" {
		return parameters, nil
	}
	for _, entry := range javaSplit(s, ",") {
		item, parameter, err := itemParameter(entry)
		if err != nil {
			return nil, err
		}
		parameters[item] = parameter
	}
	return parameters, nil
}

// CheckItemParameters applies the strict rule for definition files: it refuses what ParseItemParameters
// refuses, an empty entry, a second entry for an item, and an entry for an item that a job of total items does
// not have. The error joins the first problems and counts the others.
func CheckItemParameters(s string, total int) error {
	if s == "" {
		return nil
	}
	var problems words.Problems
	first := map[int]string{}
	for entry := range strings.SplitSeq(s, ",") {
		item, parameter, err := itemParameter(entry)
		if err == nil && strings.Count(entry, "=") != 1 { // Java drops empty pieces at the end
			err = malformed(entry)
		}
		if err != nil {
			problems.Add(err)
			continue
		}
		if before, twice := first[item]; twice {
			problems.Addf("item %d has two parameters, %q and %q", item, Clip(before), Clip(parameter))
			continue
		}
		first[item] = parameter
		if item < 0 || item >= total {
			problems.Addf("%q is for item %d, but the job has %s", Clip(javaTrim(entry)), item, itemRange(total))
		}
	}
	return problems.Err()
}

func itemRange(total int) string {
	switch {
	case total <= 0:
		return "no items"
	case total == 1:
		return "only item 0"
	}
	return fmt.Sprintf("only items 0 to %d", total-1)
}

func itemParameter(entry string) (int, string, error) {
	entry = javaTrim(entry)
	if entry == "" {
		return 0, "", errors.New("an entry is empty, expected item=parameter")
	}
	parts := javaSplit(entry, "=")
	if len(parts) != 2 {
		return 0, "", malformed(entry)
	}
	text := javaTrim(parts[0])
	item, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, "", fmt.Errorf("found %q, expected item=parameter, where the item is a whole number, not %q", Clip(entry), Clip(text))
	}
	return int(item), javaTrim(parts[1]), nil
}

func malformed(entry string) error {
	return fmt.Errorf("found %q, expected item=parameter, the parameter not empty and without an equals sign", Clip(javaTrim(entry)))
}

// javaSplit is Java's String.split: empty pieces at the end are dropped.
func javaSplit(s, separator string) []string {
	pieces := strings.Split(s, separator)
	for len(pieces) > 0 && pieces[len(pieces)-1] == "" {
		pieces = pieces[:len(pieces)-1]
	}
	return pieces
}

// javaTrim is Java's String.trim.
func javaTrim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
}
