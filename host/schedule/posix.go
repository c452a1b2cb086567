package schedule

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// OwnZone is the zone that a value of the environment variable TZ names: an IANA name, an absolute file name,
// or a rule of POSIX such as CST-8 or EST5EDT,M3.2.0,M11.1.0, each with or without a colon before it. Empty is
// UTC. In POSIX the sign is reversed: CST-8 is east of Greenwich, and GMT+8 west of it. The location's name is
// "Local". Where Go treats an unreadable value as UTC, OwnZone returns an error that says what was found.
func OwnZone(tz string) (*time.Location, error) {
	name := strings.TrimPrefix(tz, ":")
	if name == "" {
		return fixedData("UTC0")
	}
	if filepath.IsAbs(name) {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("time zone file %s: %w", words.Clip(name), err)
		}
		return time.LoadLocationFromTZData("Local", data)
	}
	if posixZone.MatchString(name) && !knownZone(name) {
		return fixedData(name)
	}
	loc, err := Zone(name)
	if err == nil && strings.HasPrefix(name, "GMT") && !knownZone(name) {
		err = fmt.Errorf("time zone %q: its sign has two meanings; expected an IANA name, or <+08>-8 for eight hours east of Greenwich", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; a rule of POSIX, such as CST-8 or EST5EDT,M3.2.0,M11.1.0, is understood as well", err)
	}
	return loc, nil
}

// Published is the zone's name. For a host's own zone, which is "Local" everywhere, it adds the offsets in
// January and July of the year, so that hosts can see that theirs differ.
func Published(zone *time.Location, year int) string {
	name := zone.String()
	if zone != time.Local {
		return name
	}
	offset := func(month time.Month) string { return time.Date(year, month, 1, 0, 0, 0, 0, zone).Format("-07:00") }
	if january, july := offset(time.January), offset(time.July); january != july {
		return name + " (" + january + ", " + july + " in July)"
	}
	return name + " (" + offset(time.January) + ")"
}

// posixZone is a TZ rule of POSIX: a name and an offset, and if there is a summer time, its
// name, its offset, and the two days on which it begins and ends.
var posixZone = regexp.MustCompile(`^` + posixName + posixOffset + `(` + posixName + `(` + posixOffset + `)?(,` + posixDay + `,` + posixDay + `)?)?$`)

const (
	posixName   = `([A-Za-z]{3,16}|<[A-Za-z0-9+-]{3,16}>)`
	posixOffset = `[+-]?(2[0-4]|1?\d|0\d)(:[0-5]\d){0,2}`
	posixDay    = `(J?\d{1,3}|M(1[0-2]|[1-9])\.[1-5]\.[0-6])(/[+-]?\d{1,3}(:[0-5]\d){0,2})?`
)

// fixedData makes the zone data for a rule. Go reads a rule at the end of a zone's data, for times after the
// last change in the data: this data has no changes.
func fixedData(rule string) (*time.Location, error) {
	var b bytes.Buffer
	for range 2 { // a block of 32-bit times, and one of 64-bit times
		b.WriteString("TZif2" + strings.Repeat("\x00", 15))
		for _, n := range []uint32{0, 0, 0, 0, 1, 4} { // one zone, whose name has 4 bytes
			_ = binary.Write(&b, binary.BigEndian, n)
		}
		b.WriteString("\x00\x00\x00\x00\x00\x00UTC\x00")
	}
	b.WriteString("\n" + rule + "\n")
	return time.LoadLocationFromTZData("Local", b.Bytes())
}
