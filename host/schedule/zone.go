package schedule

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // so that every host knows every zone, whatever its system has

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// zoneNames are the names of the IANA zones, one on a line: what Go's own
// time zone data has. They find misspelt ones; the data itself comes from the
// system or from time/tzdata.
//
//go:embed zones.txt
var zoneNames string

// Zone finds a time zone by its IANA name, or as ElasticJob writes it: GMT, GMT+8, GMT+0800, GMT-03:30. Empty
// is the host's own zone. An error suggests similar names.
//
// GMT+8 is east of Greenwich, as people write it; the IANA name Etc/GMT+8 is west.
func Zone(name string) (*time.Location, error) {
	if name == "" {
		return time.Local, nil
	}
	if len(name) > longestZone {
		return nil, fmt.Errorf("time zone %q...: unknown, and %d characters long", name[:longestZone], len(name))
	}
	if offset, ok := offsetFromGMT(name); ok {
		return time.FixedZone(name, offset), nil
	}
	if knownZone(name) || laterZone(name) {
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	if name == "Local" {
		return nil, fmt.Errorf("time zone %q: leave it empty for the host's own zone", name)
	}
	suggestion := "; known are IANA names, such as Europe/Berlin, and GMT+08:00"
	if near := nearZones(name); len(near) > 0 {
		suggestion = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return nil, fmt.Errorf("time zone %q: unknown%s", name, suggestion)
}

const longestZone = 64

// offsetFromGMT accepts what Java accepts as an offset, except what Java silently reads as plain GMT.
func offsetFromGMT(name string) (seconds int, ok bool) {
	if !strings.HasPrefix(name, "GMT") {
		return 0, false // most zones are names, and the expression is slow
	}
	m := regexp.MustCompile(`^GMT([+-])(\d{1,2})(?::?(\d{2}))?$`).FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	hours, _ := strconv.Atoi(m[2])
	minutes, _ := strconv.Atoi(m[3]) // none: 0
	if hours > 23 || minutes > 59 {
		return 0, false
	}
	seconds = hours*3600 + minutes*60
	if m[1] == "-" {
		seconds = -seconds
	}
	return seconds, true
}

func knownZone(name string) bool {
	return !strings.Contains(name, "\n") && strings.Contains("\n"+zoneNames, "\n"+name+"\n")
}

// laterZone reports whether a name may be a zone newer than zoneNames, which the system's data may have. It
// excludes other files in the system's directory, the copies with leap seconds, and a known name in other case,
// which only some file systems would find.
func laterZone(name string) bool {
	area, _, found := strings.Cut(name, "/")
	if !found || area == "posix" || area == "right" {
		return false
	}
	for known := range strings.Lines(zoneNames) {
		if strings.EqualFold(strings.TrimSpace(known), name) {
			return false
		}
	}
	return true
}

// nearZones returns at most three similar names, the likeliest first.
func nearZones(name string) []string {
	wanted := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), " ", "_"))
	for _, prefix := range []string{"gmt", "utc", ""} {
		rest, found := strings.CutPrefix(wanted, prefix)
		if rest = strings.TrimLeft(rest, "_"); digits(rest) {
			rest = "+" + rest
		}
		if _, ok := offsetFromGMT("GMT" + rest); ok && found {
			return []string{"GMT" + rest}
		}
	}
	if meant := commonly(wanted); meant != nil {
		return meant
	}
	type near struct {
		name     string
		distance int
	}
	var found []near
	_, wantedCity := cutCity(wanted)
	for known := range strings.Lines(zoneNames) {
		known = strings.TrimSpace(known)
		lower := strings.ToLower(known)
		area, city := cutCity(lower)
		d := words.Edits(wanted, lower)
		if area != "etc" {
			// A known city is enough, whatever is before it.
			d = min(d, words.Edits(wantedCity, city)+1)
		}
		if lower == wanted {
			d = -1
		}
		if d <= max(1, len(wanted)/5) {
			found = append(found, near{known, d})
		}
	}
	slices.SortStableFunc(found, func(a, b near) int { return cmp.Compare(a.distance, b.distance) })
	var names []string
	for _, f := range found {
		if f.distance > found[0].distance || len(names) == 3 {
			break
		}
		names = append(names, f.name)
	}
	return names
}

func cutCity(zone string) (area, city string) {
	i := strings.LastIndexByte(zone, '/')
	return zone[:max(i, 0)], zone[i+1:]
}

// commonly returns the zones that people mean by an abbreviation, which is no zone's name (it stands for a part
// of the year, or for several zones), or by a city without a zone.
func commonly(wanted string) []string {
	switch wanted {
	case "pst", "pdt":
		return []string{"America/Los_Angeles"}
	case "mdt":
		return []string{"America/Denver"}
	case "cst":
		return []string{"America/Chicago", "Asia/Shanghai"}
	case "cdt":
		return []string{"America/Chicago"}
	case "edt":
		return []string{"America/New_York"}
	case "bst":
		return []string{"Europe/London"}
	case "cest":
		return []string{"Europe/Berlin", "Europe/Paris"}
	case "eest":
		return []string{"Europe/Athens", "Europe/Kyiv"}
	case "msk":
		return []string{"Europe/Moscow"}
	case "ist":
		return []string{"Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"}
	case "jst":
		return []string{"Asia/Tokyo"}
	case "kst":
		return []string{"Asia/Seoul"}
	case "hkt":
		return []string{"Asia/Hong_Kong"}
	case "sgt":
		return []string{"Asia/Singapore"}
	case "aest", "aedt":
		return []string{"Australia/Sydney"}
	case "asia/beijing", "beijing", "asia/guangzhou", "guangzhou", "asia/shenzhen", "shenzhen":
		return []string{"Asia/Shanghai"}
	case "z":
		return []string{"UTC"}
	}
	return nil
}
